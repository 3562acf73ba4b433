"""Pictures of the cockpit for README and docs: `python tools/screenshots.py docs/pictures [--all]`.

Starts its own server and browser, plays episodes with fixed seeds and writes PNG files, the pictures of the journeys in
docs/journeys.md, and the animation of the README (`match.webp`; `--animation` makes only that one). `--all` adds every
page in every state at 360, 768 and 1440 px in both themes, for a person to review.
"""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import quote

ROOT = Path(__file__).resolve().parents[1]
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]  # fmt: skip
ANIMATION_SIZE = (1120, 700)  # pixels of the window; the animation has three quarters of them
ANIMATED_BALLS = 30
FRAME_MS = 650
LOSER = "llm:embedded"  # `kibitz llm install` installs it
LOST_SEED, BRANCH_TURN = 4, 2
MATCH, TALK, GENERIC = "ep-picture-match", "ep-picture-talk", "ep-picture-generic"


def record() -> dict[str, list[str]]:
    """Two episodes with fixed seeds, and the first one again as a game that has no page of its own."""
    from kibitz.core.bots import seated
    from kibitz.core.play.episode import play_episode
    from kibitz.games import cricket, deal_or_no_deal
    from kibitz.players import player_named

    game = cricket.game()
    overs = cricket.CricketOptions(max_overs=10)
    players = [player_named(game, "balanced"), player_named(game, "aggressive")]
    match = play_episode(game, overs.settings(), players, seed=21, episode_id=MATCH, about=about(overs))
    game = deal_or_no_deal.game()
    bayes = game.bot("bayes")
    plain = deal_or_no_deal.NegotiationOptions()
    settings = seated(plain.settings(), {0: bayes})
    pair = [player_named(game, "bayes"), player_named(game, "partner:stubborn")]
    adviser = {0: player_named(game, "bayes")}
    common = {"episode_id": TALK, "advisers": adviser, "about": about(plain)}
    talks = [play_episode(game, settings, pair, seed=seed, **common) for seed in range(12)]
    talk = max(talks, key=lambda played: (played.returns[0] > 0, played.steps))
    events = {MATCH: [e.as_json() for e in match.events], TALK: [e.as_json() for e in talk.events]}
    generic = [json.loads(line) | {"episode_id": GENERIC} for line in events[TALK]]
    generic[0]["payload"]["game"] = "another_game"
    return events | {GENERIC: [json.dumps(event) for event in generic]}


def about(options: Any) -> dict[str, Any]:
    """What a record needs so that the server can replay it."""
    return {"options": options.model_dump(mode="json")}


def post(url: str, body: bytes) -> dict[str, Any]:
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        data: dict[str, Any] = json.load(answer)
        return data


def get(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(url, timeout=60) as answer:
        data: dict[str, Any] = json.load(answer)
        return data


class Camera:
    def __init__(self, browser: Any, base: str, folder: Path) -> None:
        self._browser, self.base, self._folder = browser, base, folder

    def open(
        self, path: str, wait: str, width: int, height: int, theme: str, answer: Any = None, held: Any = None
    ) -> Any:
        """A page that has been drawn; `answer` replaces the server's JSON, `held` is a person's seat."""
        page = self._browser.new_page(
            viewport={"width": width, "height": height}, color_scheme=theme, reduced_motion="reduce"
        )
        if answer is not None:
            for data in ("**/*.json", "**/episodes?*"):
                page.route(data, lambda route: route.fulfill(json=answer))
        if held is not None:
            page.add_init_script(f"sessionStorage.setItem(...{json.dumps(held)})")
        page.goto(self.base + path)
        page.locator(wait).first.wait_for(timeout=60_000)
        page.wait_for_timeout(400)
        return page

    def take(self, name: str, path: str, wait: str, width: int = 1440, height: int = 900, theme: str = "light",
             answer: Any = None) -> None:  # fmt: skip
        self.keep(self.open(path, wait, width, height, theme, answer), name)

    def seated(self, name: str, game: str, adviser: str, width: int, height: int, theme: str) -> None:
        """A person's turn."""
        request = {
            "game": game,
            "captain_preset": "human",
            "opponent_choice": "heuristic",
            "adviser": adviser,
            "seed": 3,
        }
        started = post(f"{self.base}/custom/start_episode", json.dumps(request).encode())
        held = [f"seat:{started['episode_id']}", started["seat_token"]]
        page = self.open(started["url"], ".seat.mine", width, height, theme, held=held)
        self.keep(page, name)
        self.stop(started)

    def live(self, name: str, width: int, height: int, theme: str) -> None:
        """A running match."""
        request = {"game": "cricket", "players": ["balanced", "aggressive"], "pace": 0.1}
        started = post(f"{self.base}/custom/start_episode", json.dumps(request | {"seed": 5, "max_overs": 5}).encode())
        page = self.open(started["url"], ".turns li:nth-child(20)", width, height, theme)
        self.keep(page, name)
        self.stop(started)

    def home(self) -> None:
        """The home page while a match is played."""
        request = {"game": "cricket", "players": ["balanced", "aggressive"], "pace": 0.2, "seed": 5, "max_overs": 5}
        started = post(f"{self.base}/custom/start_episode", json.dumps(request).encode())
        while get(f"{self.base}/episodes/{started['episode_id']}")["last_seq"] < 100:
            time.sleep(0.1)
        self.keep(self.open("/", ".glimpse svg", 1440, 900, "light"), "home")
        self.stop(started)

    def play(self, path: str, asked: dict[str, Any]) -> str:
        """Starts an episode, waits for its end and returns its id."""
        episode_id = str(post(self.base + path, json.dumps(asked).encode())["episode_id"])
        while get(f"{self.base}/episodes/{episode_id}")["status"] == "running":
            time.sleep(0.1)
        return episode_id

    def stop(self, started: dict[str, Any]) -> None:
        post(f"{self.base}/custom/stop_episode", json.dumps({"episode_id": started["episode_id"]}).encode())
        for _ in range(100):
            if not get(f"{self.base}/custom/status")["running"]:
                return
            time.sleep(0.1)

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
    camera.home()
    camera.seated("seat", "deal_or_no_deal", "bayes", 1440, 900, "light")
    if everything:
        for width, height in ((360, 1900), (768, 1200), (1440, 1000)):
            for theme in ("light", "dark"):
                every_state(camera, middle, width, height, theme)


def animation(camera: Camera, record: dict[str, list[str]], file: Path) -> None:
    """The last overs of a chase as animated WebP. Pillow comes with matplotlib, which `make test` installs."""
    from PIL import Image

    stops = [event["seq"] for event in map(json.loads, record[MATCH]) if event["type"] == "commentary"]
    page = camera.open(f"/e/{MATCH}?seq={stops[-ANIMATED_BALLS]}", ".turns li", *ANIMATION_SIZE, "light")
    frames = []
    for seq in [*stops[-ANIMATED_BALLS:], json.loads(record[MATCH][-1])["seq"]]:
        page.evaluate("seq => document.querySelector('kibitz-watch').timeline.seek(seq)", seq)
        page.wait_for_timeout(250)
        frames.append(Image.open(io.BytesIO(page.screenshot())).convert("RGB"))
    page.close()
    shown = [
        frame.resize((ANIMATION_SIZE[0] * 3 // 4, ANIMATION_SIZE[1] * 3 // 4), Image.Resampling.LANCZOS)
        for frame in frames
    ]
    seconds = [FRAME_MS] * (len(shown) - 1) + [4 * FRAME_MS]
    shown[0].save(file, save_all=True, append_images=shown[1:], duration=seconds, loop=0, quality=70, method=6)
    print(file, f"{file.stat().st_size:,} bytes")


def journeys(camera: Camera, record: dict[str, list[str]]) -> None:
    """What docs/journeys.md shows: a visitor plays, a researcher finds out why, a teacher shares a moment."""
    page = camera.open("/", ".glimpse svg", 1280, 800, "light")
    page.get_by_role("button", name="Play two overs").click()
    page.locator(".seat.mine").wait_for()
    page.wait_for_timeout(600)
    started = {"episode_id": page.url.rpartition("/")[2].partition("?")[0]}
    camera.keep(page, "journey-visitor")
    camera.stop(started)
    game = {"game": "deal_or_no_deal", "players": [LOSER, "bayes"], "seed": LOST_SEED, "pace": 0}
    lost = camera.play("/custom/start_episode", game)
    camera.take("journey-researcher-1", f"/players/{quote(LOSER)}", "a.episode", 1280, 800)
    page = camera.open(f"/e/{lost}", ".endcard .lines p:nth-child(3)", 1280, 800, "light")
    page.get_by_role("tab", name="Thinking").click()
    page.wait_for_timeout(300)
    camera.keep(page, "journey-researcher-2")
    branch = camera.play(f"/episodes/{lost}/branch", {"turn": BRANCH_TURN, "players": ["bayes", "bayes"], "pace": 0})
    camera.take("journey-researcher-3", f"/compare?a={lost}&b={branch}", ".boardscore .side", 1280, 900)
    page = camera.open(f"/e/{MATCH}", ".status.ended", 1280, 900, "light")
    page.keyboard.press("Shift+ArrowLeft")
    page.get_by_role("button", name="Share this moment").click()
    page.wait_for_function("() => document.querySelector('.sharecard')?.naturalWidth > 0")
    page.wait_for_timeout(300)
    camera.keep(page, "journey-teacher")


def every_state(camera: Camera, middle: int, width: int, height: int, theme: str) -> None:
    """Every page in every state, tall enough to show most of it."""
    size = {"width": width, "height": height, "theme": theme}
    name = f"{width}-{theme}"
    for what, path, wait in (
        ("cricket-play", f"/e/{MATCH}?seq={middle}", ".turns li"),
        ("cricket-end", f"/e/{MATCH}", ".status.ended"),
        ("talk", f"/e/{TALK}?seq=20", ".bubble"),
        ("talk-end", f"/e/{TALK}", ".plot .nash"),
        ("generic", f"/e/{GENERIC}?seq=20", ".turns li"),
        ("generic-end", f"/e/{GENERIC}", ".status.ended"),
        ("start", "/custom", "form .primary"),
        ("lobby", "/lobby", ".episode"),
        ("leaderboard", "/leaderboard", "table"),
        ("runs", "/runs", ".page .card"),
        ("nothing", "/e/ep-nothing", ".empty"),
    ):
        camera.take(f"{what}-{name}", path, wait, **size)
    for what, path, answer in (
        ("leaderboard-empty", "/leaderboard", {"players": []}),
        ("runs-empty", "/runs", {"runs": []}),
        ("lobby-empty", "/lobby", {"episodes": [], "next": None}),
    ):
        camera.take(f"{what}-{name}", path, ".empty", answer=answer, **size)
    page = camera.open(f"/e/{MATCH}?seq={middle}", ".turns li", **size)
    page.get_by_role("button", name="Branch from here").click()
    page.get_by_role("dialog").wait_for()
    camera.keep(page, f"branch-{name}")
    page = camera.open(f"/e/{MATCH}?seq={middle}", ".turns li", **size)
    page.locator(".menu summary").click()
    page.locator(".momentlist li").first.wait_for()
    camera.keep(page, f"moments-{name}")
    for game, adviser in (("deal_or_no_deal", "bayes"), ("cricket", "balanced")):
        camera.seated(f"seat-{game}-{name}", game, adviser, width, height, theme)
    camera.live(f"cricket-live-{name}", width, height, theme)
    page = camera.open(f"/e/{MATCH}?seq={middle}", ".turns li", **size)
    page.evaluate("() => { const { feed } = document.querySelector('kibitz-watch'); feed.say('reconnecting'); }")
    camera.keep(page, f"gone-{name}")


def main() -> None:
    from playwright.sync_api import sync_playwright

    folder, everything = Path(sys.argv[1]), "--all" in sys.argv
    folder.mkdir(parents=True, exist_ok=True)
    chromium = shutil.which("chromium") or sys.exit("chromium is not installed; `make browser` installs it on Debian.")
    episodes = record()
    with tempfile.TemporaryDirectory() as place:
        command = [sys.executable, "-m", "kibitz", "serve", "--port", "0", "--json", "--store", f"{place}/pictures.db"]
        command += ["--player-timeout", "300"]  # a model must be loaded before it answers
        server = subprocess.Popen([*command, "--runs", str(ROOT / "runs")], stdout=subprocess.PIPE, text=True, cwd=ROOT)
        try:
            assert server.stdout is not None
            base = json.loads(server.stdout.readline())["url"]
            for name, lines in episodes.items():
                if everything or name != GENERIC:
                    post(f"{base}/episodes", "\n".join(lines).encode())
            with sync_playwright() as play:
                browser = play.chromium.launch(executable_path=chromium, args=FLAGS)
                camera = Camera(browser, base, folder)
                animation(camera, episodes, folder / "match.webp")
                if "--animation" not in sys.argv:
                    pictures(camera, episodes, everything)
                    journeys(camera, episodes)
                browser.close()
        finally:
            server.terminate()
            server.wait(20)


if __name__ == "__main__":
    main()
