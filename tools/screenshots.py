"""Pictures of the cockpit for README and docs: `python tools/screenshots.py docs/pictures [--all]`.

Starts a server and a browser of its own, plays fixed seeds, and leaves PNG files. `--all` adds every
page at 360, 768 and 1440 px in both themes, for a person to look at.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]  # fmt: skip
MATCH, TALK = "ep-picture-match", "ep-picture-talk"


def record() -> dict[str, list[str]]:
    """Two episodes with fixed seeds."""
    from kibitz.core.episode import play_episode
    from kibitz.core.game import seated
    from kibitz.games import cricket, deal_or_no_deal
    from kibitz.players import player_named

    game = cricket.game()
    settings = cricket.CricketOptions(max_overs=10).settings()
    players = [player_named(game, "balanced"), player_named(game, "aggressive")]
    match = play_episode(game, settings, players, seed=21, episode_id=MATCH)
    game = deal_or_no_deal.game()
    bayes = game.rule("bayes")
    settings = seated(deal_or_no_deal.NegotiationOptions().settings(), {0: bayes})
    pair = [player_named(game, "bayes"), player_named(game, "partner:stubborn")]
    adviser = {0: player_named(game, "bayes")}
    talks = [play_episode(game, settings, pair, seed=seed, episode_id=TALK, advisers=adviser) for seed in range(12)]
    talk = max(talks, key=lambda played: (played.returns[0] > 0, played.steps))
    return {MATCH: [e.as_json() for e in match.events], TALK: [e.as_json() for e in talk.events]}


def post(url: str, body: bytes) -> dict[str, Any]:
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        told: dict[str, Any] = json.load(answer)
        return told


class Camera:
    def __init__(self, browser: Any, base: str, folder: Path) -> None:
        self._browser, self.base, self._folder = browser, base, folder

    def open(self, path: str, wait: str, width: int, height: int, theme: str) -> Any:
        page = self._browser.new_page(
            viewport={"width": width, "height": height}, color_scheme=theme, reduced_motion="reduce"
        )
        page.goto(self.base + path)
        page.locator(wait).first.wait_for()
        page.wait_for_timeout(400)
        return page

    def take(self, name: str, path: str, wait: str, width: int = 1440, height: int = 900, theme: str = "light") -> None:
        page = self.open(path, wait, width, height, theme)
        self.keep(page, name)

    def keep(self, page: Any, name: str) -> None:
        page.screenshot(path=str(self._folder / f"{name}.png"))
        page.close()
        print(self._folder / f"{name}.png")


def pictures(camera: Camera, record: dict[str, list[str]], everything: bool) -> None:
    middle = json.loads(record[MATCH][int(len(record[MATCH]) * 0.72)])["seq"]
    camera.take("cricket-1440-light", f"/e/{MATCH}?seq={middle}", ".turns li", height=1000)
    camera.take("cricket-1440-dark", f"/e/{MATCH}?seq={middle}", ".turns li", height=1000, theme="dark")
    camera.take("negotiation-1440-light", f"/e/{TALK}", ".plot .nash", height=1000)
    camera.take("negotiation-1440-dark", f"/e/{TALK}", ".plot .nash", height=1000, theme="dark")
    camera.take("cricket-360-light", f"/e/{MATCH}?seq={middle}", ".turns li", width=360, height=780)
    camera.take("start", "/custom", "form .primary")
    wish = {"game": "deal_or_no_deal", "captain_preset": "human", "opponent_choice": "heuristic", "adviser": "bayes"}
    started = post(f"{camera.base}/custom/start_episode", json.dumps(wish | {"seed": 3}).encode())
    page = camera.open("/lobby", ".episode", 1440, 900, "light")
    page.evaluate(
        "([key, value]) => sessionStorage.setItem(key, value)", [f"seat:{started['episode_id']}", started["seat_token"]]
    )
    page.goto(camera.base + started["url"])
    page.locator(".seat.mine").wait_for(timeout=60_000)
    page.wait_for_timeout(400)
    camera.keep(page, "seat")
    post(f"{camera.base}/custom/stop_episode", b"{}")
    if not everything:
        return
    shown = {
        "cricket-play": (f"/e/{MATCH}?seq={middle}", ".turns li"), "cricket-end": (f"/e/{MATCH}", ".status.ended"),
        "talk": (f"/e/{TALK}?seq=20", ".bubble"), "talk-end": (f"/e/{TALK}", ".plot .nash"),
        "start": ("/custom", "form .primary"), "lobby": ("/lobby", ".episode"),
        "leaderboard": ("/leaderboard", "table"), "runs": ("/runs", ".page .card"),
    }  # fmt: skip
    for name, (path, wait) in shown.items():
        for width in (360, 768, 1440):
            for theme in ("light", "dark"):
                camera.take(f"{name}-{width}-{theme}", path, wait, width, 900, theme)


def main() -> None:
    from playwright.sync_api import sync_playwright

    folder, everything = Path(sys.argv[1]), "--all" in sys.argv
    folder.mkdir(parents=True, exist_ok=True)
    chromium = shutil.which("chromium") or sys.exit("chromium is not installed; `make browser` installs it on Debian.")
    kept = record()
    with tempfile.TemporaryDirectory() as place:
        words = [
            sys.executable,
            "-m",
            "kibitz.cli",
            "serve",
            "--port",
            "0",
            "--json",
            "--store",
            f"{place}/pictures.db",
        ]
        server = subprocess.Popen([*words, "--runs", str(ROOT / "runs")], stdout=subprocess.PIPE, text=True, cwd=ROOT)
        try:
            assert server.stdout is not None
            base = json.loads(server.stdout.readline())["url"]
            for lines in kept.values():
                post(f"{base}/episodes", "\n".join(lines).encode())
            with sync_playwright() as play:
                browser = play.chromium.launch(executable_path=chromium, args=FLAGS)
                pictures(Camera(browser, base, folder), kept, everything)
                browser.close()
        finally:
            server.terminate()
            server.wait(20)


if __name__ == "__main__":
    main()
