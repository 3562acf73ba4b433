"""Commentary by a language model, and commentary as sound. The lines themselves come from the game."""
