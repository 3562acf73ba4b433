"""Players that run on the host: people and language models. `core.play.resolve` turns names into players."""

from kibitz.core.play.resolve import player_named

__all__ = ["player_named"]
