"""An MCP client lists a game's tools on a server of `kibitz serve` and plays an episode with them.

pip install 'kibitz[mcp]'; then, beside a running `kibitz serve`: python mcp_client.py [http://127.0.0.1:8000]

An assistant that speaks MCP needs only the address http://127.0.0.1:8000/envs/deal_or_no_deal/mcp.
"""

import asyncio
import sys

from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client


async def play(server: str, seed: int = 7) -> dict:
    """Proposes to keep everything, then agrees with the answer; returns the last observation."""
    address = f"{server}/envs/deal_or_no_deal/mcp"
    async with streamablehttp_client(address) as (reading, writing, _), ClientSession(reading, writing) as session:
        await session.initialize()
        names = [tool.name for tool in (await session.list_tools()).tools]
        assert {"new_episode", "propose", "agree"} <= set(names), names
        started = await session.call_tool("new_episode", {"options": {"seed": seed, "agent_starts": True}})
        counts = started.structuredContent["counts"]
        keep = dict(zip(("books", "hats", "balls"), counts, strict=True))
        answered = await session.call_tool("propose", keep)
        if not answered.structuredContent["done"]:
            answered = await session.call_tool("agree", {})
        return answered.structuredContent


def main(server: str = "http://127.0.0.1:8000") -> dict:
    return asyncio.run(play(server))


if __name__ == "__main__":
    print(main(*sys.argv[1:]))
