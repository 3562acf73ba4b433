"""`kibitz bench gap`: in which of its turns, and on which contexts, a player loses to the reference.

The player makes its first k acts and the reference player continues. The fall of the mean return from k - 1 to k is
what the player's k-th act costs, with the same contexts and luck in every series.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from kibitz.core.bots import Bot, seated, where
from kibitz.core.chance import seed_key
from kibitz.core.game import Game
from kibitz.core.statistics import mean_ci95
from kibitz.core.xla.jit import jit_batch
from kibitz.evaluate.loop import match_program
from kibitz.train.rollout import max_learner_steps

QUARTERS = 4
CHUNK = 2048  # episodes in a compiled call: the reference of the negotiation needs 100 kB for each
COUNT_BITS = 8


def series_of(game: Game, settings: Any) -> int:
    """0 acts of the player, 1, and so on up to a whole episode's."""
    turns: int = min(max_learner_steps(game, settings), 2**COUNT_BITS - 1)
    return turns + 1


def run(
    game: Game,
    settings: Any,
    player: Bot,
    opponent: Bot,
    episodes: int,
    seed: int,
    progress: Callable[[int], None] = lambda count: None,
) -> dict[str, Any]:
    """Mean returns by the number of acts that the player makes, and the loss by quarter of the contexts' ceilings."""
    reference = game.bot(game.reference)
    settings = seated(settings, {1: opponent}, {0: reference})
    settings = player.precompute(settings, 0)
    episodes = -(-episodes // CHUNK) * CHUNK if episodes > CHUNK else episodes
    chunks = np.arange(episodes, dtype=np.int32).reshape(-1, min(episodes, CHUNK))

    @jit_batch
    def play(settings: Any, numbers: Array, acts: Array) -> tuple[Array, dict[str, Array]]:
        bots = (_relay(player, reference, acts), opponent)
        returns, scores = match_program(game, bots)(settings, seed_key(seed), numbers)
        return returns[:, 0], {name: value[:, 0] for name, value in scores.items() if name == "ceiling"}

    series = []
    for acts in range(series_of(game, settings)):
        parts = [jax.device_get(play(settings, numbers, np.int32(acts))) for numbers in chunks]
        series.append(np.concatenate([returns for returns, _ in parts]).astype(np.float64))
        best = [scores["ceiling"] for _, scores in parts if "ceiling" in scores]
        progress(1)
    losses = [before - after for before, after in pairwise(series)]
    found: dict[str, Any] = {
        "episodes": episodes,
        "reference": reference.name,
        "mean_return": {"reference": float(series[0].mean()), "player": float(series[-1].mean())},
        "loss_by_act": [_mean(loss) for loss in losses],
        "loss": _mean(series[0] - series[-1]),
        "episodes_with_a_loss": float((series[0] > series[-1]).mean()),
        "episodes_with_a_gain": float((series[0] < series[-1]).mean()),
    }
    if best:
        ceilings = np.concatenate(best).astype(np.float64)
        shares = (float(one.mean() / ceilings.mean()) for one in (series[0], series[-1]))
        found["share_of_ceiling"] = dict(zip(("reference", "player"), shares, strict=True))
        order = np.array_split(np.argsort(ceilings, kind="stable"), QUARTERS)
        found["loss_by_quarter_of_ceilings"] = [_mean((series[0] - series[-1])[rows]) for rows in order]
    return found


def _mean(values: NDArray[np.float64]) -> dict[str, Any]:
    mean, interval = mean_ci95(values)
    return {"mean": mean, "ci95": list(interval)}


def _relay(first: Bot, second: Bot, acts: Any) -> Bot:
    """The first bot for this many acts, then the second, which has seen the whole episode."""
    n = first.uniforms

    def start(settings: Any, seat: int, u: Array) -> Any:
        return jnp.int32(0), first.start(settings, seat, u[:n]), second.start(settings, seat, u[n:])

    def choose(settings: Any, memory: Any, view: Any, masks: Any, u: Array) -> tuple[Any, Any]:
        made, one, other = memory
        one, own = first.choose(settings, one, view, masks, u[:n])
        other, continued = second.choose(settings, other, view, masks, u[n:])
        return (jnp.minimum(made + 1, 2**COUNT_BITS - 1), one, other), where(made < acts, own, continued)

    return Bot(
        name=f"{first.name}, then {second.name}",
        choose=choose,
        start=start,
        uniforms=n + second.uniforms,
        bit_widths=(COUNT_BITS, first.bit_widths, second.bit_widths),
    )
