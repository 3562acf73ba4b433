"""Answers from many games: hint studies, sweeps, tournaments, their reports. Single evaluations are in `evaluate`."""
