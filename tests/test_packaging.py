"""The package declares its version, its dependencies and its entry points correctly."""

from __future__ import annotations

import ast
import json
import os
import re
import signal
import site
import subprocess
import sys
import tarfile
import time
import tomllib
import venv
import zipfile
from collections.abc import Callable
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
import yaml

import kibitz
from kibitz.cli.setup.extras import MODULES
from tests.cli.test_commands import AT_A_TERMINAL
from tests.teach.models import tiny_model
from tools import audit, bill_of_materials

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def _name(requirement: str) -> str:
    return re.split(r"[\[<>=~!; ]", requirement)[0].lower().replace("_", "-")


def test_the_version_is_the_same_everywhere() -> None:
    assert PROJECT["version"] == kibitz.__version__
    assert kibitz.__version__ in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    for name in ("CITATION.cff", "openenv.yaml"):
        assert yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))["version"] == kibitz.__version__, name


def test_the_citation_names_what_a_reader_needs() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors", "license", "repository-code"} <= set(citation)
    assert (citation["license"], citation["repository-code"]) == (PROJECT["license"], PROJECT["urls"]["Repository"])


def test_the_templates_for_issues_are_valid_forms() -> None:
    for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"):
        form = yaml.safe_load(path.read_text(encoding="utf-8"))
        if path.name != "config.yml":
            assert {"name", "description", "body"} <= set(form)
            assert all(part["type"] == "markdown" or part["attributes"]["label"] for part in form["body"])


def test_the_workflow_installs_every_system_package_of_the_makefile() -> None:
    """On GitHub's machines apt needs sudo, so .ci/run cannot install them, and tests that need them fail there."""
    (packages,) = re.findall(r"^PACKAGES = (.+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))["jobs"]
    (install,) = [step["run"] for step in jobs["checks"]["steps"] if "apt-get install" in step.get("run", "")]
    ubuntu = {"chromium-headless-shell": "chromium-browser"}
    assert {ubuntu.get(name, name) for name in packages.split()} <= set(install.split())


def test_the_readme_reads_the_same_on_a_package_index() -> None:
    """Its links are absolute, and each leads to a file of this repository."""
    text, repository = (ROOT / "README.md").read_text(encoding="utf-8"), PROJECT["urls"]["Repository"]
    raw = repository.replace("github.com", "raw.githubusercontent.com")
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        path = target.removeprefix(f"{repository}/blob/main/").removeprefix(f"{raw}/main/")
        assert path != target and (ROOT / path).is_file(), target
    assert len(text.splitlines()) < 110, "three screens"


def test_the_bill_of_materials_has_every_locked_package() -> None:
    bill = bill_of_materials.bill_of_materials()
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").split()
    assert [f"{part['name']}=={part['version']}" for part in bill["components"]] == lines
    assert (bill["bomFormat"], bill["metadata"]["component"]["version"]) == ("CycloneDX", kibitz.__version__)
    references = {part["bom-ref"] for part in bill["components"]}
    (own,) = bill["dependencies"]
    assert "pkg:pypi/jax@" in "".join(own["dependsOn"]) and set(own["dependsOn"]) <= references
    licences = {part["name"]: part.get("licenses") for part in bill["components"]}
    assert licences["numpy"], "installed, so its licence is known"


REPORT: dict[str, list[dict[str, Any]]] = {
    "dependencies": [
        {"name": "numpy", "version": "2.0.0", "vulns": []},
        {"name": "jinja2", "version": "3.1.5", "vulns": [{"id": "PYSEC-1", "fix_versions": ["3.1.6"], "aliases": []}]},
        {"name": "torch", "skip_reason": "not on the index"},
    ],
    "fixes": [],
}


CLEAN = {"dependencies": REPORT["dependencies"][:1]}
SKIPPED = {"dependencies": REPORT["dependencies"][2:]}


@pytest.mark.parametrize(
    ("script", "code", "said"),
    [
        (f"print({json.dumps(REPORT)!r}); raise SystemExit(1)", 1, "jinja2 3.1.5: PYSEC-1, fixed in 3.1.6"),
        (f"print({json.dumps(CLEAN)!r})", 0, "kibitz: 0 known vulnerabilities in 1 locked"),
        (f"print({json.dumps(SKIPPED)!r})", 0, "were not audited: not on the index."),
        ("import sys; sys.exit('ConnectionError: no route')", 0, "were not audited: ConnectionError: no route."),
    ],
)
def test_the_audit_reports_what_it_finds_and_why_it_cannot_look(
    script: str, code: int, said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "pip-audit"  # stands in for the service of vulnerabilities
    program.write_text(f"#!{sys.executable} -IS\n{script}\n", encoding="utf-8")
    program.chmod(0o755)
    assert audit.main([str(program)]) == code
    assert said in "".join(capfd.readouterr())
    if "not audited" in said:
        assert audit.main(["--required", str(program)]) == 2
        assert audit.main([str(tmp_path / "missing")]) == 0 and "not installed" in capfd.readouterr().err


# They need other versions of locked packages; `make stacks` installs each by itself.
NOT_LOCKED = {"inspect-ai", "verifiers"}


def test_every_dependency_is_locked_to_one_version() -> None:
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").split()
    locked = {_name(line) for line in lines}
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!+]+", line) for line in lines)
    wanted = [*PROJECT["dependencies"], *(x for extra in PROJECT["optional-dependencies"].values() for x in extra)]
    assert {_name(requirement) for requirement in wanted} - {"kibitz"} - NOT_LOCKED <= locked


EXACT_IMAGE = re.compile(  # PostgreSQL's versions have two numbers
    r"([\w./:-]+:\d+\.\d+\.\d+|postgres:\d+\.\d+)(-[\w.-]+)?(@sha256:[0-9a-f]{64})?|[\w./:-]+@sha256:[0-9a-f]{64}"
)


def images(text: str) -> list[str]:
    """Images that a Dockerfile builds on, or that a compose file or a workflow runs, without a file's own stages."""
    found = re.findall(
        r"^\s*FROM\s+(?:--\S+\s+)*(\S+)|^\s*-?\s*image:\s*[\"']?([^\s\"']+)", text, re.MULTILINE | re.IGNORECASE
    )
    stages = set(re.findall(r"^\s*FROM\s.*\sAS\s+(\S+)", text, re.MULTILINE | re.IGNORECASE))
    return [name for pair in found for name in pair if name and name not in stages]


def test_every_image_has_an_exact_version() -> None:
    """A tag such as 3.11-slim may name another image tomorrow."""
    below = [path for folder in ("deploy", ".ci") for path in (ROOT / folder).rglob("*") if path.is_file()]
    files = [*ROOT.glob("*Dockerfile*"), *ROOT.glob("*.y*ml"), *(path for path in below if path.suffix != ".md")]
    found = {path.name: images(path.read_text(encoding="utf-8")) for path in files}
    assert len(found["Dockerfile"]) == 1
    assert not [name for names in found.values() for name in names if not EXACT_IMAGE.fullmatch(name)]


@pytest.mark.parametrize(
    ("name", "exact"),
    [
        ("python:3.11.14-slim-bookworm", True),
        ("registry.example:5000/python:3.11.14", True),
        ("python@sha256:" + "0" * 64, True),
        ("python", False),
        ("python:latest", False),
        ("python:3.11-slim", False),
        ("python:3-slim", False),
        ("postgres:17.6-alpine", True),
        ("postgres:17-alpine", False),
        ("$BASE", False),
    ],
)
def test_a_floating_tag_is_recognised(name: str, exact: bool) -> None:
    for text in (f"FROM --platform=linux/amd64 {name} AS base\nFROM base\n", f"services:\n  a:\n    image: '{name}'\n"):
        assert images(text) == [name]
    assert bool(EXACT_IMAGE.fullmatch(name)) is exact


def test_security_reports_have_a_private_way_and_name_no_invented_address() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    assert "Report a\nvulnerability" in text and "Supported versions" in text and "In scope" in text
    assert "@" not in text and "SECURITY.md" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_heavy_dependencies_are_extras() -> None:
    base = {_name(requirement) for requirement in PROJECT["dependencies"]}
    assert not base & {"torch", "transformers", "fastapi", "pettingzoo", "pyarrow", "matplotlib", "ray"}
    torch = [x for extra in PROJECT["optional-dependencies"].values() for x in extra if _name(x) == "torch"]
    assert set(torch) <= {"torch==2.13.0"}


# for packages that only `make conformance` installs
DISTRIBUTIONS = {"pyspiel": "open-spiel"} | {module: name for name, module in MODULES.items()}


def imported_modules(path: Path) -> set[str]:
    """Top-level names of the modules that a file imports, also within functions or by `import_module("NAME")`."""
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Import():
                found += [alias.name for alias in node.names]
            case ast.ImportFrom(module=str(module), level=0):
                found.append(module)
            case ast.Call(func=ast.Name(id="import_module"), args=[ast.Constant(value=str(module)), *_]):
                found.append(module)
    return {name.partition(".")[0] for name in found}


def test_every_imported_package_is_declared() -> None:
    """One that another dependency happens to install may be gone with that dependency's next version."""
    extras = PROJECT["optional-dependencies"]
    wanted = [*PROJECT["dependencies"], *(x for extra in extras.values() for x in extra)]
    declared = {_name(requirement) for requirement in wanted}
    installed = packages_distributions()
    undeclared = {}
    for path in (ROOT / "kibitz").rglob("*.py"):
        for module in imported_modules(path) - sys.stdlib_module_names - {"kibitz"}:
            names = installed.get(module, [DISTRIBUTIONS.get(module, module)])
            if not {_name(name) for name in names} & declared:
                undeclared[module] = str(path.relative_to(ROOT))
    assert not undeclared


def test_imports_are_found_wherever_they_are(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text(
        "import a.b, c\nfrom . import d\ndef f():\n    from e.g import h\n    import_module('i.j')\n", encoding="utf-8"
    )
    assert imported_modules(file) == {"a", "c", "e", "i"}


def test_every_entry_point_names_a_module_that_exists() -> None:
    groups = [PROJECT["scripts"], *PROJECT["entry-points"].values()]
    for name, target in (item for group in groups for item in group.items()):
        assert find_spec(target.partition(":")[0]) is not None, name


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source distribution, and the wheel that was built from it and from nothing else."""
    folder = tmp_path_factory.mktemp("dist")
    build = "import sys; sys.path.insert(0, 'tools'); import backend; backend.build_{}(sys.argv[1])"
    subprocess.run([sys.executable, "-c", build.format("sdist"), str(folder)], cwd=ROOT, check=True, timeout=600)
    (sdist,) = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "source", filter="data")
    (source,) = (folder / "source").iterdir()
    subprocess.run([sys.executable, "-c", build.format("wheel"), str(folder)], cwd=source, check=True, timeout=600)
    return folder


@pytest.mark.conformance  # builds the documentation
def test_the_source_distribution_contains_every_tracked_file(built: Path) -> None:
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert [name for name in listed if name not in inside] == []


@pytest.mark.conformance  # builds the documentation; a link that leads nowhere fails the build
def test_the_wheel_contains_the_whole_documentation_and_loads_nothing_from_elsewhere(built: Path) -> None:
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        inside = set(wheel.namelist())
        pages = [name for name in inside if re.fullmatch(r"kibitz/site/[^_].*\.html", name)]
        for page in (ROOT / "docs").rglob("*.md"):
            assert f"kibitz/site/{page.relative_to(ROOT / 'docs').with_suffix('.html')}" in pages
        for name in pages:
            loaded = re.findall(r"<(?:script|link|img)[^>]*(?:src|href)=\"([^\"]+)\"", wheel.read(name).decode())
            assert loaded and not [address for address in loaded if "//" in address], name
    assert not [name for name in inside if name.endswith((".woff", ".woff2", ".ttf"))]


class Installation(NamedTuple):
    """A virtual environment with the wheel; its other packages are those of the tests."""

    python: str
    command: str  # the console script
    packages: Path


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder, with_pip=True)
    python = str(folder / "bin" / "python")
    (wheel,) = built.glob("*.whl")
    command = [python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(command, env=without_python_settings(), check=True, timeout=600)
    (packages,) = (folder / "lib").glob("python*/site-packages")
    # adds folders but not what .pth files in them add, such as an editable installation of this checkout
    (packages / "of_the_tests.pth").write_text("\n".join(site.getsitepackages()) + "\n", encoding="utf-8")
    return Installation(python, str(folder / "bin" / "kibitz"), packages)


def without_python_settings() -> dict[str, str]:
    prefixes = ("XDG_", "KIBITZ_", "PYTHON", "VIRTUAL_ENV", "PIP_")
    return {name: value for name, value in os.environ.items() if not name.startswith(prefixes)}


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The variables of a user whose home is empty at first; later tests find its caches warm."""
    flags = "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"  # compiles sooner
    return without_python_settings() | {"XLA_FLAGS": flags, "HOME": str(tmp_path_factory.mktemp("home"))}


@pytest.fixture
def run(installed: Installation, user: dict[str, str], tmp_path: Path) -> Callable[..., str]:
    """What a command of the wheel prints, in a folder that is empty at first."""

    def run(*words: str) -> str:
        done = subprocess.run(
            [installed.command, *words],
            cwd=tmp_path,
            env=user,
            capture_output=True,
            text=True,
            check=False,
            timeout=1100,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.mark.conformance  # builds the documentation
def test_the_console_script_runs_the_wheel_and_not_this_checkout(
    run: Callable[..., str], installed: Installation, user: dict[str, str], tmp_path: Path
) -> None:
    assert kibitz.__version__ in run("--version")
    where = [installed.python, "-c", "import kibitz; print(kibitz.__file__)"]
    found = subprocess.run(where, cwd=tmp_path, env=user, capture_output=True, text=True, check=True).stdout
    assert Path(found.strip()) == installed.packages / "kibitz" / "__init__.py"
    assert {"deal_or_no_deal", "cricket"} == {
        game["game"] for game in json.loads(run("list", "games", "--json"))["games"]
    }


DEMO = ("demo", "--no-browser", "--steps", "4096", "--episodes", "64")


@pytest.mark.conformance  # about a minute with empty caches
def test_the_wheel_alone_runs_the_demo_which_trains_serves_and_plays_both_games(
    run: Callable[..., str], tmp_path: Path
) -> None:
    found = json.loads(run(*DEMO, "--exit", "--json"))
    assert found["training"]["finished"] and len(list(tmp_path.glob("runs/*/learning_curve.png"))) == 1
    assert 0 < found["players"]["trained"]["share_of_ceiling"] <= 1
    assert set(found["players"]) == {"random", "heuristic", "trained", "bayes"}
    assert found["players"]["bayes"]["return_mean"] > found["players"]["random"]["return_mean"]
    cricket, negotiation = found["live"]["episodes"]
    assert (cricket["game"], cricket["status"]) == ("cricket", "ended")
    assert (negotiation["game"], negotiation["status"]) == ("deal_or_no_deal", "ended")
    assert negotiation["players"][0].startswith("policy:")


# the last test has shown what this leaves out
WITHOUT_COMPARISON = "from kibitz.cli import demo; demo._compare = demo._show_negotiation = lambda *given: {}"


@pytest.mark.conformance  # trains, and starts a server
def test_ctrl_c_ends_the_demo_and_its_server_cleanly(
    installed: Installation, user: dict[str, str], tmp_path: Path
) -> None:
    command = [installed.python, "-c", WITHOUT_COMPARISON + AT_A_TERMINAL, *DEMO]
    demo = subprocess.Popen(command, cwd=tmp_path, env=user, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert demo.stdout is not None
    shown = []
    try:
        for line in demo.stdout:
            shown.append(line)
            if "Ctrl-C" in line:
                break
        time.sleep(0.5)  # it has printed its last line and now waits
        demo.send_signal(signal.SIGINT)
        _, errors = demo.communicate(timeout=60)
    finally:
        demo.terminate()  # also ends its server
    assert demo.returncode == 130, errors
    assert errors.endswith("kibitz: stopped.\n")
    assert "/e/ep-" in "".join(shown)
    assert "Traceback" not in errors


@pytest.mark.conformance  # trains, and starts a server
def test_the_wheel_alone_trains_evaluates_and_serves(
    run: Callable[..., str], installed: Installation, user: dict[str, str], tmp_path: Path
) -> None:
    words = ("train", "--steps", "4096", "--set", "logging.eval_episodes=64", "--out", "runs/mine", "--json")
    assert json.loads(run(*words))["finished"]
    words = ("evaluate", "--player", "policy:runs/mine", "--episodes", "64", "--json")
    assert 0 < json.loads(run(*words))["share_of_ceiling"] <= 1
    command = [installed.command, "serve", "--port", "0", "--no-warm", "--json"]
    server = subprocess.Popen(command, cwd=tmp_path, env=user, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        url = json.loads(server.stdout.readline())["url"]
        assert "<title>" in httpx.get(f"{url}/").text and httpx.get(f"{url}/static/app.js").is_success
        assert "mine" in httpx.get(f"{url}/runs.json").text
    finally:
        server.terminate()
        server.communicate(timeout=60)


@pytest.mark.conformance  # trains a language model
def test_the_wheel_alone_teaches_and_opens_its_documentation(
    run: Callable[..., str], installed: Installation, tmp_path: Path
) -> None:
    base = tiny_model(tmp_path / "model")
    run("teach", "data", "--expert", "heuristic", "--rows", "16", "--out", "rows.jsonl")
    run("teach", "sft", "--base", str(base), "--data", "rows.jsonl", "--out", "runs/taught", "--batch", "8",
        "--max-tokens", "512", "--device", "cpu")  # fmt: skip
    assert (tmp_path / "runs" / "taught" / "adapter").is_dir()
    assert run("docs", "--no-browser").strip() == (installed.packages / "kibitz" / "site" / "index.html").as_uri()
