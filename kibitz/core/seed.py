"""The range of seeds; separate from `chance`, so that the command line does not load JAX for it."""

LAST_SEED = 2**63 - 1  # larger seeds would collide
