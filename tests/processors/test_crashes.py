"""Workers that are killed or fail: what they leave behind must be as if nothing had happened."""

from __future__ import annotations

import os
import signal
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from leadline.broker.embedded import EmbeddedBroker
from leadline.contracts.orders import Violation
from leadline.contracts.session_state import SessionState, decode_state, encode_state
from leadline.detection.policy import DEFAULT_POLICY
from leadline.processors import worker
from tests.processors.fakes import tiny_fold
from tests.processors.running import REAL, RunningWorker, Topics, bodies, event, incoming, round_event, until
from tests.support.wiped import group

LARGEST = 1_048_588 - 100
"""A broker's default limit of 1,048,588 bytes is for a record with its frame."""


def oracle(topics: Topics) -> tuple[set[str], set[str], dict[str, SessionState]]:
    """What an undisturbed monitor makes of the very log that is on the topic: violation ids, command ids, states."""
    by_partition: dict[int, list[Any]] = defaultdict(list)
    for message in topics.read("leadline.events"):
        by_partition[message.partition()].append(incoming(message))
    violations: set[str] = set()
    commands: set[str] = set()
    states: dict[str, SessionState] = {}
    for records in by_partition.values():
        folded = tiny_fold(records, lambda key: None, DEFAULT_POLICY, 0)
        for record in folded.outputs:
            if isinstance(record, Violation):
                violations.add(record.violation_id)
            else:
                commands.add(record.command_id)
        states.update({key: state for key, state in folded.states.items() if state is not None})
    return violations, commands, states


def found(topics: Topics) -> tuple[set[str], set[str], dict[str, SessionState]]:
    states: dict[str, SessionState] = {}
    for message in topics.read("leadline.sessions"):
        if message.value() is None:
            states.pop(message.key().decode(), None)
        else:
            states[message.key().decode()] = decode_state(message.value())
    return (
        {body["violation_id"] for body in bodies(topics.read("leadline.violations"))},
        {body["command_id"] for body in bodies(topics.read("leadline.commands"))},
        states,
    )


def settled(topics: Topics, limit_s: float = 90.0) -> None:
    """Wait until what is found equals the oracle, then compare once more for a readable failure."""
    deadline = time.monotonic() + limit_s
    while found(topics) != oracle(topics) and time.monotonic() < deadline:
        time.sleep(0.2)
    got, want = found(topics), oracle(topics)
    assert got[0] == want[0]
    assert got[1] == want[1]
    assert {key: encode_state(state) for key, state in got[2].items()} == {
        key: encode_state(state) for key, state in want[2].items()
    }


def under_way(topics: Topics, violations: int) -> None:
    """Wait until more than this many violations are out."""
    until("the stream to be under way", lambda: len(topics.read("leadline.violations")) > violations)


@pytest.mark.timeout(240)
def test_killed_in_mid_stream(fresh_bootstrap: str, tmp_path: Path) -> None:
    """kill -9 twice while records stream in, the second time with the local store lost: ids and states equal the oracle's."""
    running = RunningWorker(fresh_bootstrap, tmp_path / "one")
    topics = Topics(fresh_bootstrap)
    try:
        running.ready()
        number = 0
        for folder in ("one", "two"):
            done = len(topics.read("leadline.violations"))
            for _ in range(1000):
                number += 1
                session = f"s{number % 40}"
                topics.send(session, round_event(session, number, raw_tokens=0 if number % 10 == 0 else 5))
            topics.flush()
            under_way(topics, done + 10)
            running.kill()
            running = RunningWorker(fresh_bootstrap, tmp_path / folder).ready()
        settled(topics)
        assert len(found(topics)[2]) == 40
    finally:
        running.stop()
        topics.close()


def test_a_bug_in_the_handler_ends_the_worker_and_leaves_the_offset(fresh_bootstrap: str, tmp_path: Path) -> None:
    """So that the same record meets the next worker again."""
    running = RunningWorker(fresh_bootstrap, tmp_path, partitions=1)
    topics = Topics(fresh_bootstrap)
    try:
        running.ready()
        topics.send("s", round_event("s", 1, raw_tokens=0))
        topics.flush()
        until("a violation", lambda: topics.read("leadline.violations"))
        topics.send("s", event("session-end", "s", detail="boom"))
        topics.send("s", round_event("s", 2, raw_tokens=0))
        topics.flush()
        assert running.exit_code() == worker.CRASHED, running.log
        assert "RuntimeError" in running.log
        assert "hunter2" not in running.log
        assert topics.committed(group()) <= 1
        assert len(topics.read("leadline.violations")) == 1
    finally:
        running.stop()
        topics.close()


@pytest.mark.parametrize("store", ["kept", "lost"])
def test_events_that_were_made_anew_under_old_sessions_are_refused(fresh_bootstrap: str, tmp_path: Path, store: str) -> None:
    """They would all be taken for repeated ones; nothing is committed, and the sentence says what to do."""
    running = RunningWorker(fresh_bootstrap, tmp_path / "one", partitions=1)
    topics = Topics(fresh_bootstrap)
    try:
        running.ready()
        for number in range(1, 11):
            topics.send("s", round_event("s", number, raw_tokens=0))
        topics.flush()
        settled(topics)
        assert running.stop() == worker.OK, running.log
        admin = AdminClient({"bootstrap.servers": fresh_bootstrap})
        admin.delete_topics(["leadline.events"])["leadline.events"].result(20)
        until("the topic to be gone", lambda: "leadline.events" not in admin.list_topics(timeout=10).topics)
        running = RunningWorker(fresh_bootstrap, tmp_path / ("one" if store == "kept" else "two"), partitions=1)
        assert running.exit_code() == worker.REFUSED, running.log
        assert "partition 0 of leadline.events ends at offset 0" in running.log
        assert "have seen offset 9" in running.log
        assert not running.ready_file.exists()
    finally:
        running.stop()
        topics.close()


def test_a_record_as_large_as_the_broker_takes_becomes_a_dead_letter(fresh_bootstrap: str, tmp_path: Path) -> None:
    """It is larger than what the broker takes by default once the headers are on top; all bytes are kept."""
    running = RunningWorker(fresh_bootstrap, tmp_path, REAL, partitions=1)
    topics = Topics(fresh_bootstrap)
    value = b"[" + b"x" * (LARGEST - 1)
    try:
        running.ready()
        topics.send("s", value)
        topics.flush()
        (letter,) = until("a dead letter", lambda: topics.read("leadline.dead-letters"))
        assert letter.value() == value
        assert running.stop() == worker.OK, running.log
        assert "could not be delivered" not in running.log
    finally:
        running.stop()
        topics.close()


def test_no_broker_at_start(tmp_path: Path) -> None:
    running = RunningWorker("127.0.0.1:1", tmp_path, broker_away_s=1)
    assert running.exit_code(30) == worker.BROKER_AWAY
    assert "no broker answered at 127.0.0.1:1" in running.log


def test_a_broker_that_goes_away_for_good_ends_an_idle_worker(tmp_path: Path) -> None:
    broker = EmbeddedBroker()
    running = RunningWorker(broker.start(), tmp_path, broker_away_s=2, drain_s=2)
    try:
        running.ready()
        broker.stop()
        assert running.exit_code(30) == worker.BROKER_AWAY, running.log
        assert "no broker has answered" in running.log
    finally:
        broker.stop()
        running.stop()


def test_a_broker_that_forgot_everything(tmp_path: Path) -> None:
    """The local store then belongs to another log; its watermarks must not hide the records of the new one."""
    for _ in range(2):
        with EmbeddedBroker() as broker:
            running = RunningWorker(broker.address, tmp_path, partitions=1)
            topics = Topics(broker.address)
            try:
                running.ready()
                for number in range(1, 11):
                    topics.send("s", round_event("s", number, raw_tokens=0))
                topics.flush()
                settled(topics)
                assert len(found(topics)[0]) == 10
                assert running.stop() == worker.OK
            finally:
                running.stop()
                topics.close()
    assert "ahead of its changelog" in running.log


def test_a_stop_that_hangs_ends_all_the_same(tmp_path: Path) -> None:
    """The broker is frozen, so nothing that the engine does to leave in good order ever comes to an end."""
    with EmbeddedBroker() as broker:
        running = RunningWorker(broker.address, tmp_path, drain_s=1)
        assert broker.pid is not None
        try:
            running.ready()
            os.kill(broker.pid, signal.SIGSTOP)
            started = time.monotonic()
            assert running.stop() == worker.NOT_DRAINED, running.log
            assert time.monotonic() - started < 5
            assert "stopping took longer than the limit" in running.log
        finally:
            os.kill(broker.pid, signal.SIGCONT)
            running.stop()
