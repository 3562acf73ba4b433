"""Which seeds there are; apart from `chance`, so that the command need not load JAX to know."""

LAST_SEED = 2**63 - 1  # larger ones would not all be told apart
