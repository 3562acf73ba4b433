"""Recorded episodes as rows for other tools: what each seat saw, answered and earned. Training rows: `examples`."""
