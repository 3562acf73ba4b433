"""Fits the models in `model` to real matches, simulates and reports accuracy. Nothing here runs during a match."""
