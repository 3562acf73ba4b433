"""Fits `model/calibration.json` to real matches, simulates and reports accuracy. Nothing here runs during a match."""
