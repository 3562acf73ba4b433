"""What people see of a negotiation: frames and the review at its end. Prompts and parsing are in `words.py`."""
