"""A match in words: prompts, parsing, commentary. What is drawn is in `drawing`."""
