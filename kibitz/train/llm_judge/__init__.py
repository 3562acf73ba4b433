"""Training for a style that a language model judges: compiled rollouts, with questions about ended episodes between."""
