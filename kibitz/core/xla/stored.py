"""Traced programs in files, so that a second process starts without tracing.

JAX keeps compiled programs between processes, but must trace the Python code again to find them, which takes several
times as long as loading them. Here the traced program is kept too, under a key for everything it is made from.
"""

from __future__ import annotations

import hashlib
import logging
import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from itertools import accumulate
from pathlib import Path
from threading import Thread
from typing import Any

import jax
import numpy as np
from jax import export

from kibitz.core.system.paths import PACKAGE, cache_folder, write_whole
from kibitz.core.xla.jit import batch_compiler_options, jit_batch

MAX_FILES = 200  # about 100 KB each; the least recently used go first
LIBRARIES = ("jax", "jaxlib", "numpy", "optax")
DIGEST_BYTES = 32
# JAX promises no compatibility between versions for kernels of Pallas; the key names the version
KERNELS = [export.DisabledSafetyCheck.custom_call("__gpu$xla.gpu.triton")]
log = logging.getLogger("kibitz.core")
_kept = False


@contextmanager
def traced_programs_kept() -> Iterator[None]:
    """Programs that are made in this block are stored. Only commands do this: a caller from Python may have replaced
    one of kibitz's functions, which the key would not show."""
    global _kept
    _sources()  # of the code that this process imports, before a file can change
    before, _kept = _kept, True
    try:
        yield
    finally:
        _kept = before


@cache
def _sources() -> str:
    """Changes with every edit of kibitz's code and data, also one that keeps a file's size and time."""
    found = hashlib.sha256()
    for folder, below, names in os.walk(PACKAGE):
        below[:] = sorted({*below} - {"__pycache__"})
        for name in sorted(names):
            with suppress(OSError):  # an editor's lock is a link to nothing
                content = Path(folder, name).read_bytes()
                found.update(os.fsencode(f"{folder}/{name} {len(content)}\n") + content)
    return found.hexdigest()


@dataclass
class _Traced:
    call: Callable[..., Any]  # of flat arguments
    out: Any  # the result's shapes
    compiled: Future[Any] | None = None


class StoredProgram:
    """`jit_batch(function)`, with its traced form in the cache folder if there is a key and such programs are kept.

    The key must differ where the function does; versions, kibitz's own code, JAX's settings and the arguments' shapes
    are added to it.
    """

    def __init__(self, function: Callable[..., Any], key: str | None, donate_argnums: tuple[int, ...] = ()) -> None:
        self._function, self._donated = function, donate_argnums
        self._key = key if _kept else None
        self._plain: Any = jit_batch(function, donate_argnums=donate_argnums)
        self._programs: dict[Any, _Traced] = {}

    def __call__(self, *arguments: Any) -> Any:
        if self._key is None:
            return self._plain(*arguments)
        program = self._compiling(arguments)
        assert program.compiled is not None
        flat = program.compiled.result()(*_flat(arguments))
        return jax.tree.unflatten(jax.tree.structure(program.out), flat)

    def shapes(self, *arguments: Any) -> Any:
        """The result's, from arguments or their shapes."""
        return jax.eval_shape(self._plain, *arguments) if self._key is None else self._find(arguments).out

    def compile_ahead(self, *arguments: Any) -> None:
        """Compiles in another thread; takes arguments or their shapes."""
        if self._key is not None:
            self._compiling(arguments)

    def count(self) -> int:
        """Programs compiled so far."""
        return len(self._programs) + int(self._plain._cache_size())

    def _compiling(self, arguments: Sequence[Any]) -> _Traced:
        program = self._find(arguments)
        if program.compiled is None:
            ends = [0, *accumulate(len(jax.tree.leaves(argument)) for argument in arguments)]
            donated = [leaf for number in self._donated for leaf in range(ends[number], ends[number + 1])]
            options = batch_compiler_options()
            flat_program = jax.jit(program.call, donate_argnums=donated, compiler_options=options)
            program.compiled = _in_thread(flat_program.lower(*_flat(arguments)).compile)
        return program

    def _find(self, arguments: Sequence[Any]) -> _Traced:
        tree = jax.tree.structure(tuple(arguments))
        kinds = tuple((leaf.shape, str(leaf.dtype)) for leaf in _flat(arguments))
        if (tree, kinds) not in self._programs:
            path = cache_folder() / "programs" / _name(f"{self._key} {tree} {kinds}")
            self._programs[tree, kinds] = _read(path) or self._trace(arguments, path)
        return self._programs[tree, kinds]

    def _trace(self, arguments: Sequence[Any], path: Path) -> _Traced:
        tree, result = jax.tree.structure(tuple(arguments)), None

        def function(*leaves: Any) -> Any:
            nonlocal result
            made = self._function(*jax.tree.unflatten(tree, leaves))
            result = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), made)
            return jax.tree.leaves(made)

        try:
            exported = export.export(jax.jit(function), disabled_checks=KERNELS)(*_flat(arguments))
        except ValueError as error:  # it calls a kernel that no file can hold
            log.info("not storing a program: %s", str(error).partition("\n")[0])
            result = jax.eval_shape(self._plain, *arguments)
            return _Traced(function, result)
        with suppress(OSError):  # a folder that cannot be written only costs time
            path.parent.mkdir(parents=True, exist_ok=True)
            content = pickle.dumps((bytes(exported.serialize()), result))
            write_whole(path, hashlib.sha256(content).digest() + content)
            _remove_oldest(path.parent)
        return _Traced(exported.call, result)


def _flat(arguments: Sequence[Any]) -> list[Any]:
    """Leaves with a fixed type: a Python number would be traced as one of a type that adapts."""
    return [
        leaf if hasattr(leaf, "dtype") else np.asarray(leaf, jax.numpy.result_type(leaf))
        for leaf in jax.tree.leaves(tuple(arguments))
    ]


def _name(key: str) -> str:
    device = jax.devices()[0]
    libraries = [f"{name} {version(name)}" for name in LIBRARIES]
    settings = map(str, sorted(jax.config.values.items()))
    whole = [key, _sources(), device.platform, device.device_kind, *libraries, *settings]
    return hashlib.sha256("\n".join(whole).encode()).hexdigest()


def _read(path: Path) -> _Traced | None:
    try:
        whole = path.read_bytes()
    except OSError:
        return None
    digest, content = whole[:DIGEST_BYTES], whole[DIGEST_BYTES:]
    if hashlib.sha256(content).digest() != digest:
        log.info("tracing a program again, because %s is damaged", path)
        return None
    with suppress(OSError):  # another user's cache
        os.utime(path)
    program, out = pickle.loads(content)
    return _Traced(export.deserialize(bytearray(program)).call, out)


def _remove_oldest(folder: Path) -> None:
    files = sorted(folder.iterdir(), key=lambda file: file.stat().st_mtime)
    for file in files[:-MAX_FILES]:
        file.unlink(missing_ok=True)


def _in_thread(function: Callable[[], Any]) -> Future[Any]:
    """In a daemon thread: Ctrl-C does not wait for a compilation."""
    future: Future[Any] = Future()

    def work() -> None:
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    Thread(target=work, name="compile", daemon=True).start()
    return future
