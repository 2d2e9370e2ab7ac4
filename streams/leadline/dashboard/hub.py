"""From the view to every page that is open: changes are encoded once and handed to all."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import msgspec

from leadline.dashboard.reader import Reading
from leadline.dashboard.view import Changes, FleetView

__all__ = ["Hub"]

_EVERY_S: Final = 0.5
_PATIENCE: Final = 20
"""Updates that a page may be behind before it is cut off; it connects again and gets everything anew."""


class Hub:
    """``run`` turns changes into messages; ``follow`` gives one page everything there is, then the changes.

    A message is one JSON object: ``kind`` (``everything`` or ``changes``), ``who`` and ``rows`` as in
    :mod:`leadline.dashboard.rows`, ``gone`` slots, ``timings``, and ``reading`` (how current it is; ``now`` by this clock).
    """

    def __init__(
        self,
        view: FleetView,
        lock: threading.Lock,
        reading: Callable[[], Reading],
        now: Callable[[], int],
        every_s: float = _EVERY_S,
    ) -> None:
        self._view = view
        self._lock = lock
        self._reading = reading
        self._now = now
        self._every_s = every_s
        self._pages: set[asyncio.Queue[str | None]] = set()

    @property
    def pages(self) -> int:
        """Pages that follow now."""
        return len(self._pages)

    async def run(self) -> None:
        """For ever: one message to all pages each half second, also when nothing happened, as a sign of life."""
        while True:
            await asyncio.sleep(self._every_s)
            with self._lock:
                changes = self._view.take_changes()
                timings = self._timings()
            if self._pages:
                self._hand_out(self._encode("changes", changes, timings))

    async def follow(self) -> AsyncIterator[str]:
        """Messages for one page, until it goes away or falls behind."""
        queue: asyncio.Queue[str | None] = asyncio.Queue(_PATIENCE)
        with self._lock:
            everything = self._view.everything()
            timings = self._timings()
        # Changes that are taken from here on are of what the page has already, or newer.
        self._pages.add(queue)
        try:
            yield self._encode("everything", everything, timings, self._view.vocabulary())
            while (message := await queue.get()) is not None:
                yield message
        finally:
            self._pages.discard(queue)

    def close(self) -> None:
        """Let every page go."""
        for queue in list(self._pages):
            self._drop(queue)

    def _hand_out(self, message: str) -> None:
        for queue in list(self._pages):
            try:
                queue.put_nowait(message)
            except asyncio.QueueFull:
                self._drop(queue)

    def _drop(self, queue: asyncio.Queue[str | None]) -> None:
        self._pages.discard(queue)
        while not queue.empty():
            queue.get_nowait()
        queue.put_nowait(None)

    def _timings(self) -> dict[str, Any]:
        now = self._now()
        return {**self._view.timings(), "monitor": self._view.monitor(now), "silences": self._view.silences_now(now)}

    def _encode(self, kind: str, changes: Changes, timings: dict[str, Any], more: dict[str, Any] | None = None) -> str:
        reading = self._reading()
        message = {
            "kind": kind,
            "who": changes.who,
            "rows": changes.rows,
            "gone": changes.gone,
            "timings": timings,
            "reading": {**reading._asdict(), "now": self._now()},
            **(more or {}),
        }
        return msgspec.json.encode(message).decode()
