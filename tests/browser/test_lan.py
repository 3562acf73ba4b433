"""The page on another machine of the LAN: plain HTTP, where browsers offer no clipboard."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.browser.conftest import Open, start_from_page
from tests.live.conftest import Served, start_server

pytestmark = pytest.mark.conformance
PASTE = """() => {
  const box = document.createElement("textarea");
  box.id = "paste";
  document.body.append(box);
  box.focus();
}"""


@pytest.fixture(scope="module")
def lan(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, str]]:
    """A server as another machine sees it, under a name that is not localhost; and its invitation."""
    store = tmp_path_factory.mktemp("lan") / "kibitz.db"
    words = ("--host", "0.0.0.0", "--token", "the-operators-own", "--guests", "--no-warm", "--pace", "0")
    started = start_server(store, *words)
    port = started.url.rpartition(":")[2]
    token = started.invitation.partition("#token=")[2]
    yield Served(f"http://kibitz.lan:{port}", started.process), token
    assert started.stop() == 0


def pasted(page: Any) -> str:
    page.evaluate(PASTE)
    page.keyboard.press("Control+V")
    return str(page.locator("#paste").input_value())


def test_a_guest_starts_with_the_invitation_and_copies_both_links_without_https(
    lan: tuple[Served, str], open_page: Open
) -> None:
    served, token = lan
    page = open_page(f"/custom#token={token}", served=served)
    assert page.evaluate("() => [window.isSecureContext, navigator.clipboard ?? null]") == [False, None]
    start_from_page(page, "Deal or no deal", Seat_0="human", Seat_1="human", Agent_starts="true", Seed="3")
    dialog = page.get_by_role("dialog", name="Two people play")
    dialog.get_by_role("link").nth(1).wait_for()
    assert "token" not in page.url
    addresses = [link.inner_text() for link in dialog.get_by_role("link").all()]
    dialog.get_by_role("button", name="Copy the link of seat 1").click()
    dialog.get_by_text("Copied").wait_for()
    page.keyboard.press("Escape")
    assert pasted(page) == addresses[1]
    other = open_page(addresses[0].removeprefix(served.url), served=served)
    other.locator(".seat.mine").wait_for()
    assert "#" not in other.url and json.dumps(other.evaluate("() => ({...sessionStorage})")).count("seat:") == 1
