"""An evening on a LAN: the address that others use, invitations, and options from the environment."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
import typer

from kibitz.cli import app
from kibitz.core.errors import BadInput
from kibitz.live.access.roles import Principal, Tokens
from kibitz.live.app import create_app
from kibitz.live.config import LiveConfig
from kibitz.live.serve import announcement, lan_address
from tests.live.conftest import Serve
from tests.live.machines import wait_until

TOKEN = "the-operators-own"
OPEN = LiveConfig(host="0.0.0.0", token=TOKEN)


def test_the_server_prints_an_address_that_others_can_use() -> None:
    first, second = announcement(OPEN, "0.0.0.0", 8000, as_json=False).splitlines()
    address = urlsplit(first.removeprefix("kibitz: open "))
    assert not ip_address(address.hostname or "").is_unspecified and address.port == 8000
    assert second == "kibitz: on this machine also http://127.0.0.1:8000/"
    assert "::" != lan_address("::") != "0.0.0.0"
    (only,) = announcement(OPEN, "192.168.1.4", 8000, as_json=False).splitlines()
    assert only == "kibitz: open http://192.168.1.4:8000/"
    assert announcement(OPEN, "::1", 80, as_json=False) == "kibitz: open http://[::1]:80/"


def test_an_invitation_lets_its_holder_start_but_not_administer() -> None:
    tokens = Tokens(TOKEN, guests="for-the-evening")
    assert tokens.find("for-the-evening") == Principal("guests", "start")
    assert not Principal("guests", "start").may("administer") and not Principal("guests", "start").may("drive")
    found = json.loads(announcement(replace(OPEN, guests="for-the-evening"), "0.0.0.0", 8000, as_json=True))
    assert found["invitation"] == f"{found['url']}/#token=for-the-evening"
    assert TOKEN not in json.dumps(found)
    with pytest.raises(BadInput, match="needs a server with a token"):
        LiveConfig(guests="for-the-evening").check()


def test_guests_start_a_game_for_two_people_and_see_only_their_own_values(serve: Serve) -> None:
    host = ("--host", "0.0.0.0", "--token", TOKEN, "--guests", "--no-warm", "--max-episodes", "2")
    served = serve(*host)
    token = served.invitation.partition("#token=")[2]
    guest, operator = ({"authorization": f"Bearer {text}"} for text in (token, TOKEN))
    people: dict[str, Any] = {
        "game": "deal_or_no_deal",
        "players": ["human", "human"],
        "options": {"agent_starts": True},
    }

    def start(**more: Any) -> httpx.Response:
        return httpx.post(f"{served.url}/custom/start_episode", json=people, timeout=60, **more)

    assert start().status_code == 401
    answer = start(headers=guest).json()
    episode_id, seats = answer["episode_id"], answer["seats"]
    wait_until(lambda: len(served.events(episode_id)) > 1)  # compiled and dealt
    for one in seats:  # a seat's link needs no other token
        seen = served.events(episode_id, seat_token=one["token"])
        assert {key for event in seen for key in event["payload"].get("private", {})} == {str(one["seat"])}
    assert not any(event["payload"].get("private") for event in served.events(episode_id))
    own = start(headers=operator).json()["episode_id"]
    for path, body in (
        ("/custom/stop_episode", {"episode_id": own}),
        ("/custom/events", None),
        ("/episodes", None),
    ):
        refused = httpx.post(served.url + path, json=body, headers=guest)
        assert refused.status_code == 403, path
    assert httpx.post(f"{served.url}/custom/stop_episode", json={"episode_id": episode_id}, headers=guest).is_success


def test_every_option_of_serve_has_a_variable_and_the_asgi_app_reads_the_same(tmp_path: Path) -> None:
    environment = {
        "KIBITZ_STORE": str(tmp_path / "a.db"), "KIBITZ_TOKEN": TOKEN, "KIBITZ_MAX_EPISODES": "4",
        "KIBITZ_PACE": "0.25", "KIBITZ_WARM": "no", "KIBITZ_RUNS": str(tmp_path), "KIBITZ_AUDIT": "", "UNRELATED": "1",
    }  # fmt: skip
    config = LiveConfig.from_environment(environment)
    assert config == LiveConfig(
        store=str(tmp_path / "a.db"), token=TOKEN, max_episodes=4, pace=0.25, warm=False, runs=tmp_path
    )
    with pytest.raises(BadInput, match="KIBITZ_MAX_EPISODES is 'many'"):
        LiveConfig.from_environment({"KIBITZ_MAX_EPISODES": "many"})
    # KIBITZ_GUESTS=1 is a switch, never a token that anyone can guess
    with pytest.raises(BadInput, match="needs `kibitz serve`, which prints the invitation"):
        LiveConfig.from_environment({"KIBITZ_TOKEN": TOKEN, "KIBITZ_GUESTS": "1"})
    assert not LiveConfig.from_environment({"KIBITZ_TOKEN": TOKEN, "KIBITZ_GUESTS": "no"}).guests
    with pytest.raises(BadInput, match="The invitation's token is too weak"):
        LiveConfig(token=TOKEN, guests="1").check()
    assert create_app(config).state.config.max_episodes == 4
    serve = typer.main.get_command(app).commands["serve"]  # type: ignore[attr-defined]
    assert serve.context_settings["auto_envvar_prefix"] == "KIBITZ"
    names = {option.name for option in serve.params} - {"as_json", "help"}
    assert names <= set(LiveConfig.__dataclass_fields__)


def test_a_variable_sets_an_option_and_the_command_line_overrides_it(
    kibitz: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KIBITZ_HOST", "0.0.0.0")
    monkeypatch.delenv("KIBITZ_TOKEN", raising=False)
    done = kibitz("serve")
    assert done.returncode == 2 and "0.0.0.0 can be reached from other machines" in done.stderr
    monkeypatch.setenv("KIBITZ_TOKEN", "short")
    assert "too weak" in kibitz("serve").stderr
    assert "192.0.2.77 can be reached" in kibitz("serve", "--host", "192.0.2.77", "--token", "").stderr
