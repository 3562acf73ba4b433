"""Who plays: ratings, names, rosters, bowling orders. How they are captained is in `captains`."""
