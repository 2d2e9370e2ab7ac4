"""A session for agents that run in an event loop: what may have to wait is a coroutine, and nothing ever blocks the loop."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Self, Unpack

from leadline.agent.calls import CallCounts
from leadline.agent.control import State
from leadline.agent.facts import Fact
from leadline.agent.ledger import Ledger
from leadline.agent.presence import Monitor
from leadline.agent.rehydrate import Rehydration
from leadline.agent.session import Session
from leadline.agent.signals import Signals
from leadline.contracts.events import FactState, RoundOutcome
from leadline.contracts.orders import Command
from leadline.errors import Halted

__all__ = ["AsyncRestore", "AsyncSession"]

AsyncRestore = Callable[[str], int | Awaitable[int | None] | None]
"""As :data:`leadline.agent.rehydrate.Restore`; it may also be a coroutine function. Either way it is called in the event loop."""


class AsyncSession:
    """The same session (:class:`~leadline.agent.session.Session`, which is :attr:`session`) with the same names.

    Coroutines are those that may wait: for the monitor's verdict (hold mode), or for the agent's own ``restore``. All others only
    queue, or look. Belongs to one event loop; while a coroutine of it runs, no other one may be started on the same session.
    """

    def __init__(self, session: Session) -> None:
        self.session = session

    async def __aenter__(self) -> Self:
        self.session.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.session.__exit__(kind, error, trace)

    # -- what may wait

    @asynccontextmanager
    async def compaction(self, trigger: str = "budget") -> AsyncIterator[None]:
        """As :meth:`Session.compaction`; a cancelled pass is reported as failed."""
        with self.session._report.compacting(trigger):
            before = self.session.measure()
            try:
                yield
            except BaseException:
                self.session._compacted(trigger, before, "failed", None)
                raise
            await self.compacted(trigger, before=before)

    async def compacted(
        self,
        trigger: str = "budget",
        *,
        before: Signals | None = None,
        outcome: RoundOutcome = "ok",
        dropped_spans: int | None = None,
    ) -> Signals:
        """As :meth:`Session.compacted`."""
        signals, found = self.session._compacted(trigger, before, outcome, dropped_spans)
        await self._wait(found)
        return signals

    async def checkpoint(
        self,
        level: int,
        *,
        text: str | None = None,
        visible: bool = True,
        statuses: Mapping[str, FactState] | None = None,
        declared_drops: Mapping[str, str] | None = None,
        input_facts: Iterable[str] | None = None,
        retry_of: str | None = None,
        **counts: Unpack[CallCounts],
    ) -> dict[str, FactState]:
        """As :meth:`Session.checkpoint`."""
        states, found = self.session._checkpoint(level, text, visible, statuses, declared_drops, input_facts, retry_of, counts)
        await self._wait(found)
        return states

    async def rehydrate(self, restore: AsyncRestore, *, to_raw_ratio: float | None = None, archives: bool = False) -> Rehydration:
        """As :meth:`Session.rehydrate`. Cancelled, it brings back no further span, reports what was done, and then ends."""
        import asyncio  # An agent without an event loop does not pay for one.

        loop = asyncio.get_running_loop()
        cancelled = False

        async def call(span_id: str) -> int | None:
            found = restore(span_id)
            return await found if inspect.isawaitable(found) else found

        def bridge(span_id: str) -> int | None:
            return None if cancelled else asyncio.run_coroutine_threadsafe(call(span_id), loop).result()

        work = asyncio.ensure_future(
            asyncio.to_thread(self.session.rehydrate, bridge, to_raw_ratio=to_raw_ratio, archives=archives)
        )
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            cancelled = True
            await asyncio.wait([work])
            raise

    async def _wait(self, found: Halted | None) -> None:
        if found is None:
            return
        holding = self.session._holding
        holding.came_to(await holding.wait_async(self.session._commanded), found)
        self.session.poll()

    # -- what never waits: the session's own

    @property
    def session_id(self) -> str:
        return self.session.session_id

    @property
    def ledger(self) -> Ledger:
        return self.session.ledger

    @property
    def warnings(self) -> deque[Halted]:
        return self.session.warnings

    @property
    def state(self) -> State:
        return self.session.state

    @property
    def held(self) -> str:
        return self.session.held

    @property
    def monitor(self) -> Monitor:
        return self.session.monitor

    @property
    def depth_limit(self) -> int:
        return self.session.depth_limit

    @property
    def pending(self) -> tuple[Command, ...]:
        return self.session.pending

    @property
    def retries(self) -> tuple[Command, ...]:
        return self.session.retries

    def start(self) -> None:
        self.session.start()

    def end(self, detail: str = "") -> None:
        self.session.end(detail)

    def declare(self, facts: Iterable[Fact]) -> None:
        self.session.declare(facts)

    def measure(self) -> Signals:
        return self.session.measure()

    def retract(self, trigger: str = "budget") -> None:
        self.session.retract(trigger)

    def may_compact(self) -> bool:
        return self.session.may_compact()

    def may_summarize(self, level: int) -> bool:
        return self.session.may_summarize(level)

    def raise_if_halted(self) -> None:
        self.session.raise_if_halted()

    def poll(self) -> list[Command]:
        return self.session.poll()

    def done(self, command: Command, detail: str = "", raw_tokens_restored: int | None = None) -> None:
        self.session.done(command, detail, raw_tokens_restored)

    def refuse(self, command: Command, detail: str) -> None:
        self.session.refuse(command, detail)
