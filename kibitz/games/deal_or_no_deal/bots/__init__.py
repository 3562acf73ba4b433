"""The negotiation's bots: heuristic partners and the Bayesian reference. Trained policies come from `train`."""
