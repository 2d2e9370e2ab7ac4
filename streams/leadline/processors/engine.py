"""Faust, bent in the few places where its defaults lose records or hang; its way to the brokers is
:mod:`leadline.processors.transport`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping

import faust
from aiokafka.errors import KafkaError
from faust.types import TP

from leadline.contracts.topics import EVENTS
from leadline.errors import BrokerError
from leadline.processors.contact import ASK_S, Contact
from leadline.processors.fencing import Ownership
from leadline.processors.fetch import Fetch
from leadline.processors.table import Change
from leadline.settings import Settings

__all__ = ["MonitorApp"]

# The engine's services log under the name of the module that defines them; these are still the engine's.
_log = logging.getLogger("faust.leadline")


class MonitorApp(faust.App):  # type: ignore[misc]
    """A Faust app with hooks at the moments that matter, whose watched topic comes in batches from ``fetch``."""

    logger = _log

    settings: Settings
    fetch: Fetch
    ownership: Ownership
    contact: Contact
    when_ready: list[Callable[[], None]]
    """Called each time partitions are assigned, state is restored and records flow."""
    waits_for: str = ""
    """What must come before records are taken, besides the restore; empty where nothing is missing."""
    before_stop: Callable[[], Awaitable[None]] | None = None
    """Awaited when the app begins to stop, while its stores and clients still work."""

    def on_rebalance_start(self) -> None:
        super().on_rebalance_start()
        self.loop.call_soon_threadsafe(self.fetch.assign, -1, {})

    def on_rebalance_end(self) -> None:
        if self._restores_again():
            return  # The end of a restore that another one has overtaken: that one's end counts.
        super().on_rebalance_end()
        if not self.should_stop:
            self.fetch.start()
            self.fetch.assign(self.generation(), self._positions())
            for call in self.when_ready:
                call()

    def _restores_again(self) -> bool:
        """Whether the group has moved on, or the engine was told to restore once more, since the last restore began. The engine
        tells of that one's end all the same, and nothing may be read yet: the store is not that of the partitions owned now."""
        recovery = self.tables.recovery
        return bool(recovery._generation_id != self.consumer_generation_id or recovery.signal_recovery_start.is_set())

    def _positions(self) -> dict[int, int | None]:
        """Where to read on, by partition of the watched topic; the engine has just asked the group."""
        read: Mapping[TP, int | None] = self.consumer._read_offset
        return {partition: read.get(TP(EVENTS.name, partition)) for partition in self.active_partitions(EVENTS.name)}

    async def on_stop(self) -> None:
        if self.before_stop is not None:
            await self.before_stop()
        await super().on_stop()

    def flowing(self) -> bool:
        """Whether partitions are assigned and restored and no rebalance is under way."""
        return not self.not_ready()

    def not_ready(self) -> str:
        """Why no records are taken at the moment; empty when they are."""
        if self.should_stop:
            return "the worker is stopping"
        if self.waits_for:
            return self.waits_for
        if self.rebalancing:
            return "partitions change hands"
        return "" if self.tables.actives_ready and not self.in_recovery else "state is being restored"

    def wait_for(self, what: str) -> None:
        """Take no records before this has come; empty: it has."""
        self.waits_for = what

    def committed(self, topic: str) -> dict[int, int]:
        """The committed offset of each partition of ``topic`` that this worker owns and has a committed offset for."""
        owned = self.active_partitions(topic)
        offsets = self.consumer._committed_offset
        return {tp.partition: offset for tp, offset in offsets.items() if tp.topic == topic and tp.partition in owned and offset}

    async def commit(self, topic: str, offsets: Mapping[int, int]) -> bool:
        """Commit these offsets; false where the group has moved on, or the client is gone as the worker has crashed. Any other
        failure crashes the worker."""
        if self.crash_reason is not None:
            return False
        tps = {TP(topic, partition): offset for partition, offset in offsets.items()}
        done: bool = await self.consumer._commit(tps)
        if done:
            self.contact.heard()
            self.consumer._committed_offset.update(tps)
        return done

    def restorer(self, topic: str) -> Callable[[int, list[Change]], None] | None:
        """What applies records of ``topic``, where that is a table's changelog."""
        table = self.tables._changelogs.get(topic)
        return None if table is None else table.restore

    def generation(self) -> int:
        """Changes whenever partitions may have changed hands."""
        return int(self.consumer_generation_id)

    def progress(self) -> tuple[int, int]:
        """Changes as long as a restore gets on: the generation, and the sum of the changelog offsets read so far."""
        offsets = self.tables.recovery.active_offsets.values()
        return self.generation(), sum(offset for offset in offsets if offset is not None)

    def restore_left(self) -> int:
        """Changelog records between what was restored and the ends that the restore goes for."""
        recovery = self.tables.recovery
        ends, offsets = dict(recovery.active_highwaters), dict(recovery.active_offsets)
        return sum(max(0, end - offsets.get(tp, -1)) for tp, end in ends.items() if end is not None and end > 0)

    async def ends(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        """The end offset of each of the partitions. Raises :class:`BrokerError` where nobody tells."""
        try:
            ends = await self.consumer.highwaters(*(TP(topic, partition) for partition in partitions))
        except KafkaError as error:
            raise BrokerError(
                f"the ends of {topic} could not be asked for ({type(error).__name__}: {error}). Check the brokers and that the "
                "topic is there, then start the worker again."
            ) from error
        self.contact.heard()
        return {tp.partition: end or 0 for tp, end in ends.items()}

    def active_partitions(self, topic: str) -> set[int]:
        """The partitions of ``topic`` that this worker owns (standby copies do not count)."""
        return {tp.partition for tp in self.assignor.assigned_actives() if tp.topic == topic}

    async def ask(self) -> bool:
        """Whether any broker answers when it is asked; before the clients run there is nobody to ask, and nothing to miss."""
        if not self.producer.started:
            return True
        try:
            async with asyncio.timeout(ASK_S):
                await self.producer._ensure_producer().client.fetch_all_metadata()
        except Exception:
            return False
        self.contact.heard()
        return True

    async def reachable(self) -> bool:
        """Whether a broker is there now: it answers what it is asked, or something else meanwhile."""
        since = self.contact.now()
        return await self.ask() or self.contact.heard_since(since)

    def _crash(self, reason: BaseException) -> None:
        # What fails because a stop is under way must not hide why it is.
        super()._crash(self.crash_reason or reason)
