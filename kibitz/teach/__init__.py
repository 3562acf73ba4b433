"""Teaching a language model a game: examples from any expert, fine-tuning, export. Training needs `kibitz[teach]`."""
