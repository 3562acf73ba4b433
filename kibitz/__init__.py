"""kibitz: strategy games in which agents learn with an adviser in their ear and anyone can watch.

Importing this package is cheap: it registers games and environments by name and loads everything else on
first use. All code lives in the sub-packages.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import gymnasium

from kibitz.core import registry

if TYPE_CHECKING:
    from kibitz.advice.gym_wrapper import HintInjectorEnv
    from kibitz.core.bots import Bot
    from kibitz.core.check import check_game
    from kibitz.core.errors import BadInput
    from kibitz.core.game import Game
    from kibitz.core.play.player import Choice, Turn
    from kibitz.core.registry import load_game as get_game
    from kibitz.evaluate.library import load_policy, play_episode, player_named
    from kibitz.games.cricket.envs.tool_env import CricketEnvironment
    from kibitz.games.deal_or_no_deal.envs.gym_env import NegotiationEnv
    from kibitz.live.episodes.remote_driver import watch
    from kibitz.studies.compare import compare

__version__ = "0.1.0"

# Public names and where they are; loaded on first use. `evaluate` and `train` are packages that can be called.
_LATE = {
    "BadInput": "kibitz.core.errors",
    "Bot": "kibitz.core.bots",
    "Choice": "kibitz.core.play.player",
    "CricketEnvironment": "kibitz.games.cricket.envs.tool_env",
    "Game": "kibitz.core.game",
    "HintInjectorEnv": "kibitz.advice.gym_wrapper",
    "NegotiationEnv": "kibitz.games.deal_or_no_deal.envs.gym_env",
    "Turn": "kibitz.core.play.player",
    "check_game": "kibitz.core.check",
    "compare": "kibitz.studies.compare",
    "get_game": "kibitz.games",
    "load_policy": "kibitz.evaluate.library",
    "play_episode": "kibitz.evaluate.library",
    "player_named": "kibitz.evaluate.library",
    "watch": "kibitz.live.episodes.remote_driver",
}
_PACKAGES = ("evaluate", "hints", "live", "train")
__all__ = [
    "BadInput",
    "Bot",
    "Choice",
    "CricketEnvironment",
    "Game",
    "HintInjectorEnv",
    "NegotiationEnv",
    "Turn",
    "check_game",
    "compare",
    "evaluate",
    "get_game",
    "hints",
    "load_policy",
    "play_episode",
    "player_named",
    "train",
    "watch",
]


def _register_environments() -> None:
    """Registers each `NameEnv` with the `NameVectorEnv` of its module, and the generic pair for every game.

    Gymnasium adds no wrappers: they would hide `action_masks()`, and the environments check order and actions
    themselves.
    """
    bare: dict[str, Any] = {"order_enforce": False, "disable_env_checker": True}
    for env_id, entry in registry.registered(registry.ENVS).items():
        vector = f"{entry.value.removesuffix('Env')}VectorEnv"
        gymnasium.register(id=env_id, entry_point=entry.value, vector_entry_point=vector, **bare)
    for name in registry.game_names():
        gymnasium.register(
            id=registry.generic_env_id(name),
            entry_point="kibitz.core.envs.gym_env:GameEnv",
            vector_entry_point="kibitz.core.envs.gym_vector:GameVectorEnv",
            kwargs={"game": name},
            **bare,
        )


_register_environments()


def __dir__() -> list[str]:
    return sorted({*__all__, *_PACKAGES, "__version__"})


def __getattr__(name: str) -> Any:
    if name in _LATE:
        return getattr(import_module(_LATE[name]), name)
    if name in _PACKAGES:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module 'kibitz' has no attribute {name!r}")
