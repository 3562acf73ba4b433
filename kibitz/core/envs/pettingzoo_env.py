"""Any game with both seats free, as PettingZoo environments: `aec_env(game)` and `parallel_env(game)`.

An observation is `{"observation": f32[n], "action_mask": i8[..]}`: the features that kibitz trains on, from
that seat's side. An action is an index into the game's flat acts, or, in a game with more than
`MAX_FLAT_ACTIONS` acts, one number per head with the heads' masks concatenated. A seat that is not to
act has one legal action, and the environments ignore what it sends.

In a simultaneous game the parallel form is the natural one; in the AEC form agent_0 chooses first,
agent_1 sees nothing of it, and the step follows. In an alternating game it is the other way round: in the
parallel form only the agent with `infos[agent]["to_move"]` counts.

`env.action_space(agent).sample(observation["action_mask"])` draws a legal action. An illegal one loses the turn and
`infos[agent]["illegal"]` says so; with `illegal="penalty"` it also costs `illegal_penalty`, and with `illegal="error"`
it raises BadInput and changes nothing. PettingZoo's `TerminateIllegalWrapper` ends the game instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any

import gymnasium
from gymnasium import spaces
from numpy.typing import NDArray

from kibitz.core.envs.both_seats import AGENTS, GENERIC, Infos, SeatsForm, SeatsTable
from kibitz.core.errors import BadInput
from kibitz.core.game import Game

try:
    from pettingzoo import AECEnv, ParallelEnv
    from pettingzoo.utils import OrderEnforcingWrapper
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        "The environments with both seats free need PettingZoo: pip install 'kibitz[pettingzoo]'.", name=missing.name
    ) from None


def aec_env(game: str | Game, *, form: SeatsForm = GENERIC, **options: Any) -> Any:
    """Agents act one after the other. Options are those of the game, `illegal` and `illegal_penalty`."""
    return OrderEnforcingWrapper(GameAEC(game, form=form, **options))


def parallel_env(game: str | Game, *, form: SeatsForm = GENERIC, **options: Any) -> GameParallel:
    """Both agents act at every step. Options are those of the game, `illegal` and `illegal_penalty`."""
    return GameParallel(game, form=form, **options)


def _metadata(game: Game) -> dict[str, Any]:
    return {"name": f"{game.name}_v0", "render_modes": ["ansi"], "render_fps": 1, "is_parallelizable": True}


class GameAEC(AECEnv):  # type: ignore[misc]
    """`agent_selection` is to act; rewards come with the act that completes a step."""

    def __init__(
        self, game: str | Game, *, form: SeatsForm = GENERIC, render_mode: str | None = None, **options: Any
    ) -> None:
        super().__init__()
        self.table = SeatsTable(game, render_mode, options, form)
        self.metadata = _metadata(self.table.game)
        self.render_mode = render_mode
        self.possible_agents = list(AGENTS)
        self.agents: list[str] = []
        self.agent_selection: str = AGENTS[0]
        self.terminations: dict[str, bool] = {}
        self.observation_spaces, self.action_spaces = self.table.observation_spaces, self.table.action_spaces
        self._chosen: dict[str, Any] = {}  # acts of the step to come

    def observation_space(self, agent: str) -> spaces.Dict:
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return self.action_spaces[agent]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        self.table.reset(seed, options)
        self.agents = list(AGENTS)
        self.truncations = dict.fromkeys(AGENTS, False)
        self._cumulative_rewards = dict.fromkeys(AGENTS, 0.0)
        self._skip_agent_selection = None
        self._chosen = {}
        self._read()

    def step(self, action: Any) -> None:
        agent = self.agent_selection
        if self.terminations.get(agent):
            self._was_dead_step(action)
            return
        self._chosen[agent] = self.table.act_of(agent, action)
        self._cumulative_rewards[agent] = 0.0
        waiting = [name for name in self.table.movers if name not in self._chosen]
        if waiting:
            self.rewards, self.agent_selection = dict.fromkeys(AGENTS, 0.0), waiting[0]
            return
        self.table.play(self._chosen)
        acted, self._chosen = set(self._chosen), {}
        self._read(acted)
        self._accumulate_rewards()

    def observe(self, agent: str) -> dict[str, NDArray[Any]]:
        return self.table.observation(agent)

    def render(self) -> str | None:
        return self.table.text() if self.render_mode else None

    def close(self) -> None:
        pass

    def _read(self, acted: AbstractSet[str] = frozenset()) -> None:
        # after the end the agent that did not act last steps out first
        remaining = [agent for agent in AGENTS if agent not in acted]
        self.agent_selection = (self.table.movers or remaining or AGENTS)[0]
        self.rewards, self.infos = self.table.rewards(), self.table.infos()
        self.terminations = dict.fromkeys(AGENTS, self.table.over)


class GameParallel(ParallelEnv):  # type: ignore[misc]
    """Both agents act at every step; those without `infos[agent]["to_move"]` are ignored."""

    def __init__(
        self, game: str | Game, *, form: SeatsForm = GENERIC, render_mode: str | None = None, **options: Any
    ) -> None:
        self.table = SeatsTable(game, render_mode, options, form)
        self.metadata = _metadata(self.table.game)
        self.render_mode = render_mode
        self.possible_agents = list(AGENTS)
        self.agents: list[str] = []
        self.observation_spaces, self.action_spaces = self.table.observation_spaces, self.table.action_spaces

    def observation_space(self, agent: str) -> spaces.Dict:
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Space[Any]:
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
        if not self.agents:
            raise gymnasium.error.ResetNeeded("The episode is over or has not begun; call reset() first.")
        movers = self.table.movers
        for agent in movers:
            if agent not in actions:
                raise BadInput(f"{agent} is to move and has no action; it should be a key of the actions.")
        self.table.play({agent: self.table.act_of(agent, actions[agent]) for agent in movers})
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
