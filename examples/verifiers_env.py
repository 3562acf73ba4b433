"""A verifiers environment: a model plays Deal or No Deal, one line of JSON per turn; its points are the reward.

pip install 'kibitz[verifiers]'; then, in Python: env = verifiers_env.load_environment(episodes=100)

Tested with 0.1.14. Later versions replace `MultiTurnEnv`, on which this environment is built.
"""

import json

import verifiers as vf
from datasets import Dataset
from pydantic import ValidationError

from kibitz.core.envs.tool_env import action_of, tools
from kibitz.games import get_environment

MAX_TURNS = 40  # answers of the model in an episode
RULES = """You play a game. Earn as many points as you can. At each turn answer with one line of JSON:
{{"tool": NAME, "arguments": {{...}}}}
The tools are:
{tools}"""


def load_environment(episodes: int = 100, game: str = "deal_or_no_deal", opponent: str = "heuristic") -> vf.Environment:
    """One row is one deal; the same number is the same deal for every model."""
    environment = get_environment(game)
    listed = "\n".join(
        f"{tool.name}{json.dumps(tool.input_schema.get('properties', {}))}" for tool in tools(environment)
    )
    rows = []
    for seed in range(episodes):
        options = {"seed": seed, "opponent": opponent}
        first = shown(environment().reset(options))
        prompt = [{"role": "system", "content": RULES.format(tools=listed)}, {"role": "user", "content": first}]
        rows.append({"prompt": prompt, "answer": "", "info": options})
    dataset = Dataset.from_list(rows)
    return Episodes(environment, dataset=dataset, rubric=vf.Rubric(funcs=[points]), max_turns=MAX_TURNS)


class Episodes(vf.MultiTurnEnv):
    def __init__(self, environment, **more):
        super().__init__(**more)
        self.environment = environment

    async def setup_state(self, state, **more):
        state["episode"], state["points"] = self.environment(), 0.0
        state["episode"].reset(dict(state["info"]))
        return state

    async def env_response(self, messages, state, **more):
        try:
            said = json.loads(messages[-1]["content"])
            seen = state["episode"].step(action_of(self.environment, said["tool"], said.get("arguments", {})))
        except (ValidationError, ValueError, KeyError, TypeError, AttributeError) as error:
            return [{"role": "user", "content": f"Error: {error}"}]  # a mistake of the model, which it may correct
        state["points"] += float(seen.reward or 0.0)
        answer = [{"role": "user", "content": shown(seen)}]
        if seen.done:
            state["final_env_response"] = answer
        return answer


async def points(state) -> float:
    return state["points"]


def shown(observation) -> str:
    """What the model reads: the observation without what only the page and trainers need."""
    return observation.model_dump_json(exclude={"metadata", "frame", "tools", "action_mask"}, exclude_none=True)
