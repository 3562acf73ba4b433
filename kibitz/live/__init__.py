"""The live server and its page, for watching episodes while they are played. Needs the extra `live`.

`app` builds the server and `serve` runs it; `store` keeps events, `stream` carries them to watchers, `episodes` plays,
`voice` comments, `http` and `openenv` answer requests. The names below are public; everything else may change.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kibitz.games.cricket.captains.tool_models import to_ui_frame
    from kibitz.live.app import create_app
    from kibitz.live.config import LiveConfig
    from kibitz.live.episodes.runner import is_running, run_episode_in_proc
    from kibitz.live.stream.bus_observer import BusObserver
    from kibitz.live.voice.speech import CartesiaTTS

__all__ = [
    "BusObserver",
    "CartesiaTTS",
    "LiveConfig",
    "create_app",
    "is_running",
    "run_episode_in_proc",
    "to_ui_frame",
]

# Loaded on first use: the server's modules need seconds to import.
_MODULES = {
    "BusObserver": "kibitz.live.stream.bus_observer",
    "CartesiaTTS": "kibitz.live.voice.speech",
    "LiveConfig": "kibitz.live.config",
    "create_app": "kibitz.live.app",
    "is_running": "kibitz.live.episodes.runner",
    "run_episode_in_proc": "kibitz.live.episodes.runner",
    "to_ui_frame": "kibitz.games.cricket.captains.tool_models",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'kibitz.live' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
