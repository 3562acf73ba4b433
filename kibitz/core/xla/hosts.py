"""Several hosts as one machine: a process on each, joined by `jax.distributed`. All of them run the same program."""

from __future__ import annotations

import os
import pickle
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import jax
import numpy as np

from kibitz.core.errors import BadInput

ADDRESS = "JAX_COORDINATOR_ADDRESS"
PROCESSES = "JAX_NUM_PROCESSES"
PROCESS = "JAX_PROCESS_ID"
DEFAULT_PORT = 8476  # JAX's own
JOIN_SECONDS = 300


def several() -> bool:
    return int(jax.process_count()) > 1


def is_first() -> bool:
    return int(jax.process_index()) == 0


@contextmanager
def joined(hosts: str | None) -> Iterator[None]:
    """Within this block the process belongs to the training that `--hosts` or JAX's environment variables describe."""
    if hosts is None and ADDRESS not in os.environ:
        yield
        return
    if hosts is not None and ADDRESS in os.environ:
        raise BadInput(f"--hosts cannot be combined with {ADDRESS}; use one of them.")
    address, count, place = _from_environment() if hosts is None else place_among(hosts.split(","), _own_names())
    sys.stdout.flush()
    try:
        jax.distributed.initialize(address, count, place, initialization_timeout=JOIN_SECONDS)
    except (RuntimeError, ValueError, TypeError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise BadInput(f"This process cannot join the training at {address} ({reason}).") from None
    try:
        with _library_output_on_stderr():
            yield
    except BadInput:  # of all hosts: see `all_or_none`
        jax.distributed.shutdown()
        raise
    jax.distributed.shutdown()  # waits for the others; without it they would take this process for lost


@contextmanager
def _library_output_on_stderr() -> Iterator[None]:
    """Gloo greets on standard output, where a command prints its result and nothing else."""
    ours, sys.stdout = sys.stdout, os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(sys.stdout.fileno(), 1)
        sys.stdout.close()
        sys.stdout = ours


def _from_environment() -> tuple[str, int | None, int | None]:
    """What is not set, JAX finds out itself under Slurm, Open MPI or Kubernetes."""

    given = {PROCESSES: os.environ.get(PROCESSES), PROCESS: os.environ.get(PROCESS)}
    for name, text in given.items():
        if text is not None and not text.isdecimal():
            raise BadInput(f"{name} is {text!r}; it must be a whole number.")
    count, place = (None if text is None else int(text) for text in given.values())
    return os.environ[ADDRESS], count, place


def place_among(hosts: list[str], own: set[str]) -> tuple[str, int, int]:
    """The address of the first host, the number of hosts and the place of this one, by its names and addresses."""
    names = [host.strip() for host in hosts]
    bare = [name.rpartition(":")[0] if name.count(":") == 1 else name for name in names]
    here = [place for place, name in enumerate(bare) if name in own]
    if len(here) != 1 or not all(bare):
        found = "no host" if not here else f"{len(here)} hosts"
        raise BadInput(
            f"--hosts names {found} that is this machine ({', '.join(sorted(own))}); list every host once, by the "
            f"name or address it has itself, or set {ADDRESS}, {PROCESSES} and {PROCESS}."
        )
    first = names[0] if ":" in names[0] else f"{names[0]}:{DEFAULT_PORT}"
    return first, len(names), here[0]


def _own_names() -> set[str]:
    name = socket.gethostname()
    found = {name, name.partition(".")[0], socket.getfqdn()}
    with suppress(OSError):
        found |= {str(info[4][0]) for info in socket.getaddrinfo(name, None)}
    return found


def gathered(tree: Any) -> Any:
    """The same arrays with the parts of all hosts, in this process. All processes must call this together."""
    if not several():
        return tree
    from jax.experimental import multihost_utils

    def whole(leaf: Any) -> Any:
        if isinstance(leaf, jax.core.Tracer) or leaf.is_fully_addressable or leaf.is_fully_replicated:
            return _as_numpy(leaf)
        return np.asarray(multihost_utils.process_allgather(leaf, tiled=True))

    return jax.tree.map(whole, tree)


def on_host(tree: Any) -> Any:
    """Arrays that every process has, as NumPy arrays: a program of all hosts takes no arrays of a single device."""
    return jax.tree.map(_as_numpy, tree) if several() else tree


def _as_numpy(leaf: Any) -> Any:
    return leaf if isinstance(leaf, jax.core.Tracer) else np.asarray(leaf)  # only its shape is wanted


def any_of(flag: bool) -> bool:
    """Whether any process says so. All processes must call this together."""
    if not several():
        return flag
    from jax.experimental import multihost_utils

    return bool(np.any(multihost_utils.process_allgather(np.array([flag]))))


@contextmanager
def all_or_none() -> Iterator[None]:
    """If one process refuses what it is asked to do, all of them do. All must enter this block together."""
    try:
        yield
    except BadInput:
        any_of(True)
        raise
    if any_of(False):
        raise BadInput("Another host refused this command; see what it says.")


def broadcast(files: dict[str, bytes]) -> dict[str, bytes]:
    """What process 0 has, in every process."""
    from jax.experimental import multihost_utils

    content = np.frombuffer(pickle.dumps(files), np.uint8)
    size = int(multihost_utils.broadcast_one_to_all(np.array(len(content))))
    padded = content if is_first() else np.zeros(size, np.uint8)
    sent: dict[str, bytes] = pickle.loads(np.asarray(multihost_utils.broadcast_one_to_all(padded)).tobytes())
    return sent
