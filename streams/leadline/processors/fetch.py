"""Records of the watched topic, fetched by librdkafka in a thread of their own and handed over as one batch a partition.

It reads what it is told to read: which partitions are whose, and from where, is settled by the group, which is the engine's.
Bounded: past ``waiting_max`` records that nobody took yet it stops to poll, and the client's own queue has a limit in bytes.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, TIMESTAMP_LOG_APPEND_TIME, Consumer, KafkaError, Message, TopicPartition

from leadline.commands.fold import Incoming
from leadline.errors import LeadlineError, Refused, TopicMismatch
from leadline.settings import Settings, client_configs

__all__ = ["Batch", "Fetch", "consumer_config"]

_POLL_S: Final = 0.05
_IDLE_S: Final = 0.25
_GONE: Final = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
}
_DENIED: Final = {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED}


class Batch(NamedTuple):
    """Records of one partition, ascending offsets, taken under one generation of the group. ``number``: of the assignment that
    they were read under (:meth:`Fetch.current`)."""

    partition: int
    generation: int
    records: list[Incoming]
    number: int


def consumer_config(settings: Settings) -> dict[str, Any]:
    """No member of the group: it only reads. The name of a group is demanded and not used."""
    return {
        **client_configs(settings).confluent,
        "group.id": settings.app_id,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_uncommitted",
        "fetch.wait.max.ms": 100,
        "fetch.message.max.bytes": 1024 * 1024,
        "fetch.queue.backoff.ms": 5,
        "queued.max.messages.kbytes": 16 * 1024,
        "queued.min.messages": 20_000,
        "reconnect.backoff.max.ms": 2000,
        "log_level": 3,
    }


class _Assign(NamedTuple):
    number: int
    generation: int
    offsets: Mapping[int, int | None]


class Fetch:
    """:meth:`start`, :meth:`assign` and :meth:`next` belong to one event loop; reading goes on beside it."""

    def __init__(
        self,
        config: Mapping[str, Any],
        topic: str,
        batch_max: int,
        waiting_max: int,
        consumer: Callable[[dict[str, Any]], Any] = Consumer,
        heard: Callable[[], object] = lambda: None,
    ) -> None:
        """``heard`` is called, in the thread, when records have come."""
        self._config = dict(config)
        self._topic = topic
        self._batch_max = batch_max
        self._waiting_max = waiting_max
        self._make = consumer
        self._heard = heard
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._changed = threading.Condition()
        self._command: _Assign | None = None
        self._assigned = 0
        """Assignments so far; what was read under an earlier one is dropped when it arrives."""
        self._stopping = False
        self._in_thread = 0
        """Records handed over and not taken; guarded by the condition."""
        self._arrived: deque[Batch] = deque()
        self._wake = asyncio.Event()
        self._failure: BaseException | None = None

    @property
    def waiting(self) -> int:
        """Records that were read and not taken yet."""
        return self._in_thread

    def start(self) -> None:
        """Start to read; nothing is read before :meth:`assign`."""
        if self._thread is None:
            self._loop = asyncio.get_running_loop()
            self._thread = threading.Thread(target=self._run, name="fetch", daemon=True)
            self._thread.start()

    def assign(self, generation: int, offsets: Mapping[int, int | None]) -> None:
        """Read these partitions from these offsets (``None``: from the beginning) and no others. What was read before and was
        not taken is dropped."""
        with self._changed:
            self._assigned += 1
            self._command = _Assign(self._assigned, generation, dict(offsets))
            self._in_thread -= sum(len(batch.records) for batch in self._arrived)
            self._arrived.clear()
            self._changed.notify()

    async def next(self) -> Batch:
        """The next batch. Raises what ended the reading."""
        while not self._arrived:
            if self._failure is not None:
                raise self._failure
            self._wake.clear()
            await self._wake.wait()
        batch = self._arrived.popleft()
        with self._changed:
            self._in_thread -= len(batch.records)
            self._changed.notify()
        return batch

    def current(self, batch: Batch) -> bool:
        """Whether what to read was not set anew since the batch was read: else its records come again, or are another's."""
        return batch.number == self._assigned

    async def stop(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, 5.0)

    def _run(self) -> None:
        assert self._loop is not None
        try:
            consumer = self._make(self._config)
            try:
                self._read(consumer)
            finally:
                consumer.close()
        except Exception as error:
            self._tell(self._fail, error)

    def _tell(self, call: Callable[..., None], *arguments: Any) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(call, *arguments)
        except RuntimeError:
            self._stopping = True  # The loop is closed: nobody waits any more.

    def _fail(self, error: BaseException) -> None:
        self._failure = error
        self._wake.set()

    def _read(self, consumer: Any) -> None:
        number, generation, assigned = 0, -1, False
        while True:
            with self._changed:
                idle = self._command is None and (not assigned or self._in_thread >= self._waiting_max)
                if idle and not self._stopping:
                    self._changed.wait(_IDLE_S)
                if self._stopping:
                    return
                command, self._command = self._command, None
            if command is not None:
                number, generation, assigned = command.number, command.generation, bool(command.offsets)
                consumer.assign(
                    [
                        TopicPartition(self._topic, partition, OFFSET_BEGINNING if offset is None else offset)
                        for partition, offset in command.offsets.items()
                    ]
                )
                continue
            # While it waits it still looks in now and then: the client renews its tokens in there.
            first = consumer.poll(0 if idle else _POLL_S)
            if first is None:
                continue
            rest = [] if idle else consumer.consume(self._batch_max - 1, 0)
            self._hand_over(number, generation, [first, *rest])

    def _hand_over(self, number: int, generation: int, messages: list[Message]) -> None:
        found: dict[int, list[Incoming]] = {}
        for message in messages:
            if message.error() is not None:
                self._look_at(message.error())
                continue
            partition = message.partition()
            # Only the broker's own stamp is a receive time. Where the topic keeps the writers' stamps, an agent's wrong clock
            # would move deadlines; then the worker's clock has to do, and a replay remembers other times.
            kind, stamp = message.timestamp()
            record = Incoming(
                message.key(),
                message.value(),
                partition,
                message.offset(),
                stamp if kind == TIMESTAMP_LOG_APPEND_TIME else -1,
                message.headers() or (),
            )
            records = found.get(partition)
            if records is None:
                found[partition] = [record]
            else:
                records.append(record)
        if not found:
            return
        self._heard()
        batches = [Batch(partition, generation, records, number) for partition, records in found.items()]
        with self._changed:
            self._in_thread += sum(map(len, found.values()))
        self._tell(self._arrive, number, batches)

    def _look_at(self, error: KafkaError) -> None:
        """Errors that pass are left to the client; the others end the worker with a sentence."""
        if error.code() in _GONE:
            raise TopicMismatch(
                f"topic {self._topic} is gone, or was made anew, while this worker read it. Nothing was committed past what was "
                "stored. Run `leadline topics check`, then start the worker again."
            )
        if error.code() in _DENIED:
            raise Refused(f"topic {self._topic} may not be read by this client: {error.str()}. Check its rights.")
        if error.fatal():
            raise LeadlineError(f"topic {self._topic} cannot be read any more: {error.str()}. Start the worker again.")

    def _arrive(self, number: int, batches: list[Batch]) -> None:
        if number != self._assigned:
            with self._changed:
                self._in_thread -= sum(len(batch.records) for batch in batches)
                self._changed.notify()
            return
        self._arrived.extend(batches)
        self._wake.set()
