"""Opponents and advisers in training: bots, checkpoints, earlier selves, language models."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from kibitz.advice.batch import LLMHints
from kibitz.core.bots import Bot
from kibitz.core.errors import BadInput
from kibitz.core.game import Game
from kibitz.core.logs import log_once
from kibitz.core.paths import cache_folder
from kibitz.core.play.resolve import PlayerInfo, PlayerKind, Resolver, bot_for, bot_named
from kibitz.games import get_game
from kibitz.llm.answers.prompt import DEFAULT, Prompt
from kibitz.llm.client.limits import FailurePolicy
from kibitz.llm.presets import Preset, get_preset
from kibitz.train import checkpoint
from kibitz.train.config import HintOptions, Job
from kibitz.train.network import Policy, feature_size, flatten, new_policy, policy_bot
from kibitz.train.rollout import max_learner_steps

log = logging.getLogger("kibitz.train")
SELF = "self"
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
    flat = flatten(new_policy(game, feature_size(game), job.train.hidden, jax.random.key(0)))
    weights = saved.leaves["weights"]
    if not 0 <= seed < weights.shape[0]:
        raise BadInput(f"{saved.path} holds learners 0 to {weights.shape[0] - 1}, not {seed}.")
    if weights.shape[1:] != flat.vector.shape:
        raise BadInput(
            f"{saved.path} has {weights.shape[1]} weights where {game.name} with these options needs "
            f"{flat.vector.shape[0]}; use the options it was trained with."
        )
    policy: Policy = flat.rebuild(jnp.asarray(weights[seed]))
    return policy


def bot_of_run(name: str, game: Game | None = None, notes: list[str] | None = None) -> Bot:
    """`RUN_OR_FILE`, or `RUN_OR_FILE#SEED`: a trained policy with the adviser it was trained with."""
    place, _, number = name.partition("#")
    if not LEARNER_NUMBER.fullmatch(number):
        raise BadInput(f"{name!r:.80} ends in #{number:.20}; write the number of a learner after #, as in runs/x#2.")
    saved = checkpoint.find(place, notes)
    job = job_at(Job.read(saved.job, "key of the checkpoint's config"), saved.step)
    weights = saved.leaves["weights"]
    learnt = hashlib.sha256(job.model_dump_json().encode() + weights.tobytes())
    if job.algo != "supervised" and job.hints.mode == "expert" and job.hints.checkpoint is not None:
        learnt.update(checkpoint.find(job.hints.checkpoint, notes).leaves["weights"].tobytes())
    # without the rest of the learner, its games and moments, which would only use memory
    bot, found = _bot_of(Named(name, game, learnt.hexdigest(), job, saved._replace(leaves={"weights": weights})))
    if notes is not None:
        notes += [note for note in found if note not in notes]
    return bot


@dataclass(frozen=True)
class Named:
    """A trained policy, identified by its weights and its adviser's: a run that continues becomes another player."""

    name: str
    game: Game | None
    learnt: str
    job: Job = field(compare=False)
    saved: checkpoint.Saved = field(compare=False)


@lru_cache(maxsize=64)
def _bot_of(named: Named) -> tuple[Bot, list[str]]:
    """One bot per policy, so that programs compiled for it are reused; and notes for the run's record."""
    place, _, number = named.name.partition("#")
    saved, game, job, notes = named.saved, named.game, named.job, list[str]()
    if game is None:
        game, _ = game_of(job)
    policy = policy_of(saved, game, int(number or 0))
    adviser: Bot | None = None
    if job.hints.mode == "llm" and job.algo != "supervised":
        log_once(log, f"{place} was trained with hints of an LLM; as a player it gets none")
    elif job.algo != "supervised":
        adviser, _ = adviser_for(job.hints, game, notes)
    return policy_bot(game, policy, f"policy:{named.name}", adviser, job.hints.cadence_k), notes


def adviser_for(hints: HintOptions, game: Game, notes: list[str] | None = None) -> tuple[Bot | None, str]:
    """The bot that advises in a hint mode, and a description for the run's record.

    A language model is not a bot: see `make_llm_hints`.
    """
    if hints.mode == "none":
        return None, "none"
    if hints.mode == "random":
        return game.bot("random"), "random legal acts"
    if hints.mode == "llm":
        preset = preset_of(hints)
        return None, f"the language model {preset.model or preset.provider} ({preset.provider})"
    if hints.checkpoint is not None:
        policy = policy_of(checkpoint.find(hints.checkpoint, notes), game)
        return policy_bot(game, policy, f"policy:{hints.checkpoint}"), f"checkpoint {hints.checkpoint}"
    return game.bot(game.reference), f"the reference player {game.reference!r} (no checkpoint given)"


def make_llm_hints(hints: HintOptions, game: Game, settings: Any, seeds: int) -> LLMHints:
    """The language model of these options; raises BadInput if it cannot be used."""
    path = game.words.prompt if hints.prompt_path == DEFAULT else hints.prompt_path
    caps = {"max_history_turns": hints.max_history_turns, "max_prompt_chars": hints.max_prompt_chars}
    policy = FailurePolicy(failure_policy=hints.failure_policy, share=hints.failure_share, window=hints.failure_window)
    cache = cache_folder() / "answers.sqlite" if hints.cache == "auto" else hints.cache
    prompt = Prompt.read(path, **caps)
    return LLMHints(game, settings, preset_of(hints), prompt, seeds, cache=cache, budget=hints.budget, policy=policy)


def preset_of(hints: HintOptions) -> Preset:
    preset = get_preset(hints.provider)
    return preset if hints.model is None else preset.model_copy(update={"model": hints.model})


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


def self_bot(game: Game, flat: Any, pool: Any, index: Any) -> Bot:
    """An earlier self from the pool; it samples its acts, as the learner does."""
    return policy_bot(game, flat.rebuild(pool[index]), SELF, greedy=False)


def _runs(game: Game, resolver: Resolver) -> list[PlayerInfo]:
    """The runs of this game, by name under a runs folder, by path otherwise."""
    listed = []
    for file in sorted((resolver.runs or Path("runs")).glob("*/run.json")):
        run = file.parent
        if _game_of_run(file) == game.name:
            why = "" if any((run / "checkpoints").glob("step_*.safetensors")) else "It has no checkpoint yet."
            listed.append(PlayerInfo(f"policy:{run.name if resolver.runs else run}", "policy", why, run.name))
    return listed


def _game_of_run(file: Path) -> Any:
    try:
        about = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return about.get("game") if isinstance(about, dict) else None


def _make_policy(game: Game, name: str, resolver: Resolver) -> Bot:
    return bot_of_run(resolver.run_path(name), game)


POLICY_KIND = PlayerKind(make=_make_policy, placeholder="RUN", list=_runs, compiled=True)
