"""What every game, player and trainer stands on; knows no particular game."""
