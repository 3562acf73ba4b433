"""Answers from many games: tournaments, hint studies, sweeps, and their reports."""
