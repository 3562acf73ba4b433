"""Stable-Baselines3's MaskablePPO learns with an adviser's hints in its observations.

pip install 'kibitz[sb3]'; then: python hints_sb3.py [expert|random|llm:taught|policy:RUN] [STEPS]
"""

import sys

import gymnasium
from sb3_contrib import MaskablePPO
from stable_baselines3.common.env_util import make_vec_env

from kibitz.hints import HintInjectorEnv, HintObservationEnv


def make(hints: str) -> gymnasium.Env:
    env = gymnasium.make("kibitz:Kibitz/DealOrNoDeal-v0")  # features as observations, MultiDiscrete actions, masks
    return HintObservationEnv(HintInjectorEnv(env, hints))  # the same observations, followed by the hint's ten numbers


def main(hints: str = "expert", steps: int = 20_000, games: int = 8, rollout: int = 128) -> MaskablePPO:
    envs = make_vec_env(lambda: make(hints), n_envs=games, seed=0)
    model = MaskablePPO("MlpPolicy", envs, n_steps=rollout, ent_coef=0.01, seed=0, verbose=1)
    return model.learn(steps)


if __name__ == "__main__":
    main(*sys.argv[1:2], *map(int, sys.argv[2:3]))
