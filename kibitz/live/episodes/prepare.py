"""From a request to an episode that can be played. Loads JAX: import it off the event loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kibitz.core.bots import Bot, seated
from kibitz.core.errors import BadInput
from kibitz.core.game import Game
from kibitz.core.options import Options, operator_options
from kibitz.core.play.episode import Episode, play_episode
from kibitz.core.play.events import Observer
from kibitz.core.play.packs import WHOLE, is_plain
from kibitz.core.play.player import BotPlayer, Player
from kibitz.core.play.recorder import Commentate
from kibitz.core.play.resolve import Resolver
from kibitz.core.system.seed import fresh_seed
from kibitz.games import get_game, get_pack, pack_names
from kibitz.live.episodes.branch import BranchPoint
from kibitz.live.episodes.human_seat import JOIN_SECONDS, HumanSeat
from kibitz.live.episodes.request import HUMAN, EpisodeRequest
from kibitz.live.episodes.timeouts import StopSignal, TimeLimitedPlayer

TASK = "custom_episode"  # the seed's name for a requested episode


@dataclass(frozen=True)
class Limits:
    """What players of an episode may use."""

    resolver: Resolver = field(default_factory=Resolver)  # its path policy: any path, or only one folder of runs
    operator: bool = True  # whether options may name files of this machine
    player_seconds: float = 30.0  # per turn
    human_seconds: float = 60.0  # per turn


@dataclass(frozen=True)
class PreparedEpisode:
    """A request whose names, options and players have been checked and made."""

    request: EpisodeRequest  # completed
    game: Game
    settings: Any
    players: tuple[Player, Player]
    advisers: dict[int, Player]
    seed: int
    options: Options
    state: Any = None  # a pack's first position; None: a fresh deal
    match: int | None = None  # which of the pack's matches
    branch: BranchPoint | None = None

    @property
    def humans(self) -> dict[int, HumanSeat]:
        return {seat: player for seat, player in enumerate(self.players) if isinstance(player, HumanSeat)}

    @property
    def number(self) -> int:
        return 0 if self.branch is None else self.branch.number

    @property
    def secret(self) -> dict[str, Any]:
        """What the hidden values can be computed from; public only after the end."""
        return {"seed": self.seed, "number": self.number, "match": self.match}

    @property
    def about(self) -> dict[str, Any]:
        """How the episode was set up, for everyone; a branch needs it."""
        request = self.request
        first, second = request.seats
        public = {
            "mode": first,
            "task": TASK,
            "opponent_mode": second,
            "eval_pack_id": request.eval_pack_id or WHOLE,
            "open": request.shows_hands,
            "speech": request.enable_tts,
            "adviser": request.adviser,
            "options": self.options.model_dump(mode="json"),
        }
        note = {"note": request.note} if request.note else {}
        return public | note if self.branch is None else public | {"branched_from": self.branch.source}

    def play(
        self,
        observers: tuple[Observer, ...] = (),
        stop: Callable[[], None] = lambda: None,
        *,
        episode_id: str | None = None,
        commentate: Commentate | None = None,
    ) -> Episode:
        """Plays to the end. `stop` is called before every step and raises `Stopped` to end it."""
        try:
            return play_episode(
                self.game, self.settings, self.players, seed=self.seed, number=self.number, state=self.state,
                match=self.match, observers=observers, episode_id=episode_id, advisers=self.advisers,
                script=() if self.branch is None else self.branch.script, about=self.about, stop=stop,
                commentate=commentate,
            )  # fmt: skip
        finally:
            for player in [*self.players, *self.advisers.values()]:
                if isinstance(player, TimeLimitedPlayer):
                    player.close()


def prepare(
    request: EpisodeRequest, limits: Limits, signal: StopSignal, branch: BranchPoint | None = None
) -> PreparedEpisode:
    """Checks a completed request as a whole: BadInput comes before anything is stored or shown."""
    game, options = _game_and_options(request, limits)
    if request.adviser == HUMAN:
        raise BadInput("A human cannot be the adviser here; name a player such as heuristic.")
    seats = [_player(game, name, limits, signal) for name in request.players]
    if request.human_seat is not None:  # the player that the person replaces has to exist, too
        seats[request.human_seat] = _player(game, HUMAN, limits, signal)
    advice = [] if request.adviser is None else [_player(game, request.adviser, limits, signal)]
    drawn = request.seed if branch is None else branch.seed
    seed = fresh_seed() if drawn is None else drawn
    match, state = request.seed if branch is None else branch.match, None
    name = request.eval_pack_id if game.packs is not None else None
    if name is None or is_plain(name, match):
        match = None
    else:
        given = {option: getattr(options, option) for option in options.model_fields_set}
        options, state, seed, match = get_pack(game.name, name).begin(match, seed, given)
    settings = seated(options.settings(), _bots(seats), _bots(advice))
    (first, _), (second, _) = seats
    if isinstance(first, HumanSeat) and isinstance(second, HumanSeat):  # the links have to reach them first
        first.join_seconds = second.join_seconds = JOIN_SECONDS
    advisers = {seat: player for seat, (player, _) in enumerate(advice)}
    return PreparedEpisode(request, game, settings, (first, second), advisers, seed, options, state, match, branch)


def _player(game: Game, name: str, limits: Limits, signal: StopSignal) -> tuple[Player, Bot | None]:
    """The player of this name, and the bot that it is, if it is one."""
    if name == HUMAN:
        return HumanSeat(game, limits.human_seconds, signal), None
    found = limits.resolver.find(game, name)
    if isinstance(found, Bot):
        return BotPlayer(game, found, name), found
    return TimeLimitedPlayer(found, limits.player_seconds, signal), None


def _bots(seats: list[tuple[Player, Bot | None]]) -> dict[int, Bot]:
    return {seat: bot for seat, (_, bot) in enumerate(seats) if bot is not None}


def _game_and_options(request: EpisodeRequest, limits: Limits) -> tuple[Game, Any]:
    """The record that fits the checked options; only an operator may name files of this machine."""
    plain = get_game(request.game)
    known = plain.options.model_fields
    given = request.game_options(known)
    where = f"option of {request.game}"
    guarded = () if limits.operator else operator_options(plain.options)
    allowed = plain.options.read({name: value for name, value in given.items() if name not in guarded}, where)
    for name in guarded:  # a default may depend on another option, and records contain defaults
        if name in given and given[name] not in (known[name].default, getattr(allowed, name)):
            raise BadInput(f"Only the operator of this server may set the option {name!r}; omit it.")
    options = plain.options.read(given, where)
    packs = pack_choices(request.game)
    if request.eval_pack_id is not None and request.eval_pack_id not in packs:
        raise BadInput(
            f"There is no pack {request.eval_pack_id!r} for {request.game}; choose one of {', '.join(packs)}."
        )
    return get_game(request.game, options), options


def pack_choices(game: str) -> list[str]:
    """Every game accepts `default`, which means whole episodes."""
    return [WHOLE, *(name for name in pack_names(game) if name != WHOLE)]
