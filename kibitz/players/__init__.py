"""Players that live on the host: people and language models. Names become players in `core/play/resolve.py`."""

from kibitz.core.play.resolve import player_named

__all__ = ["player_named"]
