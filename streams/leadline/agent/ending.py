"""The end of a process: clients send what is left, for a bounded time, at exit and on SIGTERM.

Nobody else's handler is replaced: where the program handles SIGTERM, its way out is the interpreter's exit. Children that
:mod:`multiprocessing` makes end without exit handlers; there its own finalizers are used.
"""

from __future__ import annotations

import atexit
import multiprocessing.util
import os
import signal
import threading
import time
import weakref
from types import FrameType
from typing import Final, Protocol

__all__ = ["close_at_the_end"]

_SECONDS: Final = 2.0


class Closable(Protocol):
    """A client."""

    def close(self, timeout: float) -> object:
        """For at most ``timeout`` seconds, and a little more. A second call does nothing."""


_alive: weakref.WeakSet[Closable] = weakref.WeakSet()


def close_at_the_end(client: Closable) -> None:
    """Close ``client`` when the process ends, if it is not gone by then. To be called where the client is made."""
    _alive.add(client)
    atexit.register(_close_one, weakref.ref(client))
    multiprocessing.util.register_after_fork(client, _in_child)
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _terminated)


def _close_one(client: weakref.ref[Closable]) -> None:
    alive = client()
    if alive is not None:
        alive.close(_SECONDS)


def _close_all() -> None:
    until = time.monotonic() + _SECONDS
    for client in list(_alive):
        client.close(max(0.0, until - time.monotonic()))


def _terminated(number: int, frame: FrameType | None) -> None:
    _close_all()
    # As if nobody had handled it: whoever waits for this process sees why it ended.
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _in_child(_client: object) -> None:
    global _finalizer
    if _finalizer is None or _finalizer[0] != os.getpid():
        _finalizer = (os.getpid(), multiprocessing.util.Finalize(None, _close_all, exitpriority=100))


_finalizer: tuple[int, object] | None = None
