"""Tournaments: the field, the games, the journal that survives a crash, ratings. Reports are written by `reports`."""
