"""What every game, player and trainer stands on; knows no particular game."""

from kibitz.core.setup import set_up_jax

set_up_jax()
