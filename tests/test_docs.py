"""The docs are true: nothing a user may set or call is missing, and nothing they name is gone."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml
from typer.models import CommandInfo

from kibitz.cli import app
from kibitz.games import game_names, get_game, pack_names
from kibitz.games.cricket.envs.gym_env import EnvOptions as CricketOptions
from kibitz.games.deal_or_no_deal.envs.gym_env import EnvOptions
from kibitz.train.config import HintOptions, Job, LogOptions, Phase, TrainOptions, read_job

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
TEXT = {page.name: page.read_text(encoding="utf-8") for page in PAGES}


def _commands() -> set[str]:
    own = set(_names(app.registered_commands))
    for group in app.registered_groups:
        assert group.typer_instance is not None
        own |= {f"{group.name} {name}" for name in _names(group.typer_instance.registered_commands)}
    return own


def _names(commands: list[CommandInfo]) -> list[str]:
    return [command.name or command.callback.__name__ for command in commands if command.callback]


@pytest.mark.parametrize("name", sorted({**EnvOptions.model_fields, **CricketOptions.model_fields}))
def test_every_option_of_the_environment_is_documented(name: str) -> None:
    assert f"`{name}`" in TEXT["environments.md"]


@pytest.mark.parametrize("model", [TrainOptions, HintOptions, LogOptions, Phase, Job])
def test_every_key_of_a_training_config_is_documented(model: type) -> None:
    for name in model.model_fields:  # type: ignore[attr-defined]
        assert re.search(rf"[`.]{name}[`.*]", TEXT["training.md"]), name


def test_every_command_is_documented() -> None:
    everything = "\n".join(TEXT.values())
    for command in _commands():
        assert f"kibitz {command}" in everything or f"make {command}" in everything, command


def test_every_player_is_documented() -> None:
    for game in game_names():
        for name in get_game(game).bots:
            assert f"`{name}`" in TEXT["evaluation.md"], name


def test_commands_in_the_docs_exist_with_their_flags() -> None:
    flags = {
        "train": "--algo --hint --config --game --opponent --seed --seeds --steps --out --resume --set --json",
        "evaluate": "--game --player --opponent --episodes --pack --contexts --seed --set --json",
        "play": "--game --opponent --contexts --seed --set --json",
    }
    for text in TEXT.values():
        code = "\n".join(re.findall(r"^```\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
        for line in re.findall(r"^(?:\.venv/bin/)?kibitz (.+)$", code, re.MULTILINE):
            words = shlex.split(line, comments=True)
            assert words[0] in {command.split()[0] for command in _commands()}, line
            for word in words:
                if word.startswith("--") and words[0] in flags:
                    assert word in flags[words[0]].split(), line


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", TEXT[page.name]):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name} -> {target}"


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*_*.yaml")), ids=lambda p: p.name)
def test_the_training_configs_are_valid(path: Path) -> None:
    values = yaml.safe_load(path.read_text(encoding="utf-8"))
    if "train" in values:
        read_job(path, {})


def test_the_seeds_values_stand_in_its_configs() -> None:
    ppo = read_job(ROOT / "configs" / "ppo_config.yaml", {}).train
    assert (ppo.lr, ppo.gamma, ppo.gae_lambda, ppo.clip) == (3e-4, 0.99, 0.95, 0.2)
    assert (ppo.epochs, ppo.minibatch, ppo.ent, ppo.vf, ppo.grad_norm, ppo.rollout) == (4, 64, 0.0, 0.5, 0.5, 128)
    reinforce = read_job(ROOT / "configs" / "reinforce_config.yaml", {}).train
    assert (reinforce.lr, reinforce.gamma, reinforce.ent) == (3e-4, 0.99, 0.01)


def test_no_page_has_a_figure_left_to_fill_in() -> None:
    for name, text in TEXT.items():
        assert not re.search(r"FIGURES_|TODO|XXX", text), name


def test_no_index_address_is_in_the_repository() -> None:
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    assert "://" not in lock
    assert "--" not in lock


@pytest.mark.parametrize("game", game_names())
def test_every_pack_is_documented(game: str) -> None:
    for name in pack_names(game):
        assert f"`{name}`" in TEXT["evaluation.md"], name
