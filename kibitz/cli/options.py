"""Options that several commands share, and the game they select."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from kibitz.core import registry
from kibitz.core.system.seed import LAST_SEED
from kibitz.games import DEFAULT_GAME as DEFAULT_GAME

Hint = Literal["none", "own"]
GameName = Annotated[
    str, typer.Option("--game", help="Game to play; see `kibitz list games`", autocompletion=registry.game_names)
]
Opponent = Annotated[
    str | None,
    typer.Option(
        "--opponent",
        help="Player in the other seat; see `kibitz list players`; default: the game's",
        show_default=False,
    ),
]
PromptPath = Annotated[
    str | None, typer.Option("--prompt", help="Prompt template; default: the game's", show_default=False)
]
Contexts = Annotated[str, typer.Option("--contexts", help="Starting positions: uniform, or a file")]
Seed = Annotated[int, typer.Option("--seed", min=0, max=LAST_SEED, help="Seed; the same seed gives the same episodes")]
OneSeed = Annotated[int | None, typer.Option("--seed", min=0, max=LAST_SEED, help="Replay the episode with this seed")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object to standard output and nothing else")]
GameOptions = Annotated[
    list[str] | None, typer.Option("--set", help="Game option as name=value; see `kibitz list keys`; repeatable")
]
Workers = Annotated[
    int | None,
    typer.Option("--workers", min=1, help="Local processes that share the work; default: 1", show_default=False),
]
RayAddress = Annotated[
    str | None,
    typer.Option("--ray", help="Ray cluster that does the work: its address, or local", show_default=False),
]
JobOptions = Annotated[
    list[str] | None,
    typer.Option("--set", help="Config key as name=value, e.g. train.lr=1e-3; see `kibitz list keys`; repeatable"),
]


def read_game(name: str, settings: list[str] | None, contexts: str | None = None) -> tuple[Any, Any]:
    """The game's record, built for the options given, and those options, validated."""
    from kibitz.core.options import parse_settings
    from kibitz.games import get_game

    base = get_game(name)
    given = {**({} if contexts is None else base.contexts(contexts)), **parse_settings(settings or [])}
    options = base.options.read(given, f"option of {name}")
    return get_game(name, options), options
