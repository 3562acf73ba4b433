"""Episodes on the host: players that fail, events, what watchers may see."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from jax import Array

from kibitz.core.bots import seated
from kibitz.core.check import check_game
from kibitz.core.play.episode import play_episode
from kibitz.core.play.events import LAST, TYPES, Event
from kibitz.core.play.player import BotPlayer, Choice, Turn, TurnRequest
from kibitz.core.play.recorder import Stopped
from kibitz.games import get_game

GAME = get_game("deal_or_no_deal")
SETTINGS = GAME.options(agent_starts=True).settings()


class Scripted:
    """Returns the acts of its script and raises its exceptions."""

    name = "scripted"

    def __init__(self, *script: Any) -> None:
        self._script = list(script)
        self.turns: list[Turn] = []

    def begin(self, settings: Any, seat: int, luck: Array) -> None:
        self.turns.clear()

    def choose(self, turn: Turn) -> Choice:
        self.turns.append(turn)
        answer = self._script[min(len(self.turns), len(self._script)) - 1]
        if isinstance(answer, BaseException):
            raise answer
        return Choice(answer, self.name, reason="because")


class Unaskable(Scripted):
    """Fails when it describes its turn, as a person's seat does if the game's words raise."""

    def request(self, turn: Turn) -> TurnRequest:
        raise RuntimeError("no words")

    def choose(self, turn: Turn) -> Choice:
        self.request(turn)
        return super().choose(turn)


def test_a_player_that_cannot_describe_its_turn_loses_the_turn_and_not_the_episode() -> None:
    played = play_episode(GAME, SETTINGS, [Unaskable((0, 0, 0, 0)), _heuristic()], seed=1)
    decisions = [event.payload for event in played.events if event.type == "decision" and event.payload["seat"] == 0]
    assert {one["fallback"] for one in decisions} == {"RuntimeError: no words"}
    assert "turn.requested" not in {event.type for event in played.events}


def _heuristic() -> BotPlayer:
    return BotPlayer(GAME, GAME.bot("heuristic"))


def _decisions(events: tuple[Event, ...], seat: int) -> list[dict[str, Any]]:
    return [dict(e.payload) for e in events if e.type == "decision" and e.payload["seat"] == seat]


def test_events_are_numbered_without_gaps_and_are_valid_json() -> None:
    seen: list[Event] = []
    played = play_episode(GAME, SETTINGS, [_heuristic(), _heuristic()], seed=1, observers=(seen.append,))
    assert seen == list(played.events)
    assert [event.seq for event in seen] == list(range(len(seen)))
    assert {event.episode_id for event in seen} == {played.episode_id}
    assert seen[0].type == "episode.started"
    assert seen[-1].type == "episode.ended"
    for event in seen:
        assert event.type in TYPES
        assert json.loads(event.as_json()) == event.as_dict()


def test_a_player_that_raises_is_replaced_for_that_turn_and_the_event_says_why() -> None:
    broken = Scripted(RuntimeError("no answer"), (4, 0, 0, 0))
    played = play_episode(GAME, SETTINGS, [broken, Scripted((0, 0, 0, 0))], seed=1)
    first, second = _decisions(played.events, 0)[:2]
    assert first["source"] == "heuristic"
    assert "no answer" in first["fallback"]
    assert second["source"] == "scripted"
    assert second["fallback"] == ""
    assert second["private"]["0"]["reason"] == "because"


@pytest.mark.parametrize("nonsense", [(2, 0, 0, 0), (0, 7, 0, 0), (0, -1, 0, 0), (9, 0, 0, 0), (0, 0), ()])
def test_an_illegal_act_is_replaced_and_the_event_says_so(nonsense: tuple[int, ...]) -> None:
    played = play_episode(GAME, SETTINGS, [Scripted(nonsense, (4, 0, 0, 0)), _heuristic()], seed=1)
    first = _decisions(played.events, 0)[0]
    assert "illegal act" in first["fallback"]
    assert first["source"] == "heuristic"


def test_a_person_who_leaves_is_not_replaced() -> None:
    with pytest.raises(KeyboardInterrupt):
        play_episode(GAME, SETTINGS, [Scripted(KeyboardInterrupt()), _heuristic()], seed=1)


def test_history_holds_the_acts_as_played() -> None:
    me = Scripted((0, 0, 0, 0), (4, 0, 0, 0))
    generous = GAME.options(agent_starts=True, partner_threshold=1.0, insist_threshold=1.0).settings()
    play_episode(GAME, generous, [me, Scripted((0, 1, 1, 1))], seed=1)
    assert [dict(entry) for entry in me.turns[1].history] == [
        {"seat": 0, "act": (0, 0, 0, 0)},
        {"seat": 1, "act": (0, 1, 1, 1)},
    ]


def test_a_seat_sees_its_own_secrets_the_public_none_and_everyone_all_of_them_at_the_end() -> None:
    played = play_episode(GAME, SETTINGS, [_heuristic(), _heuristic()], seed=1)
    first, last = played.events[0], played.events[-1]
    assert set(first.shown_to(None).payload["private"]) == set()
    assert set(first.shown_to(1).payload["private"]) == {"1"}
    assert set(first.shown_to(None, open_table=True).payload["private"]) == {"0", "1"}
    assert last.type in LAST
    assert set(last.shown_to(None).payload["private"]) == {"0", "1"}


def test_no_public_event_before_the_end_reveals_the_seed_or_the_hidden_values() -> None:
    played = play_episode(GAME, SETTINGS, [_heuristic(), _heuristic()], seed=1)
    for event in played.events[:-1]:
        text = event.shown_to(None).as_json()
        assert "seed" not in text
        assert "utilities" not in text
    assert played.events[-1].payload["seed"] == 1


def test_the_same_seed_gives_the_same_episode() -> None:
    def strip(event: Event) -> tuple[str, str]:
        payload = {k: v for k, v in event.payload.items() if k != "latency"}
        return event.type, json.dumps(payload)

    runs = [play_episode(GAME, SETTINGS, [_heuristic(), _heuristic()], seed=5, episode_id="x") for _ in range(2)]
    assert [strip(e) for e in runs[0].events] == [strip(e) for e in runs[1].events]


def test_a_hint_reaches_only_its_seat_before_the_seat_chooses() -> None:
    me = Scripted((4, 0, 0, 0))
    played = play_episode(GAME, SETTINGS, [me, _heuristic()], seed=1, advisers={0: Scripted((0, 1, 0, 0))})
    assert [event.type for event in played.events[2:5]] == ["hint", "decision", "step"]
    hint = played.events[2]
    assert hint.payload["private"]["0"]["act"] == [0, 1, 0, 0]
    assert me.turns[0].hint is not None and me.turns[0].hint.act == (0, 1, 0, 0)
    for watcher in (None, 1):
        assert hint.shown_to(watcher).payload["private"] == {}


def test_a_script_replays_a_record_and_the_players_continue() -> None:
    """A branch with the same players gives the same episode, even if they have a memory."""

    def players() -> list[Any]:
        return [BotPlayer(GAME, GAME.bot("bayes")), _heuristic()]

    settings = seated(SETTINGS, {0: GAME.bot("bayes"), 1: GAME.bot("heuristic")})
    for seed in range(20):
        whole = play_episode(GAME, settings, players(), seed=seed)
        if whole.steps > 3:
            break
    steps = [event.payload["acts"] for event in whole.events if event.type == "step"]
    script = [[None if act is None else Choice(tuple(act), "record") for act in acts] for acts in steps[:2]]
    branch = play_episode(GAME, settings, players(), seed=seed, script=script)
    assert [e.payload["acts"] for e in branch.events if e.type == "step"] == steps
    assert [e.payload["source"] for e in branch.events if e.type == "decision"][:3] == [
        "record", "record", "bayes" if steps[2][0] is not None else "heuristic",
    ]  # fmt: skip
    assert branch.returns == whole.returns


def test_simultaneous_choices_are_published_only_after_both_seats_have_chosen() -> None:
    cricket = get_game("cricket")
    events: list[Event] = []

    class Nosy(BotPlayer):
        seen: ClassVar[list[int]] = []

        def choose(self, turn: Turn) -> Choice:
            self.seen.append(sum(event.type == "decision" for event in events))
            return super().choose(turn)

    settings = cricket.options(max_overs=1, pool=2).settings()
    players = [Nosy(cricket, cricket.bot("balanced")) for _ in range(2)]
    play_episode(cricket, settings, players, seed=3, observers=(events.append,))
    assert Nosy.seen[:6] == [0, 0, 2, 2, 4, 4]
    kinds = [event.type for event in events if event.type != "commentary"]
    assert kinds[1:7] == ["decision", "decision", "step"] * 2


def test_step_frames_hold_the_changes_and_add_up_to_the_whole_frame() -> None:
    played = play_episode(GAME, SETTINGS, [_heuristic(), _heuristic()], seed=1)
    frame = dict(played.events[0].payload["frame"])
    deltas = [event.payload["frame"] for event in played.events if event.type == "step"]
    for delta in deltas:
        assert all(frame[key] != value for key, value in delta.items())
        frame |= delta
    assert frame == played.events[-1].payload["frame"]
    assert all("counts" not in delta for delta in deltas)


@pytest.mark.parametrize(
    ("raised", "kind"), [(Stopped("the owner stopped it"), "stopped"), (Stopped("bye", "shutdown"), "shutdown")]
)
def test_an_episode_that_is_stopped_says_so_in_its_last_event(raised: Stopped, kind: str) -> None:
    seen: list[Event] = []

    def stop() -> None:
        if any(event.type == "step" for event in seen):
            raise raised

    with pytest.raises(Stopped):
        play_episode(GAME, SETTINGS, [_heuristic(), _heuristic()], seed=1, observers=(seen.append,), stop=stop)
    assert seen[-1].type == "episode.failed"
    assert seen[-1].payload["kind"] == kind and str(raised) in seen[-1].payload["reason"]


def test_a_game_that_raises_ends_the_episode_with_an_event() -> None:
    def review(settings: Any, state: Any, past: Any) -> Any:
        raise RuntimeError("the game broke")

    seen: list[Event] = []
    with pytest.raises(RuntimeError):
        play_episode(
            replace(GAME, drawing=replace(GAME.drawing, review=review)),
            SETTINGS,
            [_heuristic(), _heuristic()],
            seed=1,
            observers=(seen.append,),
        )
    assert seen[-1].type == "episode.failed" and "the game broke" in seen[-1].payload["reason"]


@pytest.mark.conformance
@pytest.mark.parametrize("options", [{}, {"max_overs": 2}], ids=["deal_or_no_deal", "cricket"])
def test_check_game_accepts_the_built_in_games(options: dict[str, Any]) -> None:
    game = get_game("cricket") if options else GAME
    check_game(game, game.options(**options), games=64)


def test_check_game_finds_a_broken_promise() -> None:
    import jax.numpy as jnp

    def no_mask(settings: Any, state: Any, seat: int) -> Any:
        masks = GAME.rules.legal(settings, state, seat)
        return (jnp.zeros_like(masks[0]), *masks[1:])

    with pytest.raises(AssertionError, match="mask"):
        check_game(replace(GAME, rules=replace(GAME.rules, legal=no_mask)), games=8)
    with pytest.raises(AssertionError, match="max_steps"):
        check_game(replace(GAME, rules=replace(GAME.rules, max_steps=lambda settings: 1)), games=64)
    with pytest.raises(AssertionError, match="matters"):
        check_game(replace(GAME, learning=replace(GAME.learning, matters=~GAME.matters)), games=8)
