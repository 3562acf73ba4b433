"""Opponents, advisers and judges in training: bots, checkpoints, earlier selves, language models."""

from __future__ import annotations

import atexit
import logging
import re
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from kibitz.advice.ask import PositionAsker, prompt_path
from kibitz.advice.batch import LLMHints
from kibitz.advice.judge import LLMJudge, judge_prompt
from kibitz.core.bots import NO_HINTS, Bot, shuffled
from kibitz.core.errors import BadInput
from kibitz.core.game import Game
from kibitz.core.options import operator_options
from kibitz.core.play.resolve import RUN_NAME, HintChoice, PlayerInfo, PlayerKind, Resolver, bot_for, bot_named
from kibitz.core.registry import is_built_in
from kibitz.core.system.logs import log_once
from kibitz.core.system.paths import cache_folder, folders_in, read_json
from kibitz.games import get_game
from kibitz.llm.answers.prompt import DEFAULT, Prompt
from kibitz.llm.client.limits import FailurePolicy
from kibitz.llm.presets import Preset, get_preset, why_not
from kibitz.llm.providers import weights
from kibitz.train.config import HintOptions, Job, ModelOptions, RewardOptions, TrainOptions
from kibitz.train.llm_hints.player import HintedPolicy
from kibitz.train.network import Policy, feature_size, flatten, new_policy, policy_bot, shape_of, weight_count
from kibitz.train.rollout import Learner, StyleReward, max_learner_steps
from kibitz.train.run import checkpoint

log = logging.getLogger("kibitz.train")
SELF = "self"
MAX_SELVES = 16  # earlier selves in the pool
LEARNER_NUMBER = re.compile("[0-9]{0,9}")


def game_of(job: Job) -> tuple[Game, Any]:
    """The game that a job plays, built for its options, and the options."""
    name = job.env.game
    options = get_game(name).options.read(job.env.options, f"key of env (an option of {name})")
    return get_game(name, options), options


def job_at(job: Job, step: int) -> Job:
    """The job as it was in the phase that led to this step; a phase ends with a whole update."""
    *earlier, (_, last) = phases = job.phases()
    batch = job.train.batch
    if earlier and job.algo == "reinforce":  # an update plays the longest episodes of all phases to their end
        games = [game_of(part) for _, part in phases]
        batch = job.train.num_envs * max(max_learner_steps(game, options.settings()) for game, options in games)
    return next((part for end, part in earlier if step - batch < end), last)


def policy_of(saved: checkpoint.Saved, game: Game, seed: int = 0) -> Policy:
    """The network of a checkpoint; `seed` picks one of the learners that were trained together."""
    checkpoint.check_fits(saved, game)
    job = Job.read(saved.job, "key of the checkpoint's config")
    weights, features = saved.leaves["weights"], feature_size(game)
    if not 0 <= seed < weights.shape[0]:
        raise BadInput(f"{saved.path} holds learners 0 to {weights.shape[0] - 1}, not {seed}.")
    shape = shape_of(job.train, game)
    needed = weight_count(features, shape, game.sizes)  # before a network of that size is built
    if weights.shape[1] != needed:
        raise BadInput(
            f"{saved.path} has {weights.shape[1]} weights where {game.name} with these options needs "
            f"{needed}; use the options it was trained with."
        )
    flat = flatten(new_policy(game, features, shape, jax.random.key(0)))
    policy: Policy = flat.rebuild(jnp.asarray(weights[seed]))
    return policy


def bot_of_run(
    name: str, game: Game | None = None, notes: list[str] | None = None, hint: HintChoice | None = None
) -> Bot:
    """`RUN_OR_FILE`, or `RUN_OR_FILE#SEED`: a trained policy with the adviser it was trained with.

    Hints of a language model cannot be compiled; `_player_of_run` gives them.
    """
    bot, found = _bot_of(_named(name, game, hint, notes))
    if notes is not None:
        notes += [note for note in found if note not in notes]
    return bot


def _player_of_run(name: str, game: Game, hint: HintChoice | None) -> Bot | HintedPolicy:
    """As `bot_of_run`; a player on the host where its own hints come from a language model."""
    named = _named(name, game, hint)
    return _hinted_policy(named) if hint == "own" and named.llm_advised else _bot_of(named)[0]


@dataclass(frozen=True)
class Named:
    """A trained policy, identified by its weights and its adviser's: a run that continues becomes another player."""

    name: str
    game: Game | None
    hint: HintChoice | None
    learnt: tuple[str, ...]  # digests of the weights, and the job
    job: Job = field(compare=False)
    saved: checkpoint.Saved = field(compare=False)

    @property
    def place(self) -> str:
        return self.name.partition("#")[0]

    @property
    def pinned(self) -> str:
        """This policy's name, whatever happens to its run."""
        return f"policy:{_file_name(self.saved, self.name)}"

    @property
    def llm_advised(self) -> bool:
        return self.job.hints.mode == "llm" and self.job.algo != "supervised"

    def policy(self, game: Game) -> Policy:
        return policy_of(self.saved, game, int(self.name.partition("#")[2] or 0))


def _named(name: str, game: Game | None, hint: HintChoice | None, notes: list[str] | None = None) -> Named:
    """Reads the checkpoint; BadInput if there is none."""
    place, _, number = name.partition("#")
    if not LEARNER_NUMBER.fullmatch(number):
        raise BadInput(f"{name!r:.80} ends in #{number:.20}; write the number of a learner after #, as in runs/x#2.")
    saved = checkpoint.find(place, notes)
    job = job_at(Job.read(saved.job, "key of the checkpoint's config"), saved.step)
    learnt = [saved.digests["weights"], job.model_dump_json()]
    if job.algo != "supervised" and job.hints.mode == "expert" and job.hints.checkpoint is not None:
        learnt.append(checkpoint.find(job.hints.checkpoint, notes).digests["weights"])
    return Named(name, game, hint, tuple(learnt), job, saved)


@lru_cache(maxsize=64)
def _bot_of(named: Named) -> tuple[Bot, list[str]]:
    """One bot per policy, so that programs compiled for it are reused; and notes for the run's record."""
    job, notes = named.job, list[str]()
    game = named.game or game_of(job)[0]
    policy = named.policy(game)
    adviser, advice = None, NO_HINTS
    if named.llm_advised:
        if named.hint is None:
            log_once(log, f"{named.place} was trained with hints of an LLM; as a player it gets none")
    elif (
        job.algo != "supervised" and named.hint != "none" and job.hints.mode != "shuffled"
    ):  # a single game has no other
        adviser, advice = adviser_for(job.hints, game, notes)
    bot = policy_bot(game, policy, f"policy:{named.name}", adviser, job.hints.cadence_k, hints_from=advice)
    return replace(bot, pinned=named.pinned), notes


def _hinted_policy(named: Named) -> HintedPolicy:
    """It asks with the prompt that the run has recorded."""
    hints, game = named.job.hints, named.game
    assert game is not None
    folder = named.saved.path.parent
    recorded = (folder.parent if folder.name == "checkpoints" else folder) / "prompt.txt"
    if not named.job.curriculum and recorded.is_file():
        hints = hints.model_copy(update={"prompt_path": str(recorded)})
    settings = game_of(named.job)[1].settings()
    preset, prompt = preset_of(hints, game, settings), prompt_of(hints, game, settings)
    asker = PositionAsker(game, preset, prompt=prompt, cache=_answers_of(hints), budget=hints.budget)
    atexit.register(asker.close)
    advice = adviser_for(hints, game, settings=settings)[1]
    return HintedPolicy(game, named.policy(game), f"policy:{named.name}", asker, hints.cadence_k, advice, named.pinned)


def adviser_for(
    hints: HintOptions, game: Game, notes: list[str] | None = None, settings: Any = None
) -> tuple[Bot | None, str]:
    """The bot that advises in a hint mode, and a description for the run's record.

    A language model is not a bot: see `make_llm_hints`.
    """
    if hints.mode == "none":
        return None, "none"
    if hints.mode == "random":
        return game.bot("random"), "random legal acts"
    if hints.mode == "llm":
        preset = preset_of(hints, game, settings)
        return None, f"the language model {preset.model or preset.provider} ({preset.provider})"
    if hints.mode == "shuffled":
        adviser, advice = adviser_for(hints.model_copy(update={"mode": "expert"}), game, notes)
        assert adviser is not None
        return shuffled(adviser), f"{advice}, for the position of another game"
    if hints.expert == "greedy":
        if not game.greedy:
            raise BadInput(f"{game.name} has no greedy player; set hints.expert to reference.")
        return game.bot(game.greedy), f"the greedy player {game.greedy!r}"
    if hints.checkpoint is not None:
        policy = policy_of(checkpoint.find(hints.checkpoint, notes), game)
        return policy_bot(game, policy, f"policy:{hints.checkpoint}"), f"checkpoint {hints.checkpoint}"
    why = " (no checkpoint given)" if hints.expert == "auto" else ""
    return game.bot(game.reference), f"the reference player {game.reference!r}{why}"


def make_llm_hints(hints: HintOptions, game: Game, settings: Any, seeds: int) -> LLMHints:
    """The language model of these options; raises BadInput if it cannot be used."""
    preset, prompt = preset_of(hints, game, settings), prompt_of(hints, game, settings)
    return LLMHints(game, settings, preset, prompt, seeds, **_limits(hints))


def make_llm_judge(reward: RewardOptions, game: Game, seeds: int) -> LLMJudge:
    """The judge of these options; raises BadInput if it cannot be used."""
    assert reward.style is not None
    preset = preset_of(reward)
    prompt = judge_prompt(reward.prompt_path, preset.taught)
    return LLMJudge(game, reward.style, preset, prompt, seeds, **_limits(reward))


def reward_for(job: Job, game: Game) -> StyleReward | None:
    """What the learner is paid, None for the game's own payoff; BadInput for a style that the game does not offer."""
    reward = job.reward
    if reward.style is None:
        return None
    (style,) = game.styles.names([reward.style], game.name)
    if job.algo == "supervised":
        raise BadInput(
            "--algo supervised imitates the expert and is not paid; use --algo ppo or reinforce for a style."
        )
    if reward.mode == "llm_judge" and job.hints.mode == "llm":
        raise BadInput(
            "reward.mode llm_judge cannot be combined with --hint llm; use another hint, or reward.mode style."
        )
    return StyleReward(style, reward.payoff_weight)


def _limits(options: ModelOptions) -> dict[str, Any]:
    """What a client of these options may use and may spend."""
    policy = FailurePolicy(
        failure_policy=options.failure_policy, share=options.failure_share, window=options.failure_window
    )
    return {"cache": _answers_of(options), "budget": options.budget, "policy": policy}


def prompt_of(hints: HintOptions, game: Game, settings: Any = None) -> Prompt:
    path = prompt_path(game, preset_of(hints, game, settings)) if hints.prompt_path == DEFAULT else hints.prompt_path
    return Prompt.read(path, max_history_turns=hints.max_history_turns, max_prompt_chars=hints.max_prompt_chars)


def _answers_of(hints: ModelOptions) -> Path | str | None:
    """The file of earlier answers."""
    return cache_folder() / "answers.sqlite" if hints.cache == "auto" else hints.cache


def preset_of(hints: ModelOptions, game: Game | None = None, settings: Any = None) -> Preset:
    """The model of these options; with a game, it is asked for acts in it, so that a taught one may answer."""
    if hints.model is None:
        return get_preset(hints.provider, game=game.name if game else "", settings=settings)
    preset = get_preset(hints.provider).model_copy(update={"model": hints.model, "taught": False, "games": {}})
    if preset.provider == "embedded" and not why_not(preset):  # another file has marks of its own
        return preset.model_copy(update={"taught": weights.is_taught(weights.locate(hints.model))})
    return preset


def opponent_for(job: Job, game: Game, notes: list[str] | None = None) -> Bot | None:
    """The bot in the other seat; None for earlier selves, which exist only inside the training program."""

    def find(game: Game, name: str) -> Bot | None:
        if name == SELF:
            raise BadInput(
                "Earlier selves cannot be mixed with other opponents; use a curriculum with a phase for each."
            )
        if name == "expert":
            return adviser_for(job.hints.model_copy(update={"mode": "expert"}), game, notes)[0]
        if name.startswith("policy:"):
            return bot_of_run(name.removeprefix("policy:"), game, notes)
        return bot_named(game, name)

    spec = game.fallback if job.opponent is None else job.opponent
    return None if spec == SELF else bot_for(game, spec, find)


def origin_of(job: Job, game: Game, options: Any) -> str | None:
    """What the programs of a job are made from, as text; None where a file or another package has a part in it."""
    players = list(job.opponent) if isinstance(job.opponent, dict) else [job.opponent or game.fallback]
    outside = [name for name in players if name not in (*game.bots, "expert", SELF)]
    files = operator_options(type(options))
    given = any(getattr(options, name) != type(options).model_fields[name].default for name in files)
    if outside or given or job.hints.checkpoint is not None or not is_built_in(game.name):
        return None
    return job.model_dump_json(include={"algo", "env", "opponent", "hints", "reward"})


def choose_self(learner: Learner, config: TrainOptions) -> tuple[Learner, Array]:
    """Before an update: the learner with its pool up to date, and the earlier self that it plays against."""
    if learner.pool.shape[0]:
        every = max(1, config.updates // (4 * MAX_SELVES))
        slot = (learner.updates // every) % MAX_SELVES
        due = learner.updates % every == 0
        pool = learner.pool.at[slot].set(learner.weights)  # replaces the oldest self
        learner = learner._replace(pool=jnp.where(due, pool, learner.pool))
    key = jax.random.fold_in(jax.random.wrap_key_data(learner.key), 7)
    return learner, jax.random.randint(key, (), 0, max(learner.pool.shape[0], 1))


def self_bot(game: Game, flat: Any, pool: Any, index: Any) -> Bot:
    """An earlier self from the pool; it samples its acts, as the learner does."""
    return policy_bot(game, flat.rebuild(pool[index]), SELF, greedy=False)


def _runs(game: Game, resolver: Resolver) -> list[PlayerInfo]:
    """The runs of this game, by name under a runs folder, by path otherwise."""
    listed = []
    for run in folders_in(resolver.runs or Path("runs")):
        if not (RUN_NAME.fullmatch(run.name) if resolver.runs else run.name.isprintable()):
            continue  # no one can name it
        if _game_of_run(run / "run.json") == game.name:
            why = "" if checkpoint.files_in(run / "checkpoints") else "It has no checkpoint yet."
            listed.append(PlayerInfo(f"policy:{run.name if resolver.runs else run}", "policy", why, run.name))
    return listed


def _game_of_run(file: Path) -> Any:
    about = read_json(file)
    return about.get("game") if isinstance(about, dict) else None


def _make_policy(game: Game, name: str, resolver: Resolver) -> Bot | HintedPolicy:
    path = resolver.run_path(name)
    return bot_of_run(path, game) if resolver.hint is None else _player_of_run(path, game, resolver.hint)


def _pin_policy(name: str) -> str:
    """The file of the newest complete checkpoint, which only reading it can tell."""
    return _file_name(checkpoint.find(name.partition("#")[0]), name)


def _file_name(saved: checkpoint.Saved, name: str) -> str:
    _, mark, number = name.partition("#")
    return f"{saved.path.resolve()}{mark}{number}"


POLICY_KIND = PlayerKind(make=_make_policy, placeholder="RUN", list=_runs, compiled=True, pin=_pin_policy)
