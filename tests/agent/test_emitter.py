"""The emitter never blocks, never raises, and counts what it cannot send."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from confluent_kafka import KafkaError

from leadline.agent import Emitter, MemoryTransport, Session
from leadline.agent.emitter import DropReason
from leadline.agent.kafka import KafkaTransport
from leadline.agent.transport import Delivery, Headers, OnDelivery
from leadline.contracts import limits
from leadline.contracts.codec import decode_event
from leadline.contracts.events import Ack, AgentEvent, Round, SessionStart, Summary
from leadline.contracts.trace import TraceContext
from leadline.errors import Refused, Retryable
from tests.agent.support import eventually, round_event
from tests.support.ports import free_ports

EVENTS = "leadline.events"


def sent(transport: MemoryTransport) -> list[AgentEvent]:
    return [decode_event(record.value).event for record in transport.records(EVENTS)]  # type: ignore[misc]


def numbers(transport: MemoryTransport) -> list[int]:
    return [event.round for event in sent(transport) if isinstance(event, Round)]


def test_an_event_arrives_under_its_session_with_schema_and_content_type() -> None:
    """Key: the session id in UTF-8. Headers: schema, content type, and the trace given."""
    transport = MemoryTransport()
    emitter = Emitter(transport)
    trace = TraceContext(f"00-{1:032x}-{2:016x}-01", "vendor=1")
    assert emitter.emit(round_event("sitzung-ä"), trace=trace)
    assert emitter.flush(5) == 0
    [record] = transport.records(EVENTS)
    assert record.key == "sitzung-ä".encode()
    assert dict(record.headers) == {
        "schema": b"leadline.round/1",
        "content-type": b"application/json",
        "traceparent": trace.traceparent.encode(),
        "tracestate": b"vendor=1",
    }
    emitter.close()


def test_a_round_that_is_made_later_is_the_round_of_its_moment() -> None:
    """The sending thread makes the record after the working set has changed again: it says 300 tokens, as it was, in its turn."""
    transport = MemoryTransport()
    transport.up = False
    emitter = Emitter(transport)
    times = iter((1_000,))
    session = Session(emitter, "s-1", agent_id="a-1", token_budget=900, max_depth=3, clock=lambda: next(times), epoch=7)
    session.ledger.add_raw("m1", 300)
    session.compacted()
    session.ledger.add_raw("m2", 50)
    emitter.emit(round_event(number=2))
    transport.up = True
    assert emitter.flush(5) == 0
    first = sent(transport)[0]
    assert isinstance(first, Round)
    assert numbers(transport) == [1, 2]
    assert (first.round, first.raw_tokens, first.distinct_source_spans, first.ts) == (1, 300, 1, "1970-01-01T00:00:01.000Z")
    emitter.close()


def test_an_event_that_cannot_be_made_is_counted_and_the_next_one_goes_on() -> None:
    transport = MemoryTransport()
    emitter = Emitter(transport)
    assert emitter.emit_later(lambda: Round(round=1))  # type: ignore[call-arg]
    emitter.emit(round_event(number=2))
    assert emitter.flush(5) == 0
    assert numbers(transport) == [2]
    assert emitter.counters().dropped == {DropReason.INTERNAL: 1}
    emitter.close()


def test_200000_emits_without_a_broker_neither_block_nor_raise() -> None:
    """Field case: a queue of 1,000, the broker away. Every event is delivered or counted as dropped; what is said only once
    (the start) and the newest rounds get through, in order."""
    transport = MemoryTransport(partitions=1, queue_limit=100)
    transport.up = False
    emitter = Emitter(transport, max_queued=1_000)
    emitter.emit(SessionStart(session_id="s-1", agent_id="a-1"))
    event = round_event()
    slowest = 0.0
    for n in range(200_000):
        if n % 1_000 == 0:
            event = round_event(number=n)
            began = time.perf_counter()
            emitter.emit(event)
            slowest = max(slowest, time.perf_counter() - began)
        else:
            emitter.emit(event)
    emitter.emit(round_event(number=200_000))
    assert slowest < 2.0, "an emit blocked"
    assert emitter.counters().queued <= 1_000
    transport.up = True
    assert emitter.flush(10) == 0
    counters = emitter.counters()
    assert counters.emitted == 200_002
    assert counters.delivered + counters.dropped[DropReason.QUEUE_FULL] == 200_002
    assert counters.delivered >= 1_000
    assert isinstance(sent(transport)[0], SessionStart)
    assert numbers(transport)[-1] == 200_000
    assert numbers(transport) == sorted(numbers(transport))
    emitter.close()


def test_emitting_to_a_closed_port_is_quiet_and_closing_is_bounded() -> None:
    """With the real client: 3,000 emits are queued at once, close gives up in about its timeout and counts them all."""
    [port] = free_ports(1)
    emitter = Emitter(KafkaTransport(f"127.0.0.1:{port}"))
    began = time.perf_counter()
    for n in range(3_000):
        assert emitter.emit(round_event(number=n))
    assert time.perf_counter() - began < 5.0
    began = time.perf_counter()
    assert emitter.close(timeout=0.2) == 3_000
    assert time.perf_counter() - began < 6.0
    eventually(lambda: sum(emitter.counters().dropped.values()) == 3_000, "all are counted as dropped")
    assert not emitter.emit(round_event())
    assert emitter.counters().dropped[DropReason.CLOSED] >= 1


def test_an_event_over_the_size_is_dropped_once_and_its_neighbours_arrive() -> None:
    """Field case: one event of more than a megabyte, then 10 small ones."""
    transport = MemoryTransport()
    emitter = Emitter(transport)
    emitter.emit(Ack(session_id="s-1", agent_id="a-1", command_id="c", seq=1, outcome="done", detail="x" * 1_126_653))
    for n in range(10):
        assert emitter.emit(round_event(number=n))
    assert emitter.flush(5) == 0
    assert numbers(transport) == list(range(10))
    assert emitter.counters().dropped == {DropReason.OVER_SIZE: 1}
    emitter.close()


def test_a_round_that_is_too_long_is_sent_without_its_list_of_summaries() -> None:
    """256 summaries with ids of 256 four-byte characters: cut, counted, and the measurements arrive."""
    transport = MemoryTransport()
    emitter = Emitter(transport)
    long = [Summary(id="𝄞" * 250 + f"{n:03d}", depth=1, tokens=1) for n in range(limits.MAX_SUMMARIES)]
    assert emitter.emit(round_event(summaries=long))
    assert emitter.flush(5) == 0
    [event] = sent(transport)
    assert isinstance(event, Round)
    assert event.summaries is None
    assert emitter.counters().cut == 1
    emitter.close()


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (round_event("half a pair \ud800"), DropReason.UNENCODABLE),
        (round_event(raw_tokens=2**70), DropReason.MALFORMED),
        (round_event(raw_tokens=-1), DropReason.MALFORMED),
        (round_event("x" * 257), DropReason.MALFORMED),
        (round_event(""), DropReason.MALFORMED),
        (None, DropReason.UNENCODABLE),
    ],
)
def test_what_the_monitor_would_refuse_is_not_sent(event: AgentEvent, reason: str) -> None:
    """Counted by its reason, with the fault in ``last_error``; never raised."""
    transport = MemoryTransport()
    emitter = Emitter(transport)
    emitter.emit(event)
    emitter.emit(round_event())
    assert emitter.flush(5) == 0
    assert emitter.counters().dropped == {reason: 1}
    assert emitter.counters().last_error
    assert len(transport.records(EVENTS)) == 1
    emitter.close()


def test_delivery_reports_tell_each_sessions_partition() -> None:
    """The callback hears session and partition; a callback that raises does no harm."""
    transport = MemoryTransport()
    told: dict[str, int] = {}

    def hear(session_id: str, partition: int) -> None:
        told[session_id] = partition
        raise RuntimeError("listener broken")

    emitter = Emitter(transport, on_delivered=hear)
    for n in range(20):
        emitter.emit(round_event(f"s-{n}"))
    assert emitter.flush(5) == 0
    assert told == {record.key.decode(): record.partition for record in transport.records(EVENTS) if record.key}
    assert emitter.counters().delivered == 20
    emitter.close()


def test_events_of_many_threads_all_arrive_in_each_ones_order() -> None:
    """8 threads, 200 rounds each."""
    transport = MemoryTransport()
    emitter = Emitter(transport)

    def work(name: str) -> None:
        for n in range(200):
            emitter.emit(round_event(name, n))

    threads = [threading.Thread(target=work, args=(f"t{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert emitter.flush(5) == 0
    for n in range(8):
        assert [e.round for e in sent(transport) if isinstance(e, Round) and e.session_id == f"t{n}"] == list(range(200))
    emitter.close()


class _Failing(MemoryTransport):
    """Its first clients cannot be made, or fail for good at their second record."""

    def __init__(self) -> None:
        super().__init__()
        self.made = 0

    def producer(self):  # type: ignore[no-untyped-def]
        self.made += 1
        if self.made == 1:
            raise Retryable("no client today")
        inner = super().producer()
        return _FailsAtSecond(inner) if self.made == 2 else inner


class _FailsAtSecond:
    def __init__(self, inner) -> None:  # type: ignore[no-untyped-def]
        self.inner = inner
        self.poll, self.flush, self.close = inner.poll, inner.flush, inner.close
        self.count = 0

    def produce(self, topic: str, key: bytes, value: bytes, headers: Headers, on_delivery: OnDelivery) -> None:
        self.count += 1
        if self.count == 2:
            self.inner.poll(0)
            raise Retryable("the client is fatally ill")
        self.inner.produce(topic, key, value, headers, on_delivery)


def test_a_client_that_fails_for_good_is_made_anew_and_nothing_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first cannot be made, the second dies at its second record; all five arrive, in order."""
    monkeypatch.setattr("leadline.agent.sender._RETRY_SECONDS", 0.01)
    transport = _Failing()
    emitter = Emitter(transport)
    for n in range(5):
        emitter.emit(round_event(number=n))
    assert emitter.flush(8) == 0
    assert numbers(transport) == [0, 1, 2, 3, 4]
    assert transport.made == 3
    emitter.close()


class _Ill(MemoryTransport):
    """Its first client takes ``takes`` records, delivers the first ``delivers`` of them, and then fails for good: at the next
    record, or, when there is none, when it is polled. Those that it purges it reports newest first, or not at all."""

    def __init__(self, takes: int, delivers: int, *, reports: bool = True) -> None:
        super().__init__(partitions=1)
        self.takes, self.delivers, self.reports = takes, delivers, reports
        self.made = 0

    def producer(self):  # type: ignore[no-untyped-def]
        self.made += 1
        return _FallsIll(self) if self.made == 1 else super().producer()


class _FallsIll:
    def __init__(self, transport: _Ill) -> None:
        self.transport = transport
        self.taken: list[tuple[str, bytes, bytes, Headers, OnDelivery]] = []

    def produce(self, *record: Any) -> None:
        if len(self.taken) == self.transport.takes:
            self.poll()
        self.taken.append(record)

    def poll(self, timeout: float = 0) -> None:
        for topic, key, value, headers, on_delivery in self.taken[: self.transport.delivers]:
            on_delivery(self.transport.send(topic, key, value, headers))
        del self.taken[: self.transport.delivers]
        raise Retryable("the client is fatally ill")

    flush = poll

    def close(self) -> None:
        if self.transport.reports:
            for *_, on_delivery in reversed(self.taken):
                on_delivery(Delivery(-1, -1, "purged", again=True))


@pytest.mark.parametrize("reports", [True, False])
@pytest.mark.parametrize(("takes", "delivers"), [(300, 100), (500, 0), (500, 500), (1_000, 7)])
def test_what_was_in_flight_when_the_client_failed_is_sent_by_the_next_in_order(
    monkeypatch: pytest.MonkeyPatch, takes: int, delivers: int, reports: bool
) -> None:
    """500 events, some delivered, some in the client, some still queued: all 500 arrive, each once, in order; none is dropped."""
    monkeypatch.setattr("leadline.agent.sender._RETRY_SECONDS", 0.01)
    transport = _Ill(takes, delivers, reports=reports)
    emitter = Emitter(transport)
    with emitter._sender.lock:  # The sender sees all of them at once.
        for n in range(500):
            emitter.emit(round_event(number=n))
    assert emitter.flush(8) == 0
    assert numbers(transport) == list(range(500))
    counters = emitter.counters()
    assert (counters.delivered, counters.in_flight, dict(counters.dropped)) == (500, 0, {})
    emitter.close()


def test_what_is_in_flight_at_the_end_is_counted_as_lost() -> None:
    """A client that never reports on three records: closing does not hang, and three are counted."""
    transport = MemoryTransport()
    transport.up = False
    emitter = Emitter(transport)
    for n in range(3):
        emitter.emit(round_event(number=n))
    eventually(lambda: emitter.counters().in_flight == 3)
    assert emitter.close(0.1) == 3
    eventually(lambda: emitter.counters().dropped == {DropReason.UNDELIVERED: 3})
    assert emitter.counters().in_flight == 0


class _Picky(MemoryTransport):
    """Its producer can never send what has ``no`` as its key."""

    def producer(self):  # type: ignore[no-untyped-def]
        inner = super().producer()
        produce = inner.produce

        def pick(topic: str, key: bytes, value: bytes, headers: Headers, on_delivery: OnDelivery) -> None:
            if key == b"no":
                raise Refused("larger than the broker takes")
            produce(topic, key, value, headers, on_delivery)

        inner.produce = pick  # type: ignore[method-assign]
        return inner


def test_a_record_that_the_transport_refuses_does_not_hold_up_the_next() -> None:
    """Counted as undelivered, at once; the next one arrives over the same client."""
    transport = _Picky()
    emitter = Emitter(transport)
    emitter.emit(round_event("no"))
    emitter.emit(round_event("yes"))
    assert emitter.flush(5) == 0
    assert emitter.counters().dropped == {DropReason.UNDELIVERED: 1}
    assert [record.key for record in transport.records(EVENTS)] == [b"yes"]
    emitter.close()


def test_a_broker_without_idempotence_is_served_without_it() -> None:
    """The client library reports it as fatal: the next client is made without, and keeps order by one request at a time."""
    [port] = free_ports(1)
    transport = KafkaTransport(f"127.0.0.1:{port}")
    producer = transport.producer()
    producer._on_error(KafkaError(KafkaError._ALL_BROKERS_DOWN, "away"))
    reports: list[Delivery] = []
    producer.produce(EVENTS, b"k", b"v", [], reports.append)
    producer._on_error(KafkaError(KafkaError._UNSUPPORTED_FEATURE, "no idempotent producer here", True))
    with pytest.raises(Retryable, match="idempotent"):
        producer.produce(EVENTS, b"k", b"v", [], lambda delivery: None)
    for look in (producer.poll, producer.flush):
        with pytest.raises(Retryable, match="idempotent"):
            look(0.01)
    producer.close()
    assert [bool(report.error) and report.again for report in reports] == [True], "another client may send what it held"
    assert not transport.idempotence
    transport.producer().close()


def test_a_record_that_the_transport_gives_up_on_is_counted() -> None:
    """An error in the delivery report: dropped as undelivered, with the error."""

    class Lossy(MemoryTransport):
        def send(self, *args: object, **kwargs: object) -> Delivery:
            return Delivery(-1, -1, "timed out")

    emitter = Emitter(Lossy())
    emitter.emit(round_event())
    assert emitter.flush(5) == 0
    assert emitter.counters().dropped == {DropReason.UNDELIVERED: 1}
    assert emitter.counters().last_error == "timed out"
    emitter.close()
