"""Golden playthroughs: whole episodes as text, one line for each act.

`golden/*.txt` record what the game did when they were written; test_golden.py replays their acts and
compares line by line, so that a changed rule shows as a readable difference. If the change is intended
(and `Game.version` raised), write them again and review the difference before committing it:

    python -m tests.games.deal_or_no_deal.playthroughs --write
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from kibitz.games.deal_or_no_deal import rules
from kibitz.games.deal_or_no_deal.envs.gym_env import NegotiationEnv
from tests.games.deal_or_no_deal import board

FOLDER = Path(__file__).parent / "golden"
SIGNATURE = "# A golden playthrough; tests/games/deal_or_no_deal/playthroughs.py says how to write it again."
TABLE = {"counts": [4, 1, 2], "my_utilities": [3, 5, 1], "partner_utilities": [1, 4, 6]}


class Script(NamedTuple):
    """How to write an episode: seed, options and the learner's acts; the last act repeats until the end."""

    seed: int
    options: dict[str, Any]
    talk: tuple[str, ...]  # acts with counts, or `all` or `half` of the pool, or the `rest` that the partner leaves
    reset: dict[str, Any] = {}  # noqa: RUF012  (a NamedTuple's default never changes)


SCRIPTS: dict[str, Script] = {
    "default": Script(1, {}, ("INSIST all", "PROPOSE half", "INSIST half", "AGREE")),
    "default_limit": Script(2, {}, ("PROPOSE all",)),
    "default_accepted": Script(5, {"agent_starts": True}, ("INSIST all", "INSIST half", "INSIST rest")),
    "default_end_matches": Script(12, {"agent_starts": False}, ("INSIST all", "END rest")),
    "default_end_does_not_match": Script(13, {"agent_starts": False}, ("END all",)),
    "revealed": Script(3, {"reveal_partner_utilities": True}, ("PROPOSE half", "AGREE")),
    "disagreement_ends": Script(14, {"agent_starts": False}, ("PROPOSE all", "DISAGREE")),
    "disagreement_loses_a_turn": Script(4, {"disagree_ends": False, "max_turns": 7}, ("DISAGREE", "END rest")),
    "budget": Script(6, {"points_budget": 10}, ("INSIST all", "AGREE")),
    # the table of test_rules, at exactly 0.5 and one point below: 10 and 9 of the partner's 20
    "context": Script(7, {}, ("PROPOSE 4,0,1", "INSIST 1,1,1", "INSIST 4,0,1"), {"context": TABLE}),
    "context_partner_begins": Script(8, {"max_turns": 5}, ("AGREE",), {"context": TABLE, "agent_starts": False}),
    "conceder": Script(9, {"partner": "conceder"}, ("PROPOSE 4,0,1",), {"context": TABLE}),
    "mirror": Script(15, {"partner": "mirror"}, ("PROPOSE 0,1,2", "PROPOSE 1,1,1", "AGREE"), {"context": TABLE}),
    "a_mix": Script(10, {"partner": {"mirror": 1, "random": 3}, "disagree_ends": False}, ("PROPOSE half",)),
    "a_range": Script(11, {"partner_threshold": [0.5, 0.7]}, ("PROPOSE half", "INSIST half", "AGREE")),
    "penalty": Script(16, {"illegal": "penalty"}, ("AGREE", "PROPOSE 5,0,0", "END rest"), {"context": TABLE}),
}

Learner = Callable[[rules.State], tuple[int, ...]]


def lines_of(script: Script, learner: Learner) -> Iterator[str]:
    """The episode with a learner in seat 0; the script determines chance and the partner's acts."""
    yield SIGNATURE
    yield f"seed {script.seed}"
    yield f"options {json.dumps(script.options)}"
    yield f"reset {json.dumps(script.reset)}"
    env = NegotiationEnv(**script.options)
    env.reset(seed=script.seed, options=script.reset)
    state, memory = hidden(env)
    yield f"partner kind {int(memory.kind)} threshold {int(memory.threshold)}"
    yield f"  {state_line(state)}"
    over = False
    while not over:
        act = learner(state)
        # the environment plays both acts in one call; the rules give the position in between
        between, _, ended = board.play(env.settings, state, tuple(np.int32(x) for x in act))
        _, reward, over, _, info = env.step({"act_type": act[0], "oA": act[1:]})
        state, _ = hidden(env)
        yield act_line(0, act, between)
        if not ended:
            yield act_line(1, (int(state.last_acts[1]), *(int(x) for x in state.claims[1])), state)
        if reward:
            yield f"  reward {reward}"
    shown = ("payoffs", "ceiling", "agreement", "pareto", "nash_product", "welfare")
    yield "end " + json.dumps({name: np.asarray(info[name]).tolist() for name in shown})


def hidden(env: NegotiationEnv) -> tuple[rules.State, Any]:
    """The environment's position and its partner's memory, both hidden from learners."""
    flat_tree = env._compiled.env
    solo = env.program.play.layout.unpack(flat_tree.read(np.asarray(env._vector)[: flat_tree.size]).solo)
    return jax.tree.map(np.asarray, solo.state), solo.opponent_memory


def act_line(seat: int, act: tuple[int, ...], state: rules.State) -> str:
    act_type, *keep = act
    kept = "" if act_type in (rules.AGREE, rules.DISAGREE) else " " + csv(keep)
    return f"{f'{seat} {rules.ACT_NAMES[act_type]}{kept}':<16} -> {state_line(state)}"


def csv(items: Any) -> str:
    return ",".join(str(int(x)) for x in items)


def state_line(state: rules.State) -> str:
    """The whole state on one line."""
    acts = "/".join("-" if int(act) == rules.SILENT else rules.ACT_NAMES[int(act)] for act in state.last_acts)
    return (
        f"counts {csv(state.counts)} worth {csv(state.utilities[0])}/{csv(state.utilities[1])} "
        f"claims {csv(state.claims[0])}/{csv(state.claims[1])} acts {acts} seat {int(state.seat)} "
        f"left {int(state.turns_left)}{' deal' if state.deal else ''}{' over' if state.over else ''}"
    )


def scripted(talk: tuple[str, ...]) -> Learner:
    """Plays the acts of a script."""
    said = iter([*talk, *[talk[-1]] * 10])

    def choose(state: rules.State) -> tuple[int, ...]:
        name, _, share = next(said).partition(" ")
        pool, claimed = ([int(x) for x in items] for items in (state.counts, state.claims[1]))
        amounts = {
            "": [0, 0, 0],
            "all": pool,
            "half": [-(-count // 2) for count in pool],
            "rest": [count - taken for count, taken in zip(pool, claimed, strict=True)],
        }
        keep = amounts[share] if share in amounts else [int(x) for x in share.split(",")]
        return (rules.ACT_NAMES.index(name), *keep)

    return choose


def recorded(lines: list[str]) -> Learner:
    """Plays the learner's acts of a recorded playthrough."""
    said = iter([line.split()[1:3] for line in lines if line.startswith("0 ")])

    def choose(state: rules.State) -> tuple[int, ...]:
        name, share = next(said)
        keep = [0, 0, 0] if share == "->" else [int(x) for x in share.split(",")]
        return (rules.ACT_NAMES.index(name), *keep)

    return choose


def script_of(lines: list[str]) -> Script:
    """The script in the first lines of a file."""
    seed, options, reset = (line.partition(" ")[2] for line in lines[1:4])
    return Script(int(seed), json.loads(options), (), json.loads(reset))


def main() -> None:
    if sys.argv[1:] != ["--write"]:
        sys.exit(__doc__)
    for name, script in SCRIPTS.items():
        text = "\n".join(lines_of(script, scripted(script.talk))) + "\n"
        (FOLDER / f"{name}.txt").write_text(text)
        print(f"{name}: {text.count('->')} acts")


if __name__ == "__main__":
    main()
