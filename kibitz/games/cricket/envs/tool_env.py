"""`CricketEnvironment`: a captain in seat 0 that calls tools, any player in seat 1.

    env = CricketEnvironment()
    obs = env.reset(options={"opponent_mode": "aggressive", "max_overs": 5, "seed": 7})
    while not obs.done:
        obs = env.step(CricketAction(tool=obs.tools[-1]["name"]))

It steps the same compiled laws as everything else: with the same seed and acts, `play_episode` plays the
same match.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from functools import partial
from threading import RLock
from typing import Any, ClassVar

import jax

from kibitz.core.envs.one_seat import OneSeatEpisode
from kibitz.core.errors import BadInput
from kibitz.core.play.resolve import ANY_PATH, Resolver, player_and_bot
from kibitz.core.system.seed import fresh_seed
from kibitz.games.cricket import game
from kibitz.games.cricket.captains import tool_calls
from kibitz.games.cricket.captains.portable import turn_as_data
from kibitz.games.cricket.captains.tool_calls import Plans
from kibitz.games.cricket.captains.tool_models import CricketAction, CricketObservation, CricketState, ResetOptions
from kibitz.games.cricket.drawing.scorecard import ScorecardTally
from kibitz.games.cricket.envs.analysis import MatchUps, analyze
from kibitz.games.cricket.envs.reset import Start, find_start
from kibitz.games.cricket.envs.snapshot import MatchPosition, position_of, snapshot_reader
from kibitz.games.cricket.options import CricketOptions
from kibitz.games.cricket.teams import roster
from kibitz.games.cricket.words import commentary

__all__ = ["CricketAction", "CricketEnvironment", "CricketObservation", "CricketState"]

FREE_CALLS = 3  # calls between two balls that play no ball


class CricketEnvironment:
    """One match at a time; instances share nothing. Call `reset` first, then `step`."""

    options: ClassVar[type[ResetOptions]] = ResetOptions
    title: ClassVar[str] = "Cricket captaincy: lead a side, ball by ball, against another captain."

    def __init__(
        self, *, shaping: float = 0.0, pool: int = 32, elevens: str | None = None, resolver: Resolver = ANY_PATH
    ) -> None:
        """`shaping` pays a share of the reward as win probability changes; `elevens` is a file with two sides."""
        self._fixed = CricketOptions.read({"shaping": shaping, "pool": pool, "elevens": elevens})
        self._lock, self._resolver = RLock(), resolver
        self._game = game()
        self._snapshot = snapshot_reader(self._game)
        self._state = CricketState()
        self._start: Start | None = None

    @property
    def reward_range(self) -> tuple[float, float]:
        return (-self._fixed.shaping, 1.0)

    @property
    def state(self) -> CricketState:
        return self._state.model_copy()

    def reset(self, options: Mapping[str, Any] | None = None, *, episode_id: str | None = None) -> CricketObservation:
        """Starts a new match. Raises BadInput for an invalid option; the previous match then continues."""
        with self._lock:
            chosen = ResetOptions.read(options or {}, "option of reset")
            opponent, bot = player_and_bot(self._game, chosen.opponent_mode, self._resolver)
            seed = fresh_seed() if chosen.seed is None else chosen.seed
            start = find_start(chosen, options or {}, self._fixed, bot, seed)
            self._start, self._calls = start, 0
            self._host = jax.device_get(start.settings)
            self._episode = OneSeatEpisode(self._game, start.settings, opponent, start.seed, start.state, start.match)
            self._tally, self._plans, self._match_ups = ScorecardTally(), Plans(self._host), MatchUps(self._host)
            self._cast = roster.cast(self._host, self._episode.state)["sides"]
            self._state = CricketState(
                episode_id=episode_id or f"ep-{uuid.uuid4().hex[:12]}",
                opponent=opponent.name,
                options=chosen.model_dump() | {"max_overs": int(self._host.overs)},
                pack_match=start.match,
            )
            self._position = self._observe_state()
            opening = commentary.commentary({"type": "episode.started", "payload": {}}, self._position.frame)
            played = {"game": self._game.name, "options": start.options.model_dump(mode="json")}
            return self._observe(message=f"{start.about} {opening}".strip(), metadata=played)

    def step(self, action: CricketAction) -> CricketObservation:
        """Makes one call. An illegal call returns an observation with `error`; it never raises."""
        with self._lock:
            if self._start is None:
                raise BadInput("No match has started; call reset first.")
            self._state.step_count += 1
            name, arguments, said = _call(action)
            self._episode.begin_call(said)
            if self._state.match_over:
                return self._observe(error="The match is over; call reset to start another.")
            error, tool, value = None, None, ""
            try:
                tool, value = tool_calls.check(self._position.role, self._position.values, name, arguments)
            except tool_calls.BadCall as wrong:
                error = str(wrong)
            if tool is not None and tool.advances:
                return self._ball()
            if self._calls >= FREE_CALLS:
                return self._ball(
                    f"Refused after {FREE_CALLS} calls without a ball; the ball was played on the standing plan."
                )
            self._calls += 1
            if tool is None:
                return self._observe(error=error)
            if tool.argument:
                self._plans.set(tool.argument, value)
                return self._observe(message=f"{tool.argument} is now {value}.")
            position = self._position
            analysis = analyze(position.frame, position.view, self._match_ups, position.may_bowl)
            return self._observe(message="See `analysis`.", analysis=analysis)

    @classmethod
    def tools(cls) -> list[tuple[str, str, dict[str, Any]]]:
        """Name, description and argument schema of every tool; observations list the legal ones."""
        return [
            (tool.name, tool.description, tool_calls.schema(tool, tool_calls.FIXED_VALUES.get(tool.argument)))
            for tool in tool_calls.TOOLS.values()
        ]

    @classmethod
    def action_of(cls, tool: str, arguments: Mapping[str, Any]) -> CricketAction:
        return CricketAction(tool=tool, arguments=dict(arguments))

    @classmethod
    def task_options(cls, split: str, index: int) -> dict[str, Any]:
        """Match `index` of the pack `split`, as options of `reset`."""
        return {"eval_pack_id": split, "seed": index}

    def _ball(self, error: str | None = None) -> CricketObservation:
        """Plays a ball. The opponent chooses only now and does not see our choice."""
        assert self._start is not None
        episode, position, state = self._episode, self._position, self._state
        mine = self._plans.act(position.view, position.masks)
        before = position.snapshot
        reward = episode.play(mine, episode.turn(1, (before.views[1], before.masks[1])))
        self._calls = 0
        self._plans.played(position.view)
        if fallback := episode.news()["opponent"][0]["fallback"]:
            state.opponent_fallbacks += 1
            state.last_fallback = fallback
        state.deliveries += 1
        state.total_reward += reward
        self._position = self._observe_state(before.state)
        state.match_over = episode.over
        if state.match_over:
            state.winner, state.seed = self._position.frame["winner"], episode.seed
            state.returns = episode.returns
        line = commentary.commentary({"type": "step", "payload": {"turn": episode.number - 1}}, self._position.frame)
        if state.match_over:
            line = f"{line} {commentary.commentary({'type': 'episode.ended', 'payload': {}}, self._position.frame)}"
        return self._observe(error, line, reward=reward)

    def _observe_state(self, before: Any = None) -> MatchPosition:
        """The position after the ball that followed `before`, or the first one."""
        assert self._start is not None
        snapshot = self._snapshot(self._episode.settings, self._episode.state)
        frame = dict(self._game.drawing.frame(self._host, snapshot.state))
        if before is not None:
            self._tally.add(before, snapshot.state, frame)
        return position_of(snapshot, self._tally.fill(frame), self._tally, self._cast)

    def _observe(
        self,
        error: str | None = None,
        message: str = "",
        *,
        reward: float = 0.0,
        analysis: dict[str, Any] | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> CricketObservation:
        """Skips validation: every value is our own, and every call runs this."""
        assert self._start is not None
        position, state = self._position, self._state
        state.refused_calls += error is not None
        observation = CricketObservation.model_construct(
            done=state.match_over,
            reward=reward,
            reward_range=self.reward_range,
            episode_id=state.episode_id or "",
            turn=self._episode.number,
            calls_left=FREE_CALLS - self._calls,
            error=error,
            message=message,
            plans=self._plans.standing(position.view),
            analysis=analysis,
            metadata=self._episode.news() | (metadata or {}),
            tools=[] if state.match_over else position.tools,
            **position.observation,
        )
        if not state.match_over:
            observation._turn = turn = self._episode.turn(0, (position.view, position.masks))
            observation._turn_data = partial(turn_as_data, turn, self._start.options)
        return observation


def _call(action: Any) -> tuple[Any, Any, dict[str, Any]]:
    """Tool, arguments and metadata of an action of any type."""
    if isinstance(action, CricketAction):
        return action.tool, action.arguments, dict(action.metadata)
    if isinstance(action, Mapping):
        arguments, metadata = action.get("arguments"), action.get("metadata")
        said = dict(metadata) if isinstance(metadata, Mapping) else {}
        return action.get("tool"), {} if arguments is None else arguments, said
    return action, {}, {}
