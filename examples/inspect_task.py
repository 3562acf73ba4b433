"""An Inspect AI task: a model plays Deal or No Deal with the game's tools, and its points are the score.

pip install 'kibitz[inspect]'; then: inspect eval inspect_task.py --model openai/gpt-5-mini -T episodes=20
"""

from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.model import ChatMessageTool, ChatMessageUser, get_model
from inspect_ai.scorer import Score, mean, scorer, stderr
from inspect_ai.solver import solver
from inspect_ai.tool import ToolInfo, ToolParams
from pydantic import ValidationError

from kibitz.core.envs.tool_env import action_of, tools
from kibitz.games import get_environment

MAX_ANSWERS = 40  # of the model in an episode
GO_ON = "Call one of the tools to continue."


@task
def negotiate(episodes: int = 20, game: str = "deal_or_no_deal", opponent: str = "heuristic") -> Task:
    """One sample is one deal; the same number is the same deal for every model."""
    text = "You play a game through tools. Earn as many points as you can."
    samples = [Sample(input=text, id=number + 1, metadata={"seed": number}) for number in range(episodes)]
    return Task(dataset=samples, solver=play(game, opponent), scorer=points())


@solver
def play(game: str, opponent: str):
    environment = get_environment(game)
    offered = [
        ToolInfo(name=tool.name, description=tool.description, parameters=ToolParams.model_validate(tool.input_schema))
        for tool in tools(environment)
    ]

    async def solve(state, generate):
        episode = environment()
        seen = episode.reset({"seed": state.metadata["seed"], "opponent": opponent})
        points = 0.0
        state.messages.append(ChatMessageUser(content=shown(seen)))
        for _ in range(MAX_ANSWERS):
            if seen.done:
                break
            state.output = await get_model().generate(state.messages, tools=offered)
            state.messages.append(state.output.message)
            for call in state.output.message.tool_calls or []:
                try:
                    seen = episode.step(action_of(environment, call.function, call.arguments))
                    text, points = shown(seen), points + float(seen.reward or 0.0)
                except (ValidationError, ValueError) as error:  # a mistake of the model, which it may correct
                    text = f"Error: {error}"
                state.messages.append(ChatMessageTool(content=text, tool_call_id=call.id, function=call.function))
                if seen.done:
                    break
            if not state.output.message.tool_calls:
                state.messages.append(ChatMessageUser(content=GO_ON))
        state.store.set("points", points)
        return state

    return solve


def shown(observation) -> str:
    """What the model reads: the observation without what only the page and trainers need."""
    return observation.model_dump_json(exclude={"metadata", "frame", "tools", "action_mask"}, exclude_none=True)


@scorer(metrics=[mean(), stderr()])
def points():
    async def score(state, target):
        return Score(value=state.store.get("points", 0.0))

    return score
