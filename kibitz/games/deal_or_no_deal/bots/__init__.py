"""The negotiation's bots: heuristic partners and the Bayesian reference."""
