"""The story of a session, made from records alone."""

from __future__ import annotations

from typing import Any

import pytest

from leadline.contracts.codec import decode_event
from leadline.contracts.manual import Manual
from leadline.contracts.orders import Command, Violation
from leadline.contracts.trace import NO_TRACE, read_trace
from leadline.detection.policy import FleetPolicy
from leadline.telemetry import derive, names
from leadline.telemetry.story import Kept, tell
from tests.support.core import WHO, ack, end, policy, round_, start, tick
from tests.telemetry.watched import TRACE_ID, Watched, headers, sunk


class Told(Watched):
    """A monitor whose topics are kept, as ``leadline story`` would read them."""

    def __init__(self) -> None:
        super().__init__()
        self.topics: list[Kept] = []

    def tell(self, *events: Any, deliver: bool = True, **wire: Any) -> Any:
        first = len(self.log)
        folded = super().tell(*events, deliver=deliver, **wire)
        for one in self.log[first:]:
            event = decode_event(one.value or b"").event
            self.topics.append(Kept("leadline.events", 3, one.offset, one.timestamp, event, read_trace(one.headers)))
        for item in folded.outputs:
            topic = "leadline.violations" if isinstance(item, Violation) else "leadline.commands"
            self.topics.append(Kept(topic, 3, len(self.topics), self.now, item, NO_TRACE))
        self.now += 1_000
        return folded

    def story(self) -> dict[str, Any]:
        return tell("s1", self.topics).as_json()


def test_a_session_that_was_halted_and_recovered() -> None:
    monitor = Told()
    monitor.tell(start(), round_(1), sunk(2), headers=headers())
    (halt,) = [item for item in monitor.sent if isinstance(item, Command)]
    monitor.tell(ack(halt))
    monitor.tell(round_(3, 0.9))
    monitor.tell(round_(4, 0.9))
    resume = [item for item in monitor.sent if isinstance(item, Command)][-1]
    monitor.tell(ack(resume, "done"))
    monitor.tell(end())
    told = monitor.story()
    assert (told["rounds"], told["ended"], told["agents"], told["fleet"]) == (4, True, ["a1"], "f1")
    (incident,) = told["incidents"]
    assert (incident["rule"], incident["reason"], incident["status"]) == ("provenance-floor", "spans-below-floor", "recovered")
    chain = [(step["what"], step.get("kind") or step.get("outcome") or step.get("round")) for step in incident["steps"]]
    assert chain == [
        ("event", 2),
        ("verdict", None),
        ("command", "halt"),
        ("ack", "accepted"),
        ("effect", 3),
        ("command", "resume"),
        ("effect", 4),
        ("ack", "done"),
    ]
    assert incident["trace_id"] == TRACE_ID
    assert incident["steps"][0]["distinct_source_spans"] == 5
    assert int(incident["steps"][1]["span_id"], 16) == derive.verdict_span(incident["incident_id"])


def test_a_command_that_nobody_answered() -> None:
    monitor = Told()
    monitor.tell(start(), round_(1), sunk(2))
    monitor.now += FleetPolicy().command_ttl_ms
    monitor.tell(tick(monitor.now))
    (incident,) = monitor.story()["incidents"]
    assert incident["status"] == "no acknowledgement"
    assert len(incident["unanswered"]) == 2
    assert incident["recovered_after_ms"] is None
    assert len(incident["trace_id"]) == 32, "derived, where the agent does not trace"


@pytest.mark.parametrize("how", ["released by hand", "withdrawn"])
def test_what_no_measurement_ended_has_not_recovered(how: str) -> None:
    monitor = Told()
    monitor.tell(start(), round_(1), sunk(2))
    if how == "withdrawn":
        monitor.policy = policy(modes={"provenance-floor": "shadow"})
        monitor.tell(round_(3))
    else:
        monitor.tell(Manual(**WHO, event_id="m1", action="resume", rule="provenance-floor", who="ada", why="a drill"))
    incident = monitor.story()["incidents"][0]
    assert incident["status"] == how
    assert incident["recovered_after_ms"] is None
    assert incident["steps"][-1]["kind"] == "resume"
    assert monitor.named(names.RECOVERED) == []
    (moved,) = monitor.named(names.ANSWERED)
    assert (moved.attributes or {})[names.SIGNAL] == how.split()[0]


def test_what_was_sent_twice_is_told_once() -> None:
    monitor = Told()
    monitor.tell(start(), round_(1), sunk(2), headers=headers())
    once = monitor.story()
    monitor.topics += [
        one._replace(offset=one.offset + 100) for one in monitor.topics if isinstance(one.record, Violation | Command)
    ]
    again = monitor.story()
    assert again["incidents"] == once["incidents"]


def test_a_healthy_session_has_no_incident() -> None:
    monitor = Told()
    monitor.tell(start(), round_(1))
    told = monitor.story()
    assert told["incidents"] == []
    assert told["last"]["raw_ratio"] == 0.6
    assert not told["ended"]
