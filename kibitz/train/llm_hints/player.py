"""A trained policy that hears a language model as it did in training: `kibitz evaluate --hint own`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from kibitz.advice.ask import Position, PositionAsker
from kibitz.advice.features import Hint, HintEncoder
from kibitz.core.act import Masks
from kibitz.core.game import Game
from kibitz.core.play.player import Choice, Turn, known_seat


class HintedPolicy:
    """A player on the host, because its adviser is. A question that fails leaves it without a hint."""

    def __init__(
        self, game: Game, policy: Any, name: str, asker: PositionAsker, cadence: int, hints_from: str, pinned: str = ""
    ) -> None:
        """`pinned` is that of `Bot`."""
        self.name, self.asker, self.hints_from, self.pinned = name, asker, hints_from, pinned
        self._cadence, self._turns = cadence, 0
        self._adapter = HintEncoder(game)

        def best(settings: Any, view: Any, masks: Masks, hint: Hint, seat: int) -> Array:
            features = game.learning.features(settings, known_seat(view, seat))
            return jnp.stack(policy.decide(self._adapter(features, hint, masks), masks)[0])

        self._best = jax.jit(best, static_argnums=4)

    def hint_counts(self) -> dict[str, Any]:
        """Questions so far, and those that brought no hint, by kind of failure."""
        ledger = self.asker.ledger
        return {"hints_asked": ledger.asked, "hints_failed": dict(ledger.failures)}

    def begin(self, settings: Any, seat: int, luck: Array) -> None:
        self._turns = 0

    def choose(self, turn: Turn) -> Choice:
        hint, latency = self._adapter.no_hint(jnp.int32(0)), 0.0
        usage: dict[str, float] = {}
        if self._turns % self._cadence == 0:
            advice = self.asker.ask([Position(turn.settings, turn.view, turn.masks, turn.history)])[0]
            usage, latency = asdict(advice.reply.usage), advice.reply.latency
            if advice.act is not None:
                hint = Hint(tuple(map(jnp.int32, advice.act)), jnp.float32(advice.confidence), jnp.bool_(True))
        self._turns += 1
        masks = tuple(map(jnp.asarray, turn.masks))
        act = self._best(turn.settings, turn.view, masks, hint, turn.seat)
        return Choice(tuple(np.asarray(act).tolist()), self.name, latency=latency, usage=usage)
