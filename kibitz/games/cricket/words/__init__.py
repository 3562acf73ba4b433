"""A match in words: prompts, parsing, commentary. `drawing` makes the frames."""
