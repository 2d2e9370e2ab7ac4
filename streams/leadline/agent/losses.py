"""What is dropped: counted by a named reason, and told by the next event of its session."""

from __future__ import annotations

import logging
from collections import Counter
from contextlib import AbstractContextManager
from typing import Final

from leadline.agent.flight import Count, gap_of, session_of
from leadline.agent.outbox import Entry
from leadline.agent.records import Record, after_gap, encoded
from leadline.errors import Malformed

__all__ = ["Losses"]

_log = logging.getLogger("leadline.agent")

_SESSIONS: Final = 10_000


class Losses:
    """Counts into ``count``, under ``lock``, as whoever reads it does. ``ending``: nothing is logged any more."""

    def __init__(self, lock: AbstractContextManager[bool], count: Count) -> None:
        self._lock = lock
        self._count = count
        self._untold: Counter[str] = Counter()
        """By session, events that were dropped and are still to be told of."""
        self.ending = False

    def drop(self, reason: str, count: int = 1, error: str = "") -> None:
        """Count events that are not sent; the first of each reason is logged."""
        with self._lock:
            first = reason not in self._count.dropped
            self._count.dropped[reason] += count
            if error:
                self._count.last_error = error[:500]
        if first and not self.ending:
            _log.warning("events are dropped: %s %.200s", reason, error)

    def miss(self, session: str, count: int) -> None:
        """To be told by the next event of the session: events that were lost, with those that the lost ones were to tell of."""
        with self._lock:
            if session in self._untold or len(self._untold) < _SESSIONS:
                self._untold[session] += count

    def told(self, entry: Entry) -> Entry:
        """The event, saying how many of its session before it could not be kept."""
        with self._lock:
            lost = self._untold.pop(session_of(entry), 0) if self._untold else 0
        return entry if not lost else entry._replace(event=after_gap(entry.event, lost))

    def encoded(self, entry: Entry) -> Record:
        """Raises :class:`Malformed` once it has been counted."""
        try:
            record, cut = encoded(entry)
        except Malformed as error:
            self.drop(error.reason, error=error.detail)
            if gap := gap_of(entry):
                self.miss(session_of(entry), gap)
            raise
        self._count.cut += cut
        return record
