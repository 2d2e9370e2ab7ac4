"""The sending thread's use of the spool: what it has read, what arrived, and what to do when the disk fails.

Belongs to the sending thread, but for :attr:`Backlog.waiting`. A disk that fails is left alone for a minute, with one warning;
meanwhile events wait in memory. What was on it is for later, or for the next process.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from leadline.agent.records import Record
from leadline.agent.spool import Lost, Spool, Stored

__all__ = ["Backlog"]

_log = logging.getLogger("leadline.agent")

_ADOPT_SECONDS = 30.0
_BROKEN_SECONDS = 60.0
_CHUNK = 500


class Backlog:
    """A spool, or none. No method raises for what the disk does, expected or not: the thread that calls must go on."""

    def __init__(self, spool: Spool | None) -> None:
        self._spool = spool
        self._ahead: deque[Stored] = deque()
        """Read, not yet handed over."""
        self._cursor = 0
        """Place of the last record that was read, or that the client had when it was stored."""
        self._arrived: list[int] = []
        """Places of what was delivered and is still on disk."""
        self._broken_until = 0.0
        self._warned = False
        self._adopt_at = 0.0

    @property
    def waiting(self) -> int:
        """Events on the disk that were not delivered, in flight or not."""
        return 0 if self._spool is None else max(0, len(self._spool) - len(self._arrived))

    @property
    def path(self) -> Path | None:
        """The file in use, if there is one."""
        return None if self._spool is None else self._spool.path

    @property
    def active(self) -> bool:
        """Whether anything is on the disk: then everything goes through it, in order."""
        return self._spool is not None and len(self._spool) > 0

    @property
    def usable(self) -> bool:
        """Whether something can be stored now."""
        return self._spool is not None and time.monotonic() >= self._broken_until

    def store(self, in_flight: Sequence[Record], queued: Sequence[Record]) -> tuple[list[int], list[Lost]] | None:
        """Store records, those first that the client has. Returns the places of these, and what had to give way; ``None``: the
        disk failed."""
        assert self._spool is not None
        # What was read and not handed over may give way too.
        self.rewind([])
        try:
            places, gone = self._spool.append([*in_flight, *queued], len(in_flight), self._cursor)
        except Exception as error:
            self._failed(error)
            return None
        places = places[: len(in_flight)]
        if places:
            self._cursor = places[-1]
        return places, gone

    def next(self) -> Stored | None:
        """The next record to hand over; it stays the next one until :meth:`taken`."""
        if not self._ahead and self._spool is not None:
            try:
                self._ahead.extend(self._spool.read(self._cursor, _CHUNK))
            except Exception as error:
                self._leave(error)
            if self._ahead:
                self._cursor = self._ahead[-1].id
        return self._ahead[0] if self._ahead else None

    def taken(self) -> None:
        """The client has it."""
        self._ahead.popleft()

    def arrived(self, place: int) -> None:
        """It was delivered, or is given up."""
        self._arrived.append(place)

    def settle(self) -> None:
        """What was delivered leaves the disk; once nothing is left, the file goes."""
        if self._spool is None or not self._arrived:
            return
        try:
            self._spool.remove(self._arrived)
            self._arrived = []
            if not len(self._spool):
                self._spool.close()
                self._cursor = 0
        except Exception as error:
            # At worst the next process sends them once more.
            self._leave(error)

    def rewind(self, places: Sequence[int]) -> None:
        """The client failed: what it had at ``places`` is read again."""
        back = [*places, *(one.id for one in self._ahead)]
        if back:
            self._cursor = min(back) - 1
            self._ahead.clear()

    def adopt(self) -> tuple[int, int]:
        """Now and then, and first of all: what processes that are gone could not send. Returns how many events came, and how many
        had to give way. Not while the client has something that is not on the disk: it comes first."""
        if not self.usable or time.monotonic() < self._adopt_at:
            return 0, 0
        assert self._spool is not None
        self._adopt_at = time.monotonic() + _ADOPT_SECONDS
        try:
            taken, gone = self._spool.adopt()
        except Exception as error:
            self._failed(error)
            return 0, 0
        if taken:
            _log.warning("%d events that an earlier process could not send are sent now", taken)
        return taken, len(gone)

    def close(self) -> int:
        """Let go of the file; returns how many events stay on the disk."""
        if self._spool is None:
            return 0
        try:
            return self._spool.close()
        except Exception as error:
            left = self.waiting
            self._leave(error)
            return left

    def _failed(self, error: Exception) -> None:
        self._broken_until = time.monotonic() + _BROKEN_SECONDS
        if not self._warned and self._spool is not None:
            self._warned = True
            _log.warning("the spool in %s cannot be used, events wait in memory only: %r", self._spool.directory, error)

    def _leave(self, error: Exception) -> None:
        """What is on the disk can neither be read nor removed now."""
        self._failed(error)
        self._ahead.clear()
        self._arrived = []
        self._cursor = 0
        if self._spool is not None:
            self._spool.abandon()
