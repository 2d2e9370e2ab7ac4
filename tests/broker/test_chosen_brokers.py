"""The brokers that the suite runs on: how they are chosen, and what holds for each of them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support import brokers, java

ROOT = Path(__file__).resolve().parents[2]


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


def install(folder: Path, version: str) -> Path:
    """A stand-in for Java in ``folder/bin``."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    program.chmod(0o755)
    return program


def test_a_java_that_is_too_old_is_none(tmp_path: Path) -> None:
    """Wherever it is looked for: the first that is new enough counts, and without one there is a sentence."""
    old, older, new = (install(tmp_path / name, version) for name, version in (("a", "11.0.2"), ("b", "1.8.0"), ("c", "21.0.1")))
    environ = {"JAVA_HOME": str(old.parents[1]), "PATH": str(older.parent)}
    assert java.find(environ, tmp_path / "nothing") is None
    assert java.find({**environ, "PATH": f"{new.parent}"}, tmp_path / "nothing") == str(new)
    assert java.find(environ, tmp_path) == str(new)


def test_missing_java_is_a_plain_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "find", lambda environ: None)
    assert brokers.unavailable({}) == (
        "Apache Kafka needs Java 17 or later: there is none in JAVA_HOME, on the PATH or below /usr/lib/jvm"
    )


def test_jars_that_cannot_be_fetched_are_a_plain_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Maven Central is out of reach: a sentence with Maven's own first error; what is half-made is not taken for whole."""
    program = tmp_path / "mvn"
    program.write_text("#!/bin/sh\necho '[ERROR] Could not transfer artifact'\necho '[ERROR] and more'\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("KAFKA_HOME", raising=False)
    monkeypatch.setattr(brokers, "_CACHE", tmp_path / "cache")
    monkeypatch.setattr(java, "find", lambda environ=None: "java")
    for _ in range(2):
        assert brokers.prepare() == "mvn could not fetch Kafka's jars: [ERROR] Could not transfer artifact"


def test_a_broker_that_was_asked_for_and_cannot_run_fails(tmp_path: Path) -> None:
    """A run that skipped would look like a good one."""
    program = install(tmp_path / "jdk", "17.0.1")
    environ = {**os.environ, "JAVA_HOME": str(program.parents[1]), "KAFKA_HOME": str(tmp_path), "LEADLINE_TEST_BROKERS": "kafka"}
    command = [sys.executable, "-m", "pytest", "-m", "broker or kafka", "-rs", str(Path(__file__).relative_to(ROOT))]
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "KAFKA_HOME has no Kafka jars" in done.stdout
    assert "2 errors" in done.stdout
    assert "skipped" not in done.stdout


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
