"""Training with hints from a language model: questions between compiled steps, and what they cost."""
