"""The verifiers environment plays whole episodes, with a canned model behind OpenAI's own client."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest

from tests.conformance.test_hint_examples import example

pytestmark = [pytest.mark.conformance, pytest.mark.filterwarnings("ignore")]  # warnings of other packages
# Skipped by `make conformance`, on CI as well: verifiers and the lock need different versions of packages.
pytest.importorskip("verifiers.envs", reason="verifiers needs an environment of its own; run `make stacks`")

SAID = [
    "I think about it first.",
    {"tool": "propose", "arguments": {"books": 99, "hats": 0, "balls": 0}},
    {"tool": "propose", "arguments": {"books": 0, "hats": 0, "balls": 0}},
    {"tool": "agree", "arguments": {}},
    {"tool": "agree", "arguments": {}},
]


def test_a_verifiers_environment_pays_an_episodes_points() -> None:
    from openai import AsyncOpenAI
    from verifiers.clients import OpenAIChatCompletionsClient

    def answer(request: httpx.Request) -> httpx.Response:
        said = SAID[min(len(json.loads(request.content)["messages"]) // 2 - 1, len(SAID) - 1)]
        content = said if isinstance(said, str) else json.dumps(said)
        message = {"role": "assistant", "content": content}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        body = {"id": "x", "object": "chat.completion", "created": 1, "model": "canned", "choices": [choice]}
        return httpx.Response(200, json=body)

    environment = example("verifiers_env").load_environment(episodes=1)
    http = httpx.AsyncClient(transport=httpx.MockTransport(answer))
    client = OpenAIChatCompletionsClient(AsyncOpenAI(api_key="none", base_url="http://model.test/v1", http_client=http))
    found = asyncio.run(environment.evaluate(client, "canned", num_examples=1, rollouts_per_example=1))
    (rollout,) = found["outputs"]
    assert rollout["reward"] >= 0
    talk = str(rollout["completion"])
    assert "Error:" in talk and "illegal" in talk and '"done":true' in talk
