"""`CricketEnvironment`: a captain in seat 0 who calls tools, any player in seat 1.

    env = CricketEnvironment()
    obs = env.reset(options={"opponent_mode": "aggressive", "max_overs": 5, "seed": 7})
    while not obs.done:
        obs = env.step(CricketAction(tool=obs.tools[-1]["name"]))

It steps the same compiled rules as everything else: with the same seed and the same acts
`play_episode` plays the same match.
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Mapping
from threading import RLock
from typing import Any, ClassVar

import jax
import numpy as np

from kibitz.core.chance import episode_luck, seat_luck, seed_key
from kibitz.core.errors import BadInput
from kibitz.core.game import SEATS
from kibitz.core.play.episode import ask, table_for
from kibitz.core.play.player import Turn
from kibitz.core.play.resolve import player_and_bot
from kibitz.games.cricket import game
from kibitz.games.cricket.drawing.tally import Tally
from kibitz.games.cricket.envs import tool_calls as tools
from kibitz.games.cricket.envs.analysis import Duel, analyze
from kibitz.games.cricket.envs.page import Page, turn_page
from kibitz.games.cricket.envs.plans import Plans
from kibitz.games.cricket.envs.reset import Start, find_start
from kibitz.games.cricket.envs.snapshot import glimpse_for
from kibitz.games.cricket.envs.tool_models import CricketAction, CricketObservation, CricketState, ResetOptions
from kibitz.games.cricket.options import CricketOptions
from kibitz.games.cricket.teams import roster
from kibitz.games.cricket.words import commentary

__all__ = ["CricketAction", "CricketEnvironment", "CricketObservation", "CricketState"]

FREE_CALLS = 3  # without a ball, between two balls


class CricketEnvironment:
    """One match at a time; instances know nothing of each other. `reset` first, then `step`."""

    options: ClassVar[type[ResetOptions]] = ResetOptions
    title: ClassVar[str] = "Cricket captaincy: lead a side, ball by ball, against another captain."

    def __init__(self, *, shaping: float = 0.0, pool: int = 32, elevens: str | None = None) -> None:
        """`shaping` pays a share of the reward as win probability moves; `elevens` is a file with two sides."""
        self._fixed = CricketOptions.read({"shaping": shaping, "pool": pool, "elevens": elevens})
        self._lock = RLock()
        self._game = game()
        self._table, self._glimpse = table_for(self._game), glimpse_for(self._game)
        self._state = CricketState()
        self._begun = 0
        self._start: Start | None = None

    @property
    def reward_range(self) -> tuple[float, float]:
        return (-self._fixed.shaping, 1.0)

    @property
    def state(self) -> CricketState:
        return self._state.model_copy()

    def reset(self, options: Mapping[str, Any] | None = None, *, episode_id: str | None = None) -> CricketObservation:
        """A new match. BadInput about an option that is unknown or wrong; the match before goes on then."""
        with self._lock:
            chosen = ResetOptions.read(options or {}, "option of reset")
            opponent, bot = player_and_bot(self._game, chosen.opponent_mode)
            seed = secrets.randbelow(2**63) if chosen.seed is None else chosen.seed
            counted = self._begun if chosen.seed is None else chosen.seed
            start = find_start(chosen, options or {}, self._fixed, bot, seed, counted)
            self._begun += 1
            self._start, self._opponent = start, opponent
            self._host = jax.device_get(start.settings)
            self._luck = episode_luck(seed_key(start.luck), 0)
            # the second match of a pair in a pack also swaps the seats' luck
            self._lucks = [seat_luck(self._luck, 1 - seat if start.swapped else seat) for seat in SEATS]
            opponent.begin(start.settings, 1, self._lucks[1])
            self._match = self._table.new(start.settings, self._luck) if start.state is None else start.state
            self._number, self._calls = 0, 0
            self._history: list[Mapping[str, Any]] = []
            self._tally, self._plans, self._duel = Tally(), Plans(self._host), Duel(self._host)
            self._cast = roster.cast(self._host, self._match)["sides"]
            self._state = CricketState(
                episode_id=episode_id or f"ep-{uuid.uuid4().hex[:12]}",
                opponent=opponent.name,
                options=chosen.model_dump() | {"max_overs": int(self._host.overs)},
                pack_match=start.match,
            )
            self._page = self._look()
            opening = commentary.commentary({"type": "episode.started", "payload": {}}, self._page.frame)
            played = {"options": start.options.model_dump(mode="json")}
            return self._observe(message=f"{start.about} {opening}".strip(), metadata=played)

    def step(self, action: CricketAction) -> CricketObservation:
        """One call. A bad one is answered by an observation with `error`, never by an exception."""
        with self._lock:
            if self._start is None:
                raise BadInput("No match has begun; call reset first.")
            self._state.step_count += 1
            if self._state.match_over:
                return self._observe(error="The match is over; call reset for a new one.")
            error, spec, value = None, None, ""
            tool, arguments = _call(action)
            try:
                spec, value = tools.check(self._page.role, self._page.values, tool, arguments)
            except tools.BadCall as wrong:
                error = str(wrong)
            if spec is not None and spec.advances:
                return self._ball()
            if self._calls >= FREE_CALLS:
                why = f"{FREE_CALLS} calls without a ball were made before this one, so it was refused"
                return self._ball(f"{why} and the ball was played on the standing plan.")
            self._calls += 1
            if spec is None:
                return self._observe(error=error)
            if spec.argument:
                self._plans.set(spec.argument, value)
                return self._observe(message=f"{spec.argument} is now {value}.")
            return self._observe(message="The situation, as asked.", analysis=self._analysis())

    @classmethod
    def tools(cls) -> list[tuple[str, str, dict[str, Any]]]:
        """Name, description and argument schema of every tool; observations have those that are legal."""
        return [
            (spec.name, spec.about, tools.schema(spec, tools.FIXED.get(spec.argument))) for spec in tools.SPECS.values()
        ]

    @classmethod
    def action_of(cls, tool: str, arguments: Mapping[str, Any]) -> CricketAction:
        return CricketAction(tool=tool, arguments=dict(arguments))

    @classmethod
    def task_options(cls, split: str, index: int) -> dict[str, Any]:
        """Match `index` of the pack `split`, as options of `reset`."""
        return {"eval_pack_id": split, "seed": index}

    def _ball(self, error: str | None = None) -> CricketObservation:
        """Both captains' choices meet. The opponent is asked only now and sees nothing of ours."""
        assert self._start is not None
        settings, page, told = self._start.settings, self._page, self._state
        mine = self._plans.act(page.view, page.masks)
        sight = page.sight
        asked = Turn(settings, 1, self._number, sight.views[1], sight.masks[1], self._history[:], self._lucks[1])
        theirs = ask(self._table, self._opponent, asked)
        self._match, rewards, over = self._table.step(
            settings, self._match, (mine, theirs.act), self._luck, self._number
        )
        self._history += [{"seat": seat, "act": act} for seat, act in enumerate((mine, theirs.act))]
        self._number += 1
        self._calls = 0
        self._plans.played(mine, page.view)
        if theirs.fallback:
            told.opponent_fallbacks += 1
            told.last_fallback = theirs.fallback
        reward = float(np.asarray(rewards)[0])
        told.deliveries += 1
        told.total_reward += reward
        self._page = self._look(sight.state)
        told.match_over = bool(over)
        if told.match_over:
            told.winner, told.seed = self._page.frame["winner"], self._start.luck
        line = commentary.commentary({"type": "step", "payload": {"turn": self._number - 1}}, self._page.frame)
        if told.match_over:
            line = f"{line} {commentary.commentary({'type': 'episode.ended', 'payload': {}}, self._page.frame)}"
        answered = {"source": theirs.source, "fallback": theirs.fallback, "latency": theirs.latency}
        acts = [[list(mine), list(theirs.act)]]
        return self._observe(error, line, reward=reward, metadata={"opponent": answered, "acts": acts})

    def _look(self, before: Any = None) -> Page:
        """The page after a ball, or the first one."""
        assert self._start is not None
        sight = self._glimpse(self._start.settings, self._match)
        drawn = dict(self._game.drawing.frame(self._host, sight.state))
        if before is not None:
            self._tally.add(before, sight.state, drawn)
        return turn_page(drawn["overs"], sight, self._tally.fill(drawn), self._tally, self._cast)

    def _analysis(self) -> dict[str, Any]:
        page = self._page
        sides = roster.side(page.view.batting_mark), roster.side(page.view.bowling_mark)
        return analyze(page.frame, page.view, self._duel, *sides, int(self._host.era), page.may_bowl)

    def _observe(
        self,
        error: str | None = None,
        message: str = "",
        *,
        reward: float = 0.0,
        analysis: dict[str, Any] | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> CricketObservation:
        """Built without validation: every value is our own, and this is on the path of every call."""
        assert self._start is not None
        page, told = self._page, self._state
        told.refused_calls += error is not None
        seen = CricketObservation.model_construct(
            done=told.match_over,
            reward=reward,
            reward_range=self.reward_range,
            episode_id=told.episode_id or "",
            turn=self._number,
            calls_left=FREE_CALLS - self._calls,
            error=error,
            message=message,
            plans=self._plans.standing(page.view),
            analysis=analysis,
            metadata=metadata or {},
            tools=[] if told.match_over else page.tools,
            **page.shown,
        )
        if not told.match_over:
            settings, luck = self._start.settings, self._lucks[0]
            seen._turn = Turn(settings, 0, self._number, page.view, page.masks, self._history[:], luck)
        return seen


def _call(action: Any) -> tuple[Any, Any]:
    """Tool and arguments of whatever was given."""
    if isinstance(action, CricketAction):
        return action.tool, action.arguments
    if isinstance(action, Mapping):
        arguments = action.get("arguments")
        return action.get("tool"), {} if arguments is None else arguments
    return action, {}
