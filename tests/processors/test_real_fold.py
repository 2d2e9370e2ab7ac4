"""The worker as it ships, with the real fold: an inversion is detected, commanded, acknowledged and stored."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

from leadline.broker.embedded import EmbeddedBroker
from leadline.commands.fold import fold
from leadline.contracts.orders import Violation
from leadline.contracts.session_state import decode_state
from leadline.detection.policy import DEFAULT_POLICY
from leadline.processors import worker
from tests.processors.running import RunningWorker, Topics, bodies, event, incoming, round_event, until

# Raw tokens and spans fall round by round while the scorer's salience rises: the inversion document's shape.
ROUNDS = [(900, 60, 30, 0.4, 1), (500, 400, 20, 0.5, 2), (100, 800, 12, 0.7, 3), (80, 900, 9, 0.8, 3)]


def test_the_worker_as_it_ships(tmp_path: Path) -> None:
    with EmbeddedBroker() as broker:
        running = RunningWorker(broker.address, tmp_path, "leadline.processors.worker")
        topics = Topics(broker.address)
        try:
            running.ready()
            for session in ("one", "two", "three"):
                topics.send(session, event("session-start", session, session_start_spans=30))
                for number, (raw, summary, spans, salience, depth) in enumerate(ROUNDS, 1):
                    more = {"distinct_source_spans": spans, "query_cosine_retained": salience, "summary_depth_max": depth}
                    topics.send(
                        session,
                        round_event(session, number, raw, summary_tokens=summary, session_start_spans=30, max_depth=5, **more),
                    )
                topics.send(session, b"{not json")
            topics.flush()
            violations = until("3 inversions", lambda: inversions(topics))
            assert {body["session_id"] for body in violations} == {"one", "two", "three"}
            until("3 dead letters", lambda: len(topics.read("leadline.dead-letters")) == 3)
            until("what the fold alone makes of the same log", lambda: ids(topics) == oracle(topics))
            until("3 stored sessions", lambda: all_seen(topics))
            assert running.stop() == worker.OK, running.log
        finally:
            running.stop()
            topics.close()


def inversions(topics: Topics) -> list[dict[str, Any]]:
    found = [body for body in bodies(topics.read("leadline.violations")) if body["rule"] == "inversion"]
    return found if len(found) == 3 else []


def ids(topics: Topics) -> set[str]:
    return {body["violation_id"] for body in bodies(topics.read("leadline.violations"))} | {
        body["command_id"] for body in bodies(topics.read("leadline.commands"))
    }


def oracle(topics: Topics) -> set[str]:
    by_partition: dict[int, list[Any]] = defaultdict(list)
    for message in topics.read("leadline.events"):
        by_partition[message.partition()].append(incoming(message))
    found = set()
    for records in by_partition.values():
        for record in fold(records, lambda key: None, DEFAULT_POLICY, records[-1].timestamp).outputs:
            found.add(record.violation_id if isinstance(record, Violation) else record.command_id)
    return found


def all_seen(topics: Topics) -> bool:
    states = {m.key(): decode_state(m.value()) for m in topics.read("leadline.sessions") if m.value() is not None}
    return [state.last_round for state in states.values()] == [4, 4, 4]
