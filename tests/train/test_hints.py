"""Advisers in training: their hints as features, and how often they come."""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

from kibitz.cli.output import training_table
from kibitz.cli.studies.evaluate import evaluate
from kibitz.core.errors import BadInput
from kibitz.core.xla.jit import jit_batch
from kibitz.evaluate import match
from kibitz.evaluate.record import ABOUT
from kibitz.evaluate.tally import Tallies
from kibitz.games import get_game
from kibitz.hints import Hint, HintEncoder
from kibitz.train.llm_hints.accounting import ModelAccounting
from kibitz.train.network import policy_bot
from kibitz.train.phase import build
from kibitz.train.rollout import Practice
from kibitz.train.run import checkpoint
from tests.train import toy
from tests.train.conftest import tiny_job

PROPOSE, INSIST, AGREE = 0, 1, 2
TOY = toy.build(False)
FIRST_ARM = (jnp.int32(0), jnp.int32(0))
ONE_DEVICE = tuple(jax.local_devices()[:1])


def negotiation_block(act: tuple[int, ...], available: bool = True) -> list[float]:
    """The hint block for a pool of 4 books, 1 hat and 2 balls."""
    masks = (jnp.ones(5, bool), *(jnp.arange(5) <= count for count in (4, 1, 2)))
    hint = Hint(tuple(jnp.int32(x) for x in act), jnp.float32(0.75), jnp.bool_(available))
    return np.asarray(HintEncoder(get_game("deal_or_no_deal")).hint_features(hint, masks)).tolist()


def test_a_hint_of_the_negotiation_has_ten_features() -> None:
    """act_onehot (5), oA_norm (3, divided by the caps), confidence (1), h_avail (1)."""
    assert negotiation_block((INSIST, 2, 0, 1)) == [0, 1, 0, 0, 0, 0.5, 0, 0.5, 0.75, 1]
    assert negotiation_block((PROPOSE, 4, 1, 2)) == [1, 0, 0, 0, 0, 1, 1, 1, 0.75, 1]


def test_hint_features_omit_the_counts_of_an_agree() -> None:
    assert negotiation_block((AGREE, 3, 1, 2)) == [0, 0, 1, 0, 0, 0, 0, 0, 0.75, 1]


def test_no_hint_is_ten_zeros() -> None:
    assert negotiation_block((INSIST, 2, 0, 1), available=False) == [0.0] * 10
    assert HintEncoder(get_game("deal_or_no_deal")).hint_size == 10


def hinted(mode: str, cadence: int, rounds: int, steps: int) -> tuple[Any, Any]:
    """What eight games of the toy show at each step: base features and hint features, [steps, n, games]."""
    job = tiny_job(hints={"mode": mode, "cadence_k": cadence}, env={"rounds": rounds})
    phase = build(job, ONE_DEVICE)
    practice = phase.compiled.practice(jnp.zeros((0, 1)))
    settings, rng, seen = phase.settings, np.random.default_rng(0), []

    @jit_batch
    def step(games: Any, u: Any) -> Any:
        """What is seen, and the games after it."""
        solo = practice.unpack(games)
        after = practice.step(settings, games, solo, (jnp.zeros(8, jnp.int32),) * 2, u)[0]
        return practice.observe(settings, solo, games.hint)[0], after

    games = jit_batch(practice.begin)(settings, rng.random((practice.begin_uniforms, 8), np.float32))
    for _ in range(steps):
        now, games = step(games, rng.random((practice.step_uniforms, 8), np.float32))
        seen.append(np.asarray(now))
    together = np.stack(seen)
    return together[:, :3], together[:, 3:]


def test_expert_hints_come_on_reset_and_after_every_kth_step_and_are_zeros_between() -> None:
    base, hint = hinted("expert", cadence=3, rounds=5, steps=12)
    due = [True, False, False, True, False] * 2 + [True, False]  # more than two whole episodes
    for number, now in enumerate(due):
        lucky, cap = base[number, 0], base[number, 1] * 2
        if not now:
            assert (hint[number] == 0).all(), f"no hint is due at step {number}"
            continue
        np.testing.assert_array_equal(hint[number, 0], lucky == 0)
        np.testing.assert_array_equal(hint[number, 1], lucky == 1)
        np.testing.assert_array_equal(hint[number, 2], (lucky == 1) & (cap > 0))  # the whole cap, or nothing
        assert (hint[number, 3:] == 1).all(), "confidence and availability"


def test_shuffled_hints_are_the_experts_for_another_game_of_the_batch() -> None:
    base, hint = hinted("shuffled", cadence=3, rounds=5, steps=12)
    due = np.array([True, False, False, True, False] * 2 + [True, False])
    assert (hint[~due] == 0).all()
    lucky = np.roll(base[due, 0], 1, axis=1)  # of the game before
    np.testing.assert_array_equal(hint[due, 0], lucky == 0)
    np.testing.assert_array_equal(hint[due, 1], lucky == 1)
    assert (hint[due, 1] != (base[due, 0] == 1)).any(), "most of them do not fit"


def test_random_hints_are_legal_and_vary_and_no_hints_are_zeros() -> None:
    base, hint = hinted("random", cadence=1, rounds=5, steps=12)
    assert (hint[:, :2].sum(1) == 1).all()
    assert 0.2 < hint[:, 0].mean() < 0.8
    assert ((hint[:, 2] >= 0) & (hint[:, 2] <= 1)).all()
    assert (hint[:, 0] != (base[:, 0] == 0)).any(), "it does not know the lucky arm"
    assert (hinted("none", cadence=1, rounds=5, steps=3)[1] == 0).all()


def test_a_trained_policy_gets_hints_as_often_as_in_training() -> None:
    heard: list[Any] = []

    def decide(x: Any, masks: Any, u: Any) -> Any:
        heard.append(np.asarray(x)[3:])
        return FIRST_ARM, (), jnp.zeros(())

    bot = policy_bot(TOY, SimpleNamespace(decide=decide), "listener", TOY.bot("oracle"), cadence=2)
    settings = toy.ToyOptions(rounds=5).settings()
    state, memory = TOY.rules.new(settings, jnp.full(1, 0.3)), bot.start(settings, 0, jnp.zeros(bot.uniforms))
    for _ in range(5):
        view, masks = TOY.rules.view(settings, state, 0), TOY.rules.legal(settings, state, 0)
        memory, act = bot.choose(settings, memory, view, masks, jnp.zeros(bot.uniforms))
        state = TOY.rules.step(settings, state, (act, act), jnp.full(1, 0.3))[0]
    assert [float(block[-1]) for block in heard] == [1, 0, 1, 0, 1]
    assert [bool(block.any()) for block in heard] == [True, False, True, False, True]


def test_a_policy_can_sit_in_the_other_seat_of_a_long_game() -> None:
    """Its memory survives being packed, however long the episode."""
    policy = SimpleNamespace(decide=lambda x, masks, u: (FIRST_ARM, (), jnp.zeros(())))
    bot = policy_bot(TOY, policy, "long", TOY.bot("oracle"), 7)
    layout = Practice(TOY, bot).play.layout
    settings = toy.ToyOptions().settings()
    state = TOY.rules.new(settings, jnp.full(1, 0.3))
    memory = bot.start(settings, 1, jnp.zeros(bot.uniforms))
    view, masks = TOY.rules.view(settings, state, 1), TOY.rules.legal(settings, state, 1)
    one = jax.jit(lambda memory: bot.choose(settings, memory, view, masks, jnp.zeros(bot.uniforms))[0])
    for _ in range(300):
        memory = one(memory)
        packed = layout.unpack(layout.pack(layout.tree.unflatten([*jax.tree.leaves(state), *jax.tree.leaves(memory)])))
        np.testing.assert_array_equal(jax.tree.leaves(packed), [*jax.tree.leaves(state), *jax.tree.leaves(memory)])


def test_the_adviser_is_reported_and_recorded(train: Callable[..., Any]) -> None:
    folder, summary = train("expert", hints={"mode": "expert"}, train={"num_train_steps": 64})
    assert "oracle" in summary["adviser"]
    assert json.loads((folder / "run.json").read_text())["advisers"] == [summary["adviser"]]


EXPERT: dict[str, Any] = {"hints": {"mode": "expert"}, "train": {"num_train_steps": 320}, "seed": 2}


def test_evaluations_say_whose_hints_they_heard_and_measure_the_learner_alone_too(train: Callable[..., Any]) -> None:
    folder, summary = train("expert", **EXPERT)
    assert "oracle" in summary["hints_from"] and summary["hints_from"] == summary["adviser"]
    assert json.loads((folder / "run.json").read_text())["evaluation_hints_from"] == [summary["adviser"]]
    with open(folder / "evaluations.csv", encoding="utf-8", newline="") as file:
        found = list(csv.DictReader(file))
    assert {row["hints_from"] for row in found} == {summary["adviser"]}
    assert any(row["return_mean"] != row["without_hints_return_mean"] for row in found)
    assert summary["without_hints_return_mean"] == [float(found[-1]["without_hints_return_mean"])]


def test_the_final_table_shows_the_learner_with_and_without_hints() -> None:
    found: dict[str, Any] = dict.fromkeys(("steps", "seconds", "compile_seconds", "train_seconds", "steps_per_s"), 1)
    found |= {"run": "mine", "finished": True, "notes": [], "seeds": 1, "adviser": "an oracle"}
    hinted = {"share_of_ceiling": [0.99], "without_hints_share_of_ceiling": [0.83], "hints_from": "an oracle"}
    for measures, shown in ((hinted, ["99.0 %", "83.0 %"]), ({"win": [0.5], "hints_from": "none"}, ["0.50"])):
        console = Console(width=100, file=io.StringIO())
        console.print(training_table(found | measures))
        *_, last, _ = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
        assert [cell.strip() for cell in last.split("│")][2:-1] == shown


def test_evaluations_of_a_run_without_hints_say_so_and_have_no_second_columns(train: Callable[..., Any]) -> None:
    folder, summary = train("plain", train={"num_train_steps": 160})
    assert summary["hints_from"] == "none"
    header, first, *_ = (folder / "evaluations.csv").read_text().splitlines()
    assert "without_hints" not in header and first.split(",")[-1] == "none"


def test_evaluations_in_a_phase_without_hints_repeat_the_learners_own_measures(train: Callable[..., Any]) -> None:
    curriculum = [{"until": 160, "hints": {"mode": "expert"}}]
    folder, summary = train("both", curriculum=curriculum, train={"num_train_steps": 320})
    with open(folder / "evaluations.csv", encoding="utf-8", newline="") as file:
        first, second = csv.DictReader(file)
    assert "oracle" in first["hints_from"] and second["hints_from"] == summary["hints_from"] == "none"
    assert second["return_mean"] == second["without_hints_return_mean"]


@pytest.mark.conformance
def test_hint_none_and_own_separate_what_a_policy_learnt_from_what_it_follows(
    train: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, summary = train("expert", **EXPERT)

    def evaluated(hint: Any) -> dict[str, Any]:
        evaluate(f"policy:{folder}", game="two_arms", opponent="random", episodes=200, hint=hint, as_json=True)
        return dict(json.loads(capsys.readouterr().out))

    own, none, default = (evaluated(hint) for hint in ("own", "none", None))
    assert own["hints_from"] == default["hints_from"] == summary["adviser"] and none["hints_from"] == "none"
    assert own["opponent"]["hints_from"] == "none"
    assert own["return_mean"] == default["return_mean"] != none["return_mean"]
    evaluate(f"policy:{folder}", game="two_arms", opponent="random", episodes=20, hint="own")
    assert "hints from" in (shown := capsys.readouterr().out) and "oracle" in shown


def test_a_policy_hears_its_own_hints_unless_told_otherwise(train: Callable[..., Any]) -> None:
    folder, summary = train("expert", **EXPERT)
    for hint, source in ((None, summary["adviser"]), ("own", summary["adviser"]), ("none", "none")):
        side = match.side_of(TOY, f"policy:{folder}", hint)
        assert side.about == {"player": f"policy:{folder}", "hints_from": source}
    assert match.side_of(TOY, f"policy:{folder}", "none").bot != match.side_of(TOY, f"policy:{folder}", "own").bot


def test_a_policy_trained_without_hints_has_none_of_its_own(train: Callable[..., Any]) -> None:
    folder, _ = train("plain", train={"num_train_steps": 64})
    with pytest.raises(BadInput, match="not trained with hints"):
        evaluate(f"policy:{folder}", game="two_arms", hint="own")


@pytest.mark.parametrize("kind", ["plain", "out", "workers"])
def test_an_evaluation_reads_and_hashes_a_checkpoint_once(
    train: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """A run that continues meanwhile would be another player in the reference's episodes."""
    folder, _ = train("plain", train={"num_train_steps": 64})
    weights = checkpoint.find(str(folder)).leaves["weights"].tobytes()
    read, sent, hashed = list[Path](), list[Any](), 0
    sha256 = hashlib.sha256

    def counting(data: Any = b"", **more: Any) -> Any:
        nonlocal hashed
        hashed += weights in bytes(data)
        return sha256(data, **more)

    def in_parts(executor: Any, work: Any, *_: Any) -> Any:
        sent.append(work.spec["sides"][0])
        return [nothing], False

    monkeypatch.setattr(hashlib, "sha256", counting)

    def counted(path: Path, whole: bool) -> checkpoint.Saved:
        read.append(path)
        return original(path, whole)

    original = checkpoint.read
    monkeypatch.setattr(checkpoint, "read", counted)
    nothing = match.Played(np.zeros((4, 2)), {}, Tallies())
    monkeypatch.setattr(match, "play_bots", lambda *_: nothing)  # would compile four programs
    monkeypatch.setattr(match, "in_parts", in_parts)
    more = {"workers": {"workers": 2}, "out": {"out": tmp_path / "kept"}}.get(kind, {})
    evaluate(f"policy:{folder}", game="two_arms", opponent="random", episodes=4, as_json=True, **more)  # type: ignore[arg-type]
    assert (len(read), hashed) == (1, 1)
    if kind == "out":
        about = json.loads((tmp_path / "kept" / ABOUT).read_text(encoding="utf-8"))
        assert about["checkpoints"] == [read[0].name, None]
    if kind == "workers":
        assert sent[0] == [f"policy:{read[0].resolve()}", None], "a worker reads the same file"


def test_a_game_without_words_cannot_have_llm_hints(train: Callable[..., Any], monkeypatch: Any) -> None:
    mute = dataclasses.replace(TOY, words=dataclasses.replace(TOY.words, answer_fields=lambda view, masks: {}))
    monkeypatch.setattr(toy, "build", lambda wide: mute)
    with pytest.raises(BadInput, match="no words for an LLM"):
        train("llm", hints={"mode": "llm"})


def test_the_prompt_of_a_run_is_written_atomically_and_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash while a run resumes must not truncate the prompt that `--resume` compares."""
    accounting, prompt = ModelAccounting([], tmp_path), tmp_path / "prompt.txt"
    accounting.prompts = {prompt.name: "Lucky {{ lucky }}."}

    def cut(part: Path, path: Path) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.replace", cut)
        with pytest.raises(OSError, match="No space"), accounting.recording(lambda: None):
            pass
    assert not prompt.exists()
    for _ in range(2):
        with accounting.recording(lambda: None):
            assert prompt.read_text() == "Lucky {{ lucky }}."
        monkeypatch.setattr("os.replace", cut)  # from now on nothing is written
