"""Win probability and what follows from it: solved innings, potential, regret."""
