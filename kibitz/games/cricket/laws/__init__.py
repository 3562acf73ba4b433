"""A match as pure functions: state, start, step, view. How likely a ball is comes from `model`."""
