"""The foundation of every game, player and trainer. Code about a particular game is in `games`."""
