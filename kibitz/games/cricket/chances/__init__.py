"""Win probability and what follows from it: solved innings, tables for shaping, regret. `fitting` fits the rates."""
