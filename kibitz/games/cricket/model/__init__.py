"""One delivery and what shapes it: calibration, tactics, par. Matches are in `laws`, fitting in `fitting`."""
