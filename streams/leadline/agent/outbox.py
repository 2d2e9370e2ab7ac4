"""The emitter's bounded queue in memory. When it is full, what matters least gives way first, the oldest of it before the newer.

Not thread safe; the emitter holds its lock around every call.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from leadline.contracts.events import AgentEvent, Checkpoint, Round
from leadline.contracts.trace import TraceContext
from leadline.detection.policy import FleetPolicy
from leadline.detection.signals import span_floor

__all__ = ["ONCE", "ORDINARY", "SUMMARIZED", "TELLING", "Entry", "Outbox", "rank_of"]

ORDINARY: Final = 0
"""A round in which nothing is wrong: what it measured is measured anew by the next one."""
SUMMARIZED: Final = 1
"""A summarizer call of which nothing is wrong."""
TELLING: Final = 2
"""A round or call that an alarm may rest on."""
ONCE: Final = 3
"""Said only once: a session's start and end, acknowledgements."""

_POLICY: Final = FleetPolicy()
_WHOLE: Final = (None, "", "stop", "end_turn")


def rank_of(event: AgentEvent) -> int:
    """How much the monitor would miss it. Never raises, whatever the event holds."""
    try:
        if isinstance(event, Round):
            return TELLING if _is_telling(event) else ORDINARY
        if isinstance(event, Checkpoint):
            return TELLING if _is_lossy(event) else SUMMARIZED
    except (TypeError, AttributeError):
        # It is malformed; whoever encodes it will say so.
        return ORDINARY
    return ONCE


def _is_telling(event: Round) -> bool:
    """Near a boundary of the default policy, or a failure."""
    total = event.raw_tokens + event.summary_tokens
    if event.outcome != "ok" or event.ungrounded_summaries:
        return True
    return event.summary_depth_max >= 2 and (
        event.raw_tokens < _POLICY.raw_ratio_exit * total
        or event.distinct_source_spans < span_floor(event.session_start_spans, _POLICY)
        or event.summary_depth_max >= event.max_depth
    )


def _is_lossy(event: Checkpoint) -> bool:
    return bool(
        event.retry_of
        or not event.summary_visible
        or event.stop_reason not in _WHOLE
        or event.consumed_input_tokens != event.declared_input_tokens
        or event.seen_spans != event.source_spans
        or event.unseen_span_ids
        or event.output_tokens == 0
        or any(fact.status in ("absent", "unknown") for fact in event.facts or ())
    )


class Entry(NamedTuple):
    """One event to send, with the trace that it belongs to.

    ``rank``: what gives way first has the lowest; ``size``: bytes, about.
    """

    event: AgentEvent
    trace: TraceContext
    rank: int
    size: int


class Outbox:
    """A FIFO of at most ``max_records`` entries and ``max_bytes`` bytes."""

    def __init__(self, max_records: int, max_bytes: int) -> None:
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._entries: deque[list[Entry | None]] = deque()
        self._ranks: tuple[deque[list[Entry | None]], ...] = tuple(deque() for _ in range(ONCE + 1))
        """The slots by rank, oldest first. A slot that gave way holds ``None``."""
        self._live = 0
        self._bytes = 0

    def __len__(self) -> int:
        return self._live

    def push(self, entry: Entry) -> list[Entry]:
        """Append; returns those that had to give way (itself, where all others matter more)."""
        dropped: list[Entry] = []
        while self._live >= self._max_records or (self._live and self._bytes + entry.size > self._max_bytes):
            lowest = next(rank for rank, slots in enumerate(self._ranks) if slots)
            if lowest > entry.rank:
                return [*dropped, entry]
            dropped.append(self._give_way(lowest))
        slot: list[Entry | None] = [entry]
        self._entries.append(slot)
        self._ranks[entry.rank].append(slot)
        self._live += 1
        self._bytes += entry.size
        return dropped

    def pop(self) -> Entry | None:
        """The oldest entry, or ``None``."""
        while self._entries:
            slot = self._entries.popleft()
            entry, slot[0] = slot[0], None
            if entry is not None:
                self._ranks[entry.rank].popleft()
                self._forget(entry)
                return entry
        return None

    def push_back(self, entry: Entry) -> None:
        """Return what was popped last to the front: it could not be sent yet."""
        slot: list[Entry | None] = [entry]
        self._entries.appendleft(slot)
        self._ranks[entry.rank].appendleft(slot)
        self._live += 1
        self._bytes += entry.size

    def _give_way(self, rank: int) -> Entry:
        """Empty the oldest slot of this rank."""
        slot = self._ranks[rank].popleft()
        entry, slot[0] = slot[0], None
        assert entry is not None
        self._forget(entry)
        if len(self._entries) > 2 * self._live + 16:
            # Emptied slots wait behind an entry that stays: sweep them before they outnumber what is queued.
            self._entries = deque(kept for kept in self._entries if kept[0] is not None)
        return entry

    def _forget(self, entry: Entry) -> None:
        self._live -= 1
        self._bytes -= entry.size
