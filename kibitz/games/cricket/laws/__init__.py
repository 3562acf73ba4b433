"""A match as pure functions: state, start, step, view. `model` gives the probabilities of a ball."""
