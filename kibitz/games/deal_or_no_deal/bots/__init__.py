"""Players of the negotiation that are pure functions: partners and the Bayesian reference. Rules are in `rules.py`."""
