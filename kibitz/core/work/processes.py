"""Items in processes of this machine.

A worker ends as soon as the pipe to the process that started it closes, so whatever ends that process, even `kill -9`,
leaves no worker behind. A worker never imports the program that started it, as those of `multiprocessing` do: that
program may come from standard input, or start workers itself when it is imported.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import traceback
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Pipe, wait
from queue import SimpleQueue
from typing import Any

from kibitz.core.system import interrupt
from kibitz.core.work.cores import usable_cores, use_cores
from kibitz.core.work.executor import Event, Item, Pool, Work

SAVE_SECONDS = 5.0  # for a worker to keep the training that it was doing
_START = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from kibitz.core.work.processes import serve
serve(*map(int, sys.argv[2:]))
"""


@dataclass
class _Worker:
    process: subprocess.Popen[bytes]
    connection: Connection
    trains: bool  # and so has every core
    item: Item | None = None  # that it is working on
    known: set[Work] = field(default_factory=set)  # what it was sent before

    def end(self) -> None:
        self.connection.close()  # the worker saves what it can and exits; harmless the second time
        try:
            self.process.wait(SAVE_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Processes(Pool):
    """Starts workers when the first items need them, and replaces those that die.

    A worker that plays has a share of the cores: with all of them each, workers would only wait for one another.
    """

    def __init__(self, workers: int, cores_each: int | None = None) -> None:
        self.workers = workers
        self.cores_each = cores_each or max(1, usable_cores() // workers)
        self._alive: list[_Worker] = []

    def _capacity(self) -> int:
        return self.workers

    def _send(self, work: Work, item: Item) -> None:
        idle = (one for one in self._alive if one.item is None and one.trains == work.trains)
        worker = next(idle, None) or self._start(work.trains)
        worker.item = item
        try:
            if work not in worker.known:
                worker.connection.send((id(work), (work.prepare, work.perform, work.spec)))
                worker.known.add(work)
            worker.connection.send((id(work), item.arguments | item.more()))
        except OSError:  # it died while it was idle: its pipe says so, too
            pass

    def _start(self, trains: bool) -> _Worker:
        ours, theirs = Pipe()
        cores = 0 if trains else self.cores_each
        path = json.dumps([entry for entry in sys.path if isinstance(entry, str)])  # Python ignores other entries, too
        # -P: a file `json.py` in the current folder would replace Python's own
        words = [sys.executable, "-P", "-c", _START, path, str(theirs.fileno()), str(cores)]
        # Ctrl-C reaches all processes of a terminal; the first one decides. A worker starts and stays with it blocked.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            process = subprocess.Popen(words, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()])
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        theirs.close()  # the worker has the only copy, so its death closes the pipe
        worker = _Worker(process, ours, trains)
        self._alive.append(worker)
        return worker

    def _events(self) -> list[Event]:
        by_pipe = {worker.connection: worker for worker in self._alive if worker.item is not None}
        events: list[Event] = []
        for pipe in wait(list(by_pipe)):
            assert isinstance(pipe, Connection)
            worker = by_pipe[pipe]
            item = worker.item
            assert item is not None
            try:
                kind, value = pipe.recv()
            except (EOFError, OSError):
                self._alive.remove(worker)
                worker.end()
                events.append((item, "lost", f"exit code {worker.process.returncode}"))
                continue
            if kind != "report":
                worker.item = None
            events.append((item, kind, value))
        return events

    def _abandon(self) -> None:
        self._end([one for one in self._alive if one.item is not None])

    def __exit__(self, *_: object) -> None:
        self._end(self._alive)

    def _end(self, workers: list[_Worker]) -> None:
        for worker in workers:
            worker.connection.close()  # all of them first, so that they save at the same time
        for worker in list(workers):
            self._alive.remove(worker)
            worker.end()


def serve(pipe: int, cores: int) -> None:
    """A worker's whole life. It talks through an open file, and uses all cores if `cores` is 0."""
    connection = Connection(pipe)
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # several workers may share a GPU
    if cores:
        use_cores(cores)
    inbox: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_receive, args=(connection, inbox), daemon=True).start()
    sending = threading.Lock()

    def say(kind: str, value: Any) -> None:
        with sending:
            try:
                connection.send((kind, value))
            except OSError:  # the pipe is closed: the other thread saves and then ends this process
                threading.Event().wait()

    known: dict[int, Any] = {}
    while True:
        try:
            work, message = pickle.loads(inbox.get())
        except Exception as error:  # a module that only the first process can import
            say("failed", portable(error))
            continue
        if work not in known:
            known[work] = Prepared(*message)
            continue
        say(*known[work](message, lambda said: say("report", said)))


def _receive(connection: Connection, inbox: SimpleQueue[bytes]) -> None:
    try:
        while True:
            inbox.put(connection.recv_bytes())
    except (EOFError, OSError):
        interrupt.save_all()
        os._exit(0)


class Prepared:
    """Work in a worker. The context is made for the first item and kept for the others."""

    def __init__(self, prepare: Any, perform: Any, spec: Any) -> None:
        self.prepare, self.perform, self.spec = prepare, perform, spec
        self.context: Any = None

    def __call__(self, arguments: dict[str, Any], report: Any) -> tuple[str, Any]:
        """`done` and the result, or `failed` and an exception that can be sent."""
        try:
            if self.context is None:
                self.context = self.prepare(self.spec)
            return "done", self.perform(self.context, arguments, report)
        except Exception as error:
            return "failed", portable(error)


def portable(error: Exception) -> Exception:
    """With the worker's traceback; a plain error instead of one that cannot be sent."""
    error.add_note("In a worker:\n" + "".join(traceback.format_exception(error)))
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError("".join(traceback.format_exception_only(error)).strip())
    return error
