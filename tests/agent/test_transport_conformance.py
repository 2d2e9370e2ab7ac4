"""One suite for every transport: in memory, and over a broker."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from leadline.agent import MemoryTransport, State
from leadline.agent.client import Client
from leadline.agent.kafka import KafkaTransport
from leadline.agent.session import wall_clock
from leadline.agent.transport import Consumer, Delivery, Producer, Received, Transport
from leadline.contracts.codec import encode
from leadline.contracts.topics import COMMANDS, EVENTS
from tests.agent.support import command, create_topics, eventually
from tests.support.brokers import Broker

PARTITIONS = 4


@dataclass
class Wire:
    """A transport and a topic of four partitions that nobody else uses."""

    transport: Transport
    topic: str

    def send(self, producer: Producer, key: str, *values: str) -> list[Delivery]:
        reports: list[Delivery] = []
        for value in values:
            producer.produce(self.topic, key.encode(), value.encode(), [("schema", b"x/1")], reports.append)

        def delivered() -> bool:
            producer.poll(0.05)
            return len(reports) == len(values)

        eventually(delivered, "delivery reports", timeout=15)
        return reports


@pytest.fixture
def producer(wire: Wire) -> Iterator[Producer]:
    producer = wire.transport.producer()
    yield producer
    producer.close()


@pytest.fixture
def consumer(wire: Wire) -> Iterator[Consumer]:
    consumer = wire.transport.consumer(wire.topic)
    yield consumer
    consumer.close()


def read(consumer: Consumer, count: int) -> list[Received]:
    found: list[Received] = []

    def enough() -> bool:
        found.extend(consumer.poll(0.1))
        return len(found) >= count

    eventually(enough, f"{count} records", timeout=15)
    return found


def values(records: list[Received]) -> list[str]:
    return [record.value.decode() for record in records if record.value is not None]


class Conformance:
    """What every transport does. Subclasses say which one by a fixture ``wire``."""

    def test_one_key_is_one_partition_in_order(self, wire: Wire, producer: Producer, consumer: Consumer) -> None:
        """50 records of one key: the reports tell one partition and ascending offsets; they are read in that order, with key,
        headers and time."""
        names = [str(n) for n in range(50)]
        reports = wire.send(producer, "k", *names)
        [partition] = {report.partition for report in reports}
        assert [report.offset for report in reports] == list(range(50))
        consumer.assign({partition: 0})
        found = read(consumer, 50)
        assert values(found) == names
        assert {(record.key, record.partition) for record in found} == {(b"k", partition)}
        assert dict(found[0].headers)["schema"] == b"x/1"
        assert abs(found[0].timestamp - wall_clock()) < 60_000

    def test_assigning_again_goes_on_where_it_is_told(self, wire: Wire, producer: Producer, consumer: Consumer) -> None:
        """Partition of k from 3 on; then a second partition from its beginning, with the first from 5 on."""
        keys: dict[int, str] = {}
        for n in range(40):
            [report] = wire.send(producer, f"k{n}", f"k{n}-0")
            keys.setdefault(report.partition, f"k{n}")
            if len(keys) == 2:
                break
        (first, one), (second, two) = keys.items()
        start = {at: wire.send(producer, key, "mark")[0].offset + 1 for at, key in ((first, one), (second, two))}
        wire.send(producer, one, *(f"one-{n}" for n in range(6)))
        consumer.assign({first: start[first] + 3})
        assert values(read(consumer, 3)) == ["one-3", "one-4", "one-5"]
        wire.send(producer, two, "two-0")
        consumer.assign({first: start[first] + 5, second: start[second]})
        assert sorted(values(read(consumer, 2))) == ["one-5", "two-0"]
        consumer.assign({})
        wire.send(producer, one, "one-6")
        assert consumer.poll(0.1) == []

    def test_a_start_offset_never_skips_what_is_new(self, wire: Wire, producer: Producer, consumer: Consumer) -> None:
        """Of a time before the records: at most their first offset. Of a time after them: at most the end, so the next record is
        read. Of a partition without records: the beginning."""
        [report] = wire.send(producer, "k", "old")
        now = wall_clock()
        assert consumer.start_offset(report.partition, now - 3_600_000) == 0
        at = consumer.start_offset(report.partition, now + 3_600_000)
        assert at <= 1
        consumer.assign({report.partition: at})
        wire.send(producer, "k", "new")
        found = read(consumer, 2 - at)
        assert values(found)[-1] == "new"
        assert consumer.start_offset((report.partition + 1) % PARTITIONS, now) == 0

    def test_a_record_is_handed_over_when_it_comes(self, wire: Wire, producer: Producer, consumer: Consumer) -> None:
        """Asked to wait 30 seconds at most, it does not: a command is not to lie about because no other follows it."""
        [report] = wire.send(producer, "k", "only")
        consumer.assign({report.partition: report.offset})
        began = time.monotonic()
        assert values(consumer.poll(30.0)) == ["only"]
        assert time.monotonic() - began < 10

    def test_closing_reports_what_was_not_sent(self, wire: Wire) -> None:
        """A client that is closed at once: every record has exactly one report, delivered or not."""
        producer = wire.transport.producer()
        reports: list[Delivery] = []
        for _ in range(20):
            producer.produce(wire.topic, b"k", b"v", [], reports.append)
        producer.close()
        eventually(lambda: len(reports) == 20, "reports after close")

    def test_a_session_is_halted_over_the_wire(self, wire: Wire) -> None:
        """The whole way: a session's event tells its partition, a halt sent there stops it, a resume lets it go on."""
        session_id = f"s-{uuid.uuid4().hex}"
        with Client(wire.transport) as client:
            with client.session(session_id, agent_id="a-1", token_budget=1_000, max_depth=3, epoch=7) as one:
                assert client.flush(15) == 0
                eventually(lambda: bool(client.listener.positions), "the partition", timeout=15)
                [partition] = client.listener.positions
                producer = _To(wire.transport, partition)
                expires = wall_clock() + 60_000
                producer.send(encode(command(1, session_id=session_id, expires_at=expires)), session_id)
                eventually(lambda: one.state is State.HALTED, "the halt", timeout=15)
                producer.send(encode(command(2, "resume", session_id=session_id, expires_at=expires)), session_id)
                eventually(one.may_compact, "the resume", timeout=15)
            assert client.flush(15) == 0
            emitted = client.emitter.counters()
            assert (emitted.emitted, emitted.delivered, sum(emitted.dropped.values())) == (5, 5, 0)


class TestInMemory(Conformance):
    @pytest.fixture
    def wire(self) -> Wire:
        return Wire(MemoryTransport(PARTITIONS), "topic")


@pytest.mark.broker
class TestOnBroker(Conformance):
    @pytest.fixture
    def wire(self, broker: Broker) -> Wire:
        topic = f"agent.{uuid.uuid4().hex}"
        create_topics(broker.bootstrap, PARTITIONS, topic, EVENTS.name, COMMANDS.name)
        return Wire(KafkaTransport(broker.bootstrap), topic)


class _To:
    """The monitor's side: sends to a partition, which an agent's producer never does."""

    def __init__(self, transport: Transport, partition: int) -> None:
        self._transport = transport
        self._partition = partition

    def send(self, value: bytes, key: str) -> None:
        if isinstance(self._transport, MemoryTransport):
            self._transport.send(COMMANDS.name, key.encode(), value, partition=self._partition)
            return
        assert isinstance(self._transport, KafkaTransport)
        client = self._transport.producer()._client
        client.produce(COMMANDS.name, value, key.encode(), partition=self._partition)
        assert client.flush(10) == 0
