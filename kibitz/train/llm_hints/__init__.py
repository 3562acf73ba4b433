"""Training whose adviser is a language model: questions between compiled steps, and what they cost."""
