"""The toy game of the training tests, a tiny study of it, and a fake model server."""

from tests.advice.conftest import embedded, fake
from tests.train.conftest import command, toy_game

__all__ = ["command", "embedded", "fake", "toy_game"]

# 8 games x 4 steps: an update is 32 steps, an episode one update
TINY = [
    *("--game", "two_arms", "--seeds", "2", "--steps", "96"),
    *("--set", "train.num_envs=8", "--set", "train.rollout=4", "--set", "train.minibatch=16"),
    *("--set", "train.hidden=[8]", "--set", "train.lr=0.01"),
    *("--set", "logging.eval_every=32", "--set", "logging.save_every=32", "--set", "logging.eval_episodes=16"),
]
