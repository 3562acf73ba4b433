"""A match in words: prompts, parsing, commentary. Frames are in `drawing`."""
