"""Deadlines: when a session's time has come, a tick is written into its own partition, so that time enters the log.

:class:`Clock` is a data structure and knows neither broker nor wall clock; :func:`run_clock` is the loop around it.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from leadline.contracts.orders import Tick
from leadline.contracts.session_state import SessionState
from leadline.contracts.times import format_ms
from leadline.errors import LeadlineError
from leadline.processors.faultpoints import Reach
from leadline.processors.logs import with_fields
from leadline.processors.outputs import Outgoing, Sent, tick

__all__ = ["Clock", "Deadline", "Due", "run_clock"]

log = logging.getLogger(__name__)

RETRY_MS: Final = 1000
"""How long a deadline that is still in force after its tick was handled waits for the next tick."""
MOST_AT_ONCE: Final = 1000


class Deadline(NamedTuple):
    """A session's next deadline, milliseconds since 1970."""

    session_id: str
    agent_id: str
    at: int


class Due(NamedTuple):
    """A deadline that has come, and the partition and state key it belongs to."""

    partition: int
    key: str
    deadline: Deadline


@dataclass(slots=True)
class _Partition:
    heap: list[tuple[int, str]] = field(default_factory=list)
    """When to look, and at which state key; entries that no longer hold are skipped when they surface."""
    current: dict[str, Deadline] = field(default_factory=dict)
    outstanding: dict[str, tuple[int, int | None]] = field(default_factory=dict)
    """By state key: the deadline its tick was written for, and that tick's offset once it is known."""
    confirmed: list[tuple[int, str]] = field(default_factory=list)
    """A heap of the offsets of those ticks, so that a batch looks only at the ticks it held; a stale entry matches no tick."""

    def put(self, key: str, when: int) -> None:
        heapq.heappush(self.heap, (when, key))
        if len(self.heap) > 64 + 4 * len(self.current):
            # Stale entries outnumber the true ones; a session that reports every second would fill the memory.
            latest: dict[str, int] = {}
            for at, name in self.heap:
                deadline = self.current.get(name)
                if deadline is not None and at >= deadline.at and name not in self.outstanding:
                    latest[name] = max(at, latest.get(name, at))
            self.heap = [(at, name) for name, at in latest.items()]
            heapq.heapify(self.heap)


class Clock:
    """Deadlines of the partitions that this worker owns. At most one tick is out for a session's deadline."""

    def __init__(self) -> None:
        self._partitions: dict[int, _Partition] = {}

    def load(self, partition: int, deadlines: Iterable[tuple[str, Deadline]]) -> None:
        """Take over a partition with what its restored states say; what was known of it is forgotten."""
        kept = self._partitions[partition] = _Partition()
        kept.current = dict(deadlines)
        kept.heap = [(deadline.at, key) for key, deadline in kept.current.items()]
        heapq.heapify(kept.heap)

    def sessions(self) -> int:
        """Sessions that have a deadline: all that are kept."""
        return sum(len(kept.current) for kept in self._partitions.values())

    def drop(self, partitions: Iterable[int]) -> None:
        for partition in partitions:
            self._partitions.pop(partition, None)

    def applied(self, partition: int, states: Mapping[str, SessionState | None], offset: int, now: int) -> None:
        """A batch that ends at ``offset`` was applied and stored; ``states`` as the fold returned them."""
        kept = self._partitions.setdefault(partition, _Partition())
        for key, state in states.items():
            if state is None or state.deadline is None:
                kept.current.pop(key, None)
                kept.outstanding.pop(key, None)
                continue
            deadline = Deadline(state.session_id, state.agent_id, state.deadline)
            if kept.current.get(key) == deadline:
                continue
            kept.current[key] = deadline
            out = kept.outstanding.get(key)
            if out is None or out[0] != deadline.at:
                kept.outstanding.pop(key, None)
                kept.put(key, deadline.at)
        while kept.confirmed and kept.confirmed[0][0] <= offset:
            at, key = heapq.heappop(kept.confirmed)
            out = kept.outstanding.get(key)
            if out is not None and out[1] == at:
                # Its tick has been through the fold and the same deadline still stands: the fold deemed it early.
                del kept.outstanding[key]
                kept.put(key, now + RETRY_MS)

    def due(self, now: int, most: int = MOST_AT_ONCE) -> list[Due]:
        """Take out what is due; each is outstanding from now on."""
        found: list[Due] = []
        for number, kept in self._partitions.items():
            while kept.heap and kept.heap[0][0] <= now and len(found) < most:
                _, key = heapq.heappop(kept.heap)
                deadline = kept.current.get(key)
                if deadline is None or key in kept.outstanding:
                    continue
                if deadline.at > now:
                    continue  # Moved on; its own entry is in the heap.
                kept.outstanding[key] = (deadline.at, None)
                found.append(Due(number, key, deadline))
        return found

    def sent(self, due: Due, offset: int) -> None:
        """The tick for ``due`` was confirmed at ``offset``."""
        kept = self._partitions.get(due.partition)
        if kept is not None and kept.outstanding.get(due.key) == (due.deadline.at, None):
            kept.outstanding[due.key] = (due.deadline.at, offset)
            heapq.heappush(kept.confirmed, (offset, due.key))

    def failed(self, due: Due, now: int) -> None:
        """The tick for ``due`` could not be written: it will be due again."""
        kept = self._partitions.get(due.partition)
        if kept is not None and kept.outstanding.get(due.key) == (due.deadline.at, None):
            del kept.outstanding[due.key]
            kept.put(due.key, now + RETRY_MS)

    def next(self) -> int | None:
        """When to look again, milliseconds since 1970."""
        return min((kept.heap[0][0] for kept in self._partitions.values() if kept.heap), default=None)


async def run_clock(
    clock: Clock,
    confirm: Callable[[Sequence[Outgoing]], Awaitable[list[Sent]]],
    ready: Callable[[], bool],
    now: Callable[[], int],
    counts: Counter[str],
    poll_s: float = 0.25,
    fault: Reach | None = None,
) -> None:
    """Write ticks as deadlines come, until cancelled. ``ready``: false while partitions change hands."""
    while True:
        upcoming = clock.next()
        wait_s = poll_s if upcoming is None else min(poll_s, max(0.0, (upcoming - now()) / 1000))
        await asyncio.sleep(max(wait_s, 0.005))
        if not ready():
            continue
        due = clock.due(now())
        if not due:
            continue
        records = [
            tick(Tick(session_id=d.session_id, agent_id=d.agent_id, due_at=format_ms(d.at)), one.partition)
            for one in due
            for d in (one.deadline,)
        ]
        try:
            confirmed = await confirm(records)
            if fault:
                fault("after-tick")
            for one, sent in zip(due, confirmed, strict=True):
                clock.sent(one, sent.offset)
        except LeadlineError as error:
            for one in due:
                clock.failed(one, now())
            log.warning("ticks could not be written; they are due again", extra=with_fields(ticks=len(due), error=error))
            continue
        counts["ticks"] += len(due)
