"""Styles of play: what an episode shows about a seat, as pure functions and in words for a judge."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax import Array

from kibitz.core.act import Act, Masks
from kibitz.core.bots import Bot
from kibitz.core.errors import BadInput

if TYPE_CHECKING:
    from kibitz.core.game import Game

PLAYER, OTHER = "Alice", "Bob"  # the judged seat and the other one, in transcripts and questions
PREFIX = "style_"  # of a style among an episode's scores


@dataclass(frozen=True)
class PlayStyles:
    """The ground truth about one seat's play. A game without styles has no questions.

    `notes` is whatever the functions remember of an episode: a tree of arrays of fixed shapes, so that styles are
    known inside compiled programs.
    """

    questions: Mapping[str, str] = field(default_factory=dict)  # by style: what a judge is asked about Alice
    start: Callable[[Any, int], Any] = lambda settings, seat: ()  # settings, seat -> notes
    watch: Callable[[Any, Any, Any, Act], Any] = lambda settings, notes, view, act: notes
    """settings, notes, the seat's view, its act there -> notes."""
    shown: Callable[[Any, Any, Any, int], Mapping[str, Array]] = lambda settings, notes, state, seat: {}
    """settings, notes, final state, seat -> bool[] for each style."""
    measures: Callable[[Any, Any, Any, int], Mapping[str, Array]] = lambda settings, notes, state, seat: {}
    """settings, notes, final state, seat -> f32[] each: what a table of styles shows besides the game's scores."""
    transcript: Callable[[Any, Any, Sequence[Mapping[str, Any]], int], str] = lambda settings, state, history, seat: ""
    """settings, final state, {"seat", "act"} of every act, the judged seat -> the episode in words."""
    published: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # a paper's figures: style -> measure

    def __bool__(self) -> bool:
        return bool(self.questions)

    def names(self, names: Sequence[str] = (), game: str = "This game") -> list[str]:
        """These styles, or all; BadInput for one that the game does not offer."""
        if not self:
            raise BadInput(f"{game} offers no styles; use reward.mode payoff, or a game whose record has them.")
        for name in names:
            if name not in self.questions:
                raise BadInput(f"{game} has no style {name!r}; choose one of {', '.join(self.questions)}.")
        return list(names or self.questions)


def style_scores(game: Game, settings: Any, notes: Sequence[Any], state: Any) -> dict[str, Array]:
    """f32[2] each: every style and measure of both seats at the end of an episode."""
    styles = game.styles
    shown = [styles.shown(settings, own, state, seat) for seat, own in enumerate(notes)]
    more = [styles.measures(settings, own, state, seat) for seat, own in enumerate(notes)]
    scores = {PREFIX + name: [one[name] for one in shown] for name in styles.questions}
    scores |= {name: [one[name] for one in more] for name in more[0]}
    return {name: jnp.stack([jnp.asarray(x, jnp.float32) for x in pair]) for name, pair in scores.items()}


@lru_cache(maxsize=64)
def watched(game: Game, bot: Bot) -> Bot:
    """The same bot; its memory is a pair of its own and the notes about its play."""
    styles = game.styles

    def start(settings: Any, seat: int, u: Array) -> Any:
        return bot.start(settings, seat, u), styles.start(settings, seat)

    def choose(settings: Any, memory: Any, view: Any, masks: Masks, u: Array) -> tuple[Any, Act]:
        own, act = bot.choose(settings, memory[0], view, masks, u)
        return (own, styles.watch(settings, memory[1], view, act)), act

    blank = jax.eval_shape(lambda settings: styles.start(settings, 0), game.default_settings)
    return replace(bot, choose=choose, start=start, bit_widths=(bot.bit_widths, jax.tree.map(lambda leaf: 0, blank)))
