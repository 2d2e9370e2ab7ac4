"""Whether the brokers are there: anything that one of them answers counts, and a probe is sent only where nothing was heard.

On a machine that has too little time for all of its work a probe may starve while records are read and confirmed beside it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from leadline.errors import BrokerError
from leadline.processors.logs import with_fields

__all__ = ["ASK_S", "EVERY_S", "Contact", "watch_brokers"]

log = logging.getLogger(__name__)

EVERY_S: Final = 5.0
ASK_S: Final = 3.0
"""How long an answer is waited for."""


class Contact:
    """Told of each answer of a broker: a confirmed delivery, a heartbeat, fetched records, a commit. Any thread may tell."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._heard = clock()

    def heard(self) -> None:
        self._heard = self._clock()

    def now(self) -> float:
        return self._clock()

    def heard_since(self, then: float) -> bool:
        """Whether a broker has answered something since ``then``, on the clock of :meth:`now`."""
        return self._heard > then


async def watch_brokers(
    contact: Contact,
    ask: Callable[[], Awaitable[bool]],
    bootstrap: str,
    limit_s: float,
    sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
) -> None:
    """Look every few seconds, for ever; ``ask`` whether any broker answers where none was heard since the last look.

    Raises :class:`BrokerError` once none was heard for ``limit_s``. A process that is frozen or starved hears nobody: of the time
    between two looks counts only as much as they take where nothing holds them up.
    """
    every_s = min(EVERY_S, limit_s / 4)
    away, looked = 0.0, contact.now()
    while True:
        await sleep(every_s)
        there = contact.heard_since(looked) or await ask() or contact.heard_since(looked)
        before, looked = looked, contact.now()
        if there:
            away = 0.0
            continue
        away += min(looked - before, every_s + ASK_S)
        if away > limit_s:
            raise BrokerError(
                f"no broker has answered at {bootstrap} for {limit_s:g} s; nothing was committed past what was confirmed. "
                "Check the brokers, then start the worker again."
            )
        log.warning("no broker answers", extra=with_fields(for_s=round(away, 1), limit_s=limit_s))
