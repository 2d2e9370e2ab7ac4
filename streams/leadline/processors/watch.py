"""The one agent: events in, through the fold, outputs and state out.

Order, for every batch: fold -> outputs confirmed -> store written -> changelog confirmed -> acknowledged -> committed.
Whatever happens in between, the events come again and lead to the same ids and the same state.

Batches form by themselves: while one is in flight the next ones gather, so a quiet topic sees hardly a delay and a slow
broker many records a round trip.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from time import perf_counter_ns
from typing import Any, Final, NamedTuple, Protocol

from leadline.commands.fold import Folded, Incoming
from leadline.contracts.orders import Command, Violation
from leadline.contracts.session_state import SessionState
from leadline.detection.policy import Policy
from leadline.processors.clock import Clock
from leadline.processors.engine import MonitorApp
from leadline.processors.faultpoints import Reach
from leadline.processors.logs import traced, with_fields
from leadline.processors.outputs import Delivery, dead_letter, outgoing
from leadline.processors.policy_source import PolicySource
from leadline.processors.table import Sessions
from leadline.settings import Settings
from leadline.telemetry.observer import UNOBSERVED, Observer
from leadline.telemetry.observer import Batch as Told

__all__ = ["Fold", "Watch"]

log = logging.getLogger(__name__)

_LINGER_STEP_S: Final = 0.003
_LINGER_MAX_S: Final = 0.04


class Fold(Protocol):
    """:func:`leadline.commands.fold.fold`, or a stand-in for it."""

    def __call__(
        self, batch: Sequence[Incoming], load: Callable[[str], SessionState | None], policy: Policy, now: int
    ) -> Folded: ...


class _Batch(NamedTuple):
    partition: int
    events: list[Any]
    folded: Folded
    told: Told


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
        self._clock = clock
        self._fold = fold
        self._policies = policies
        self._now = now
        self._settings = settings
        self._counts = counts
        self.through: dict[int, int] = {}
        """By partition, the offset below which every event has been judged and stored, where that is known."""
        self._pending: dict[int, deque[Any]] = defaultdict(deque)
        self._most = 4 * settings.batch_max
        self._wake = asyncio.Event()
        self._drained = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._stopping = False
        self._commit: asyncio.Task[Any] | None = None
        self._committed_at = 0.0

    async def consume(self, stream: Any) -> None:
        """The agent. Ends only by an exception, and any exception ends the worker: what was not stored comes again."""
        tasks = {asyncio.create_task(self._gather(stream)), asyncio.create_task(self._pump())}
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _gather(self, stream: Any) -> None:
        async for event in stream.noack().events():
            self._pending[event.message.partition].append(event)
            self._wake.set()
            if self._waiting() >= self._most:
                self._drained.clear()
                await self._drained.wait()

    async def _pump(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self._linger()
            self._idle.clear()
            try:
                while taken := self._take():
                    await self._process(taken)
                    await self._linger()
            finally:
                self._idle.set()

    async def _linger(self) -> None:
        """While records keep coming in, wait a little for more of them: a batch costs several round trips, whatever is in
        it. A single record waits one step."""
        loop = asyncio.get_running_loop()
        end = loop.time() + _LINGER_MAX_S
        waiting = self._waiting()
        while waiting and loop.time() < end:
            await asyncio.sleep(_LINGER_STEP_S)
            before, waiting = waiting, self._waiting()
            if waiting == before or waiting >= self._most:
                return

    def _waiting(self) -> int:
        return sum(map(len, self._pending.values()))

    def _take(self) -> dict[int, list[Any]]:
        """The next records of each partition, in order. Those of a partition that has changed hands are dropped: they
        come again, here or elsewhere."""
        taken: dict[int, list[Any]] = {}
        if self._app.rebalancing or self._app.should_stop or self._stopping:
            return taken
        generation = self._app.generation()
        for partition, queue in self._pending.items():
            events: list[Any] = []
            while queue and len(events) < self._settings.batch_max:
                event = queue.popleft()
                if event.message.generation_id == generation:
                    events.append(event)
            if events:
                taken[partition] = events
        self._drained.set()
        return taken

    async def _process(self, taken: dict[int, list[Any]]) -> None:
        generation = self._app.generation()

        def current() -> bool:
            return self._app.generation() == generation

        batches = []
        policy = self._policies.policy
        for partition, events in taken.items():
            began = perf_counter_ns()
            incoming = [_incoming(event.message) for event in events]
            folded = self._fold(incoming, self._sessions.loader(partition), policy, self._now())
            told = Told(partition, incoming[0].offset, incoming[-1].offset, len(incoming), folded, began, incoming[-1].timestamp)
            self._observer.judged(told)
            batches.append(_Batch(partition, events, folded, told))
            await asyncio.sleep(0)
        if self._fault:
            self._fault("after-fold")
        await asyncio.gather(
            self._delivery.confirm([outgoing(record, b.partition) for b in batches for record in b.folded.outputs]),
            self._delivery.bury([dead_letter(letter, self._now()) for b in batches for letter in b.folded.dead_letters]),
        )
        for batch in batches:
            self._observer.delivered(batch.told)
        if self._fault:
            self._fault("after-outputs")
        if not await self._sessions.write({b.partition: b.folded.states for b in batches}, current):
            log.info("partitions changed hands in the middle of a batch; its records come again")
            return
        for batch in batches:
            for event in batch.events:
                event.ack()
            self.through[batch.partition] = batch.events[-1].message.offset + 1
            self._clock.applied(batch.partition, batch.folded.states, batch.events[-1].message.offset, self._now())
            self._count(batch)
        if self._fault:
            self._fault("after-ack")
        self._commit_soon()

    def _count(self, batch: _Batch) -> None:
        counts, folded = self._counts, batch.folded
        counts["events"] += len(batch.events)
        counts["batches"] += 1
        for record in folded.outputs:
            counts["violations" if isinstance(record, Violation) else "commands"] += 1
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

    def _commit_soon(self) -> None:
        """Commit in the background, at most one at a time and not too often; the engine's own timer does the rest."""
        moment = asyncio.get_running_loop().time()
        if self._commit is not None and self._commit.done():
            self._commit.result()
            self._commit = None
        if self._commit is None and moment - self._committed_at >= self._settings.commit_interval_s:
            self._committed_at = moment
            self._commit = asyncio.create_task(self._commit_now())

    async def _commit_now(self) -> None:
        await self._app.consumer.commit()
        if self._fault:
            self._fault("after-commit")

    def resume(self) -> None:
        """Partitions are settled again: look at what has gathered."""
        self._wake.set()

    async def quiesce(self, partitions: Iterable[int], limit_s: float) -> None:
        """Before partitions change hands: let what is in flight end, drop what only waits, forget cached states.

        Past ``limit_s`` it returns anyway; the batch then finds that the generation has changed and writes nothing.
        """
        for queue in self._pending.values():
            queue.clear()
        self._drained.set()
        try:
            async with asyncio.timeout(limit_s):
                await self._idle.wait()
                if self._commit is not None:
                    await asyncio.wait([self._commit])
        except TimeoutError:
            log.warning("a batch is still in flight while partitions change hands", extra=with_fields(waited_s=limit_s))
        revoked = list(partitions)
        self._sessions.forget(revoked)
        self._clock.drop(revoked)
        for partition in revoked:
            self.through.pop(partition, None)
        self._observer.revoked(revoked)

    async def drain(self, limit_s: float) -> None:
        """For a stop: take nothing new, end what is in flight, commit it."""
        self._stopping = True
        await self.quiesce((), limit_s)
        try:
            async with asyncio.timeout(limit_s):
                await self._app.consumer.commit()
        except TimeoutError:
            log.warning("the last offsets were not committed in time; their records come again")


_LOG_APPEND_TIME: Final = 1


def _incoming(message: Any) -> Incoming:
    # Only the broker's own stamp is a receive time. Where the topic keeps the writers' stamps, an agent's wrong clock would
    # move deadlines; then the worker's clock has to do, and a replay remembers other times.
    stamp = message.timestamp if message.timestamp_type == _LOG_APPEND_TIME else None
    return Incoming(
        message.key,
        message.value,
        message.partition,
        message.offset,
        -1 if stamp is None else round(stamp * 1000),
        message.headers or (),
    )
