"""From the name of a provider to what gives its hints: a bot, or a language model that is asked."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, NamedTuple

from kibitz.advice.ask import PositionAsker, prompt_path
from kibitz.core.bots import Bot
from kibitz.core.errors import BadInput
from kibitz.core.game import Game
from kibitz.core.play.resolve import bot_named
from kibitz.core.system.logs import log_once
from kibitz.llm.answers.prompt import Prompt
from kibitz.llm.presets import get_preset

log = logging.getLogger("kibitz.advice")
PROVIDERS = ("random", "expert", "llm", "llm:PRESET", "policy:RUN", "a bot of the game")


class HintProvider(NamedTuple):
    """Either `bot` or `asker` gives the hints."""

    source: str  # for `info["hint"]`
    bot: Bot | None = None
    asker: PositionAsker | None = None


def hint_provider(
    game: Game,
    provider: str,
    settings: Any = None,  # of the games, which decide whether a taught model can answer
    *,
    preset: str = "auto",  # llm: the preset; the provider `llm:PRESET` means the same
    checkpoint: str | None = None,  # expert: a run's folder or file; None: the game's reference player
    prompt: str | None = None,  # llm: a template; None: the game's own
    max_history_turns: int | None = None,
    max_prompt_chars: int | None = None,
    cache: str | Path | None = None,  # llm: a file of earlier answers
) -> HintProvider:
    """Raises BadInput for an unknown provider, preset, run or prompt."""
    if provider == "llm" or provider.startswith("llm:"):
        name = provider.removeprefix("llm").removeprefix(":") or preset
        chosen = get_preset(name, game=game.name, settings=settings)
        path = prompt or prompt_path(game, chosen)
        template = Prompt.read(path, max_history_turns=max_history_turns, max_prompt_chars=max_prompt_chars)
        return HintProvider(f"llm:{chosen.name}", asker=PositionAsker(game, chosen, prompt=template, cache=cache))
    if provider == "expert":
        bot = expert_bot(game, checkpoint)
        return HintProvider(f"expert:{bot.name}", bot)
    named = game.bots.get(provider) or (bot_named(game, provider) if ":" in provider else None)
    if named is None:
        raise BadInput(f"Unknown hint provider {provider!r}; use one of {', '.join(PROVIDERS)}.")
    return HintProvider(named.name, named)


def expert_bot(game: Game, checkpoint: str | None = None) -> Bot:
    """The bot of a checkpoint; without one the reference player. Logs its name once."""
    name = f"policy:{checkpoint}" if checkpoint else game.reference
    bot = bot_named(game, name)
    assert bot is not None  # both kinds of names are of bots
    log_once(log, f"expert hints for {game.name} come from {name}")
    return bot


def check_cadence(cadence_k: int) -> int:
    if not isinstance(cadence_k, int) or isinstance(cadence_k, bool) or cadence_k < 1:
        raise BadInput(f"cadence_k is {cadence_k!r}; it must be a whole number of at least 1.")
    return cadence_k
