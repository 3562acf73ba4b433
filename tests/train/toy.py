"""Two arms: the smallest game with a mask, a cap and a head that does not always matter.

Each round one arm is lucky, and both seats see which. Pulling it pays 2, or 2 + stake where it is arm 1
(the stake of arm 0 does not matter, and the stake's cap changes from round to round); the seat that pulls the
lucky arm together with the other seat is paid 1 less. So every measure of a policy has a known answer.

`python -m tests.train.toy ...` is the `kibitz` command with this game in its registry.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from importlib.metadata import EntryPoint
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from pydantic import Field

from kibitz.core import registry
from kibitz.core.act import Head
from kibitz.core.bots import Bot
from kibitz.core.chance import happens, pick
from kibitz.core.game import Drawing, Game, Learning, Measures, Rules
from kibitz.core.options import Options
from kibitz.core.styles import PlayStyles
from kibitz.core.words import generic_words

NAME, ENV_ID = "two_arms", "TwoArms-v0"
HEADS = (Head("arm", 2), Head("stake", 3))
MATTERS = np.array([[True, False], [True, True]])


class ToyOptions(Options):
    rounds: int = Field(4, ge=1, le=15)
    pays: bool = True  # false: nothing is ever paid, so measures of wins are undefined
    wide: bool = False  # more features, so another network

    def settings(self) -> Settings:
        return Settings(jnp.int32(self.rounds), jnp.float32(self.pays))


class Settings(NamedTuple):
    rounds: Array
    pays: Array


class State(NamedTuple):
    lucky: Array  # i32[], the arm that pays now
    cap: Array  # i32[], the highest stake now, 0..2
    left: Array  # i32[], rounds
    won: tuple[Array, Array]  # i32[] so far
    best: tuple[Array, Array]  # i32[], what the best pulls would have won


class View(NamedTuple):
    lucky: Array
    cap: Array
    left: Array


def draw(u: Array) -> tuple[Array, Array]:
    lucky, rest = happens(u, 0.5)
    return lucky.astype(jnp.int32), pick(rest, 3)[0]


def new(settings: Settings, u: Array) -> State:
    zero = jnp.int32(0)
    return State(*draw(u[0]), jnp.asarray(settings.rounds, jnp.int32), (zero, zero), (zero, zero))


def to_act(state: State) -> Array:
    return jnp.stack([state.left > 0] * 2)


def legal(settings: Settings, state: State, seat: int) -> Any:
    return jnp.ones(2, bool), jnp.arange(3) <= state.cap


def step(settings: Settings, state: State, acts: Any, u: Array) -> tuple[State, Array, Array]:
    assert u.shape == (1,), "a step receives its own chance and no more"
    live = state.left > 0
    pays = (live & (settings.pays > 0)).astype(jnp.int32)
    hits = [(act[0] == state.lucky).astype(jnp.int32) for act in acts]
    staked = [jnp.where(act[0] == 1, jnp.minimum(act[1], state.cap), 0) for act in acts]
    gains = [pays * hits[seat] * (2 + staked[seat] - hits[1 - seat]) for seat in (0, 1)]
    best = [pays * (2 + jnp.where(state.lucky == 1, state.cap, 0) - hits[1 - seat]) for seat in (0, 1)]
    lucky, cap = draw(u[0])
    after = State(
        lucky=jnp.where(live, lucky, state.lucky),
        cap=jnp.where(live, cap, state.cap),
        left=state.left - live,
        won=tuple(state.won[seat] + gains[seat] for seat in (0, 1)),
        best=tuple(state.best[seat] + best[seat] for seat in (0, 1)),
    )
    return after, jnp.stack(gains).astype(jnp.float32), after.left <= 0


def view(settings: Settings, state: State, seat: int) -> View:
    return View(state.lucky, state.cap, state.left)


def features(settings: Settings, view: View, wide: bool) -> Array:
    numbers = [view.lucky, view.cap / 2, view.left / 15]
    return jnp.stack([*numbers, *numbers] if wide else numbers).astype(jnp.float32)


def score(settings: Settings, state: State) -> dict[str, Array]:
    won, best = (jnp.stack(pair).astype(jnp.float32) for pair in (state.won, state.best))
    return {"payoff": won, "ceiling": best, "win_size": jnp.where(won > 0, won, jnp.nan)}


def answer_fields(view: View, masks: Any) -> dict[str, Any]:
    return {"arm": [0, 1], "stake": np.flatnonzero(masks[1]).tolist(), "confidence": [0.0, 0.5, 1.0]}


def prompt_variables(settings: Any, view: View, history: Any) -> dict[str, str]:
    words = {name: str(int(value)) for name, value in view._asdict().items()}
    words |= {"rules": "", "keys": "arm, stake, confidence"}
    return words | {"history_str": "\n".join(f"{said['seat']}: {said['act']}" for said in history)}


def oracle(settings: Any, memory: Any, view: View, masks: Any, u: Array) -> Any:
    return memory, (view.lucky, view.cap)


def arm_0(settings: Any, memory: Any, view: View, masks: Any, u: Array) -> Any:
    return memory, (jnp.int32(0), jnp.int32(0))


def any_arm(settings: Any, memory: Any, view: View, masks: Any, u: Array) -> Any:
    arm, rest = pick(u[0], 2)
    return memory, (arm, pick(rest, view.cap + 1)[0])


class Notes(NamedTuple):
    pulls: Array  # i32[]
    ones: Array  # i32[], pulls of arm 1


def transcript(settings: Any, state: State, history: Any, seat: int) -> str:
    arms = [str(said["act"][0]) for said in history if said["seat"] == seat]
    return f"Alice pulled {', '.join(arms)} and won {int(state.won[seat])}."


STYLES = PlayStyles(
    questions={"bold": "Did Alice always pull arm 1?", "shy": "Did Alice never pull arm 1?"},
    start=lambda settings, seat: Notes(jnp.int32(0), jnp.int32(0)),
    watch=lambda settings, notes, view, act: Notes(notes.pulls + 1, notes.ones + (act[0] == 1)),
    shown=lambda settings, notes, state, seat: {"bold": notes.ones == notes.pulls, "shy": notes.ones == 0},
    measures=lambda settings, notes, state, seat: {"ones": notes.ones},
    transcript=transcript,
)

BOTS = (Bot("heuristic", arm_0), Bot("oracle", oracle), Bot("random", any_arm, uniforms=1))


@cache
def build(wide: bool) -> Game:
    return Game(
        name=NAME,
        heads=HEADS,
        options=ToyOptions,
        rules=Rules(
            new=new,
            to_act=to_act,
            legal=legal,
            step=step,
            view=view,
            max_steps=lambda settings: int(settings.rounds),
            simultaneous=True,
            new_uniforms=1,
            step_uniforms=1,
        ),
        learning=Learning(
            features=partial(features, wide=wide),
            matters=MATTERS,
            bit_widths=State(1, 2, 4, (7, 7), (7, 7)),
            scale=lambda settings: 2.0 * int(settings.rounds),
        ),
        bots={bot.name: bot for bot in BOTS},
        reference="oracle",
        measures=Measures(score=score),
        words=replace(generic_words(HEADS), prompt_variables=prompt_variables, answer_fields=answer_fields),
        drawing=Drawing(frame=frame),
        styles=STYLES,
        default_options=ToyOptions(wide=wide),
    )


def frame(settings: Settings, state: State) -> dict[str, Any]:
    """All of it is public in this game."""
    return {
        "lucky": int(state.lucky),
        "cap": int(state.cap),
        "left": int(state.left),
        "won": [int(x) for x in state.won],
    }


def game(options: ToyOptions | None = None) -> Game:
    return build((options or ToyOptions()).wide)


def register() -> None:
    registry.registered(registry.GAMES)[NAME] = EntryPoint(NAME, "tests.train.toy:game", registry.GAMES)
    registry.registered(registry.ENVS)[ENV_ID] = EntryPoint(ENV_ID, "tests.train.toy:ToyEnv", registry.ENVS)


def unregister() -> None:
    registry.registered(registry.GAMES).pop(NAME, None)
    registry.registered(registry.ENVS).pop(ENV_ID, None)


if __name__ == "__main__":
    from kibitz.__main__ import main

    register()
    main()
