"""From the view to every page that is open: changes are encoded once and handed to all."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Final

import msgspec

from leadline.dashboard.reader import Reading
from leadline.dashboard.view import Changes, FleetView

__all__ = ["Hub"]

_EVERY_S: Final = 0.5
_ROWS: Final = 2_500
"""Sessions in one message at most: a page that has to read all of a large fleet at once stands still meanwhile."""
_PATIENCE: Final = 20
"""Updates that a page may be behind before it is cut off; it connects again and gets everything anew."""


class Hub:
    """``run`` turns changes into messages; ``follow`` gives one page everything there is, then the changes.

    A message is one JSON object: ``kind`` (``everything`` or ``changes``), ``who`` and ``rows`` as in
    :mod:`leadline.dashboard.rows`, ``gone`` slots, ``more`` (whether what belongs to it follows in the next), ``timings``, and
    ``reading`` (how current it is; ``now`` by this clock). It comes as a server-sent event, in bytes: encoded once for all pages.
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
        self._pages: set[asyncio.Queue[list[bytes] | None]] = set()

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
                self._hand_out(list(self._encode("changes", changes, timings)))

    async def follow(self) -> AsyncIterator[bytes]:
        """Messages for one page, until it goes away or falls behind."""
        queue: asyncio.Queue[list[bytes] | None] = asyncio.Queue(_PATIENCE)
        with self._lock:
            everything = self._view.everything()
            timings = self._timings()
        # Changes that are taken from here on are of what the page has already, or newer.
        self._pages.add(queue)
        try:
            for message in self._encode("everything", everything, timings, self._view.vocabulary()):
                yield message
            while (messages := await queue.get()) is not None:
                for message in messages:
                    yield message
        finally:
            self._pages.discard(queue)

    def close(self) -> None:
        """Let every page go."""
        for queue in list(self._pages):
            self._drop(queue)

    def _hand_out(self, messages: list[bytes]) -> None:
        for queue in list(self._pages):
            try:
                queue.put_nowait(messages)
            except asyncio.QueueFull:
                self._drop(queue)

    def _drop(self, queue: asyncio.Queue[list[bytes] | None]) -> None:
        self._pages.discard(queue)
        while not queue.empty():
            queue.get_nowait()
        queue.put_nowait(None)

    def _timings(self) -> dict[str, Any]:
        now = self._now()
        return {**self._view.timings(), "monitor": self._view.monitor(now), "silences": self._view.silences_now(now)}

    def _encode(
        self, kind: str, changes: Changes, timings: dict[str, Any], words: dict[str, Any] | None = None
    ) -> Iterator[bytes]:
        """One message, or several where there are many sessions; the first says who is gone, and ``words``."""
        # Of a session that is new both are there, its name and its row: they go together.
        named = {who.slot: who for who in changes.who}
        starts = range(0, max(1, len(changes.rows)), _ROWS)
        for number, start in enumerate(starts):
            rows = changes.rows[start : start + _ROWS]
            who = [named.pop(row.slot) for row in rows if row.slot in named] if named else []
            message = {
                "kind": "changes" if number else kind,
                "who": who,
                "rows": rows,
                "gone": () if number else changes.gone,
                "more": number < len(starts) - 1,
                "timings": timings,
                "reading": {**self._reading()._asdict(), "now": self._now()},
                **({} if number else words or {}),
            }
            yield b"data: " + msgspec.json.encode(message) + b"\r\n\r\n"
