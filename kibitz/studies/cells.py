"""The cells of a study: what each of its learners trains with."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kibitz.core.errors import BadInput
from kibitz.core.options import parse_settings
from kibitz.train.config import Job, read_job
from kibitz.train.llm_hints.plan import whole_updates
from kibitz.train.start import changes_of, default_config

FUNCTIONS = ("none", "random", "shuffled", "expert")  # sources of hints inside the compiled program
MODEL = "llm:"
MAX_CELLS = 500
RANGE = re.compile(r"(.+)\.\.(.+)")
WIDE = 10.0  # a range whose ends differ by at least this factor is drawn on a logarithmic scale


@dataclass(frozen=True)
class Cell:
    """One configuration; its seeds train in one program."""

    name: str  # of its folder
    labels: dict[str, Any]  # what sets it apart from the other cells
    job: Job


def configured_game(configs: Sequence[str], options: Sequence[str]) -> str | None:
    """The game that the configs or `--set` name, as for `kibitz train`."""
    env = parse_settings(list(options)).get("env")
    named = {"env": {"id": env["id"]}} if isinstance(env, dict) and "id" in env else {}
    paths: Sequence[str | None] = configs or [None]
    jobs = [read_job(path, named) for path in paths]
    names = {job.env.game for job in jobs if job.env.id is not None}
    if len(names) > 1:
        raise BadInput(f"The configs are for different games ({', '.join(sorted(names))}); give one of them.")
    return names.pop() if names else None


def hint_cells(asked: Mapping[str, Any]) -> list[Cell]:
    """Algorithm x source x cadence. `none` has no cadence; models may have their own seeds and cadences."""
    _check(asked)
    sources: list[str] = asked["sources"]
    for source in sources:
        if source not in FUNCTIONS and not source.startswith(MODEL):
            raise BadInput(f"There is no source of hints {source!r}; choose from {', '.join(FUNCTIONS)}, llm:PRESET.")
    cells = []
    for algo, source in itertools.product(asked["algos"], sources):
        model = source.startswith(MODEL)
        cadences = asked["model_cadences"] if model else asked["cadences"]
        for cadence in cadences if source != "none" else [None]:
            hints = {"mode": "llm", "provider": source.removeprefix(MODEL)} if model else {"mode": source}
            if cadence is not None:
                hints["cadence_k"] = cadence
            seeds = min(asked["model_seeds"] or asked["seeds"], asked["seeds"]) if model else asked["seeds"]
            name = _slug(f"{algo}-{source}" + ("" if cadence is None else f"-k{cadence}"))
            labels = {"algorithm": algo, "source": source, "cadence": cadence}
            cells.append(Cell(name, labels, _job(asked, algo, seeds, {"hints": hints})))
    return _distinct(cells)


def sweep_cells(asked: Mapping[str, Any]) -> list[Cell]:
    """The config as it is, then the grid over the varied keys, or as many random settings as asked for."""
    _check(asked)
    axes = dict(map(_axis, asked["vary"]))
    if len(axes) < len(asked["vary"]):
        raise BadInput("Two --vary options name the same key; list all of its values in one.")
    cells = []
    for algo in asked["algos"]:
        settings = list(_random(axes, asked["random"], asked["seed"]) if asked["random"] else _grid(axes))
        for number, setting in enumerate([{}, *settings]):
            pairs = [f"{key}={value}" for key, value in setting.items()]
            labels = {"algorithm": algo, "setting": ", ".join(pairs) or "config"}
            name = f"{algo}-{number:03d}" if setting else f"{algo}-config"
            cells.append(Cell(name, labels, _job(asked, algo, asked["seeds"], {}, pairs)))
    return _distinct(cells)


def _job(asked: Mapping[str, Any], algo: str, seeds: int, changed: Mapping[str, Any], pairs: Sequence[str] = ()) -> Job:
    changes = changes_of(
        algo=algo,
        game=asked["game"],
        opponent=asked["opponent"],
        seed=asked["seed"],
        seeds=seeds,
        steps=asked["steps"],
        options=[*asked["set"], *pairs],
    )
    for group, values in changed.items():
        changes[group] = {**changes.get(group, {}), **values}
    logging = {"tensorboard": False, "csv": True, **changes.get("logging", {})}
    job = read_job(_config(asked["configs"], algo) or default_config(changes), changes | {"logging": logging})
    if job.curriculum:
        raise BadInput("A study compares single configurations; remove the curriculum from its config.")
    models = any(source.startswith(MODEL) for source in asked.get("sources", ()))
    return whole_updates(job) if models else job  # all cells learn in equal updates


def _check(asked: Mapping[str, Any]) -> None:
    """Refuses what would have no effect: configs of other algorithms, and keys that an option of the study sets."""
    flags = {"algo": "--algos", "seed": "--seed", "seeds": "--seeds"}
    always = {"env.id": "--game"}
    given = {"opponent": "opponent", "train.num_train_steps": "steps"}
    always |= {key: f"--{option}" for key, option in given.items() if asked[option] is not None}
    for texts, known in ((asked["set"], flags), (asked.get("vary", ()), flags | always)):
        for text in texts:
            if option := known.get(key := text.partition("=")[0].strip()):
                raise BadInput(f"{option} sets {key} for every cell; use that option instead of {text!r}.")
    for path in asked["configs"]:
        if (algo := read_job(path, {}).algo) not in asked["algos"]:
            raise BadInput(f"{path} is for {algo}, which is not among the algorithms; add it to --algos.")


def _config(paths: Sequence[str], algo: str) -> str | None:
    """The config among these that is for this algorithm."""
    found = [path for path in paths if read_job(path, {}).algo == algo]
    if len(found) > 1:
        raise BadInput(f"{found[0]} and {found[1]} are both for {algo}; give one config for each algorithm.")
    return found[0] if found else None


def _axis(text: str) -> tuple[str, str]:
    key, equals, values = text.partition("=")
    if not (equals and key and values):
        raise BadInput(f"{text!r} is not of the form key=value,value or key=low..high, as in train.lr=1e-4,1e-3.")
    return key, values


def _grid(axes: Mapping[str, str]) -> Iterator[dict[str, str]]:
    for key, values in axes.items():
        if RANGE.fullmatch(values):
            raise BadInput(f"{key}={values} is a range; a grid needs values (a,b,c), or use --random N.")
    lists = [values.split(",") for values in axes.values()]
    if (count := _product(map(len, lists))) > MAX_CELLS:
        raise BadInput(f"The grid has {count:,} settings, more than {MAX_CELLS:,}; use --random N, or fewer values.")
    for setting in itertools.product(*lists):
        yield dict(zip(axes, setting, strict=True))


def _random(axes: Mapping[str, str], count: int, seed: int) -> Iterator[dict[str, str]]:
    """Different settings, drawn with this seed; fewer than `count` where there are no more."""
    draw, seen = random.Random(seed), set()
    for _ in range(100 * count):
        setting = {key: _drawn(key, values, draw) for key, values in axes.items()}
        if (identity := tuple(setting.values())) not in seen:
            seen.add(identity)
            yield setting
        if len(seen) == count:
            return


def _drawn(key: str, values: str, draw: random.Random) -> str:
    match = RANGE.fullmatch(values)
    if match is None:
        return draw.choice(values.split(","))
    try:
        low, high = map(float, match.groups())
    except ValueError:
        raise BadInput(f"{key}={values} is not a range of numbers, as in 1e-4..1e-2.") from None
    if not low < high:
        raise BadInput(f"{key}={values} should rise, as in 1e-4..1e-2.")
    if re.fullmatch(r"-?\d+\.\.-?\d+", values):
        return str(draw.randint(int(low), int(high)))
    wide = low > 0 and high / low >= WIDE
    return f"{low * (high / low) ** draw.random() if wide else draw.uniform(low, high):.4g}"


def _product(sizes: Iterator[int]) -> int:
    total = 1
    for size in sizes:
        total *= size
    return total


def _distinct(cells: list[Cell]) -> list[Cell]:
    names = [cell.name for cell in cells]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise BadInput(f"The study has the cell {twice} twice; name every algorithm, source and cadence once.")
    if not cells:
        raise BadInput("The study has no cells; name at least one algorithm and one source.")
    return cells


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9.-]+", "_", text)
