"""An OpenEnv client plays both games on a server of `kibitz serve`.

pip install 'kibitz[openenv]'; then, beside a running `kibitz serve`: python openenv_client.py [http://127.0.0.1:8000]
"""

import sys

from openenv import GenericEnvClient


def negotiate(server: str, seed: int = 7) -> float:
    """Asks for everything, then for one item less at every turn, until the partner agrees; returns the points."""
    with GenericEnvClient(base_url=f"{server}/envs/deal_or_no_deal").sync() as env:
        result = env.reset(seed=seed, opponent="heuristic", max_turns=12)
        wanted, paid = list(result.observation["counts"]), 0.0
        while not result.done:
            result = env.step({"act_type": 0, "oA": wanted})
            paid += result.reward or 0.0
            if any(wanted):
                wanted[max(range(len(wanted)), key=wanted.__getitem__)] -= 1
        return paid


def captain(server: str, seed: int = 7) -> float:
    """Lets the captain play ball by ball with the tools that the observation offers; returns 1 for a win."""
    with GenericEnvClient(base_url=f"{server}/envs/cricket").sync() as env:
        result = env.reset(seed=seed, max_overs=1, opponent_mode="balanced")
        while not result.done:
            ball = next(tool["name"] for tool in result.observation["tools"] if tool["advances"])
            result = env.step({"tool": ball})
        return float(result.reward or 0.0)


def main(server: str = "http://127.0.0.1:8000") -> dict[str, float]:
    return {"negotiation": negotiate(server), "cricket": captain(server)}


if __name__ == "__main__":
    print(main(*sys.argv[1:]))
