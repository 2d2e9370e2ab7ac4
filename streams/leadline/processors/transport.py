"""The engine's way to the brokers, registered under the scheme ``leadline://``: the aiokafka driver, bent in a few places.

- Records of the watched topic are not fetched by it: :mod:`leadline.processors.fetch` reads them in batches, and the app
  acknowledges them by one offset a partition. Everything about the group (membership, assignment, commits) stays the driver's,
  and so does every other topic.
- Each answered heartbeat is told to :class:`~leadline.processors.fencing.Ownership` and to
  :class:`~leadline.processors.contact.Contact`.
- A restore goes up to the true end of the changelog, also where the broker's answer to "where is the end" is wrong.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

import aiokafka
from aiokafka.errors import KafkaError
from faust.transport.drivers import TRANSPORTS
from faust.transport.drivers import aiokafka as driver
from faust.types import TP

from leadline.contracts.topics import EVENTS
from leadline.processors.credentials import aiokafka_config
from leadline.processors.table import Change, change
from leadline.settings import Settings

__all__ = ["SCHEME", "Transport", "register"]

# The engine's services log under the name of the module that defines them; these are still the engine's.
_log = logging.getLogger("faust.leadline")

SCHEME = "leadline"


def register() -> None:
    """Make the scheme known to the engine."""
    TRANSPORTS.aliases[SCHEME] = f"{__name__}:Transport"


class _Listener(driver.ConsumerRebalanceListener):  # type: ignore[misc]
    async def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        partitions = list(assigned)
        thread = self._thread
        thread.app.ownership.heard(thread.app.ownership.now())
        # Else the driver would fetch what nobody takes from it.
        thread._ensure_consumer().pause(*(tp for tp in partitions if tp.topic == EVENTS.name))
        await super().on_partitions_assigned(partitions)


class Consumer(driver.Consumer):  # type: ignore[misc]
    logger = _log
    RebalanceListener = _Listener

    async def getmany(self, timeout: float) -> AsyncIterator[tuple[TP, Any]]:
        """Records one by one, as the engine takes them; but those of a changelog that is restored are applied here, in batches,
        and only the last of each batch goes on, so that the engine knows how far the restore is."""
        records, active = await self._wait_next_records(timeout)
        if not records or self.should_stop:
            return
        if not self.flow_active:
            await self.perform_seek()
            return
        generation = self.app.consumer_generation_id
        for tp, found in records.items():
            if not found or (active is not None and tp not in active and tp not in self._buffered_partitions):
                continue
            await asyncio.sleep(0)
            if generation != self.app.consumer_generation_id or not self.flow_active:
                return
            restore = self.app.restorer(tp.topic)
            if restore is None:
                for record in found:
                    yield tp, self._to_message(tp, record)
                continue
            changes = [
                Change(each.offset, each.key, each.value)
                if each.value is not None
                else change(each.offset, each.key, None, each.headers)
                for each in found
            ]
            restore(tp.partition, changes)
            yield tp, self._to_message(tp, found[-1])

    def _new_consumer_thread(self) -> Any:
        return _ConsumerThread(self, loop=self.loop, beacon=self.beacon)


class _ConsumerThread(driver.AIOKafkaConsumerThread):  # type: ignore[misc]
    logger = _log

    async def on_start(self) -> None:
        await super().on_start()
        coordinator = self._ensure_consumer()._coordinator
        beat, ownership, contact = coordinator._do_heartbeat, self.app.ownership, self.app.contact

        async def heard() -> bool:
            sent_at = ownership.now()
            success: bool = await beat()
            if success:
                ownership.heard(sent_at)
                contact.heard()
            return success

        coordinator._do_heartbeat = heard

    async def _fetch_records(
        self, consumer: Any, active_partitions: set[TP], timeout: float | None = None, max_records: int | None = None
    ) -> Any:
        others = {tp for tp in active_partitions if tp.topic != EVENTS.name}
        if others:
            return await super()._fetch_records(consumer, others, timeout, max_records)
        # Nothing to fetch: the driver must still see that somebody asks, or it leaves the group as one that hangs.
        with consumer._fetcher._subscriptions.fetch_context():
            await asyncio.sleep(0.2)
        return {}

    def verify_event_path(self, now: float, tp: TP) -> None:
        """The driver misses records that it is not to fetch; a watch of our own looks after them."""
        if tp.topic != EVENTS.name:
            super().verify_event_path(now, tp)

    async def _highwaters(self, partitions: Any) -> Mapping[Any, int]:
        ends = dict(await super()._highwaters(partitions))
        if self.app.settings.verify_end_offsets:
            ends.update(await _fetched_ends(self.app.settings, ends))
        return ends


class Producer(driver.Producer):  # type: ignore[misc]
    logger = _log


class Transport(driver.Transport):  # type: ignore[misc]
    Consumer = Consumer
    Producer = Producer


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
