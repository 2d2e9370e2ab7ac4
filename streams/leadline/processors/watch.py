"""The one agent: events in, through the fold, outputs and state out.

::

    batch ──> fold ──> outputs sent at once ─────────────────────> confirmed
                └────> states kept, and every LEADLINE_FLUSH_INTERVAL_S or so:
                       outputs confirmed ──> store written ──> changelog confirmed ──> acknowledged ──> committed

Whatever happens in between, the events come again and lead to the same ids and the same state. The fold goes on while a flush is
under way; a flush holds the states as they were when it began, and waits for the outputs of just those.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from time import monotonic, perf_counter_ns
from typing import Any, Final, Protocol

from leadline.commands.fold import Folded, Incoming, Load
from leadline.contracts.orders import Command, Violation
from leadline.contracts.topics import EVENTS
from leadline.detection.policy import Policy
from leadline.processors.clock import Clock
from leadline.processors.engine import MonitorApp
from leadline.processors.faultpoints import Reach
from leadline.processors.fetch import Batch
from leadline.processors.logs import traced, with_fields
from leadline.processors.outbox import Outbox
from leadline.processors.outputs import Delivery, dead_letter, outgoing
from leadline.processors.policy_source import PolicySource
from leadline.processors.sessions import Sessions
from leadline.settings import Settings
from leadline.telemetry.observer import UNOBSERVED, Observer
from leadline.telemetry.observer import Batch as Told

__all__ = ["Fold", "Watch"]

log = logging.getLogger(__name__)

_MOST_UNWRITTEN: Final = 4000
"""States; a flush begins when there are so many, however short the interval, and the fold waits at twice that."""
_MOST_OUTPUTS: Final = 5000
"""Outputs that are not confirmed; past that the fold waits."""

_MOST_LINES: Final = 100
"""Verdicts that are logged in one second."""


class Fold(Protocol):
    """:func:`leadline.commands.fold.fold`, or a stand-in for it."""

    def __call__(self, batch: Sequence[Incoming], load: Load, policy: Policy, now: int) -> Folded: ...


class _Lost(Exception):
    """Partitions have changed hands: what was folded is not this worker's to write."""


class Watch:
    """Runs inside one event loop. ``now``: milliseconds since 1970."""

    def __init__(
        self,
        app: MonitorApp,
        sessions: Sessions,
        delivery: Delivery,
        clock: Clock,
        fold: Fold,
        policies: PolicySource,
        now: Callable[[], int],
        settings: Settings,
        counts: Counter[str],
        fault: Reach | None = None,
        observer: Observer = UNOBSERVED,
    ) -> None:
        self._fault = fault
        self._observer = observer
        self._app = app
        self._sessions = sessions
        self._delivery = delivery
        self._outbox = Outbox(delivery, _MOST_OUTPUTS)
        self._clock = clock
        self._fold = fold
        self._policies = policies
        self._now = now
        self._settings = settings
        self._counts = counts
        self.through: dict[int, int] = {}
        """By partition, the offset below which every event has been judged and stored, where that is known."""
        self._folded: dict[int, int] = {}
        """By partition, the offset below which every event was folded since the last flush began."""
        self._generation = -1
        self._work = asyncio.Event()
        """There is something to flush."""
        self._now_or_never = asyncio.Event()
        """Flush without waiting for the interval."""
        self._room = asyncio.Event()
        self._room.set()
        self._clean = asyncio.Event()
        """Nothing is folded that is not stored and acknowledged, and no flush is under way."""
        self._clean.set()
        self._to_commit: dict[int, int] = {}
        self._acked = asyncio.Event()
        self._stopping = False
        self._drained = False
        """The clients are being closed: there is nobody to commit to."""
        self.flushing = False
        self._second = 0
        self._lines = 0

    async def consume(self, stream: Any) -> None:
        """The agent. Ends only by an exception, and any exception ends the worker: what was not stored comes again."""
        jobs = (self._subscribe(stream), self._pump(), self._outbox.run(), self._flusher(), self._committer())
        tasks = {asyncio.create_task(job) for job in jobs}
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            self._clean.set()  # Nothing more will be flushed: a stop need not wait for it.
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _subscribe(self, stream: Any) -> None:
        """The engine subscribes to what somebody iterates over; the records themselves come in batches, from elsewhere."""
        async for _ in stream.noack().events():
            pass

    async def _pump(self) -> None:
        while True:
            batch = await self._app.fetch.next()
            await self._room.wait()
            await self._outbox.room()
            # Much may have happened while it was held: where reading began anew, what came before it in the log was forgotten.
            still = self._app.fetch.current(batch) and batch.generation == self._app.generation()
            if still and self._app.flowing() and not self._stopping:
                self._judge(batch)
            await asyncio.sleep(0)

    def _judge(self, batch: Batch) -> None:
        """Fold a batch, send what it led to, keep the states."""
        partition, records = batch.partition, batch.records
        began = perf_counter_ns()
        folded = self._fold(records, self._sessions.loader(partition), self._policies.policy, self._now())
        told = Told(partition, records[0].offset, records[-1].offset, len(records), folded, began, records[-1].timestamp)
        self._observer.judged(told)
        if self._fault:
            self._fault("after-fold")
        now = self._now()
        self._outbox.put(
            [outgoing(record, partition) for record in folded.outputs],
            [dead_letter(letter, now) for letter in folded.dead_letters],
            lambda: self._observer.delivered(told),
        )
        self._sessions.apply(partition, folded.states, records[-1].offset)
        self._generation = batch.generation
        self._folded[partition] = records[-1].offset + 1
        self._count(len(records), folded)
        self._clean.clear()
        self._work.set()
        if self._sessions.unwritten >= _MOST_UNWRITTEN:
            self._now_or_never.set()
            if self._sessions.unwritten >= 2 * _MOST_UNWRITTEN:
                self._room.clear()

    def _count(self, events: int, folded: Folded) -> None:
        counts = self._counts
        counts["events"] += events
        counts["batches"] += 1
        for record in folded.outputs:
            counts["violations" if isinstance(record, Violation) else "commands"] += 1
            if not self._may_tell():
                continue
            kind = f"command {record.kind}" if isinstance(record, Command) else f"violation {record.rule}"
            fields = {"session": record.session_id, "incident": record.incident_id, "reason": record.reason}
            log.info(kind, extra=with_fields(**fields, **traced(record.traceparent)))
        for letter in folded.dead_letters:
            log.warning(
                "a record could not be read",
                extra=with_fields(
                    reason=letter.reason, error=letter.error, partition=letter.source.partition, offset=letter.source.offset
                ),
            )
        for why, number in folded.ignored.items():
            counts[f"ignored_{why}"] += number

    def _may_tell(self) -> bool:
        """A line for each verdict while they are few: a line costs more than the verdict. What is left out is in the minute's
        sums, the metrics and the topics."""
        second = int(monotonic())
        if second != self._second:
            self._second, self._lines = second, 0
        self._lines += 1
        return self._lines <= _MOST_LINES

    async def _flusher(self) -> None:
        while True:
            await self._work.wait()
            if not self._now_or_never.is_set():
                try:
                    async with asyncio.timeout(self._settings.flush_interval_s):
                        await self._now_or_never.wait()
                except TimeoutError:
                    pass
            self._now_or_never.clear()
            self._work.clear()
            self.flushing = True
            try:
                await self._flush()
            except _Lost:
                self._sessions.settled = True
                log.info("partitions changed hands in the middle of a flush; its records come again")
            self.flushing = False
            self._room.set()
            if not self._folded and not self._work.is_set():
                self._clean.set()

    async def _flush(self) -> None:
        generation, mark = self._generation, self._outbox.mark
        taken = self._sessions.take()
        through, self._folded = self._folded, {}
        self._room.set()

        async def ours() -> None:
            if not await self._app.ownership.sure(generation, self._settings.broker_away_s):
                raise _Lost

        await self._outbox.confirmed(mark)
        if self._fault:
            self._fault("after-outputs")
        await ours()
        self._sessions.store(taken)
        if self._fault:
            self._fault("after-store")
            if taken.gone:
                self._fault("after-removal")
        confirmed = await self._delivery.confirm(taken.records(), ours)
        if self._fault:
            self._fault("after-changelog")
            if taken.gone:
                self._fault("after-tombstone")
        if not self._app.ownership.holds(generation):
            raise _Lost
        self._sessions.note(taken, confirmed)
        for partition, end in through.items():
            self.through[partition] = end
            self._to_commit[partition] = end
            self._clock.applied(partition, taken.states.get(partition, {}), end - 1, self._now())
        if self._fault:
            self._fault("after-ack")
        self._acked.set()

    async def _committer(self) -> None:
        """One commit at a time, and not too often."""
        while True:
            await self._acked.wait()
            self._acked.clear()
            await self._commit()
            await asyncio.sleep(self._settings.commit_interval_s)

    async def _commit(self) -> None:
        generation, offsets = self._generation, dict(self._to_commit)
        if not offsets or self._drained or not await self._app.ownership.sure(generation, self._settings.broker_away_s):
            return
        await self._app.commit(EVENTS.name, offsets)
        for partition, offset in offsets.items():
            if self._to_commit.get(partition) == offset:
                del self._to_commit[partition]
        if self._fault:
            self._fault("after-commit")

    def write_again(self, partition: int, keys: Iterable[bytes]) -> None:
        """Sessions of this worker whose last record in the changelog is an older one."""
        self._sessions.again(partition, keys)
        self.resume()

    def resume(self) -> None:
        """Partitions are settled: write what is to be written again."""
        if self._sessions.unwritten:
            self._generation = self._app.generation()
            self._clean.clear()
            self._work.set()

    def restart(self, partitions: Iterable[int]) -> None:
        """These partitions were restored, and are read from their committed offsets next: what was folded and is not being stored
        is forgotten, and nothing is folded until then. The engine may restore again while it reads; a later record that was
        folded without an earlier one would keep that out for good."""
        partitions = list(partitions)
        self._app.fetch.assign(-1, {})
        for partition in partitions:
            self._folded.pop(partition, None)
        self._sessions.forget(partitions)

    async def quiesce(self, partitions: Iterable[int], limit_s: float) -> None:
        """Before partitions change hands: store and commit what was folded, then forget their states.

        Past ``limit_s`` it returns anyway; the flush then finds that the generation has changed and writes nothing more.
        """
        try:
            async with asyncio.timeout(limit_s):
                self._now_or_never.set()
                await self._clean.wait()
                await self._commit()
        except TimeoutError:
            log.warning("a flush is still under way while partitions change hands", extra=with_fields(waited_s=limit_s))
        self._now_or_never.clear()
        revoked = list(partitions)
        for partition in revoked:
            self._folded.pop(partition, None)
            self._to_commit.pop(partition, None)
            self.through.pop(partition, None)
        self._sessions.forget(revoked)
        self._clock.drop(revoked)
        self._observer.revoked(revoked)

    async def drain(self, limit_s: float) -> None:
        """For a stop: fold nothing new, store and commit what was folded."""
        self._stopping = True
        await self.quiesce((), limit_s)
        self._drained = True
