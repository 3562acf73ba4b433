"""Recorded episodes as rows for other tools: what each seat saw, was asked, answered and earned."""
