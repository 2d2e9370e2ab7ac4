"""Deadlines: when a session's time has come, a tick is written into its own partition, so that time enters the log.

When to look at which session stands in the index of the local store, beside the states: it is there again after a restart or a
rebalance, whoever owns the partition then, and a quiet session costs no memory. :class:`Clock` keeps only the ticks that are out;
:func:`run_clock` is the loop around it.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple

from leadline.contracts.orders import Tick
from leadline.contracts.session_state import SessionState
from leadline.contracts.times import format_ms
from leadline.errors import LeadlineError
from leadline.processors.faultpoints import Reach
from leadline.processors.logs import with_fields
from leadline.processors.outputs import Outgoing, Sent, tick
from leadline.processors.sessions import Sessions
from leadline.processors.table import SessionsTable

__all__ = ["Clock", "Deadline", "Due", "run_clock"]

log = logging.getLogger(__name__)

RETRY_MS: Final = 1000
"""How long a deadline that is still in force after its tick was handled waits for the next tick."""
MOST_AT_ONCE: Final = 1000
MOST_OUT: Final = 5000
"""Ticks of one partition that are not handled yet; past that the others wait."""


class Deadline(NamedTuple):
    """A session's next deadline, milliseconds since 1970."""

    session_id: str
    agent_id: str
    at: int


class Due(NamedTuple):
    """A deadline that has come, and the partition and state key it belongs to."""

    partition: int
    key: bytes
    deadline: Deadline


@dataclass(slots=True)
class _Out:
    """A tick for the deadline ``at``: its offset once that is known, and when to send another, if it is to be sent again."""

    at: int
    offset: int | None = None
    again_at: int | None = None


@dataclass(slots=True)
class _Partition:
    out: dict[bytes, _Out] = field(default_factory=dict)
    confirmed: list[tuple[int, bytes]] = field(default_factory=list)
    """A heap of the offsets of ticks, so that a batch looks only at the ticks it held; a stale entry matches no tick."""


class Clock:
    """Deadlines of the partitions that this worker owns. At most one tick is out for a session's deadline."""

    def __init__(self, table: SessionsTable, sessions: Sessions) -> None:
        self._table = table
        self._sessions = sessions
        self._partitions: dict[int, _Partition] = {}

    def drop(self, partitions: Iterable[int]) -> None:
        for partition in partitions:
            self._partitions.pop(partition, None)

    def applied(self, partition: int, states: Mapping[str, SessionState | None], offset: int, now: int) -> None:
        """Batches that end at ``offset`` were applied and stored; ``states``: all that they changed."""
        kept = self._partitions.get(partition)
        if kept is None:
            return
        for key, out in list(kept.out.items()):
            name = key.decode("utf-8", "surrogatepass")
            if name in states:
                state = states[name]
                if state is None or state.deadline != out.at:
                    del kept.out[key]
        while kept.confirmed and kept.confirmed[0][0] <= offset:
            at, key = heapq.heappop(kept.confirmed)
            found = kept.out.get(key)
            if found is not None and found.offset == at:
                # Its tick has been through the fold and the same deadline still stands: the fold deemed it early.
                found.again_at = now + RETRY_MS

    def due(self, now: int, most: int = MOST_AT_ONCE) -> list[Due]:
        """What is due; each is out from now on. Sessions whose deadline has moved on are placed anew."""
        found: list[Due] = []
        if not self._sessions.settled:
            return found
        for number in self._sessions.partitions:
            kept = self._partitions.setdefault(number, _Partition())
            # Looked at before any of it is changed, and no more at once than the loop can bear.
            for at, key in list(islice(self._table.placed_before(number, now), MOST_AT_ONCE + len(kept.out))):
                out = kept.out.get(key)
                if out is not None and (out.again_at is None or out.again_at > now):
                    continue
                if len(found) >= most or (out is None and len(kept.out) >= MOST_OUT):
                    break
                mark = self._sessions.due(number, at, key, now)
                if mark is None or mark.deadline is None:
                    kept.out.pop(key, None)
                    continue
                kept.out[key] = _Out(mark.deadline)
                found.append(Due(number, key, Deadline(mark.session_id, mark.agent_id, mark.deadline)))
        return found

    def sent(self, due: Due, offset: int) -> None:
        """The tick for ``due`` was confirmed at ``offset``."""
        kept = self._partitions.get(due.partition)
        out = kept.out.get(due.key) if kept else None
        if kept is not None and out is not None and out.at == due.deadline.at and out.offset is None:
            out.offset = offset
            heapq.heappush(kept.confirmed, (offset, due.key))

    def failed(self, due: Due, now: int) -> None:
        """The tick for ``due`` could not be written: it will be due again."""
        kept = self._partitions.get(due.partition)
        out = kept.out.get(due.key) if kept else None
        if out is not None and out.at == due.deadline.at and out.offset is None:
            out.again_at = now + RETRY_MS


async def run_clock(
    clock: Clock,
    confirm: Callable[[Sequence[Outgoing]], Awaitable[list[Sent]]],
    ready: Callable[[], bool],
    now: Callable[[], int],
    counts: Counter[str],
    poll_s: float = 0.1,
    fault: Reach | None = None,
) -> None:
    """Write ticks as deadlines come, until cancelled. ``ready``: false while partitions change hands."""
    while True:
        await asyncio.sleep(poll_s)
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
