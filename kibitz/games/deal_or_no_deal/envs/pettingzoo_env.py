"""The negotiation with both seats open, as PettingZoo environments: `aec_env()` and `parallel_env()`.

An action is an index into `flat_acts`: AGREE, DISAGREE, then every offer and selection; what it keeps
is kept by the seat that plays it. An observation is `{"observation": f32[n], "action_mask": i8[acts]}`:
the features kibitz trains on, from that seat's side of the table. A seat that is not to move, and both
once the game is over, have one open action, `WAIT`; a seat to move always has more than one. In the
parallel form the action of the seat that waits is ignored, whatever it is.

A closed action is a BadInput and changes nothing. Whoever would rather have the game end puts
PettingZoo's `TerminateIllegalWrapper` around the environment.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from operator import index
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array
from numpy.typing import NDArray

from kibitz.core.act import Act
from kibitz.core.chance import episode_luck, uniforms
from kibitz.core.envs.gym_env import Session, Single, from_shapes, shapes_of
from kibitz.core.errors import BadInput
from kibitz.core.game import SEATS, Game, game_over
from kibitz.core.xla.packing import Layout
from kibitz.games.deal_or_no_deal import game as game_for
from kibitz.games.deal_or_no_deal import rules, words
from kibitz.games.deal_or_no_deal.drawing import frame
from kibitz.games.deal_or_no_deal.envs.gym_env import first_state, observe
from kibitz.games.deal_or_no_deal.envs.wrappers import flat_acts, flat_mask
from kibitz.games.deal_or_no_deal.options import NegotiationOptions

try:
    from pettingzoo import AECEnv, ParallelEnv
    from pettingzoo.utils import OrderEnforcingWrapper
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        "The environments with both seats open need PettingZoo: pip install 'kibitz[pettingzoo]'.", name=missing.name
    ) from None

AGENTS = ("agent_0", "agent_1")  # by seat
WAIT = 1  # the index of DISAGREE: the one open action of a seat that is not to move
METADATA = {"name": "deal_or_no_deal_v0", "render_modes": ["ansi"], "render_fps": 1, "is_parallelizable": True}

Infos = dict[str, dict[str, Any]]


def aec_env(**options: Any) -> Any:
    """Seats take turns; who begins is drawn unless `agent_starts` says it. Options: `NegotiationOptions`."""
    return OrderEnforcingWrapper(NegotiationAEC(**options))


def parallel_env(**options: Any) -> NegotiationParallel:
    """Both seats are asked every time; only the one to move is heard."""
    return NegotiationParallel(**options)


class Shown(NamedTuple):
    """What a call shows, a row for each seat."""

    features: Array  # f32[2, n]
    masks: Array  # bool[2, 5 + 3 sizes], the heads' masks one after the other
    named: dict[str, Array]  # i32[2] or i32[2, 3], the seed's observation and info
    rewards: Array  # f32[2]
    seat: Array  # i32[], who is to move
    over: Array  # bool[]


class BothSeats:
    """The functions of one game in which nobody's seat is taken; `Single` compiles them."""

    def __init__(self, game: Game) -> None:
        self.game, self.layout = game, Layout(game.bit_widths, game.example)

    def fresh(self, settings: Any, session: Session) -> tuple[Session, Shown]:
        session = self._next(session)
        return self._begin(
            settings, session, self.game.rules.new(settings, uniforms(session.luck, 0, self.game.rules.new_uniforms))
        )

    def place(self, settings: Any, session: Session, state: Any) -> tuple[Session, Shown]:
        return self._begin(settings, self._next(session), state)

    def advance(self, settings: Any, session: Session, act: Act) -> tuple[Session, Shown]:
        turn = session.turn + 1
        u = uniforms(session.luck, turn, self.game.rules.step_uniforms)
        state, rewards, over = self.game.rules.step(settings, self.layout.unpack(session.solo), (act, act), u)
        return session._replace(solo=self.layout.pack(state), turn=turn), self._show(settings, state, rewards, over)

    def score(self, settings: Any, session: Session) -> Mapping[str, Array]:
        return self.game.measures.score(settings, self.layout.unpack(session.solo))

    def empty(self, settings: Any) -> Session:
        nothing = jnp.zeros(2, jnp.uint32)
        state = self.game.rules.new(settings, jnp.zeros(self.game.rules.new_uniforms))
        return Session(self.layout.pack(state), nothing, nothing, jnp.int32(-1), jnp.int32(0))

    def _next(self, session: Session) -> Session:
        episode = session.episode + 1
        return session._replace(episode=episode, luck=episode_luck(session.key, episode), turn=jnp.int32(0))

    def _begin(self, settings: Any, session: Session, state: Any) -> tuple[Session, Shown]:
        shown = self._show(settings, state, jnp.zeros(2), game_over(self.game, state))
        return session._replace(solo=self.layout.pack(state)), shown

    def _show(self, settings: Any, state: Any, rewards: Array, over: Array) -> Shown:
        views = [self.game.rules.view(settings, state, seat) for seat in SEATS]
        masks = [self.game.rules.legal(settings, state, seat) for seat in SEATS]
        named = []
        for view, mask in zip(views, masks, strict=True):
            observation, info = observe(settings, view, mask)
            # under that name PettingZoo expects a mask over the flat actions
            named.append(observation | {name: value for name, value in info.items() if name != "action_mask"})
        return Shown(
            features=jnp.stack([self.game.learning.features(settings, view) for view in views]),
            masks=jnp.stack([jnp.concatenate(mask) for mask in masks]),
            named={name: jnp.stack([row[name] for row in named]) for name in named[0]},
            rewards=rewards,
            seat=state.seat,
            over=over,
        )


@lru_cache(maxsize=32)
def both_seats(game: Game, described: Any) -> Single:
    """Compiled once for all environments whose settings have the same shapes."""
    program: Any = BothSeats(game)
    return Single(program, from_shapes(described))


class Table:
    """One game on the host: what the AEC and the parallel form have in common."""

    def __init__(self, render_mode: str | None, options: Mapping[str, Any]) -> None:
        if render_mode not in (None, "ansi"):
            raise BadInput(f"There is no render mode {render_mode!r}; there is 'ansi'.")
        self.options = NegotiationOptions.read(options, "option of the PettingZoo environments")
        self.game, self.settings = game_for(self.options), self.options.settings()
        self.acts = flat_acts(self.options.max_count)
        self._compiled = both_seats(self.game, shapes_of(self.settings))
        self._settings = jnp.asarray(self._compiled.settings.write(self.settings))
        self._layout = Layout(self.game.bit_widths, self.game.example)
        wire = self._compiled.wire
        self._places: Any = jax.tree.unflatten(wire.tree, wire.slices)[1]  # a Shown of slices
        named = self._places.named.items()
        self._named = [(name, where.start, (where.stop - where.start) // 2) for name, where in named]
        self._flat: dict[bytes, NDArray[np.int8]] = {}  # by the heads' masks: a few hundred pools at most
        self._vector: Any = None
        self._seen: NDArray[np.int32]
        self._over = True
        self._wait: NDArray[np.int8] = (np.arange(len(self.acts)) == WAIT).astype(np.int8)
        features = self._places.features
        count = max(1.0, self.options.max_count / 4)
        self.observation_spaces = {
            agent: spaces.Dict(
                {
                    "observation": spaces.Box(0.0, count, ((features.stop - features.start) // 2,), np.float32),
                    "action_mask": spaces.Box(0, 1, (len(self.acts),), np.int8),
                }
            )
            for agent in AGENTS
        }
        self.action_spaces = {agent: spaces.Discrete(len(self.acts)) for agent in AGENTS}

    @property
    def seat(self) -> int:
        """Who is to move."""
        return int(self._seen[self._places.seat.start])

    @property
    def over(self) -> bool:
        return self._over

    def reset(self, seed: int | None, options: Mapping[str, Any] | None) -> None:
        """A seed begins a series of episodes; without one the next of the series is played.

        Of the options `context` and `agent_starts` are read as `NegotiationEnv` reads them, agent_0 being
        the agent. Others are ignored: PettingZoo's own suite passes one that nobody knows.
        """
        state = None
        if options and "context" in options:
            state = first_state(self.options, self.settings, options["context"], options.get("agent_starts", True))
        elif options and "agent_starts" in options:
            raise BadInput("reset takes 'agent_starts' only together with 'context'.")
        if seed is not None or self._vector is None:
            self._vector = self._compiled.first(_seed(seed))
        if state is None:
            self._keep(self._compiled.fresh(self._settings, self._vector))
        else:
            self._keep(self._compiled.place(self._settings, self._vector, state))

    def play(self, action: Any) -> None:
        """The action of the seat to move."""
        if self._over:
            raise gymnasium.error.ResetNeeded("The episode is over or was never begun; call reset() first.")
        act = self._act_of(action)
        self._keep(self._compiled.advance(self._settings, self._vector, act))

    def rewards(self) -> dict[str, float]:
        paid = self._seen[self._places.rewards].view(np.float32)
        return {agent: float(points) for agent, points in zip(AGENTS, paid, strict=True)}

    def observation(self, agent: str) -> dict[str, NDArray[Any]]:
        seat = AGENTS.index(agent)
        features = self._seen[self._places.features].view(np.float32).reshape(2, -1)[seat].copy()
        return {"observation": features, "action_mask": self._flat_mask(seat).copy()}

    def infos(self) -> Infos:
        infos: Infos = {}
        wide = self._seen.astype(np.int64)
        for seat, agent in enumerate(AGENTS):
            infos[agent] = {"to_move": not self._over and seat == self.seat}
            for name, start, width in self._named:
                at = start + seat * width
                infos[agent][name] = int(wide[at]) if width == 1 else wide[at : at + width]
        if self._over:
            end = self._end()
            for agent in AGENTS:
                infos[agent] |= end
        return infos

    def text(self) -> str:
        """What both seats know of the game."""
        drawn = frame.frame(self.settings, self._state())
        lines = [f"Pool: {words.share(drawn['counts'])}. Turns remaining: {drawn['turns_left']}."]
        for agent, act, claim in zip(AGENTS, drawn["last_acts"], drawn["claims"], strict=True):
            lines.append(f"{agent} {'has not spoken' if act is None else f'said {act}, keeps {words.share(claim)}'}.")
        return "\n".join(lines)

    def _state(self) -> rules.State:
        state: rules.State = self._layout.unpack(self._compiled.wire.read(self._seen)[0].solo)
        return state

    def _keep(self, vector: Any) -> None:
        self._vector, self._seen = vector, np.asarray(vector)
        self._over = bool(self._seen[self._places.over.start])

    def _masks(self, seat: int) -> NDArray[np.bool_]:
        opened: NDArray[np.bool_] = self._seen[self._places.masks].reshape(2, -1)[seat].astype(bool)
        return opened

    def _flat_mask(self, seat: int) -> NDArray[np.int8]:
        if self._over or seat != self.seat:
            return self._wait
        opened = self._masks(seat)
        key = opened.tobytes()
        if key not in self._flat:
            self._flat[key] = flat_mask(self.acts, opened).astype(np.int8)
        return self._flat[key]

    def _act_of(self, action: Any) -> NDArray[np.int32]:
        try:
            number = index(action)
        except TypeError:
            number = -1
        if not 0 <= number < len(self.acts):
            raise BadInput(f"The action is {action!r}; it should be a whole number from 0 to {len(self.acts) - 1}.")
        act = self.acts[number]
        if not self._flat_mask(self.seat)[number]:
            ranges = " ".join(f"0..{int(count)}" for count in self._seen[self._places.named["counts"]][:3])
            opened = self._masks(self.seat)
            types = [name for name, is_open in zip(rules.ACT_NAMES, opened, strict=False) if is_open]
            raise BadInput(
                f"Action {number} ({words.act_text(act)}) is closed to {AGENTS[self.seat]} now; "
                f"open are {', '.join(types)}, keeping {ranges}, as its action_mask says."
            )
        played: NDArray[np.int32] = act.astype(np.int32)
        return played

    def _end(self) -> dict[str, Any]:
        """The same for both seats. No ceiling: it is about the heuristic partner, and nobody sits here."""
        scores = self._compiled.score(self._seen)
        return {
            "payoffs": scores["payoff"].astype(np.float64),
            "agreement": bool(scores["agreement"][0]),
            "pareto": bool(scores["pareto"][0] == 1),
            "nash_product": float(scores["nash_product"][0]),
            "welfare": float(scores["welfare"][0]),
        }


def _seed(seed: int | None) -> int:
    if seed is None:
        return int(np.random.default_rng().integers(2**63))
    if not isinstance(seed, (int, np.integer)) or seed < 0:
        raise BadInput(f"The seed is {seed!r}; it should be a whole number of at least 0.")
    return int(seed)


class NegotiationAEC(AECEnv):  # type: ignore[misc]
    """The seat to move is `agent_selection`; payoffs come to both with the act that ends the game."""

    metadata = METADATA

    def __init__(self, *, render_mode: str | None = None, **options: Any) -> None:
        super().__init__()
        self.table = Table(render_mode, options)
        self.render_mode = render_mode
        self.possible_agents = list(AGENTS)
        self.agents: list[str] = []
        self.observation_spaces, self.action_spaces = self.table.observation_spaces, self.table.action_spaces

    def observation_space(self, agent: str) -> spaces.Dict:
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Discrete:
        return self.action_spaces[agent]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        self.table.reset(seed, options)
        self.agents = list(AGENTS)
        self.truncations = dict.fromkeys(AGENTS, False)
        self._cumulative_rewards = dict.fromkeys(AGENTS, 0.0)
        self._skip_agent_selection = None
        self._read()

    def step(self, action: Any) -> None:
        agent = self.agent_selection
        if self.terminations.get(agent):
            self._was_dead_step(action)
            return
        self.table.play(action)
        self._cumulative_rewards[agent] = 0.0
        self._read()
        self._accumulate_rewards()

    def observe(self, agent: str) -> dict[str, NDArray[Any]]:
        return self.table.observation(agent)

    def render(self) -> str | None:
        return self.table.text() if self.render_mode else None

    def close(self) -> None:
        pass

    def _read(self) -> None:
        self.agent_selection = AGENTS[self.table.seat]
        self.rewards, self.infos = self.table.rewards(), self.table.infos()
        self.terminations = dict.fromkeys(AGENTS, self.table.over)


class NegotiationParallel(ParallelEnv):  # type: ignore[misc]
    """Both seats act at every step, but the seat with `infos[agent]["to_move"]` alone is heard."""

    metadata = METADATA

    def __init__(self, *, render_mode: str | None = None, **options: Any) -> None:
        self.table = Table(render_mode, options)
        self.render_mode = render_mode
        self.possible_agents = list(AGENTS)
        self.agents: list[str] = []
        self.observation_spaces, self.action_spaces = self.table.observation_spaces, self.table.action_spaces

    def observation_space(self, agent: str) -> spaces.Dict:
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Discrete:
        return self.action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, dict[str, NDArray[Any]]], Infos]:
        self.table.reset(seed, options)
        self.agents = list(AGENTS)
        return self._observations(), self.table.infos()

    def step(
        self, actions: Mapping[str, Any]
    ) -> tuple[dict[str, dict[str, NDArray[Any]]], dict[str, float], dict[str, bool], dict[str, bool], Infos]:
        mover = AGENTS[self.table.seat] if self.agents else None
        if mover and mover not in actions:
            raise BadInput(f"{mover} is to move and has no action; it should be a key of the actions.")
        self.table.play(actions[mover] if mover else None)
        over = self.table.over
        if over:
            self.agents = []
        ends = dict.fromkeys(AGENTS, over)
        return self._observations(), self.table.rewards(), ends, dict.fromkeys(AGENTS, False), self.table.infos()

    def render(self) -> str | None:
        return self.table.text() if self.render_mode else None

    def close(self) -> None:
        pass

    def _observations(self) -> dict[str, dict[str, NDArray[Any]]]:
        return {agent: self.table.observation(agent) for agent in AGENTS}
