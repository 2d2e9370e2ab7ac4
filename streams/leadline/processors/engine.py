"""Faust, bent in the few places where its defaults lose records or hang: all that touches its inner parts is here."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import aiokafka
import faust
from aiokafka.errors import KafkaError, KafkaTimeoutError
from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread, Consumer, Producer
from faust.types import TP

from leadline.processors.credentials import aiokafka_config
from leadline.processors.outputs import Outgoing, Sent
from leadline.settings import Settings

__all__ = ["MonitorApp"]

# The engine's services log under the name of the module that defines them; these are still the engine's.
_log = logging.getLogger("faust.leadline")


class MonitorApp(faust.App):  # type: ignore[misc]
    """A Faust app with hooks at the moments that matter and a way to send that is confirmed record by record."""

    logger = _log

    settings: Settings
    when_ready: list[Callable[[], None]]
    """Called each time partitions are assigned, state is restored and records flow."""
    before_stop: Callable[[], Awaitable[None]] | None = None
    """Awaited when the app begins to stop, while its stores and clients still work."""

    def _new_producer(self) -> Any:
        return _MonitorProducer(self.transport, loop=self.loop, beacon=self.beacon)

    def _new_consumer(self) -> Any:
        return _MonitorConsumer(
            self.transport,
            callback=self.topics.on_message,
            on_partitions_revoked=self._on_partitions_revoked,
            on_partitions_assigned=self._on_partitions_assigned,
            beacon=self.beacon,
            loop=self.loop,
        )

    def on_rebalance_end(self) -> None:
        super().on_rebalance_end()
        if not self.should_stop:
            for call in self.when_ready:
                call()

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
        if self.rebalancing:
            return "partitions change hands"
        return "" if self.tables.actives_ready else "state is being restored"

    def committed(self, topic: str) -> dict[int, int]:
        """The committed offset of each partition of ``topic`` that this worker owns and has a committed offset for."""
        owned = self.active_partitions(topic)
        offsets = self.consumer._committed_offset
        return {tp.partition: offset for tp, offset in offsets.items() if tp.topic == topic and tp.partition in owned and offset}

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
        """The end offset of each of the partitions."""
        ends = await self.consumer.highwaters(*(TP(topic, partition) for partition in partitions))
        return {tp.partition: end or 0 for tp, end in ends.items()}

    def active_partitions(self, topic: str) -> set[int]:
        """The partitions of ``topic`` that this worker owns (standby copies do not count)."""
        return {tp.partition for tp in self.assignor.assigned_actives() if tp.topic == topic}

    async def hand_over(self, record: Outgoing) -> Awaitable[Sent]:
        """Give a record to the producer; the awaitable ends when the broker has confirmed it.

        Both raise Kafka errors, and ``TimeoutError`` for what only took too long: the client calls a full buffer that nobody
        drains (the broker is away) permanent, and it is not.
        """
        producer = self.producer._ensure_producer()
        try:
            future = await producer.send(
                record.topic,
                record.value,
                key=record.key,
                partition=record.partition,
                headers=list(record.headers) if record.headers else None,
            )
        except KafkaTimeoutError as error:
            raise TimeoutError("the producer's buffer is full and is not drained") from error
        return _confirmed(future)

    async def reachable(self) -> bool:
        """Whether any broker answers."""
        try:
            async with asyncio.timeout(3.0):
                await self.producer._ensure_producer().client.fetch_all_metadata()
        except Exception:
            return False
        return True


async def _confirmed(future: asyncio.Future[Any]) -> Sent:
    # Shielded: who gives up waiting must not cancel a record that is on its way.
    try:
        metadata = await asyncio.shield(future)
    except KafkaTimeoutError as error:
        raise TimeoutError("the record was not sent in time") from error
    return Sent(int(metadata.partition), int(metadata.offset))


class _MonitorProducer(Producer):  # type: ignore[misc]
    """Idempotent where the settings say so (Faust ties that to its transactions)."""

    logger = _log

    def _settings_extra(self) -> Mapping[str, Any]:
        return {**super()._settings_extra(), "enable_idempotence": self.app.settings.idempotence}


class _MonitorConsumer(Consumer):  # type: ignore[misc]
    logger = _log

    def _new_consumer_thread(self) -> Any:
        return _MonitorConsumerThread(self, loop=self.loop, beacon=self.beacon)


class _MonitorConsumerThread(AIOKafkaConsumerThread):  # type: ignore[misc]
    """Restores up to the true end of the changelog, also where the broker's answer to "where is the end" is wrong."""

    logger = _log

    async def _highwaters(self, partitions: Any) -> Mapping[Any, int]:
        ends = dict(await super()._highwaters(partitions))
        if self.app.settings.verify_end_offsets:
            ends.update(await _fetched_ends(self.app.settings, ends))
        return ends


async def _fetched_ends(settings: Settings, ends: Mapping[Any, int]) -> dict[Any, int]:
    """The ends as fetch responses tell them, for partitions that hold anything."""
    wanted = [tp for tp, end in ends.items() if end]
    if not wanted:
        return {}
    consumer = aiokafka.AIOKafkaConsumer(**aiokafka_config(settings), enable_auto_commit=False)
    await consumer.start()
    found: dict[Any, int] = {}
    try:
        plain = {tp: aiokafka.TopicPartition(tp.topic, tp.partition) for tp in wanted}
        consumer.assign(list(plain.values()))
        for tp, same in plain.items():
            consumer.seek(same, ends[tp] - 1)
        async with asyncio.timeout(10.0):
            while len(found) < len(wanted):
                await consumer.getmany(timeout_ms=200)
                for tp, same in plain.items():
                    mark = consumer.highwater(same)
                    if mark is not None:
                        found[tp] = max(mark, ends[tp])
    except (TimeoutError, KafkaError):
        return found
    finally:
        await consumer.stop()
    return found
