"""What a model may answer: prompt, grammar, parser, confidence. `client` does the asking."""
