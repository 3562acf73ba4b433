"""The sides: ratings, names, rosters and bowling orders. `captains` decides how they play."""
