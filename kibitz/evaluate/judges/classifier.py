"""A supervised judge: a small network on features of whole episodes, trained in seconds on the true styles."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from kibitz.core.errors import BadInput
from kibitz.core.game import SEATS, Game
from kibitz.core.system.paths import write_whole
from kibitz.evaluate.judges.episodes import Labelled

HIDDEN = 64
STEPS = 600
LEARNING_RATE = 5e-3
WEIGHT_DECAY = 1e-3


def episode_features(game: Game, episodes: Labelled) -> NDArray[np.float32]:
    """f32[n, features]: both seats' views of the end, how often each seat chose each value, and what both earned."""

    def ends(settings: Any, state: Any) -> Array:
        views = [game.learning.features(settings, game.rules.view(settings, state, seat)) for seat in SEATS]
        return jnp.concatenate(views)

    views = np.asarray(jax.jit(jax.vmap(ends, in_axes=(None, 0)))(episodes.settings, episodes.state))
    made = np.arange(episodes.acts.shape[2]) < episodes.turns[..., None]  # bool[n, 2, turns]
    counts = [
        ((episodes.acts[..., head, None] == np.arange(size)) & made[..., None]).sum(2)
        / np.maximum(made.sum(2), 1)[..., None]
        for head, size in enumerate(game.sizes)
    ]
    parts = [views, *(count.reshape(len(episodes), -1) for count in counts), np.log1p(episodes.turns), episodes.returns]
    return np.concatenate(parts, axis=1).astype(np.float32)


@dataclass(frozen=True)
class Classifier:
    """One output for each style of a game."""

    game: str
    version: int
    styles: tuple[str, ...]
    episodes: int  # learnt from
    weights: dict[str, NDArray[np.float32]]

    @classmethod
    def learn(cls, game: Game, episodes: Labelled, seed: int = 0) -> Classifier:
        features = episode_features(game, episodes)
        labels = np.stack([episodes.shown[name] for name in game.styles.questions], axis=1).astype(np.float32)
        centre, spread = features.mean(0), features.std(0) + 1e-3
        fitted = jax.device_get(_fit((features - centre) / spread, labels, jax.random.key(seed)))
        weights = {name: np.asarray(value) for name, value in fitted.items()} | {"centre": centre, "spread": spread}
        return cls(game.name, game.version, tuple(game.styles.questions), len(episodes), weights)

    def judge(self, game: Game, episodes: Labelled, style: str) -> NDArray[np.bool_]:
        """Whether each episode shows the style."""
        features = episode_features(game, episodes)
        if self.game != game.name or self.version != game.version or features.shape[1] != len(self.weights["centre"]):
            raise BadInput(
                f"The classifier was trained on {self.game} (version {self.version}) with other options; "
                "train one with `kibitz judge train` and the same --set."
            )
        game.styles.names([style], game.name)
        inputs = (features - self.weights["centre"]) / self.weights["spread"]
        outputs = np.asarray(_outputs({k: jnp.asarray(v) for k, v in self.weights.items()}, jnp.asarray(inputs)))
        yes: NDArray[np.bool_] = outputs[:, self.styles.index(style)] > 0
        return yes

    def write(self, path: Path) -> None:
        about = {"game": self.game, "version": self.version, "styles": self.styles, "episodes": self.episodes}
        write_whole(path, save(self.weights, {"classifier": json.dumps(about)}))

    @classmethod
    def read(cls, path: Path) -> Classifier:
        try:
            with safe_open(path, "np") as file:
                about = json.loads((file.metadata() or {})["classifier"])
                weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
            return cls(about["game"], about["version"], tuple(about["styles"]), about["episodes"], weights)
        except (OSError, SafetensorError, KeyError, TypeError, ValueError):
            raise BadInput(f"{path} is no classifier; write one with `kibitz judge train --out {path}`.") from None


def _outputs(weights: dict[str, Array], inputs: Array) -> Array:
    """f32[n, styles]: positive for yes."""
    return jnp.tanh(inputs @ weights["in"] + weights["bias"]) @ weights["out"] + weights["out_bias"]


@jax.jit
def _fit(inputs: Array, labels: Array, key: Array) -> dict[str, Array]:
    """Full batches: thousands of episodes with a hundred features fit into any memory."""
    first, second = jax.random.split(key)
    size, styles = inputs.shape[1], labels.shape[1]
    weights = {
        "in": jax.random.normal(first, (size, HIDDEN)) / jnp.sqrt(size),
        "bias": jnp.zeros(HIDDEN),
        "out": jax.random.normal(second, (HIDDEN, styles)) / jnp.sqrt(HIDDEN),
        "out_bias": jnp.zeros(styles),
    }
    tx = optax.adamw(LEARNING_RATE, weight_decay=WEIGHT_DECAY)

    def loss(weights: dict[str, Array]) -> Array:
        return jnp.mean(optax.sigmoid_binary_cross_entropy(_outputs(weights, inputs), labels))

    def step(_: Any, carry: Any) -> Any:
        weights, moments = carry
        change, moments = tx.update(jax.grad(loss)(weights), moments, weights)
        return optax.apply_updates(weights, change), moments

    fitted: dict[str, Array] = jax.lax.fori_loop(0, STEPS, step, (weights, tx.init(weights)))[0]
    return fitted
