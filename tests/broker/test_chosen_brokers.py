"""The brokers that the suite runs on: how they are chosen, and what holds for each of them."""

from __future__ import annotations

import time
import uuid
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support import brokers
from tests.support.fixtures import broker, kafka

__all__ = ["broker", "kafka"]


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, ["embedded"]),
        ({"LEADLINE_TEST_BROKERS": "kafka"}, ["kafka"]),
        ({"LEADLINE_TEST_BROKERS": "embedded, kafka"}, ["embedded", "kafka"]),
        ({"LEADLINE_TEST_BOOTSTRAP": "k:9092", "LEADLINE_TEST_BROKERS": "kafka"}, ["external"]),
    ],
)
def test_choice(environ: dict[str, str], expected: list[str]) -> None:
    """The environment names the brokers; an existing cluster wins."""
    assert brokers.chosen(environ) == expected


@pytest.mark.parametrize("value", ["kafak", "embedded,rabbit", ","])
def test_a_misspelt_choice_is_an_error(value: str) -> None:
    """A name that is no broker is never taken for 'nothing to run'."""
    with pytest.raises(ValueError, match="LEADLINE_TEST_BROKERS"):
        brokers.chosen({"LEADLINE_TEST_BROKERS": value})


def test_missing_java_is_a_plain_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without Java gets a sentence for the skip, not a traceback."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert brokers.unavailable({}) == "Apache Kafka needs java (17 or later) on the PATH"


@pytest.mark.broker
def test_one_member_commits_and_goes_on(broker: brokers.Broker) -> None:
    """A group's only member reads, commits, leaves, and its successor goes on from there."""
    topic = f"t-{uuid.uuid4().hex}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(20)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    seen: list[bytes | None] = []
    for wave in (b"first", b"second"):
        producer.produce(topic, value=wave, partition=1)
        assert producer.flush(20) == 0
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": topic,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe([topic])
        deadline = time.monotonic() + 30
        message = None
        while message is None and time.monotonic() < deadline:
            message = consumer.poll(0.2)
        assert message is not None
        seen.append(message.value())
        consumer.commit(message, asynchronous=False)
        assert [each.offset for each in consumer.committed([TopicPartition(topic, 1)], timeout=10)] == [len(seen)]
        consumer.close()
    assert seen == [b"first", b"second"]


@pytest.mark.kafka
def test_kafka_keeps_its_records_across_kill_and_restart(kafka: brokers.ApacheKafka) -> None:
    """The helper's kill -9 and restart keep the port and the data."""
    topic = f"t-{uuid.uuid4().hex}"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(20)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce(topic, value=b"kept")
    assert producer.flush(20) == 0
    before = kafka.bootstrap
    kafka.kill()
    assert kafka.start() == before
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "unused"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    message = consumer.poll(20)
    consumer.close()
    assert message is not None
    assert message.value() == b"kept"
