"""Hints: an adviser's act as features for a learner, from bots or a language model. `train` learns with them."""
