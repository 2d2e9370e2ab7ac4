"""``unobserved``: rounds missing, silence, and reports that cannot be true."""

from __future__ import annotations

import pytest

from leadline.contracts.codec import Event
from leadline.contracts.events import Summary
from leadline.detection.condition import condition
from leadline.detection.policy import FleetPolicy
from leadline.detection.rules import unobserved
from leadline.detection.rules.base import Decision
from tests.detection.seen import watch
from tests.support.core import START, Monitor, checkpoint, end, policy, round_, start

SILENCE_MS = FleetPolicy().silence_ms

ROUNDS: list[tuple[str, list[Event], str]] = [
    ("in order", [start(), round_(1), round_(2)], "observed"),
    ("joined late", [round_(7)], "observed"),
    ("the first is missing", [start(), round_(2)], "rounds-missing!"),
    ("two are missing", [round_(1), round_(4)], "rounds-missing!"),
    ("after a gap", [round_(1), round_(4), round_(5)], "observed"),
    ("one comes late", [round_(1), round_(3), round_(2)], "observed"),
    ("the same again", [round_(1), round_(1)], ""),
    ("the same round with other numbers", [round_(1), round_(1, 0.3)], "counters-inconsistent!"),
    ("a failure of an earlier round", [round_(1), round_(2), round_(1, 0.3, outcome="failed")], ""),
    ("from far behind", [round_(1), round_(100), round_(2)], "counters-inconsistent!"),
    ("summary tokens at depth 0", [round_(1, summary_depth_max=0)], "counters-inconsistent!"),
    ("depth without summary tokens", [round_(1, 1.0, summary_depth_max=1)], "counters-inconsistent!"),
    ("raw text without a span", [round_(1, distinct_source_spans=0)], "counters-inconsistent!"),
    (
        "a listed summary deeper than the deepest",
        [round_(1, summaries=[Summary(id="n", depth=2, tokens=1)])],
        "counters-inconsistent!",
    ),
    ("nothing measured", [round_(1, raw_tokens=0, summary_tokens=0, distinct_source_spans=9, summary_depth_max=3)], "observed"),
    ("a failed pass need not measure", [round_(1, summary_depth_max=0, outcome="failed")], "observed"),
]


@pytest.mark.parametrize(("events", "said"), [case[1:] for case in ROUNDS], ids=[case[0] for case in ROUNDS])
def test_the_rule_says(events: list[Event], said: str) -> None:
    assert watch(*events).reasons.get("unobserved", "") == said


def test_the_table_and_silence_reach_every_reason() -> None:
    known = {item.reason + "!" * item.fired for item in vars(unobserved).values() if isinstance(item, Decision)}
    assert known - {said for _, _, said in ROUNDS} == {"session-silent!"}


def told(monitor: Monitor) -> list[tuple[str, str]]:
    return [(item.rule, item.reason) for item in monitor.violations]


def test_silence_is_told_at_its_deadline_once_and_ends_with_the_next_event() -> None:
    monitor = Monitor()
    monitor.send(start(), round_(1))
    assert monitor.state().deadline == START + SILENCE_MS
    assert monitor.tick(SILENCE_MS - 1) == []
    monitor.tick(1)
    assert told(monitor) == [("unobserved", "session-silent")]
    found = monitor.violations[0]
    assert found.evidence["silent_ms"] == SILENCE_MS
    assert found.threshold["silence_ms"] == SILENCE_MS
    assert "silent for 900 s" in found.message
    assert condition(monitor.state()) == "unobserved"
    for _ in range(5):
        monitor.tick(SILENCE_MS)
    assert len(monitor.violations) == 1
    monitor.send(checkpoint(1))
    assert monitor.state().incidents == ()
    assert condition(monitor.state()) == "healthy"
    monitor.tick(SILENCE_MS)
    assert len(monitor.violations) == 2
    assert len({item.incident_id for item in monitor.violations}) == 2


def test_a_session_that_ended_is_not_silent() -> None:
    monitor = Monitor()
    monitor.send(round_(1), end())
    monitor.tick(SILENCE_MS)
    assert monitor.sent == []


def test_a_deadline_that_passed_while_the_monitor_was_away_is_told_on_its_return() -> None:
    """Timeout 60 s, silent since 0 s, the monitor back at 40 s: told at 60 s; back at 300 s: told then."""
    for back in (40_000, 300_000):
        monitor = Monitor(policy(silence_ms=60_000))
        monitor.send(round_(1))
        monitor.now += back
        assert monitor.state().deadline == START + 60_000
        monitor.tick(max(0, 60_000 - back))
        assert told(monitor) == [("unobserved", "session-silent")]


def test_the_silence_has_the_same_id_whenever_the_tick_comes() -> None:
    """It is named by the last event before it."""
    ids = set()
    for late in (0, 1, 77_000):
        monitor = Monitor()
        monitor.send(round_(1))
        monitor.tick(SILENCE_MS + late)
        ids.add(monitor.violations[0].violation_id)
    assert len(ids) == 1


def test_silence_off_sets_no_deadline() -> None:
    monitor = Monitor(policy(modes={"unobserved": "off"}))
    monitor.send(round_(1))
    assert monitor.state().deadline == START + FleetPolicy().idle_ms


def test_a_gap_is_one_incident_that_several_good_rounds_end() -> None:
    monitor = Monitor()
    monitor.send(round_(1), round_(4), round_(6), round_(7))
    assert told(monitor) == [("unobserved", "rounds-missing")]
    assert monitor.violations[0].message == "unobserved: 2 rounds are missing before round 4"
    monitor.send(round_(8), round_(9))
    assert monitor.state().incidents == ()
    assert monitor.commands == []


def test_a_report_that_is_wrong_every_other_round_does_not_flap() -> None:
    monitor = Monitor()
    monitor.send(*(round_(n, distinct_source_spans=0 if n % 2 else 200) for n in range(1, 30)))
    assert told(monitor) == [("unobserved", "counters-inconsistent")]


def test_a_restart_that_kept_its_epoch_is_told() -> None:
    """It counts from 1 again: all of it would be ignored as doubled."""
    monitor = Monitor()
    monitor.send(*(round_(n) for n in range(1, 9)), *(round_(n, 0.1, event_id=f"again-{n}") for n in range(1, 9)))
    assert told(monitor) == [("unobserved", "counters-inconsistent")]
    assert monitor.state().counts.duplicates == 8


def test_an_incident_of_a_round_that_came_again_is_another_one() -> None:
    monitor = Monitor()
    monitor.send(round_(1), round_(3), *(round_(n) for n in (4, 5, 6)), round_(3, 0.1, event_id="again"))
    assert told(monitor) == [("unobserved", "rounds-missing"), ("unobserved", "counters-inconsistent")]
    assert len({item.violation_id for item in monitor.violations}) == 2


def test_silence_and_gaps_are_told_apart() -> None:
    monitor = Monitor()
    monitor.send(round_(1), round_(4))
    monitor.tick(SILENCE_MS)
    assert told(monitor) == [("unobserved", "rounds-missing"), ("unobserved", "session-silent")]
    monitor.send(round_(5))
    assert [item.subject for item in monitor.state().incidents] == [""]


def test_what_speaks_again_is_still_missing_what_it_never_sent() -> None:
    monitor = Monitor()
    monitor.send(round_(1))
    monitor.tick(SILENCE_MS)
    monitor.send(round_(9))
    assert told(monitor) == [("unobserved", "session-silent"), ("unobserved", "rounds-missing")]
