"""One worker on a real broker, undisturbed: what goes in, what comes out, and where."""

from __future__ import annotations

import json
import signal
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Message

from leadline.contracts.ids import state_key
from leadline.contracts.session_state import decode_state
from leadline.processors import worker
from tests.processors.fakes import TICKED
from tests.processors.running import RunningWorker, Topics, bodies, event, round_event, until

PARENT = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"


@pytest.fixture(scope="module")
def running(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningWorker]:
    started = RunningWorker(bootstrap, tmp_path_factory.mktemp("worker"), max_request_bytes=20_000)
    try:
        yield started.ready()
    finally:
        code = started.stop()
    assert code == worker.OK, started.log


@pytest.fixture(scope="module")
def topics(bootstrap: str, running: RunningWorker) -> Iterator[Topics]:
    opened = Topics(bootstrap)
    yield opened
    opened.close()


def of_sessions(messages: list[Message], prefix: str) -> list[Message]:
    return [message for message in messages if (message.key() or b"").startswith(prefix.encode())]


def test_outputs_go_to_the_events_partition_with_key_and_headers(topics: Topics) -> None:
    sessions = [f"route-{number}" for number in range(12)]
    for number in range(1, 4):
        for session in sessions:
            trace = [("traceparent", PARENT.encode()), ("tracestate", b"x=1")] if session == "route-0" else None
            topics.send(session, round_event(session, number, raw_tokens=0 if number == 3 else 5), trace)
    topics.flush()
    violations = until("12 violations", lambda: (got := of_sessions(topics.read("leadline.violations"), "route-"))[11:] and got)
    commands = until("12 commands", lambda: (got := of_sessions(topics.read("leadline.commands"), "route-"))[11:] and got)
    homes = {message.key(): message.partition() for message in of_sessions(topics.read("leadline.events"), "route-")}
    assert len(set(homes.values())) > 1
    for messages, schema in ((violations, "leadline.violation/1"), (commands, "leadline.command/1")):
        assert sorted(message.key().decode() for message in messages) == sorted(sessions)
        for message in messages:
            body = json.loads(message.value())
            assert message.key().decode() == body["session_id"]
            assert message.partition() == homes[message.key()] == body["caused_by"]["partition"]
            headers = dict(message.headers())
            assert headers["schema"].decode() == body["schema"] == schema
            assert headers["content-type"] == b"application/json"
            traced = message.key() == b"route-0"
            assert headers.get("traceparent") == (PARENT.encode() if traced else None)
            assert headers.get("tracestate") == (b"x=1" if traced else None)

    def states() -> dict[bytes, Message] | None:
        found = {message.key(): message for message in topics.read("leadline.sessions")}
        keys = [state_key(session, "agent").encode() for session in sessions]
        return found if all(key in found and decode_state(found[key].value()).pinned_rounds == 3 for key in keys) else None

    stored = until("12 stored sessions", states)
    for session in sessions:
        assert stored[state_key(session, "agent").encode()].partition() == homes[session.encode()]


def test_poison_among_good_records(topics: Topics) -> None:
    """100 good and 5 bad: 5 dead letters with their reasons and original bytes, 100 observed."""
    poison = [
        ("poison", b"{not json", "not-json"),
        ("poison", b"\xff\xfe", "bad-utf8"),
        ("poison", event("round", "poison"), "missing-field"),
        ("poison", b'{"schema":"leadline.round/9"}', "unknown-major"),
        ("poison", round_event("another", 1), "key-mismatch"),
    ]
    before = len(topics.read("leadline.dead-letters"))
    for number in range(1, 101):
        topics.send("good", round_event("good", number, raw_tokens=0 if number % 10 == 0 else 5))
        if number % 20 == 0:
            key, value, _ = poison[number // 20 - 1]
            topics.send(key, value)
    topics.send("good", None)
    topics.flush()
    until("10 violations", lambda: len(of_sessions(topics.read("leadline.violations"), "good")) >= 10)
    letters = until("5 dead letters", lambda: (got := topics.read("leadline.dead-letters")[before:])[4:] and got)
    assert {(m.value(), dict(m.headers())["reason"].decode()) for m in letters} == {(v, r) for _, v, r in poison}
    events = {(m.partition(), m.offset()): m.value() for m in topics.read("leadline.events")}
    for letter in letters:
        headers = {name: value.decode() for name, value in letter.headers()}
        assert letter.key() == b"poison"
        assert headers["source-topic"] == "leadline.events"
        assert events[int(headers["source-partition"]), int(headers["source-offset"])] == letter.value()
        assert headers["error"]
        assert headers["time"].endswith("Z")

    until("100 observed rounds", lambda: _rounds(topics, "good") == 100)


def _rounds(topics: Topics, session: str) -> int:
    found = [m for m in topics.read("leadline.sessions") if m.key() == state_key(session, "agent").encode()]
    return decode_state(found[-1].value()).pinned_rounds if found else 0


def test_a_dead_letter_that_is_refused_does_not_stop_detection(topics: Topics, running: RunningWorker) -> None:
    """Its bytes are more than this worker may send: it is reported with reason and offset, and work goes on."""
    topics.send("large", b"[" + b"x" * 30_000)
    for number in range(1, 4):
        topics.send("large", round_event("large", number, raw_tokens=0))
    topics.flush()
    until("3 violations behind it", lambda: len(of_sessions(topics.read("leadline.violations"), "large")) == 3)
    line = next(line for line in running.log.splitlines() if "a dead letter could not be delivered" in line)
    assert "reason=not-json" in line
    assert "offset=" in line
    assert "xxxxx" not in line


def test_time_comes_into_the_log_as_a_tick(topics: Topics) -> None:
    """A session that falls silent: its deadline makes one tick on its own partition, and that is judged like an event."""
    topics.send("silent", event("session-start", "silent", policy={"token_budget": 300}))
    topics.flush()
    (violation,) = until("a violation", lambda: of_sessions(topics.read("leadline.violations"), "silent"))
    assert json.loads(violation.value())["rule"] == TICKED
    ours = of_sessions(topics.read("leadline.events"), "silent")
    ticks = [m for m in ours if json.loads(m.value())["schema"] == "leadline.tick/1"]
    assert [m.partition() for m in ticks] == [ours[0].partition()] * len(ticks)
    assert len(ticks) == 1
    assert dict(ticks[0].headers())["schema"] == b"leadline.tick/1"


def test_an_ended_session_leaves_a_tombstone(topics: Topics) -> None:
    topics.send("short", round_event("short", 1))
    topics.send("short", event("session-end", "short"))
    topics.flush()
    key = state_key("short", "agent").encode()

    def last() -> bool:
        found = [m for m in topics.read("leadline.sessions") if m.key() == key]
        return bool(found) and found[-1].value() is None

    until("a tombstone", last)


def test_a_signal_opens_no_debugger(topics: Topics, running: RunningWorker) -> None:
    running.process.send_signal(signal.SIGUSR2)
    topics.send("after-signal", round_event("after-signal", 1, raw_tokens=0))
    topics.flush()
    until("a violation", lambda: of_sessions(topics.read("leadline.violations"), "after-signal"))


def test_ids_are_unique_when_nothing_fails(topics: Topics) -> None:
    by_id: dict[str, int] = defaultdict(int)
    for body in bodies(topics.read("leadline.violations")):
        by_id[body["violation_id"]] += 1
    assert set(by_id.values()) == {1}


def test_ready_is_said_and_written(running: RunningWorker) -> None:
    told = json.loads(Path(running.ready_file).read_text())
    assert told == {"pid": running.process.pid, "partitions": [0, 1, 2, 3]}
    assert "leadline.processors.worker: ready  partitions=0,1,2,3" in running.log
