"""Commentary by a model and as sound. What the lines say comes from the game."""
