"""Commands that answer questions with many games."""
