"""Hints of a language model inside training: asked between compiled steps, for all games at once."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import yaml
from safetensors.numpy import load_file

from kibitz.advice.ask import Position, PositionAsker
from kibitz.advice.batch import columns
from kibitz.core.errors import BadInput
from kibitz.core.xla.jit import jit_batch
from kibitz.evaluate.match import evaluate, side_of
from kibitz.games import get_game
from kibitz.train import phase as train_phase
from kibitz.train.llm_hints import loop
from kibitz.train.llm_hints.plan import whole_updates
from kibitz.train.llm_hints.rollout import HostHintPractice, max_lines
from kibitz.train.run.run import Run
from tests.llm import fake_server
from tests.llm.fake_server import FakeServer, mood
from tests.train import toy
from tests.train.conftest import assert_same_run, last_checkpoint, tiny_job

pytestmark = pytest.mark.conformance  # compiles a dozen training programs

Train = Callable[..., tuple[Path, dict[str, Any]]]
WORDS = "Lucky {{ lucky }}, cap {{ cap }}, {{ left }} left.\n{{ history_str }}\n"
SHORT = {"train": {"num_train_steps": 96}, "logging": {"log_every": 32, "eval_every": 96, "save_every": 32}}


@pytest.fixture(autouse=True)
def toy_game() -> Iterator[None]:
    toy.register()
    yield
    toy.unregister()


@pytest.fixture
def server(presets: FakeServer, tmp_path: Path) -> FakeServer:
    """The fake server, with a schema for the two models that need one."""
    file = tmp_path / "presets.yaml"
    known = yaml.safe_load(file.read_text(encoding="utf-8"))
    for name in ("obliging", "moody"):
        known["presets"][f"fake-{name}"] |= {"structure": "schema"}
    file.write_text(yaml.safe_dump(known), encoding="utf-8")
    return presets


@pytest.fixture
def prompt(tmp_path: Path) -> Path:
    file = tmp_path / "words.txt"
    file.write_text(WORDS, encoding="utf-8")
    return file


@pytest.fixture
def train(server: FakeServer, prompt: Path, tmp_path: Path) -> Train:
    """A tiny run of the toy with hints of a model of the fake server.

    Two learners, and episodes that neither an update nor the hints divide: what runs have in common is compiled once.
    """

    def run(name: str, model: str = "obliging", resume: bool = False, steps: int = 96, **changes: Any) -> Any:
        hints = {"mode": "llm", "provider": f"fake-{model}", "prompt_path": str(prompt)}
        hints |= {"cache": str(tmp_path / "answers.sqlite"), "cadence_k": 3, **changes.pop("hints", {})}
        settings = {**SHORT, "seeds": 2, "env": {"rounds": 5}, "train": {"num_train_steps": steps}, **changes}
        one = Run(whole_updates(tiny_job(hints=hints, **settings)), tmp_path / name)
        return one.folder, one.train(resume)

    return run


def table(folder: Path) -> list[dict[str, float]]:
    with open(folder / "metrics.csv", encoding="utf-8", newline="") as file:
        return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]


def total(folder: Path, name: str) -> float:
    return sum(row[f"hints_{name}"] for row in table(folder))


def record(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    return found


@pytest.mark.usefixtures("embedded")
def test_the_embedded_model_advises_a_ppo_run_through_the_command(kibitz: Any, tmp_path: Path) -> None:
    sizes = ["num_envs=2", "rollout=4", "minibatch=8", "epochs=1"]
    changes = [f"train.{size}" for size in sizes] + ["hints.provider=embedded", "hints.cadence_k=8"]
    changes += [f"hints.cache={tmp_path}/answers.sqlite", "logging.eval_episodes=8", "logging.tensorboard=false"]
    words = [word for change in changes for word in ("--set", change)]
    folder = tmp_path / "run"
    done = kibitz(
        "train", "--game", "deal_or_no_deal", "--hint", "llm", "--steps", "8", "--out", str(folder), *words, "--json"
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["finished"]
    assert "smollm2" in summary["adviser"]
    assert summary["hints"]["answered"] == total(folder, "given") == total(folder, "asked") >= 2
    assert summary["hints"]["failed"] == 0
    assert (folder / "prompt.txt").read_text() == (Path("configs") / "llm_prompt.txt").read_text()


@pytest.mark.parametrize("algo", ["ppo", "reinforce"])
def test_training_with_an_unreachable_model_equals_training_without_hints_and_counts_every_failure(
    train: Train, server: FakeServer, algo: str
) -> None:
    dead, summary = train("dead", "401", algo=algo)
    bare, _ = train("bare", algo=algo, hints={"mode": "none"})
    assert summary["finished"]
    weights = [load_file(last_checkpoint(folder))["weights"] for folder in (dead, bare)]
    np.testing.assert_array_equal(*weights)
    ledger = record(dead)["hints"]
    assert ledger["failures"]["refused"] + ledger["failures"]["breaker"] == ledger["failed"] == ledger["asked"] > 0
    assert ledger["calls"] == len(server.of("401")) <= 8, "no more calls after a permanent failure"
    assert total(dead, "asked") == ledger["asked"]
    assert total(dead, "given") == 0
    assert total(dead, "failed_breaker") == ledger["failures"]["breaker"]


def test_failures_of_an_unreliable_model_are_counted_by_kind(train: Train, server: FakeServer) -> None:
    folder, summary = train("moody", "moody", steps=160)
    assert summary["finished"]
    ledger, asked = record(folder)["hints"], server.of("moody")
    assert ledger == summary["hints"]
    assert ledger["calls"] == len(asked) == total(folder, "calls")
    assert ledger["answered"] == sum(mood(request) == "good" for request in asked)
    kinds = {kind: int(total(folder, f"failed_{kind}")) for kind in ledger["failures"]}
    assert kinds == ledger["failures"]
    assert {kind for kind, count in kinds.items() if count} == {"illegal", "not_json", "transport"}
    assert ledger["asked"] == total(folder, "asked") == total(folder, "given") + sum(kinds.values())
    assert ledger["prompt_tokens"] == total(folder, "prompt_tokens") == 300 * sum(mood(r) != "transport" for r in asked)
    assert total(folder, "money") == pytest.approx(ledger["money"], abs=1e-5)


def test_equal_questions_cost_one_call(train: Train, prompts: Any) -> None:
    folder, _ = train("once")
    assert len(prompts()) == len(set(prompts())) == total(folder, "calls")
    assert total(folder, "shared") + total(folder, "hits") > 20
    assert total(folder, "asked") == total(folder, "calls") + total(folder, "shared") + total(folder, "hits")


@pytest.mark.parametrize("algo", ["ppo", "reinforce"])
def test_the_same_seed_and_a_warm_cache_give_the_same_run(train: Train, server: FakeServer, algo: str) -> None:
    train("cold", algo=algo)
    asked = len(server.requests)
    one, _ = train("one", algo=algo)
    other, _ = train("other", algo=algo)
    assert len(server.requests) == asked > 0
    assert_same_run(one, other)
    assert total(one, "hits") == total(one, "given") > 0


def test_a_resumed_run_equals_an_uninterrupted_run(train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    train("warm")
    whole, _ = train("whole")
    save = Run._save

    def crash(self: Run, learner: Any, step: int) -> None:
        save(self, learner, step)
        if step == 64:
            raise KeyboardInterrupt

    monkeypatch.setattr(Run, "_save", crash)
    with pytest.raises(KeyboardInterrupt):
        train("halves")
    monkeypatch.setattr(Run, "_save", save)
    asked = record(whole.parent / "halves")["hints"]["asked"]
    halves, _ = train("halves", resume=True)
    assert_same_run(whole, halves)
    assert record(halves)["hints"]["asked"] == record(whole)["hints"]["asked"] > asked > 0


def test_a_run_keeps_its_prompt_and_refuses_to_resume_with_another(train: Train, prompt: Path) -> None:
    folder, _ = train("kept")
    assert (folder / "prompt.txt").read_text() == WORDS
    prompt.write_text("Lucky {{ lucky }}.", encoding="utf-8")
    with pytest.raises(BadInput, match=r"differs from the prompt .*prompt\.txt"):
        train("kept", resume=True)
    assert (folder / "prompt.txt").read_text() == WORDS


def test_a_curriculum_may_switch_to_a_language_model_and_away(train: Train, server: FakeServer) -> None:
    phases = [{"until": 32, "hints": {"mode": "none"}}, {"until": 64}, {"until": 96, "hints": {"mode": "random"}}]
    folder, summary = train("phases", curriculum=phases)
    assert summary["finished"]
    assert [row["hints_asked"] > 0 for row in table(folder)] == [False] * 2 + [True] * 2 + [False] * 2
    assert "obliging" in record(folder)["advisers"][1]
    assert set(columns("hints")) <= set(table(folder)[0])


def test_the_failure_policy_stop_ends_a_run_and_saves_it(train: Train, tmp_path: Path) -> None:
    hints = {"failure_policy": "stop", "failure_window": 20}
    with pytest.raises(BadInput, match=r"of the last 20 questions .* is saved at step 0"):
        train("stopped", "no-json", hints=hints)
    assert last_checkpoint(tmp_path / "stopped").name == "step_000000000000.safetensors"
    assert record(tmp_path / "stopped")["hints"]["failures"]["not_json"] >= 20


def test_an_exhausted_budget_ends_questions_but_not_training(train: Train, server: FakeServer) -> None:
    folder, summary = train("poor", hints={"budget": {"calls": 5}})
    assert summary["finished"]
    assert len(server.requests) == 5 == total(folder, "calls")
    assert total(folder, "failed_budget") > 0


WALKED = 16  # games


@pytest.fixture(scope="module")
def walk() -> Any:
    """Plays random acts; yields the practice and, for each step, the games, their hint context, own acts and ends."""
    game = get_game("deal_or_no_deal")
    settings = game.default_options.settings()

    def advance(settings: Any, batch: Any, act: Any, u: Any) -> Any:
        return practice.step(settings, batch, practice.unpack(batch), act, u)

    practice = HostHintPractice(game, game.bot("heuristic"), max_lines=max_lines(game, settings))
    begin, context_of, step = jit_batch(practice.begin), jax.jit(practice.hint_context), jit_batch(advance)
    rng, seen = np.random.default_rng(0), []

    def luck(count: int) -> Any:
        return rng.random((count, WALKED), np.float32)

    batch = begin(settings, luck(practice.begin_uniforms))
    for _ in range(40):
        context = jax.device_get(context_of(settings, batch))
        draws = [rng.random(mask.shape) * mask for mask in context.masks]
        act = tuple(draw.argmax(1).astype(np.int32) for draw in draws)
        after, stepped = step(settings, batch, act, luck(practice.step_uniforms))
        seen.append((batch, context, np.stack(act, 1), np.asarray(stepped.over)))
        batch = after
    return game, settings, practice, seen


def test_the_history_has_all_acts_since_the_deal_across_resets(walk: Any) -> None:
    seen = walk[3][:30]
    mine: list[list[tuple[int, ...]]] = [[] for _ in range(WALKED)]
    resets = 0
    for _, looked, act, over in seen:
        for game in range(WALKED):
            lines = looked.lines[game, : looked.length[game]].tolist()
            assert not looked.lines[game, looked.length[game] :].any()
            assert [tuple(line[1:]) for line in lines if line[0] == 1] == mine[game]
            theirs = [line[1:] for line in lines if line[0] == 2]
            other = int(looked.view.other_act[game])
            assert bool(theirs) == (other < 5), "the partner has spoken exactly when there is a line of it"
            if theirs:
                assert theirs[-1][0] == other
                assert len(lines) - len(theirs) in (len(theirs) - 1, len(theirs))
            if theirs and other in (0, 1):
                counts, left = (np.array([x[game] for x in y]) for y in (looked.view.counts, looked.view.offer_for_me))
                assert theirs[-1][1:] == (counts - left).tolist()
            mine[game] = [] if over[game] else [*mine[game], tuple(act[game].tolist())]
            resets += over[game]
    assert resets > 20


def test_two_positions_have_the_same_key_exactly_if_their_questions_are_equal(walk: Any) -> None:
    game, settings, _, seen = walk
    plain = jax.device_get(settings)
    words: dict[bytes, str] = {}
    met = 0
    for batch, looked, _, _ in seen:
        for i in range(WALKED):
            history = [{"seat": x[0] - 1, "act": tuple(x[1:])} for x in looked.lines[i, : looked.length[i]].tolist()]
            view = jax.tree.map(lambda x, i=i: x[i], looked.view)
            summary = json.dumps(game.words.prompt_variables(plain, view, history), sort_keys=True)
            key = np.asarray(batch.adviser_memory.key)[i].tobytes()
            met += key in words
            assert words.setdefault(key, summary) == summary
    assert len(set(words.values())) == len(words)
    assert len(words) + met == len(seen) * WALKED


def test_nothing_of_the_partners_utilities_is_in_a_question(walk: Any, server: FakeServer) -> None:
    game, settings, practice, seen = walk
    batch, looked, _, _ = seen[11]

    def swapped(packed: Any) -> Any:
        solo = practice.play.layout.unpack(packed)
        hidden = jax.tree.map(lambda x: (x + 3) % 11, solo.state.utilities[1])
        state = solo.state._replace(utilities=(solo.state.utilities[0], hidden))
        return practice.play.layout.pack(solo._replace(state=state))

    def swapped_all(batch: Any) -> Any:
        other = batch._replace(solo=jax.vmap(swapped)(batch.solo))
        states = jax.vmap(practice.play.layout.unpack)(other.solo).state
        hashes = other.adviser_memory.lines_hash
        keys = jax.vmap(lambda state, lines: practice.position_key(settings, state, lines))(states, hashes)
        return other, keys, practice.hint_context(settings, other)

    other, again, looked_again = jax.device_get(jax.jit(swapped_all)(batch))
    before, after = (np.stack(jax.tree.leaves(games.solo)) for games in (batch, other))
    assert (before != after).any(0).all(), "every partner has other utilities"
    np.testing.assert_array_equal(again, batch.adviser_memory.key)
    with PositionAsker(game, "fake-good") as asker:
        assert _questions(asker, settings, looked) == _questions(asker, settings, looked_again)


def _questions(asker: PositionAsker, settings: Any, looked: Any) -> list[Any]:
    found = []
    for i in range(WALKED):
        view, masks = jax.tree.map(lambda x, i=i: x[i], (looked.view, looked.masks))
        history = [{"seat": x[0] - 1, "act": tuple(x[1:])} for x in looked.lines[i, : looked.length[i]].tolist()]
        found.append(asker.question(Position(settings, view, masks, history)))
    return found


def test_hints_come_to_their_own_games_and_only_when_due(train: Train, server: FakeServer, monkeypatch: Any) -> None:
    """The oracle as a model: its hint is right for the game that gets it, in every game."""

    def oracle(request: Any) -> Any:
        words = request.body["messages"][-1]["content"]
        lucky, cap = words[6], int(words.split("cap ")[1][0])
        said = {"arm": int(lucky), "stake": cap, "confidence": 1.0}
        return fake_server.CannedResponse(fake_server.completion(json.dumps(said)))

    monkeypatch.setitem(fake_server.MODELS, "obliging", oracle)
    heard: list[Any] = []
    keep = loop.play_step

    def spy(policy: Any, practice: Any, settings: Any, games: Any, key: Any) -> Any:
        after, seen = keep(policy, practice, settings, games, key)
        jax.debug.callback(
            lambda since, x: heard.append((np.asarray(since), np.asarray(x))), games.since, seen["features"]
        )
        return after, seen

    monkeypatch.setattr(loop, "play_step", spy)
    _forget_programs()  # so that no program without the spy is reused, and none with it remains
    train("oracle")
    jax.effects_barrier()
    _forget_programs()
    assert len(heard) >= 24
    for since, features in heard[2:]:  # the first one of each learner only compiles
        due = jnp.asarray(since % 3 == 0)
        base, hint = features[:, :3], features[:, 3:]
        np.testing.assert_array_equal(hint[:, 4], due)
        np.testing.assert_array_equal(hint[:, 1], due & (base[:, 0] == 1))
        np.testing.assert_array_equal(hint[:, 2], due & (base[:, 0] == 1) & (base[:, 1] > 0))


def _forget_programs() -> None:
    train_phase.first_equal.cache_clear()
    loop.step_programs.cache_clear()


def test_a_policy_trained_with_a_model_hears_it_only_if_asked_to(train: Train, server: FakeServer) -> None:
    folder, summary = train("asked")
    assert summary["hints_from"] == "none", "evaluations within the run ask nothing"
    game = get_game("two_arms", toy.ToyOptions(rounds=5))
    name, options = f"policy:{folder}#1", toy.ToyOptions(rounds=5)
    server.requests.clear()
    alone = evaluate(game, options, name, "random", 4)
    assert alone["hints_from"] == "none" and not server.requests
    own = evaluate(game, options, side_of(game, name, "own"), "random", 4)
    assert own["hints_from"] == summary["adviser"] and "obliging" in own["hints_from"]
    assert own["hints_asked"] == 4 * 2, "five turns, a hint in every third"
    assert own["hints_failed"] == {} and own["fallbacks"] == 0
    assert own["opponent"]["hints_from"] == "none"
