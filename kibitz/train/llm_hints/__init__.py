"""Training with a language model's hints: questions between compiled steps, and their cost. `advice` asks them."""
