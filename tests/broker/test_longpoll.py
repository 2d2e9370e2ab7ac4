"""A fetch that finds nothing waits at the embedded broker, as it does at Apache Kafka."""

from __future__ import annotations

import json
import struct
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from leadline.broker import EmbeddedBroker
from leadline.broker.longpoll import Fetching, fetching, nothing_in


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with EmbeddedBroker() as broker:
        yield broker.address


@pytest.fixture
def topic(address: str) -> str:
    name = uuid.uuid4().hex
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(name, 1)])[name].result(10)
    return name


def _consumer(address: str, topic: str, wait_ms: int, **more: Any) -> Consumer:
    """Reads from the beginning."""
    options = {"bootstrap.servers": address, "group.id": "unused", "enable.auto.commit": False, "fetch.wait.max.ms": wait_ms}
    consumer = Consumer({**options, **more})
    consumer.assign([TopicPartition(topic, 0, 0)])
    return consumer


def test_an_idle_consumer_asks_once_and_waits(address: str, topic: str) -> None:
    """Whatever the speed: within a tenth of the time that it waits it has asked no more than a few times."""
    sent: list[int] = []

    def stats(text: str) -> None:
        sent.append(sum(broker["req"].get("Fetch", 0) for broker in json.loads(text)["brokers"].values()))

    consumer = _consumer(address, topic, 20_000, **{"statistics.interval.ms": 100, "stats_cb": stats})
    try:
        while not sent or not sent[-1]:
            consumer.poll(0.1)
        first = len(sent)
        while len(sent) < first + 10:
            consumer.poll(0.1)
        assert sent[-1] <= 3
    finally:
        consumer.close()


def test_a_record_ends_the_waiting(address: str, topic: str) -> None:
    """Twenty records, each written when the reader waits: together they take less than one wait to its end."""
    consumer = _consumer(address, topic, 100_000, **{"socket.timeout.ms": 200_000})
    producer = Producer({"bootstrap.servers": address, "linger.ms": 0})
    try:
        assert consumer.poll(0.3) is None
        for number in range(20):
            producer.produce(topic, str(number).encode(), partition=0)
            assert producer.flush(60) == 0
            message = consumer.poll(60)
            assert message is not None
            assert message.value() == str(number).encode()
    finally:
        consumer.close()


def test_clients_are_told_the_relays_address_alone(address: str, topic: str) -> None:
    found = AdminClient({"bootstrap.servers": address}).list_topics(topic, timeout=10)
    assert [f"{node.host}:{node.port}" for node in found.brokers.values()] == [address]


def _request(version: int, wait_ms: int, key: int = 1) -> bytes:
    tags = b"\0" if version >= 12 else b""
    return struct.pack(">hhih2s", key, version, 7, 2, b"me") + tags + struct.pack(">iii", -1, wait_ms, 1)


def test_what_a_fetch_says_is_read() -> None:
    assert fetching(_request(4, 500)) == Fetching(4, 0.5)
    assert fetching(_request(12, 100)) == Fetching(12, 0.1)
    assert fetching(_request(12, -1)) == Fetching(12, 0.0)
    assert fetching(_request(3, 500)) is None, "too old to tell"
    assert fetching(_request(13, 500)) is None, "too new to tell"
    assert fetching(_request(4, 500, key=0)) is None, "a Produce"
    assert fetching(_request(12, 500)[:14]) is None, "cut off"


def _answer_4(error: int, records: bytes | None) -> bytes:
    """Correlation 7, no throttling, topic ``t``, partition 0 with end 9 and no aborted transactions."""
    length = -1 if records is None else len(records)
    partition = struct.pack(">ihqqii", 0, error, 9, 9, 0, length) + (records or b"")
    return struct.pack(">iii", 7, 0, 1) + b"\0\1t" + struct.pack(">i", 1) + partition


def _answer_12(error: int, records: bytes, whole: int = 0) -> bytes:
    """The same in the flexible form: lengths are one more, in a byte; tagged fields end the parts."""
    partition = struct.pack(">ihqqq", 0, error, 9, 9, 0) + b"\0" + struct.pack(">i", -1) + bytes([len(records) + 1]) + records
    return struct.pack(">ibihi", 7, 0, 0, whole, 0) + b"\2" + b"\2t" + b"\2" + partition + b"\0" + b"\0" + b"\0"


def test_only_an_answer_without_records_and_errors_is_held() -> None:
    """What cannot be read is not held either."""
    assert nothing_in(_answer_4(0, b""), 4)
    assert nothing_in(_answer_4(0, None), 4)
    assert not nothing_in(_answer_4(0, b"records"), 4)
    assert not nothing_in(_answer_4(3, None), 4), "an unknown topic"
    assert not nothing_in(_answer_4(0, None)[:20], 4), "cut off"
    assert nothing_in(_answer_12(0, b""), 12)
    assert not nothing_in(_answer_12(0, b"records"), 12)
    assert not nothing_in(_answer_12(1, b""), 12), "out of range"
    assert not nothing_in(_answer_12(0, b"", whole=70), 12), "no such session"
    assert not nothing_in(_answer_12(0, b"")[:30], 12), "cut off"
