"""What the sending thread keeps account of: what is in flight, what is counted, and how large an event is. No thread in it."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from leadline.agent.outbox import Entry
from leadline.agent.records import Record
from leadline.agent.transport import Delivery, Producer
from leadline.contracts.events import AgentEvent
from leadline.contracts.trace import TraceContext

__all__ = [
    "NOTHING",
    "Callback",
    "Count",
    "Flying",
    "Hooks",
    "Limits",
    "Make",
    "OnPlaced",
    "Waiting",
    "close",
    "gap_of",
    "session_of",
    "size_of",
]

_log = logging.getLogger("leadline.agent")

OnPlaced = Callable[[str, str, int, int], None]
"""Told of each delivery: session id, event id, partition, offset."""

Make = Callable[[], AgentEvent]
"""Makes an event, once."""

Waiting = tuple[AgentEvent | Make, TraceContext]
"""What agents append to the queue, and the sending thread takes up."""


class Limits(NamedTuple):
    """Of what waits in memory."""

    records: int
    bytes: int


@dataclass(slots=True)
class Count:
    """What :class:`leadline.agent.emitter.Emitted` says, as far as it is counted up."""

    emitted: int = 0
    delivered: int = 0
    cut: int = 0
    adopted: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    last_error: str = ""
    blocked: str = ""


class Hooks(NamedTuple):
    """Who is told where events went."""

    on_delivered: Callable[[str, int], None] | None = None
    on_placed: OnPlaced | None = None

    def tell(self, record: Record, delivery: Delivery) -> None:
        """A record is in the log. Never raises."""
        try:
            if self.on_delivered is not None:
                self.on_delivered(record.session_id, delivery.partition)
            if self.on_placed is not None:
                self.on_placed(record.session_id, record.event_id, delivery.partition, delivery.offset)
        except Exception as error:
            _log.warning("a delivery report was lost: %r", error)


class Flying:
    """What the client has, and has not reported on. ``place``: where it is on disk, 0 where it is not."""

    __slots__ = ("entry", "place", "record", "since")

    def __init__(self, record: Record, place: int = 0, entry: Entry | None = None) -> None:
        self.record = record
        self.place = place
        self.entry = entry
        self.since = time.monotonic()


NOTHING = Record("", "", "", 0, b"", TraceContext())


def close(producer: Producer | None) -> None:
    try:
        if producer is not None:
            producer.close()
    except Exception as error:
        _log.warning("the client did not close: %r", error)


def session_of(entry: Entry) -> str:
    """Whatever the event is."""
    session = getattr(entry.event, "session_id", "")
    return session if isinstance(session, str) else ""


def gap_of(entry: Entry) -> int:
    """How many lost events it was to tell of, whatever the event is."""
    gap = getattr(entry.event, "lost_before", 0)
    return gap if isinstance(gap, int) else 0


def size_of(event: AgentEvent) -> int:
    """Bytes that an event takes, about: its lists make the difference."""
    listed = getattr(event, "summaries", None) or getattr(event, "facts", None) or ()
    return 512 + 128 * len(listed)


class Callback:
    """Delivery callback of one record, without a closure's cell per record."""

    __slots__ = ("_number", "_settled")

    def __init__(self, settled: Callable[[Delivery, int], None], number: int) -> None:
        self._settled = settled
        self._number = number

    def __call__(self, delivery: Delivery) -> None:
        self._settled(delivery, self._number)
