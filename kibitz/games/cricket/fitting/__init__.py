"""From real matches to `model/calibration.json`, and how true the result is. Nothing here runs during a match."""
