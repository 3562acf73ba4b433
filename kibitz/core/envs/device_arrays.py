"""Actions and results of vector environments that stay on JAX's device, for users of JAX and PyTorch."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, get_args

import jax
import jax.numpy as jnp

from kibitz.core.envs.batch import Seen, StepResult
from kibitz.core.errors import BadInput

Arrays: TypeAlias = Literal["numpy", "jax", "torch"]


class DeviceArrays:
    """Converts between JAX's arrays and the caller's. PyTorch shares their memory through DLPack."""

    def __init__(self, kind: str, bare: str | None, count: int) -> None:
        if kind not in get_args(Arrays):
            raise BadInput(f"There are no arrays of kind {kind!r}; choose one of {', '.join(get_args(Arrays))}.")
        self._bare, self._every, self._torch = bare, jnp.ones(count, bool), _torch() if kind == "torch" else None

    def take(self, actions: Any) -> Any:
        """The caller's actions as JAX arrays."""
        return jax.tree.map(self._taken, actions)

    def _taken(self, value: Any) -> Any:
        if self._torch is not None and isinstance(value, self._torch.Tensor):
            # JAX computes with 32 bits, and PyTorch samples with 64
            value = value.to(self._torch.int32) if value.dtype == self._torch.int64 else value
            return jnp.from_dlpack(value.detach().contiguous())
        return value if isinstance(value, jax.Array) else jnp.asarray(value)

    def give(self, tree: Any) -> Any:
        """JAX arrays as the caller's."""
        return tree if self._torch is None else jax.tree.map(self._torch.from_dlpack, tree)

    def seen(self, seen: Seen, mask: Any = None) -> tuple[Any, dict[str, Any]]:
        """Observation and infos; `mask` says which environments the infos are about, by default all."""
        observation = seen.observation if self._bare is None else seen.observation[self._bare]
        return observation, _infos(seen.info, self._every if mask is None else mask)

    def stepped(self, result: StepResult, same_step: bool) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """What `step` returns. Final observations and scores are whole batches: `_final_obs` says where they count."""
        observation, infos = self.seen(result.now)
        scores = _infos(result.scores, result.over)
        if same_step:
            last, about = self.seen(result.final, result.over)
            infos |= {"final_obs": last, "_final_obs": result.over}
            infos |= {"final_info": about | scores, "_final_info": result.over}
        else:
            infos |= scores
        given: tuple[Any, Any, Any, Any, dict[str, Any]] = self.give(
            (observation, result.reward, result.over, jnp.zeros_like(result.over), infos)
        )
        return given


def _infos(values: dict[str, Any], mask: Any) -> dict[str, Any]:
    return values | {f"_{name}": mask for name in values}


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise BadInput("arrays='torch' needs PyTorch; install it with pip install torch.") from None
    return torch
