"""A broker in memory: a log a partition, for tests and the lab. Thread safe; nothing blocks but waiting for records."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from zlib import crc32

from leadline.agent.transport import Delivery, Headers, OnDelivery, Received
from leadline.contracts.topics import DEFAULT_PARTITIONS

__all__ = ["MemoryTransport"]


class MemoryTransport:
    """Producer and consumer over logs in memory. The other side of the wire (a monitor, a test) uses :meth:`send` and
    :meth:`records`.

    ``up = False`` is a broker that is away: records queue up, at most ``queue_limit`` of them, and are sent in order once it
    is back. ``time_lookup = False`` is one that cannot look up times. ``now`` gives the time of new records in ms since 1970.
    """

    def __init__(
        self, partitions: int = DEFAULT_PARTITIONS, *, queue_limit: int = 1_000, now: Callable[[], int] | None = None
    ) -> None:
        self.partitions = partitions
        self.queue_limit = queue_limit
        self.up = True
        self.time_lookup = True
        self._now = now or (lambda: time.time_ns() // 1_000_000)
        self._logs: dict[str, list[list[Received]]] = {}
        self._grown = threading.Condition()

    def send(
        self, topic: str, key: bytes, value: bytes | None, headers: Headers | None = None, partition: int | None = None
    ) -> Delivery:
        """Append a record at once; by its key's hash, or to the given partition."""
        with self._grown:
            at = crc32(key) % self.partitions if partition is None else partition
            log = self._log(topic)[at]
            log.append(Received(at, len(log), self._now(), key, value, tuple(headers or ())))
            self._grown.notify_all()
            return Delivery(at, len(log) - 1)

    def records(self, topic: str) -> list[Received]:
        """Every record of a topic, partition by partition."""
        with self._grown:
            return [record for log in self._log(topic) for record in log]

    def wait_for(self, topic: str, enough: Callable[[list[Received]], bool], timeout: float = 5.0) -> list[Received]:
        """The records of a topic once ``enough`` says so, or as they are after ``timeout`` seconds."""
        with self._grown:
            self._grown.wait_for(lambda: enough(self.records(topic)), timeout)
            return self.records(topic)

    def producer(self) -> _MemoryProducer:
        return _MemoryProducer(self)

    def consumer(self, topic: str) -> _MemoryConsumer:
        return _MemoryConsumer(self, topic)

    def _log(self, topic: str) -> list[list[Received]]:
        return self._logs.setdefault(topic, [[] for _ in range(self.partitions)])


class _MemoryProducer:
    def __init__(self, transport: MemoryTransport) -> None:
        self._transport = transport
        self._queue: deque[tuple[str, bytes, bytes, Headers, OnDelivery]] = deque()

    def produce(self, topic: str, key: bytes, value: bytes, headers: Headers, on_delivery: OnDelivery) -> None:
        if len(self._queue) >= self._transport.queue_limit:
            raise BufferError("the local queue is full")
        self._queue.append((topic, key, value, headers, on_delivery))

    def poll(self, timeout: float) -> None:
        if self._queue and not self._transport.up:
            time.sleep(min(timeout, 0.005))
        while self._queue and self._transport.up:
            topic, key, value, headers, on_delivery = self._queue.popleft()
            on_delivery(self._transport.send(topic, key, value, headers))

    def flush(self, timeout: float) -> None:
        self.poll(timeout)

    def close(self) -> None:
        while self._queue:
            self._queue.popleft()[-1](Delivery(-1, -1, "purged: the client was closed", again=True))


class _MemoryConsumer:
    def __init__(self, transport: MemoryTransport, topic: str) -> None:
        self._transport = transport
        self._topic = topic
        self._positions: dict[int, int] = {}

    def start_offset(self, partition: int, since: int) -> int:
        with self._transport._grown:
            log = self._transport._log(self._topic)[partition]
            if not self._transport.time_lookup:
                return 0
            return next((record.offset for record in log if record.timestamp >= since), len(log))

    def assign(self, positions: Mapping[int, int]) -> None:
        self._positions = dict(positions)

    def poll(self, timeout: float) -> list[Received]:
        with self._transport._grown:
            found: list[Received] = []
            if not self._transport._grown.wait_for(self._ready, timeout):
                return found
            for partition, position in self._positions.items():
                found += self._transport._log(self._topic)[partition][position:]
                self._positions[partition] = len(self._transport._log(self._topic)[partition])
            return found

    def _ready(self) -> bool:
        logs = self._transport._log(self._topic)
        return self._transport.up and any(len(logs[at]) > position for at, position in self._positions.items())

    def close(self) -> None:
        self._positions = {}
