"""Whether a partition is still this worker's to write to.

A worker that was frozen past its session timeout lost its partitions without knowing. When it wakes up it must not write: the
group's generation has not changed for it yet, but the time since the broker last heard of it has passed, on a clock that goes on
while the process or the machine sleeps. What it had handed to the kernel before may still arrive; the new owner mends that
(:mod:`leadline.processors.table`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from leadline.errors import BrokerError

__all__ = ["Ownership", "suspended_clock"]

_SAFE: Final = 0.8
"""Of the session timeout: the rest is for a write that is under way."""
_POLL_S: Final = 0.05


def suspended_clock() -> float:
    """Seconds that never go back and count on while the machine is suspended."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


class Ownership:
    """``generation`` changes whenever partitions may have changed hands; ``session_s`` is the session timeout."""

    def __init__(self, generation: Callable[[], int], session_s: float, clock: Callable[[], float] = suspended_clock) -> None:
        self._generation = generation
        self._safe_s = session_s * _SAFE
        self._clock = clock
        self._heard = clock()

    def now(self) -> float:
        return self._clock()

    def heard(self, sent_at: float) -> None:
        """The broker answered a heartbeat that was sent at ``sent_at``. Any thread may call."""
        self._heard = max(self._heard, sent_at)

    def alive(self) -> bool:
        """Whether the broker cannot have given the partitions away yet."""
        return self._clock() - self._heard < self._safe_s

    def holds(self, generation: int) -> bool:
        """Whether what was taken under ``generation`` may be written now."""
        return self._generation() == generation and self.alive()

    async def sure(self, generation: int, limit_s: float) -> bool:
        """Wait until it is known whether what was taken under ``generation`` may be written, and return that.

        Raises :class:`BrokerError` when no heartbeat is answered for ``limit_s``.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + limit_s
        while self._generation() == generation:
            if self.alive():
                return True
            if loop.time() >= end:
                raise BrokerError(
                    f"the brokers have not answered a heartbeat for {limit_s:g} s; nothing was written since. Check the brokers, "
                    "then start the worker again."
                )
            await asyncio.sleep(_POLL_S)
        return False
