"""The configuration of a training job: YAML and flags in, one checked record out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import jax.numpy as jnp
import yaml
from jax import Array
from pydantic import ConfigDict, Field, model_validator

from kibitz.core.errors import BadInput
from kibitz.core.options import Options, PlayerSpec, load_yaml
from kibitz.core.registry import env_ids, usable_games
from kibitz.core.system.paths import find
from kibitz.games import get_game
from kibitz.llm.client.limits import Budget

Algo = Literal["ppo", "reinforce", "supervised"]
HintMode = Literal["none", "random", "llm", "expert", "shuffled"]
Expert = Literal["auto", "checkpoint", "reference", "greedy"]
RewardMode = Literal["payoff", "style", "llm_judge"]


class TrainOptions(Options):
    """How to learn. The defaults are the seed's."""

    lr: float = Field(3e-4, gt=0, description="learning rate")
    lr_final: float | None = Field(None, ge=0, description="learning rate at the end; null: constant")
    gamma: float = Field(0.99, ge=0, le=1, description="discount")
    gae_lambda: float = Field(0.95, ge=0, le=1, description="lambda of the advantage estimate")
    clip: float = Field(0.2, gt=0, description="PPO's clip range")
    epochs: int = Field(4, ge=1, description="passes over each rollout")
    minibatch: int = Field(64, ge=1, description="samples in one gradient step")
    ent: float = Field(0.0, ge=0, description="entropy bonus")
    ent_final: float | None = Field(None, ge=0, description="entropy bonus at the end; null: constant")
    vf: float = Field(0.5, ge=0, description="weight of the value loss")
    grad_norm: float = Field(0.5, gt=0, description="largest gradient norm")
    rollout: int = Field(128, ge=1, description="steps of every game between updates")
    num_envs: int = Field(8, ge=1, description="games at once")
    num_train_steps: int = Field(1_000_000, ge=1, description="total steps of the learner")
    scale: float | None = Field(None, gt=0, description="divisor of rewards; null: the game's own")
    hidden: tuple[Annotated[int, Field(ge=1, le=65_536)], ...] = Field(
        (64, 64), max_length=32, description="widths of the shared body"
    )
    autoregressive: bool = Field(False, description="each part of an act depends on the parts chosen before it")
    critic: Literal["own", "both"] = Field(
        "own", description="what PPO's value estimate sees while it learns: the learner's own view, or both seats'"
    )
    fused: bool | None = Field(None, description="compute PPO's gradient in one GPU kernel; null: where it is faster")

    @model_validator(mode="before")
    @classmethod
    def _tuples(cls, values: Any) -> Any:
        if isinstance(values, dict) and isinstance(values.get("hidden"), list):
            return {**values, "hidden": tuple(values["hidden"])}
        return values

    @model_validator(mode="after")
    def _fits_together(self) -> TrainOptions:
        if self.autoregressive and not self.hidden:
            raise ValueError("autoregressive needs a hidden layer; add one to hidden, or set autoregressive to false.")
        if self.minibatch > self.batch:
            raise ValueError(
                f"minibatch is {self.minibatch}, larger than a rollout of {self.num_envs} games x {self.rollout} steps "
                f"= {self.batch} samples; make it at most that."
            )
        if self.batch % self.minibatch:
            raise ValueError(
                f"minibatch is {self.minibatch}, which does not divide the {self.batch} samples of a rollout "
                f"({self.num_envs} games x {self.rollout} steps); choose a divisor."
            )
        return self

    @property
    def batch(self) -> int:
        return self.num_envs * self.rollout

    @property
    def minibatches(self) -> int:
        return self.batch // self.minibatch

    @property
    def gradient_steps(self) -> int:
        """Gradient steps of one update."""
        return self.epochs * self.minibatches

    @property
    def updates(self) -> int:
        """As many as the steps need, rounded up."""
        return -(-self.num_train_steps // self.batch)

    @property
    def constant(self) -> bool:
        """Without schedules, a compiled program does not depend on the number of steps."""
        return self.lr_final is None and self.ent_final is None

    @property
    def unit(self) -> float:
        """The divisor of rewards."""
        return self.scale or 1.0

    def split(self, devices: int) -> TrainOptions:
        """The share of one device; schedules still end after as many updates."""
        share = {
            "num_envs": self.num_envs // devices,
            "minibatch": self.minibatch // devices,
            "num_train_steps": -(-self.num_train_steps // devices),
        }
        return self.model_copy(update=share)

    def entropy_at(self, update: Array) -> Array:
        if self.ent_final is None:
            return jnp.asarray(self.ent, jnp.float32)
        final = self.ent_final
        done = update / max(self.updates - 1, 1)
        return jnp.asarray(self.ent + (final - self.ent) * jnp.minimum(done, 1.0), jnp.float32)


class EnvOptions(Options):
    """The environment; every other key is an option of its game."""

    model_config = ConfigDict(**{**Options.model_config, "extra": "allow"})
    id: str | None = Field(None, description="environment id, which names the game; --game sets it")

    @property
    def game(self) -> str:
        known = env_ids()
        if self.id is None:
            names = " or ".join(dict.fromkeys(known.values()))
            raise BadInput(f"The job names no game; use --game {names}, or set env.id.")
        if self.id not in known:
            raise BadInput(f"There is no environment {self.id!r}; choose one of {', '.join(known)}.")
        return known[self.id]

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class ModelOptions(Options):
    """Which language model is asked, and what its failures and costs may be."""

    provider: str = Field("auto", description="preset of the language model: auto, embedded, groq or any other")
    model: str | None = Field(None, description="replaces the preset's model")
    cache: str | None = Field(
        "auto", description="file of earlier answers; auto: in the user's cache folder; null: none"
    )
    budget: Budget = Field(
        default_factory=Budget,
        description="limits on calls, tokens, money and seconds; after that no question is asked",
    )
    failure_policy: Literal["neutral", "stop"] = Field(
        "neutral", description="continue without the answer, or stop the run"
    )
    failure_share: float = Field(0.5, ge=0, le=1, description="stop if more than this share of the window failed")
    failure_window: int = Field(50, ge=1, description="number of questions in the window")


class RewardOptions(ModelOptions):
    """What the learner is paid for; the model is asked with `llm_judge` only."""

    mode: RewardMode = Field("payoff", description="payoff: the game's own; style or llm_judge: 1 for a style, else 0")
    style: str | None = Field(None, description="the style of play that is paid for; the game offers several")
    payoff_weight: float = Field(0.0, ge=0, description="share of the game's payoff, in units of a good return, on top")
    prompt_path: str = Field("configs/llm_judge_prompt.txt", description="template of the question to the judge")

    @model_validator(mode="after")
    def _style_fits(self) -> RewardOptions:
        if self.mode == "payoff" and (self.style is not None or self.payoff_weight):
            name = "payoff_weight" if self.style is None else "style"
            raise ValueError(f"reward.{name} is set but reward.mode is payoff; set reward.mode to style or llm_judge.")
        if self.mode != "payoff" and self.style is None:
            raise ValueError(f"reward.mode is {self.mode} but reward.style names no style; set it, or use payoff.")
        return self


class HintOptions(ModelOptions):
    """The source of hints, and how often they come."""

    mode: HintMode = Field("none", description="none, random, llm, expert or shuffled")
    cadence_k: int = Field(1, ge=1, description="a hint on reset and after every k steps")
    expert: Expert = Field("auto", description="who gives expert hints; auto: the checkpoint, else the reference")
    checkpoint: str | None = Field(None, description="a run or file that gives expert hints; null: none")
    prompt_path: str = Field("configs/llm_prompt.txt", description="template of the question to an LLM")
    max_history_turns: int | None = Field(
        None, ge=0, description="newest lines of the history in the question; null: all"
    )
    max_prompt_chars: int | None = Field(
        None, ge=1, description="omits older lines until the question fits; null: no limit"
    )

    @model_validator(mode="after")
    def _expert_fits(self) -> HintOptions:
        if self.expert == "checkpoint" and self.checkpoint is None:
            raise ValueError("hints.expert is checkpoint but hints.checkpoint names none; set it to a run or a file.")
        if self.expert in ("reference", "greedy") and self.checkpoint is not None:
            raise ValueError(
                f"hints.checkpoint is set but hints.expert is {self.expert}, which would ignore it; remove one of them."
            )
        return self


class LogOptions(Options):
    """What a run writes, and where."""

    output_dir: str = Field("runs", description="runs are folders in it")
    csv: bool = Field(True, description="metrics.csv, evaluations.csv")
    tensorboard: bool = Field(True, description="TensorBoard event files")
    log_every: int | None = Field(None, ge=1, description="steps between two rows; null: 200 rows")
    eval_every: int | None = Field(None, ge=1, description="steps between two evaluations; null: ten in all")
    eval_episodes: int = Field(1024, ge=1, description="episodes of an evaluation, greedy, on fresh contexts")
    save_every: int | None = Field(None, ge=1, description="steps between two checkpoints; null: ten in all")


class CurriculumPhase(Options):
    """What differs from the job until a number of steps is reached."""

    until: int | None = Field(None, ge=1, description="steps at which this phase ends; null: the end of training")
    env: dict[str, Any] = Field(default_factory=dict, description="options of the game that differ")
    hints: dict[str, Any] = Field(default_factory=dict, description="hint options that differ")
    opponent: PlayerSpec | None = Field(None, description="replaces the opponent")


class Job(Options):
    """A whole training job."""

    algo: Algo = Field("ppo", description="algorithm: ppo, reinforce or supervised")
    env: EnvOptions = Field(default_factory=EnvOptions)
    opponent: PlayerSpec | None = Field(
        None,
        description="any bot of the game, expert, self, policy:RUN, or a mix by weight; null: heuristic, else random",
    )
    hints: HintOptions = Field(default_factory=HintOptions)
    reward: RewardOptions = Field(default_factory=RewardOptions)
    train: TrainOptions = Field(default_factory=TrainOptions)
    logging: LogOptions = Field(default_factory=LogOptions)
    curriculum: tuple[CurriculumPhase, ...] = Field((), max_length=100, description="list of phases, in order")
    seed: int = Field(0, ge=0, lt=2**32, description="seed of the first learner")
    seeds: int = Field(1, ge=1, description="number of learners in one program, with consecutive seeds")

    @model_validator(mode="before")
    @classmethod
    def _phases(cls, values: Any) -> Any:
        if isinstance(values, dict) and isinstance(values.get("curriculum"), list):
            return {**values, "curriculum": tuple(values["curriculum"])}
        return values

    @model_validator(mode="after")
    def _ordered(self) -> Job:
        ends = [phase.until for phase in self.curriculum]
        if any(end is None for end in ends[:-1]):
            raise ValueError("Only the last phase of a curriculum may lack 'until'.")
        known = [end for end in ends if end is not None]
        if known != sorted(set(known)):
            raise ValueError(f"The phases of the curriculum end at {known}; each must end later than the previous one.")
        return self

    def phases(self) -> list[tuple[int, Job]]:
        """The end of each phase, in steps, and the job during that phase."""
        total = self.train.num_train_steps
        found: list[tuple[int, Job]] = []
        for phase in self.curriculum:
            found.append((min(phase.until or total, total), self._in(phase)))
        if not found or found[-1][0] < total:
            found.append((total, self))
        return found

    def with_steps(self, steps: int) -> Job:
        return self.model_copy(update={"train": self.train.model_copy(update={"num_train_steps": steps})})

    def _in(self, phase: CurriculumPhase) -> Job:
        env = {"id": self.env.id, **self.env.options, **phase.env}
        hints = {**self.hints.model_dump(), **phase.hints}
        changed = {
            "env": EnvOptions.read(env, "key of curriculum.env"),
            "hints": HintOptions.read(hints, "key of curriculum.hints"),
            "opponent": self.opponent if phase.opponent is None else phase.opponent,
        }
        return self.model_copy(update=changed)


def read_job(path: str | Path | None, changes: Mapping[str, Any]) -> Job:
    """A YAML file, with the changes that the command line makes."""
    values: dict[str, Any] = {}
    if path is not None:
        try:
            values = load_yaml(find(path).read_text(encoding="utf-8")) or {}
        except OSError as error:
            raise BadInput(f"The config {path} cannot be read ({error.strerror}); give a YAML file.") from None
        except UnicodeDecodeError:
            raise BadInput(f"The config {path} is not text; give a YAML file.") from None
        except yaml.YAMLError as error:
            where = getattr(error, "problem_mark", None)
            line = f", line {where.line + 1}" if where else ""
            raise BadInput(f"The config {path}{line} is not valid YAML.") from None
        if not isinstance(values, dict):
            raise BadInput(f"The config {path} must be a table of keys, not {type(values).__name__}.")
    job = Job.read(_merged(values, changes), "key of the config")
    _check_env_options(job.env, {key: str(path) for key in values.get("env") or {}})
    return job


def _check_env_options(env: EnvOptions, sources: Mapping[str, str]) -> None:
    """Raises BadInput if an option belongs to another game, which usually means that the config does."""
    known = get_game(env.game).options.model_fields if env.options else {}
    for key in env.options:
        if key in known:
            continue
        others = [game for game in usable_games() if key in get_game(game).options.model_fields]
        if others:
            raise BadInput(
                f"{sources.get(key, '--set')} sets env.{key}, which {env.game} does not have; "
                f"use --game {' or '.join(others)} or remove the key."
            )


def _merged(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(values)
    for name, change in changes.items():
        old = merged.get(name)
        merged[name] = _merged(old, change) if isinstance(old, dict) and isinstance(change, Mapping) else change
    return merged
