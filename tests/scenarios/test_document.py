"""The 40-round session that the salience-inversion document reports, replayed from its recording."""

from __future__ import annotations

import json
from typing import Any

import pytest

from leadline.contracts.times import parse_ms
from leadline.detection.condition import condition
from leadline.detection.policy import DEFAULT_POLICY, FleetPolicy, Policy
from tests.scenarios.make_data import BUDGET, FILE, lines
from tests.support.core import Monitor

OURS = {"inversion", "provenance-floor", "depth-pin", "drift"}
"""The rules whose verdicts are worked out here; what others say of the session is theirs to test."""
WHO = ("research-and-synthesize", "researcher")


def events() -> list[dict[str, Any]]:
    return [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]


def replay(policy: Policy = DEFAULT_POLICY) -> Monitor:
    """Each event a batch of its own, at its own time."""
    monitor = Monitor(policy)
    for event in events():
        monitor.now = parse_ms(event["ts"]) or 0
        monitor.send(event)
    return monitor


def verdicts(monitor: Monitor) -> list[tuple[str, int | None, str]]:
    """Rule, round, and what was commanded."""
    return [(item.rule, item.round, item.action) for item in monitor.violations if item.rule in OURS]


def test_the_recording_is_what_its_script_writes() -> None:
    assert FILE.read_text(encoding="utf-8") == lines()


def test_the_recording_goes_through_the_documents_points() -> None:
    by_round = {event["round"]: event for event in events() if "round" in event}
    assert len(by_round) == 40

    def ratio(number: int) -> float:
        event = by_round[number]
        return float(round(event["raw_tokens"] / (event["raw_tokens"] + event["summary_tokens"]), 2))

    assert [ratio(number) for number in (1, 28, 40)] == [0.71, 0.09, 0.09]
    assert [by_round[number]["distinct_source_spans"] for number in (1, 30, 40)] == [214, 37, 37]
    assert [by_round[number]["query_cosine_retained"] for number in (1, 40)] == [0.41, 0.68]
    assert [by_round[number]["summary_depth_max"] for number in (1, 11, 12, 40)] == [1, 2, 3, 3]
    assert all(abs(event["raw_tokens"] + event["summary_tokens"] - BUDGET) <= 0.04 * BUDGET for event in by_round.values())


def test_the_verdicts_are_those_of_the_document() -> None:
    """Worked out by hand.

    Depth pin: depth is at its limit of 3 from round 12, so round 16 is the fifth in a row and round 17 the sixth: > 5.

    Inversion: raw_ratio falls from 0.71 at round 1 to 0.09 at round 28, that is 0.62 / 27 = 0.02296 a round. It is below 0.25
    when 0.02296 * (round - 1) > 0.46, so past round 21.03: round 22 (0.71 - 21 * 0.02296 = 0.228; round 21 has 0.251). Depth is
    3, spans have been falling and salience rising all along.

    Provenance floor: int(0.20 * 214) = 42. Spans fall from 214 at round 1 to 37 at round 30, 177 / 29 = 6.103 a round: 43 at
    round 29 (214 - 28 * 6.103 = 43.1, not below 42), 37 at round 30.

    Drift: none. From round 30 on spans are stable at a low ratio, but the inversion is open and a pause in it is no drift.
    """
    assert verdicts(replay()) == [("depth-pin", 17, "cap-depth"), ("inversion", 22, "halt"), ("provenance-floor", 30, "halt")]


def test_nobody_answered_so_all_three_are_still_open() -> None:
    state = replay().state(*WHO)
    assert {item.rule for item in state.incidents} >= {"depth-pin", "inversion", "provenance-floor"}
    assert condition(state) == "inverted"


def test_the_measurements_of_the_inversion() -> None:
    (found,) = [item for item in replay().violations if item.rule == "inversion"]
    assert found.before is not None
    assert found.now is not None
    assert (found.before.round, found.now.round) == (21, 22)
    assert found.before.raw_ratio == pytest.approx(0.2507, abs=1e-4)
    assert found.now.raw_ratio == pytest.approx(0.2278, abs=1e-4)
    assert (found.before.distinct_source_spans, found.now.distinct_source_spans) == (92, 86)


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ({"eviction": "overflow"}, [("depth-pin", 17), ("provenance-floor", 30), ("drift", 31)]),
        ({"scorer": {"penalizes_depth": True}}, [("depth-pin", 17), ("provenance-floor", 30), ("drift", 31)]),
    ],
)
def test_where_a_condition_of_validity_is_false_it_degrades_to_drift(
    statement: dict[str, Any], expected: list[tuple[str, int]]
) -> None:
    """Spans stand still at 37 from round 30 on, so round 31 is the first at which they did not fall: drift, not inversion."""
    monitor = Monitor()
    begin, *rest = events()
    begin["policy"] |= statement
    for event in (begin, *rest):
        monitor.now = parse_ms(event["ts"]) or 0
        monitor.send(event)
    assert [(rule, number) for rule, number, _ in verdicts(monitor)] == expected


def test_with_a_hierarchy_of_one_layer_nothing_is_raised() -> None:
    """Condition 1: without re-summarization neither the inversion nor the floor nor the pin applies."""
    monitor = Monitor()
    for event in events():
        monitor.now = parse_ms(event["ts"]) or 0
        monitor.send(event | {"summary_depth_max": 1} if "round" in event else event)
    assert [rule for rule, _, _ in verdicts(monitor)] == ["drift"]


def test_another_floor_moves_the_inversion() -> None:
    """Below 0.50: 0.02296 * (round - 1) > 0.21, so past round 10.1: round 11, where depth is 2."""
    assert ("inversion", 11, "halt") in verdicts(replay(Policy(default=FleetPolicy(raw_ratio_floor=0.50, raw_ratio_exit=0.55))))


@pytest.mark.parametrize("size", [1, 3, 7, 41])
def test_batches_of_any_size_give_the_same_verdicts(size: int) -> None:
    monitor = Monitor()
    log = [monitor.append(event) for event in events()]
    for first in range(0, len(log), size):
        monitor.read(log[first : first + size])
    assert [(rule, number) for rule, number, _ in verdicts(monitor)] == [
        ("depth-pin", 17),
        ("inversion", 22),
        ("provenance-floor", 30),
    ]
