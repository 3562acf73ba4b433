"""What a model may answer: grammar and parser, confidence, prompts. Asking it is in `client`."""
