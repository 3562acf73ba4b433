"""Ctrl-C ends a command within a second, whatever the command is doing.

Python handles a signal between two bytecodes of the main thread. A compilation keeps that thread for minutes, and an
interrupt that arrives inside a callback of a library is lost. So another thread watches for the signal, gives the
main thread a moment to end by itself, and then ends the process.

The process ends without Python's finalisation: a thread that is still compiling would abort it (SIGABRT).
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

EXIT_CODE = 130
GRACE_SECONDS = 0.5  # for the main thread to react
FINISH_SECONDS = 20.0  # for a command that has reacted to end in its own way
NOTICE_SECONDS = 1.0  # for the watching thread to have seen a signal that came before, also on a busy machine
SHOW_CURSOR = "\x1b[?25h"  # a progress bar hides it

_in_charge = threading.RLock()  # held by the thread that ends the process
_rescues: list[Callable[[], None]] = []
_arrived = threading.Event()


def watch() -> None:
    """Starts to watch for Ctrl-C, in the main thread of a process that is one command."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)  # the C handler writes here at once
    report, sys.unraisablehook = sys.unraisablehook, lambda lost: _report(lost, report)
    threading.Thread(target=_wait_and_end, args=(reading,), name="interrupt", daemon=True).start()


def arrived() -> bool:
    """Whether an exception may be Ctrl-C in disguise: an extension that is being loaded raises an ImportError."""
    return _arrived.wait(NOTICE_SECONDS)


def finishing() -> None:
    """Announces that the main thread has noticed Ctrl-C and ends the command itself, within FINISH_SECONDS."""
    if threading.current_thread() is threading.main_thread():
        _in_charge.acquire()  # never released; waits for the end of the process if that has begun


@contextmanager
def rescue(save: Callable[[], None]) -> Iterator[None]:
    """Within this block, `save` keeps what was done if the main thread cannot. The watching thread calls it."""
    _rescues.append(save)
    try:
        yield
    finally:
        _rescues.remove(save)


def save_all() -> None:
    """Keeps what was done, in a thread that is about to end the process."""
    for save in reversed(_rescues):
        with suppress(Exception):  # a full disk must not keep the process alive
            save()


def exit_now(code: int) -> NoReturn:
    """Ends the process without waiting for any thread."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # a closed pipe
            stream.flush()
    os._exit(code)


def stop_now() -> NoReturn:
    """Ends the process after Ctrl-C, and says so."""
    with suppress(OSError, ValueError):
        sys.stderr.write(f"{SHOW_CURSOR if sys.stderr.isatty() else ''}kibitz: stopped.\n")
    exit_now(EXIT_CODE)


def _report(lost: sys.UnraisableHookArgs, report: Callable[[sys.UnraisableHookArgs], object]) -> None:
    """Does not print an interrupt that a library's callback swallowed: the watching thread ends the process."""
    if not issubclass(lost.exc_type, KeyboardInterrupt):
        report(lost)


def _wait_and_end(reading: int) -> None:
    while os.read(reading, 1) != bytes([signal.SIGINT]):
        pass
    _arrived.set()
    main = threading.main_thread()
    main.join(GRACE_SECONDS)
    if not _in_charge.acquire(blocking=False):
        main.join(FINISH_SECONDS)
    save_all()
    stop_now()
