"""The range of seeds, and new ones; separate from `chance`, so that the command line does not load JAX for it."""

import secrets

LAST_SEED = 2**63 - 1  # larger seeds would collide


def fresh_seed() -> int:
    """63 bits from a secure source: with fewer, trying them all would reveal an episode's hidden values and luck."""
    return secrets.randbelow(LAST_SEED + 1)
