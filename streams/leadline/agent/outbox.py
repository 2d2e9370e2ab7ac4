"""The emitter's bounded queue. When it is full, the oldest rounds give way first: what a round measured is measured anew by
the next one, while a session's start, its checkpoints and its acknowledgements are said only once.

Not thread safe; the emitter holds its lock around every call.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from leadline.contracts.events import AgentEvent
from leadline.contracts.trace import TraceContext

__all__ = ["Entry", "Outbox"]


class Entry(NamedTuple):
    """One event to send, with the trace that it belongs to. ``expendable``: a round; ``size``: bytes, about."""

    event: AgentEvent
    trace: TraceContext
    expendable: bool
    size: int


class Outbox:
    """A FIFO of at most ``max_records`` entries and ``max_bytes`` bytes."""

    def __init__(self, max_records: int, max_bytes: int) -> None:
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._entries: deque[list[Entry | None]] = deque()
        self._expendable: deque[list[Entry | None]] = deque()
        """The slots of the rounds among them, oldest first. A slot that gave way holds ``None``."""
        self._live = 0
        self._bytes = 0

    def __len__(self) -> int:
        return self._live

    def push(self, entry: Entry) -> tuple[bool, int]:
        """Append; returns whether it was taken, and how many entries had to give way (itself, where nothing else could)."""
        dropped = 0
        while self._live >= self._max_records or (self._live and self._bytes + entry.size > self._max_bytes):
            if not self._give_way():
                if entry.expendable:
                    return False, dropped + 1
                self.pop()
            dropped += 1
        slot: list[Entry | None] = [entry]
        self._entries.append(slot)
        if entry.expendable:
            self._expendable.append(slot)
        self._live += 1
        self._bytes += entry.size
        return True, dropped

    def pop(self) -> Entry | None:
        """The oldest entry, or ``None``."""
        while self._entries:
            slot = self._entries.popleft()
            entry, slot[0] = slot[0], None
            if entry is not None:
                if entry.expendable:
                    self._expendable.popleft()
                self._forget(entry)
                return entry
        return None

    def push_back(self, entry: Entry) -> None:
        """Return what was popped last to the front: it could not be sent yet."""
        slot: list[Entry | None] = [entry]
        self._entries.appendleft(slot)
        if entry.expendable:
            self._expendable.appendleft(slot)
        self._live += 1
        self._bytes += entry.size

    def _give_way(self) -> bool:
        """Empty the oldest round's slot."""
        if not self._expendable:
            return False
        slot = self._expendable.popleft()
        entry, slot[0] = slot[0], None
        assert entry is not None
        self._forget(entry)
        if len(self._entries) > 2 * self._live + 16:
            # Emptied slots wait behind an entry that stays: sweep them before they outnumber what is queued.
            self._entries = deque(kept for kept in self._entries if kept[0] is not None)
        return True

    def _forget(self, entry: Entry) -> None:
        self._live -= 1
        self._bytes -= entry.size
