"""The edge to a broker: what the SDK needs of one, and nothing more.

Two implementations pass one conformance suite: :class:`leadline.agent.kafka.KafkaTransport` and
:class:`leadline.agent.memory.MemoryTransport` (tests, the lab). All of it is called from the SDK's own threads only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from leadline.errors import Retryable

__all__ = ["Blocked", "Consumer", "Delivery", "Headers", "OnDelivery", "Producer", "Received", "Transport"]


class Blocked(Retryable):
    """The same call succeeds once somebody has changed something: the client is not authorized, the topic is not there."""


Headers = list[tuple[str, bytes]]


class Delivery(NamedTuple):
    """What became of one record. ``error`` empty: it is in the log at ``partition`` and ``offset``.

    ``again``: the client failed, or was closed, and not the record: another client may send it. ``blocked``: that too, but not
    before somebody has changed something (:class:`Blocked`).
    """

    partition: int
    offset: int
    error: str = ""
    again: bool = False
    blocked: bool = False


OnDelivery = Callable[[Delivery], None]


class Received(NamedTuple):
    """One record read. ``timestamp``: ms since 1970, negative when the broker gave none."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()


class Producer(Protocol):
    """Sends; keeps the order of records with the same key."""

    def produce(self, topic: str, key: bytes, value: bytes, headers: Headers, on_delivery: OnDelivery) -> None:
        """Take a record over. Never blocks. Raises ``BufferError`` when its queue is full, :class:`leadline.errors.Refused`
        when it can never send this record, :class:`leadline.errors.Retryable` when the client must be made anew, :class:`Blocked`
        when that is of no use yet."""

    def poll(self, timeout: float) -> None:
        """Run the delivery callbacks that are due; wait at most ``timeout`` seconds for the first one. Raises
        :class:`leadline.errors.Retryable` when the client must be made anew."""

    def flush(self, timeout: float) -> None:
        """Hurry what is queued out, for at most ``timeout`` seconds, running delivery callbacks. Raises as :meth:`poll`."""

    def close(self) -> None:
        """Let go of what is still queued (each gets its callback with an error, and ``again``)."""


class Consumer(Protocol):
    """Reads partitions of one topic that it was told of; no group, no commits."""

    def start_offset(self, partition: int, since: int) -> int:
        """Offset of the first record at or after ``since`` (ms since 1970) or before it: where the broker cannot look up
        times, the beginning. May block for seconds; raises :class:`leadline.errors.Retryable`."""

    def assign(self, positions: Mapping[int, int]) -> None:
        """Read exactly these partitions from these offsets on."""

    def poll(self, timeout: float) -> list[Received]:
        """The next records, or an empty list after ``timeout`` seconds. Raises :class:`leadline.errors.Retryable`."""

    def close(self) -> None:
        """Stop reading."""


class Transport(Protocol):
    """Makes clients, one of each per process."""

    def producer(self) -> Producer: ...

    def consumer(self, topic: str) -> Consumer: ...
