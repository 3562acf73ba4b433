"""One delivery and what shapes it: calibration, tactics, par. `laws` plays matches, `fitting` fits the numbers."""
