"""``topics``, ``send``, ``tail`` and ``monitor`` against a broker, and without one."""

from __future__ import annotations

import importlib.util
import json
import socket
from pathlib import Path

import pytest
from confluent_kafka import Producer

from leadline.cli import exits
from leadline.cli import tail as tailing
from leadline.contracts.codec import encode
from leadline.contracts.topics import DEAD_LETTERS, EVENTS, TOPICS, VIOLATIONS
from leadline.lab import ReplayDriver
from tests.cli.run import leadline
from tests.lab.recordings import HOSTILE, inverting, lines, write


@pytest.fixture(scope="module")
def topics(bootstrap: str) -> str:
    """The address of a broker on which the topics were created by the verb, three partitions each."""
    before = leadline("topics", "check", "--bootstrap", bootstrap)
    assert before.code == exits.FAILED
    assert "leadline topics create" in before.out
    created = leadline("topics", "create", "--bootstrap", bootstrap, "--partitions", "3", "--json")
    assert created.code == 0, created.err
    assert sorted(created.json["created"]) == sorted(topic.name for topic in TOPICS)
    return bootstrap


def produce(bootstrap: str, topic: str, value: bytes, headers: list[tuple[str, bytes]] | None = None) -> None:
    client = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    client.produce(topic, value=value, key=b"k", headers=headers or [])
    assert client.flush(20) == 0


def test_topics_that_were_created_pass_the_check(topics: str) -> None:
    ran = leadline("topics", "check", "--bootstrap", topics, "--json")
    assert ran.code == 0
    assert ran.json["ok"]
    assert {topic["partitions"] for topic in ran.json["topics"]} == {3}


def test_creating_again_changes_nothing(topics: str) -> None:
    ran = leadline("topics", "create", "--bootstrap", topics, "--partitions", "5", "--json")
    assert (ran.code, ran.json["created"]) == (0, [])


def test_sent_lines_arrive_untouched_with_their_session_as_key(topics: str, tmp_path: Path) -> None:
    """Bad lines are sent like the good ones: they are the monitor's to refuse."""
    good = lines(inverting()).splitlines()
    bad = ["garbage", '{"session_id": 3}', "\xff" * 3]
    recording = write(tmp_path / "r.jsonl", [*good, *bad])
    ran = leadline("send", str(recording), "--bootstrap", topics, "--json")
    assert ran.code == 0, ran.err
    assert ran.json == {"sent": 6, "failed": 0, "errors": {}}
    seen = dict(read(topics, EVENTS.name, 6))
    assert {value: seen[value] for value in good} == dict.fromkeys(good, "s")
    assert {value: seen[value] for value in bad} == dict.fromkeys(bad)


def read(bootstrap: str, topic: str, count: int) -> list[tuple[str, str | None]]:
    """Value and key of the first ``count`` records."""
    from confluent_kafka import OFFSET_BEGINNING, TopicPartition

    from leadline.cli.kafka import consumer, partitions_of, settings_for

    settings = settings_for(bootstrap)
    client = consumer(settings)
    try:
        client.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions_of(client, topic, settings)])
        found = [client.poll(20.0) for _ in range(count)]
    finally:
        client.close()
    return [(one.value().decode(), one.key().decode() if one.key() is not None else None) for one in found]


def test_tail_shows_violations_from_the_beginning_as_on_the_wire(topics: str) -> None:
    driver = ReplayDriver()
    for record in inverting(HOSTILE):
        driver.feed(json.dumps(record).encode())
    produce(topics, VIOLATIONS.name, encode(driver.violations[0]))
    ran = leadline("tail", "violations", "--from-beginning", "--max", "1", "--json", "--bootstrap", topics)
    assert ran.code == 0
    assert ran.json == json.loads(encode(driver.violations[0]))
    human = leadline("tail", "violations", "--from-beginning", "--max", "1", "--bootstrap", topics)
    assert "\x1b" not in human.out
    assert "<!channel> \\x1b[31m[bold]x" in human.out


def test_tail_shows_dead_letters_with_secrets_masked_and_bytes_kept_in_json(topics: str) -> None:
    headers = [("reason", b"bad-utf8"), ("error", b"byte 0"), ("source-offset", b"7")]
    produce(topics, DEAD_LETTERS.name, b"\xff password=hunter2 \x1b[2J", headers)
    human = leadline("tail", "dead-letters", "--from-beginning", "--max", "1", "--bootstrap", topics)
    assert "bad-utf8" in human.out
    assert "hunter2" not in human.out
    assert "\x1b" not in human.out
    ran = leadline("tail", "dead-letters", "--from-beginning", "--max", "1", "--json", "--bootstrap", topics)
    assert ran.json["value"] == {"base64": "/yBwYXNzd29yZD1odW50ZXIyIBtbMko="}
    assert ran.json["headers"]["reason"] == "bad-utf8"


def test_tail_ends_after_the_timeout_without_a_record(topics: str) -> None:
    ran = leadline("tail", "commands", "--timeout", "0", "--bootstrap", topics)
    assert (ran.code, ran.out) == (0, "")


def test_a_missing_topic_is_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch, topics: str) -> None:
    monkeypatch.setitem(tailing._TOPICS, "commands", "leadline.not-there")
    ran = leadline("tail", "commands", "--bootstrap", topics)
    assert ran.code == exits.USAGE
    assert f"run `leadline topics create --bootstrap {topics}` first" in ran.err


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_without_a_broker_the_sentence_says_where_and_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    from leadline.cli import kafka

    quick = kafka.partitions_of
    monkeypatch.setattr(tailing, "partitions_of", lambda client, topic, settings: quick(client, topic, settings, 0.5))
    address = f"127.0.0.1:{free_port()}"
    ran = leadline("tail", "violations", "--bootstrap", address)
    assert ran.code == exits.UNREACHABLE
    assert address in ran.err
    assert len(ran.err.splitlines()) == 1


def test_a_long_wait_says_for_whom_and_how_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """On standard error, so that what --json prints stays JSON."""
    from leadline.cli import kafka

    quick = kafka.partitions_of
    monkeypatch.setattr(tailing, "partitions_of", lambda client, topic, settings: quick(client, topic, settings, 0.6))
    monkeypatch.setattr(kafka, "_QUIET_S", 0.1)
    address = f"127.0.0.1:{free_port()}"
    ran = leadline("tail", "violations", "--json", "--bootstrap", address)
    assert (ran.code, ran.out) == (exits.UNREACHABLE, "")
    assert ran.err.splitlines()[0] == f"leadline: waiting for an answer of {address}, for 0.6 s at most"


def test_a_broker_that_answers_is_no_wait(topics: str) -> None:
    assert leadline("tail", "commands", "--timeout", "0", "--bootstrap", topics).err == ""


def test_a_wrong_bootstrap_is_a_wrong_setting() -> None:
    ran = leadline("tail", "violations", "--bootstrap", "nowhere")
    assert ran.code == exits.USAGE
    assert "host:port" in ran.err


def test_monitor_without_its_extra_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "faust" else real(name))
    ran = leadline("monitor")
    assert ran.code == exits.USAGE
    assert "pip install 'leadline[monitor]'" in ran.err


def test_monitor_shows_the_settings_in_force() -> None:
    ran = leadline("monitor", "--show-settings", "--bootstrap", "kafka-1:9092,kafka-2:9092")
    assert ran.json["bootstrap"] == "kafka-1:9092,kafka-2:9092"
    assert {ran.json[name] for name in ("partitions", "log_json", "drain_s", "data_dir")} == {8, False, 20.0, "leadline-data"}


def test_monitor_tells_of_a_variable_that_it_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEADLINE_PARTITION", "5")
    ran = leadline("monitor", "--show-settings")
    assert ran.json["partitions"] == 8
    assert "leadline: LEADLINE_PARTITION is no setting and does nothing; LEADLINE_PARTITIONS is\n" in ran.err
