"""The docs are true: they cover every command, option, player and pack, and everything they name exists."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from kibitz.cli import app
from kibitz.cli.setup import extras
from kibitz.core import registry
from kibitz.games import get_game, pack_names
from kibitz.games.cricket.envs.gym_env import EnvOptions as CricketOptions
from kibitz.games.deal_or_no_deal.envs.gym_env import EnvOptions
from kibitz.train.config import CurriculumPhase, HintOptions, Job, LogOptions, RewardOptions, TrainOptions, read_job
from tests.blocks import PROGRAMS, blocks_of, pages
from tests.conftest import SLOWEST_FIRST
from tools import reference

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
SITE_PAGES = {page.relative_to(DOCS).as_posix(): page for page in sorted(DOCS.rglob("*.md"))}
PAGES = pages()
TEXT = {name: page.read_text(encoding="utf-8") for name, page in PAGES.items()}
BUILT_IN = [name for name, entry in registry.registered(registry.GAMES).items() if entry.value.startswith("kibitz.")]

NOT_MODULES = {"kibitz.db", "kibitz.git", registry.GAMES, registry.PLAYERS, registry.ENVS}
FOLDERS = "kibitz|tests|configs|tools|docs|deploy|examples"
# A path may be given from the repository, from the package or from the page's folder.
PATH_ROOTS = [ROOT, ROOT / "kibitz", ROOT / "kibitz" / "live", ROOT / "kibitz" / "live" / "static"]
NOT_FILES = {"tools/call", "tools/list", "configs/llm_prompt_cricket.txt"}  # methods of MCP, an alias


def _commands(group: Any = None, prefix: str = "") -> Iterator[tuple[str, set[str]]]:
    """Every command that does something, with its flags."""
    for name, command in (group or typer.main.get_command(app)).commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, f"{prefix}{name} ")
        else:
            yield (
                f"{prefix}{name}",
                {flag for option in command.params for flag in (*option.opts, *option.secondary_opts)},
            )


COMMANDS = dict(_commands())


@pytest.mark.parametrize("name", sorted({**EnvOptions.model_fields, **CricketOptions.model_fields}))
def test_every_option_of_the_environment_is_documented(name: str) -> None:
    assert f"`{name}`" in TEXT["environments.md"]


@pytest.mark.parametrize("model", [TrainOptions, HintOptions, RewardOptions, LogOptions, CurriculumPhase, Job])
def test_every_key_of_a_training_config_is_documented(model: type) -> None:
    for name in model.model_fields:  # type: ignore[attr-defined]
        assert re.search(rf"[`.]{name}[`.*]", TEXT["training.md"]), name


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_is_documented_with_its_flags(command: str) -> None:
    everything = "\n".join(TEXT.values())
    assert re.search(rf"(kibitz|make) {command}(?![\w-])", everything)
    for flag in COMMANDS[command]:
        assert not flag.startswith("--") or re.search(rf"{flag}(?![\w-])", everything), flag


def test_every_extra_is_documented_with_its_size() -> None:
    for extra in extras.PURPOSES:
        assert re.search(rf"^\| `{extra}` \|.+\| [\d.]+ \|$", TEXT["install.md"], re.MULTILINE), extra


def test_every_player_is_documented() -> None:
    for game in BUILT_IN:
        for name in get_game(game).bots:
            assert f"`{name}`" in TEXT["evaluation.md"], name


@pytest.mark.parametrize("page", TEXT)
def test_commands_in_the_docs_exist_with_their_flags(page: str) -> None:
    code = "\n".join(re.findall(r"^```\n(.*?)^```", TEXT[page], re.MULTILINE | re.DOTALL))
    for line in re.findall(r"^(?:\.venv/bin/)?kibitz (.+)$", code, re.MULTILINE):
        words = shlex.split(line, comments=True)
        command = next((name for name in (words[0], " ".join(words[:2])) if name in COMMANDS), None)
        assert command is not None, line
        unknown = {word.partition("=")[0] for word in words if word.startswith("--")} - COMMANDS[command] - {"--help"}
        assert not unknown, line


@pytest.mark.parametrize("page", TEXT)
def test_blocks_that_a_test_cannot_run_are_marked(page: str) -> None:
    """tests/test_blocks.py runs the others."""
    for block in blocks_of(page, TEXT[page]):
        if not block.language and not block.not_run:
            others = {words[0] for words in block.commands()} - PROGRAMS
            assert not others, f"{block.where} runs {others}; put `<!-- not run: REASON -->` in front of the block"


@pytest.mark.parametrize("page", TEXT)
def test_modules_and_names_in_the_docs_exist(page: str) -> None:
    for name in set(re.findall(r"(?<![\w./-])kibitz(?:\.[A-Za-z_]\w*)+", TEXT[page])) - NOT_MODULES:
        assert _exists(name), f"{page} names {name}"


def _exists(name: str) -> bool:
    """Whether a dotted name is a module, or an attribute of one. Only attributes need an import."""
    module, _, attribute = name.rpartition(".")
    try:
        if find_spec(name) is not None:
            return True
    except ModuleNotFoundError:  # its parent is not a package
        pass
    return bool(module) and find_spec(module) is not None and hasattr(import_module(module), attribute)


@pytest.mark.parametrize("page", TEXT)
def test_imports_in_code_examples_work(page: str) -> None:
    for block in re.findall(r"^```python\n(.*?)^```", TEXT[page], re.MULTILINE | re.DOTALL):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("kibitz"):
                for name in node.names:
                    assert _exists(f"{node.module}.{name.name}"), f"{page} imports {name.name} from {node.module}"


@pytest.mark.parametrize("page", TEXT)
def test_files_in_the_docs_exist(page: str) -> None:
    named = set(re.findall(rf"(?<![\w./-])(?:{FOLDERS})/[\w./-]*[\w/]", TEXT[page]))
    named |= set(re.findall(r"`([\w-]+(?:/[\w.-]+)+\.(?:py|js|css|yaml|json|txt|md))`", TEXT[page]))
    for path in sorted(named - NOT_FILES):
        if not re.search(r"NAME|GAME|RUN|FILE|FOLDER|runs/", path):  # placeholders, and what users create
            assert any((root / path).exists() for root in PATH_ROOTS), f"{page} names {path}"


def test_the_files_and_folders_that_run_first_exist() -> None:
    paths = [ROOT / "tests" / name for name in SLOWEST_FIRST]
    assert [path for path in paths if not (path.is_dir() or path.with_suffix(".py").exists())] == []


def test_links_between_pages_lead_somewhere() -> None:
    for name, page in PAGES.items():
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", TEXT[name]):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{name} -> {target}"


def test_every_page_is_in_the_contents_of_the_site() -> None:
    listed = re.findall(r"^([\w/-]+)$", TEXT["index.md"], re.MULTILINE)
    assert len(listed) == len(set(listed))
    assert {f"{name}.md" for name in listed} == set(SITE_PAGES) - {"index.md"}, "list every page in docs/index.md"


@pytest.mark.parametrize("page", reference.PAGES)
def test_the_reference_is_what_the_code_says(page: str) -> None:
    stored = (DOCS / "reference" / f"{page}.md").read_text(encoding="utf-8")
    assert stored == reference.text_of(page), f"docs/reference/{page}.md is out of date; run `make reference`"


def test_every_environment_variable_in_the_code_is_in_the_reference() -> None:
    assert reference.named_variables() == set(reference.VARIABLES)


@pytest.mark.parametrize("page", ["commands", "configuration", "routes", "events"])
def test_every_entry_of_the_reference_has_a_meaning(page: str) -> None:
    assert re.findall(r"^\|.*\|\s+\|$", (DOCS / "reference" / f"{page}.md").read_text(), re.MULTILINE) == []


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


@pytest.mark.parametrize("game", BUILT_IN)
def test_every_pack_is_documented(game: str) -> None:
    for name in pack_names(game):
        assert f"`{name}`" in TEXT["evaluation.md"], name
