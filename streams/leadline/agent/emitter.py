"""The way out: events to ``leadline.events``, without ever blocking or raising into the agent.

``emit`` only queues; one daemon thread encodes, hands records to the transport's producer and runs its delivery callbacks.
Whatever cannot be sent is counted by a named reason and forgotten.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from leadline.agent.outbox import Entry, Outbox
from leadline.agent.trace import active_trace
from leadline.agent.transport import Delivery, Headers, Producer, Transport
from leadline.contracts import limits
from leadline.contracts.codec import decode_event, encode
from leadline.contracts.events import AgentEvent, Round
from leadline.contracts.topics import EVENTS
from leadline.contracts.trace import NO_TRACE, TraceContext
from leadline.errors import Malformed, Refused

__all__ = ["DropReason", "Emitted", "Emitter"]

_log = logging.getLogger("leadline.agent")

_POLL_SECONDS = 0.02
_IDLE_SECONDS = 1.0
_RETRY_SECONDS = 1.0


class DropReason:
    """Why an event was not sent; the keys of :attr:`Emitted.dropped`."""

    QUEUE_FULL = "queue-full"
    """The broker has been away, or slow, for too long: the oldest rounds gave way."""
    OVER_SIZE = "over-size"
    """Larger than :data:`leadline.contracts.limits.MAX_RECORD_BYTES`, also without its list of summaries."""
    UNENCODABLE = "unencodable"
    """It has no JSON form: half a surrogate pair in an id, say."""
    MALFORMED = "malformed"
    """The monitor would refuse it: a negative count, an id that is too long; ``last_error`` says which."""
    UNDELIVERED = "undelivered"
    """The transport gave up on it; ``last_error`` says why."""
    CLOSED = "closed"
    """Emitted, or still queued, when the emitter was closed."""
    INTERNAL = "internal"
    """A fault of the emitter itself."""


@dataclass(slots=True)
class Emitted:
    """Counters since this process began to emit. ``cut``: rounds sent without their list of summaries, as it was too long."""

    emitted: int = 0
    delivered: int = 0
    cut: int = 0
    queued: int = 0
    in_flight: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    last_error: str = ""


class Emitter:
    """Sends events keyed by session id; thread safe.

    ``on_delivered(session_id, partition)`` is told, on the sending thread, where each event went. At most ``max_queued``
    events and ``max_bytes`` bytes wait in memory. The client is made on first use, and anew in a forked child (events that
    were queued at the fork belong to the parent).
    """

    def __init__(
        self,
        transport: Transport,
        *,
        max_queued: int = 10_000,
        max_bytes: int = 32 * 1024 * 1024,
        on_delivered: Callable[[str, int], None] | None = None,
    ) -> None:
        self._transport = transport
        self._limits = (max_queued, max_bytes)
        self._on_delivered = on_delivered
        self._inherited: list[Producer] = []
        self._producer: Producer | None = None
        self._births: dict[int, threading.Lock] = {}
        self._begin()

    # -- for the agent

    def emit(self, event: AgentEvent, *, trace: TraceContext = NO_TRACE) -> bool:
        """Queue an event. Never blocks, never raises. ``False``: it was dropped at once, and counted.

        The span that is active in the calling thread goes along in the headers; without one, ``trace`` does. What cannot be
        encoded, or would be refused by the monitor, is found out later and only counted.
        """
        try:
            self._here()
            active = active_trace()
            entry = Entry(event, active if active.traceparent else trace, isinstance(event, Round), _size(event))
            with self._wake:
                if self._closing:
                    self._drop(DropReason.CLOSED)
                    return False
                self._count.emitted += 1
                taken, dropped = self._outbox.push(entry)
                if dropped:
                    self._drop(DropReason.QUEUE_FULL, dropped)
                self._run()
                self._wake.notify()
            return taken
        except Exception as error:
            self._drop(DropReason.INTERNAL, error=repr(error))
            return False

    def flush(self, timeout: float) -> int:
        """Wait until everything is delivered or dropped, for at most ``timeout`` seconds; returns how many events are left."""
        self._here()
        with self._wake:
            self._hurry = True
            self._wake.notify()
            self._done.wait_for(lambda: self._left() == 0, max(0.0, timeout))
            self._hurry = False
            return self._left()

    def close(self, timeout: float = 3.0) -> int:
        """Flush, then let the client go; returns how many events were lost, which is logged too. Takes ``timeout`` seconds and a
        little more.

        A second call does nothing.
        """
        left = self.flush(timeout)
        with self._wake:
            self._closing = True
            self._wake.notify()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(1.0)
        return left

    def counters(self) -> Emitted:
        """A copy of the counters."""
        self._here()
        with self._wake:
            now = self._count
            return Emitted(
                now.emitted,
                now.delivered,
                now.cut,
                len(self._outbox),
                len(self._flying),
                Counter(now.dropped),
                now.last_error,
            )

    # -- inside

    def _begin(self) -> None:
        """Fresh state for this process. After a fork, locks and clients of the parent are not to be touched."""
        if self._producer is not None:
            # Kept, not closed: its threads live in the parent, and to free it here would wait for them for ever.
            self._inherited.append(self._producer)
        lock = threading.RLock()
        self._wake = threading.Condition(lock)
        self._done = threading.Condition(lock)
        self._outbox = Outbox(*self._limits)
        self._count = Emitted()
        self._producer = None
        self._thread: threading.Thread | None = None
        self._flying: dict[int, Entry] = {}
        """What the client has and has not reported on, oldest first, by a number of its own."""
        self._handed = 0
        self._closing = False
        self._hurry = False
        self._pid = os.getpid()

    def _here(self) -> None:
        """Begin anew in a forked child, once, however many of its threads find out at the same time."""
        pid = os.getpid()
        if pid != self._pid:
            with self._births.setdefault(pid, threading.Lock()):
                if pid != self._pid:
                    self._begin()

    def _run(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._send_all, name="leadline-emitter", daemon=True)
            self._thread.start()

    def _left(self) -> int:
        return len(self._outbox) + len(self._flying)

    def _drop(self, reason: str, count: int = 1, error: str = "") -> None:
        with self._wake:
            first = reason not in self._count.dropped
            self._count.dropped[reason] += count
            if error:
                self._count.last_error = error[:500]
            first = first and not self._closing  # Then one line tells of all that is lost.
        if first:
            _log.warning("events are dropped: %s %.200s", reason, error)

    def _send_all(self) -> None:
        """The sending thread. It ends with the emitter, and never for any other reason."""
        while not self._closing:
            try:
                self._send_some()
            except Exception as error:
                self._renew(repr(error))
        self._let_go()

    def _send_some(self) -> None:
        with self._wake:
            if not self._left() and not self._closing:
                self._wake.wait(_IDLE_SECONDS)
        if self._producer is None:
            self._producer = self._transport.producer()
        producer = self._producer
        for _ in range(1_000):
            with self._wake:
                entry = self._outbox.pop()
                if entry is None:
                    break
                self._handed += 1
                self._flying[self._handed] = entry
            if not self._send(producer, self._handed, entry):
                break
        if self._flying:
            if self._hurry:
                producer.flush(_POLL_SECONDS)
            else:
                producer.poll(_POLL_SECONDS)

    def _send(self, producer: Producer, number: int, entry: Entry) -> bool:
        """Hand one entry over. ``False``: the client is full; it stays at the head of the queue."""
        try:
            record = _encoded(entry)
            self._count.cut += record.cut
            producer.produce(EVENTS.name, record.key, record.value, record.headers, _Callback(self, number))
        except Malformed as error:
            self._refused(number, error.reason, error.detail)
        except Refused as error:
            self._refused(number, DropReason.UNDELIVERED, str(error))
        except BaseException as error:
            with self._wake:
                del self._flying[number]
                self._outbox.push_back(entry)
            if isinstance(error, BufferError):
                return False
            raise
        return True

    def _refused(self, number: int, reason: str, error: str) -> None:
        with self._wake:
            del self._flying[number]
            self._drop(reason, error=error)
            if not self._left():
                self._done.notify_all()

    def _settled(self, delivery: Delivery, number: int) -> None:
        """A delivery report came. What a failing client gives back stays in ``_flying``, for the next one (:meth:`_renew`)."""
        with self._wake:
            if number not in self._flying or (delivery.again and not self._closing):
                return
            entry = self._flying.pop(number)
            if delivery.error:
                self._drop(DropReason.UNDELIVERED, error=delivery.error)
            else:
                self._count.delivered += 1
            if not self._left():
                self._done.notify_all()
        if not delivery.error and self._on_delivered is not None:
            try:
                self._on_delivered(entry.event.session_id, delivery.partition)
            except Exception as error:
                _log.warning("a delivery report was lost: %r", error)

    def _renew(self, error: str) -> None:
        """The client failed for good: get rid of it, and try again with a new one a little later. What it did not deliver goes
        back to the head of the queue, in order."""
        producer, self._producer = self._producer, None
        _close(producer)
        with self._wake:
            while self._flying:
                self._outbox.push_back(self._flying.popitem()[1])
            if self._count.last_error != error[:500]:
                _log.warning("events cannot be sent, trying again: %.200s", error)
            self._count.last_error = error[:500]
            # Not merely `wait`: every emit notifies.
            self._wake.wait_for(lambda: self._closing, _RETRY_SECONDS)

    def _let_go(self) -> None:
        dropped, before = self._count.dropped.total(), self._count.last_error
        if self._producer is not None:
            self._count.last_error = ""
        _close(self._producer)
        self._producer = None
        with self._wake:
            if self._flying:
                # The client did not report on them in time.
                self._drop(DropReason.UNDELIVERED, len(self._flying))
                self._flying.clear()
            left = len(self._outbox)
            while self._outbox.pop():
                pass
            if left:
                self._drop(DropReason.CLOSED, left)
            lost = self._count.dropped.total() - dropped
            why = self._count.last_error or "the client was closed before they were sent"
            self._count.last_error = self._count.last_error or before
            self._done.notify_all()
        if lost:
            _log.warning("%d event%s not delivered: %.200s", lost, " was" if lost == 1 else "s were", why)


class _Callback:
    """Delivery callback of one record, without a closure's cell per record."""

    __slots__ = ("_emitter", "_number")

    def __init__(self, emitter: Emitter, number: int) -> None:
        self._emitter = emitter
        self._number = number

    def __call__(self, delivery: Delivery) -> None:
        self._emitter._settled(delivery, self._number)


def _close(producer: Producer | None) -> None:
    try:
        if producer is not None:
            producer.close()
    except Exception as error:
        _log.warning("the client did not close: %r", error)


class _Record(NamedTuple):
    """What goes to the broker. ``cut``: the list of summaries was too long and was left out."""

    key: bytes
    value: bytes
    headers: Headers
    cut: bool


def _size(event: AgentEvent) -> int:
    """Bytes that an event takes, about: its lists make the difference."""
    listed = getattr(event, "summaries", None) or getattr(event, "facts", None) or ()
    return 512 + 128 * len(listed)


def _encoded(entry: Entry) -> _Record:
    """Raises :class:`Malformed` with the reason to drop it."""
    event, trace, cut = entry.event, entry.trace, False
    try:
        value = encode(event)
        if len(value) > limits.MAX_RECORD_BYTES and isinstance(event, Round) and event.summaries:
            cut = True
            value = encode(msgspec.structs.replace(event, summaries=None))
        key = event.session_id.encode()
    except (TypeError, ValueError, AttributeError, msgspec.MsgspecError) as error:
        raise Malformed(DropReason.UNENCODABLE, repr(error)) from None
    if len(value) > limits.MAX_RECORD_BYTES:
        raise Malformed(DropReason.OVER_SIZE, f"{len(value)} bytes; at most {limits.MAX_RECORD_BYTES} are sent")
    try:
        decode_event(value)
    except Malformed as refused:
        raise Malformed(DropReason.MALFORMED, str(refused)) from None
    tag = event.__struct_config__.tag
    headers: Headers = [("schema", str(tag).encode()), ("content-type", b"application/json")]
    if trace.traceparent:
        headers.append(("traceparent", trace.traceparent.encode()))
        if trace.tracestate:
            headers.append(("tracestate", trace.tracestate.encode()))
    return _Record(key, value, headers, cut)
