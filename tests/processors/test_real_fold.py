"""The worker as it ships, with the real fold: what it makes of a log is what the fold alone makes of it, kill -9 or not."""

from __future__ import annotations

import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from leadline.commands.fold import fold
from leadline.contracts.manual import Silence
from leadline.contracts.orders import Violation
from leadline.contracts.session_state import SessionState, decode_state, encode_state
from leadline.contracts.times import format_ms
from leadline.detection.policy import DEFAULT_POLICY
from leadline.processors import worker
from leadline.processors.topics import create
from leadline.processors.topology import wall_clock
from leadline.settings import load_settings
from tests.processors.running import REAL, RunningWorker, Topics, bodies, event, incoming, round_event, until
from tests.processors.test_silences import put
from tests.support.brokers import Broker

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

# Raw tokens and spans fall round by round while the scorer's salience rises: the inversion document's shape.
ROUNDS = [(900, 60, 30, 0.4, 1), (500, 400, 20, 0.5, 2), (100, 800, 12, 0.7, 3), (80, 900, 9, 0.8, 3)]


def send(topics: Topics, session: str, rounds: range = range(1, len(ROUNDS) + 1)) -> None:
    """A session that inverts, or the part of it with these rounds; its start belongs to the first."""
    if rounds.start == 1:
        topics.send(session, event("session-start", session, session_start_spans=30))
    for number in rounds:
        raw, summary, spans, salience, depth = ROUNDS[number - 1]
        more = {"distinct_source_spans": spans, "query_cosine_retained": salience, "summary_depth_max": depth}
        topics.send(
            session, round_event(session, number, raw, summary_tokens=summary, session_start_spans=30, max_depth=5, **more)
        )


def test_the_worker_as_it_ships(fresh_bootstrap: str, tmp_path: Path) -> None:
    """Inversions are detected, commanded and stored, and what cannot be read is put aside."""
    running = RunningWorker(fresh_bootstrap, tmp_path, REAL)
    topics = Topics(fresh_bootstrap)
    try:
        running.ready()
        for session in ("one", "two", "three"):
            send(topics, session)
            topics.send(session, b"{not json")
        topics.flush()
        violations = until("3 inversions", lambda: inversions(topics, 3))
        assert {body["session_id"] for body in violations} == {"one", "two", "three"}
        until("3 dead letters", lambda: len(topics.read("leadline.dead-letters")) == 3)
        until("what the fold alone makes of the same log", lambda: ids(topics) == oracle(topics)[0])
        until("3 stored sessions", lambda: [state.last_round for state in states(topics).values()] == [4, 4, 4])
        assert running.stop() == worker.OK, running.log
    finally:
        running.stop()
        topics.close()


def test_what_was_silenced_before_the_start_is_not_halted_by_a_backlog(fresh_bootstrap: str, tmp_path: Path) -> None:
    create(load_settings({}, bootstrap=fresh_bootstrap, partitions=4), timeout_s=20.0)
    now = wall_clock()
    said: dict[str, Any] = {"rule": "inversion", "session_id": "known", "agent_id": "agent", "who": "ada", "why": "known"}
    put(fresh_bootstrap, Silence(**said, silence_id="x1", at=format_ms(now), expires_at=format_ms(now + 3_600_000)))
    topics = Topics(fresh_bootstrap)
    for session in ("known", "other"):
        send(topics, session)
    topics.flush()
    running = RunningWorker(fresh_bootstrap, tmp_path, REAL)
    try:
        running.ready()
        modes = {body["session_id"]: body["mode"] for body in until("2 inversions", lambda: inversions(topics, 2))}
        assert modes == {"known": "shadow", "other": "enforce"}
        assert running.stop() == worker.OK, running.log
        assert {body["session_id"] for body in bodies(topics.read("leadline.commands"))} == {"other"}
    finally:
        running.stop()
        topics.close()


def test_killed_in_mid_stream(broker: Broker, fresh_bootstrap: str, tmp_path: Path) -> None:
    """kill -9 three times while sessions stream in, once with the local store lost: the same ids, and the same states where
    the broker stamps the events."""
    running = RunningWorker(fresh_bootstrap, tmp_path / "one", REAL)
    topics = Topics(fresh_bootstrap)
    try:
        running.ready()
        for wave, folder in enumerate(("one", "two", "two")):
            done = len(topics.read("leadline.violations"))
            for number in range(120):
                send(topics, f"s{wave}-{number}")
            topics.flush()
            under_way(topics, done + 20)
            running.kill()
            running = RunningWorker(fresh_bootstrap, tmp_path / folder, REAL).ready()
        settled(topics, exactly=broker.kind == "kafka")
        assert len(inversions(topics, 360)) == 360
        assert running.stop() == worker.OK, running.log
    finally:
        running.stop()
        topics.close()


def under_way(topics: Topics, violations: int) -> None:
    """Wait until more than this many violations are out."""
    until("the stream to be under way", lambda: len(topics.read("leadline.violations")) > violations)


def settled(topics: Topics, *, exactly: bool, limit_s: float = 90.0) -> None:
    """Wait until what is found is what an undisturbed monitor makes of the log. Without ``exactly`` states are compared by what
    does not depend on receive times."""

    def shown(found: dict[str, SessionState]) -> dict[str, Any]:
        if exactly:
            return {key: encode_state(state) for key, state in found.items()}
        return {
            key: (state.offset, state.last_round, [one.incident_id for one in state.incidents]) for key, state in found.items()
        }

    deadline = time.monotonic() + limit_s
    while True:
        want_ids, want_states = oracle(topics)
        got_ids, got_states = ids(topics), states(topics)
        if (got_ids, shown(got_states)) == (want_ids, shown(want_states)):
            return
        if time.monotonic() > deadline:
            break
        time.sleep(0.3)
    assert got_ids == want_ids
    assert shown(got_states) == shown(want_states)


def inversions(topics: Topics, count: int) -> list[dict[str, Any]]:
    """One a session, by their ids; empty until there are ``count``."""
    found = {body["violation_id"]: body for body in bodies(topics.read("leadline.violations")) if body["rule"] == "inversion"}
    return list(found.values()) if len(found) == count else []


def ids(topics: Topics) -> set[str]:
    return {body["violation_id"] for body in bodies(topics.read("leadline.violations"))} | {
        body["command_id"] for body in bodies(topics.read("leadline.commands"))
    }


def states(topics: Topics) -> dict[str, SessionState]:
    found: dict[str, SessionState] = {}
    for message in topics.read("leadline.sessions"):
        if message.value() is None:
            found.pop(message.key().decode(), None)
        else:
            found[message.key().decode()] = decode_state(message.value())
    return found


def oracle(topics: Topics) -> tuple[set[str], dict[str, SessionState]]:
    """Ids and states of a monitor that was never disturbed, from the very log that is on the topic."""
    by_partition: dict[int, list[Any]] = defaultdict(list)
    for message in topics.read("leadline.events"):
        by_partition[message.partition()].append(incoming(message))
    found: set[str] = set()
    left: dict[str, SessionState] = {}
    for records in by_partition.values():
        folded = fold(records, lambda key: None, DEFAULT_POLICY, time.time_ns() // 1_000_000)
        found |= {one.violation_id if isinstance(one, Violation) else one.command_id for one in folded.outputs}
        left.update({key: state for key, state in folded.states.items() if state is not None})
    return found, left
