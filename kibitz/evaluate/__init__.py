"""How good is a player? Matches, statistics, reports."""
