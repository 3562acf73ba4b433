"""What a start may ask for: any game, its own players and options, and the seed's names for them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kibitz.core.errors import BadInput
from kibitz.core.play.resolve import Resolver
from kibitz.games import get_game
from kibitz.live.config import LiveConfig
from kibitz.live.episodes.branch import _branch
from kibitz.live.episodes.prepare import Limits, prepare
from kibitz.live.episodes.request import BranchRequest, EpisodeRequest
from kibitz.live.episodes.runner import Runner, run_episode_in_proc
from kibitz.live.episodes.timeouts import StopSignal
from kibitz.live.http import catalogue
from kibitz.live.store.base import Row, open_store
from kibitz.live.store.stored_event import decode_event
from kibitz.live.stream.bus import Bus
from tests.train import toy

BARGAIN = {"game": "deal_or_no_deal", "seed": 5}


@pytest.fixture
def toy_game() -> Iterator[None]:
    toy.register()
    yield
    toy.unregister()


@pytest.fixture
def bus(tmp_path: Path) -> Iterator[Bus]:
    store = open_store(str(tmp_path / "a.db"), 0.3)
    yield Bus(store)
    store.close()


def test_the_seeds_empty_request_is_a_cricket_match_of_five_overs() -> None:
    request = EpisodeRequest().completed()
    assert (request.game, request.seats) == ("cricket", ("balanced", "heuristic"))
    prepared = prepare(request, Limits(), StopSignal())
    assert prepared.about["options"]["max_overs"] == 5


def test_a_request_without_a_seed_draws_63_bits_and_small_seeds_stay_as_they_are() -> None:
    request = EpisodeRequest(game="deal_or_no_deal").completed()
    drawn = [prepare(request, Limits(), StopSignal()).seed for _ in range(32)]
    assert len(set(drawn)) == 32
    assert 2**60 < max(drawn) < 2**63, "fails once in 2^96 runs"
    given = EpisodeRequest(game="deal_or_no_deal", seed=5).completed()
    assert prepare(given, Limits(), StopSignal()).secret == {"seed": 5, "number": 0, "match": None}


def test_a_game_without_overs_ignores_them() -> None:
    assert EpisodeRequest(max_overs=3).game_options(get_game("deal_or_no_deal").options.model_fields) == {}


def test_the_seeds_names_mean_the_two_players_and_an_option() -> None:
    seed = EpisodeRequest(captain_preset="random", opponent_choice="shrewd", max_overs=2).completed()
    neutral = EpisodeRequest(game="cricket", players=["random", "shrewd"], options={"max_overs": 2}).completed()
    known = get_game("cricket").options.model_fields
    assert seed.seats == neutral.seats == ("random", "shrewd")
    assert seed.game_options(known) == neutral.game_options(known) == {"max_overs": 2}


def test_a_seat_that_the_request_does_not_name_gets_the_games_default_player() -> None:
    request = EpisodeRequest(game="deal_or_no_deal", opponent_choice="bayes").completed()
    assert request.seats == (get_game("deal_or_no_deal").default_players[0], "bayes")


def test_every_opponent_preset_of_cricket_is_accepted_under_both_of_its_names() -> None:
    from kibitz.games.cricket.captains import OPPONENT_PRESETS

    for choice, name in OPPONENT_PRESETS.items():
        for asked in ({"opponent_choice": choice}, {"players": ["balanced", choice]}):
            for server in (False, True):  # a server takes a name that it does not know for the heuristic
                done = EpisodeRequest(game="cricket", **asked).completed(any_opponent=server)
                assert done.seats == ("balanced", name) and not done.note


def test_only_a_servers_opponent_choice_may_be_unknown_and_the_record_says_so(
    bus: Bus, caplog: pytest.LogCaptureFixture
) -> None:
    """As in the seed's `OPPONENT_PRESETS.get(opponent_choice, "heuristic")`."""
    played = asyncio.run(run_episode_in_proc(bus, "heuristic", "nobody", game="deal_or_no_deal", seed=1))
    assert played["note"] == "There is no opponent 'nobody'; heuristic plays."
    assert played["players"] == ["heuristic", "heuristic"]
    first = decode_event(bus.store.events(played["episode_id"], -1)[0])
    assert first.payload["about"]["note"] == played["note"]
    assert any(played["note"] in record.message for record in caplog.records)
    for wrong in ({"players": ["heuristic", "nobody"]}, {"captain_preset": "nobody"}):
        with pytest.raises(BadInput, match="no player 'nobody'"):
            asyncio.run(run_episode_in_proc(bus, game="deal_or_no_deal", **wrong))
    typed = EpisodeRequest(game="deal_or_no_deal", opponent_choice="nobody").completed()
    with pytest.raises(BadInput, match="no player 'nobody'"):
        prepare(typed, Limits(), StopSignal())


def test_the_operator_chooses_the_default_game() -> None:
    assert EpisodeRequest().completed("deal_or_no_deal").game == "deal_or_no_deal"


def test_a_person_takes_the_seat_that_the_request_gives_them() -> None:
    request = EpisodeRequest(players=["balanced", "heuristic"], human_seat=1).completed()
    assert request.seats == ("balanced", "human")


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({"players": ["random", "random"], "captain_preset": "random"}, "either players, or"),
        ({"players": ["random"]}, "players"),
        ({"max_overs": True}, "max_overs"),
        ({"seed": 2**63}, "seed"),
        ({"game": ""}, "game"),
    ],
)
def test_an_invalid_request_is_refused_with_a_sentence_that_names_the_field(values: dict[str, Any], word: str) -> None:
    with pytest.raises(BadInput, match=word):
        EpisodeRequest.read(**values)


def test_whole_numbers_may_be_written_as_json_floats() -> None:
    request = EpisodeRequest.read(max_overs=2.0, options={"max_turns": 3.0, "deep": [1.0, 1.5]})
    assert (request.max_overs, request.options) == (2, {"max_turns": 3, "deep": [1, 1.5]})
    assert type(request.options["deep"][0]) is int


def test_a_game_of_another_package_starts_with_its_own_players_and_options(bus: Bus, toy_game: None) -> None:
    Runner(bus, LiveConfig(pace=0.0, default_game=toy.NAME))
    played = asyncio.run(run_episode_in_proc(bus, options={"rounds": 2}, seed=1))
    first, *_, last = [decode_event(body) for body in bus.store.events(played["episode_id"], -1)]
    assert (first.payload["game"], tuple(first.payload["players"])) == (toy.NAME, get_game(toy.NAME).default_players)
    assert (last.type, last.payload["steps"]) == ("episode.ended", 2)
    listed = catalogue.games(Path("runs"), toy.NAME)
    assert listed["default_game"] == toy.NAME
    assert listed["games"][toy.NAME]["default_players"] == first.payload["players"]


def test_a_policy_is_looked_up_in_the_runs_folder_and_nowhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runs" / "mine").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    asked: list[str] = []

    def bot_of_run(path: str, game: Any) -> Any:
        asked.append(path)
        return game.bot("heuristic")

    monkeypatch.setattr("kibitz.train.opponents.bot_of_run", bot_of_run)
    limits = Limits(Resolver(tmp_path / "runs"), operator=False)

    def start(name: str) -> None:
        prepare(EpisodeRequest(**BARGAIN, players=[name, "heuristic"]).completed(), limits, StopSignal())

    start("policy:mine")
    assert asked == [str(tmp_path / "runs" / "mine")]
    for name, word in (("policy:other", "no run"), ("policy:../other", "not the name of a run")):
        with pytest.raises(BadInput, match=word):
            start(name)
    assert len(asked) == 1


def test_a_guest_may_name_the_models_that_records_contain() -> None:
    """A match from before 2023 has a default of its own, and an older record names the earlier one."""
    limits = Limits(Resolver(), operator=False)

    def model(name: str) -> str:
        options = {"era": "pre2018", "max_overs": 1, "pool": 2, "model": name}
        request = EpisodeRequest(game="cricket", players=["heuristic", "heuristic"], options=options)
        return str(prepare(request.completed(), limits, StopSignal()).options.model)

    assert [model(name) for name in ("shipped", "careful-tail")] == ["shipped", "careful-tail"]
    with pytest.raises(BadInput, match="Only the operator of this server may set the option 'model'"):
        model("mine")


def test_a_record_from_before_an_option_existed_is_replayed_without_it() -> None:
    """The first build had no option `model`: its matches from before 2023 were played with `shipped`."""
    row = Row("ep-1", "cricket", ("balanced", "balanced"), 0.0, about={"options": {"era": "pre2018", "max_overs": 1}})
    request, _ = _branch(row, BranchRequest(turn=0, players=["balanced", "balanced"]), [], {"seed": 1})
    assert (request.options["era"], request.options["model"]) == ("pre2018", "shipped")
