"""The three rules decide exactly as the reference function does: over pairs of states, and over whole sessions on the wire."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, event, example, given, settings
from hypothesis import strategies as st

from leadline.contracts import limits
from leadline.contracts.limits import MAX_COUNT
from leadline.contracts.orders import Violation
from leadline.contracts.session_state import Measurement
from leadline.detection.policy import FleetPolicy
from leadline.detection.rules import depth_pin, inversion, provenance_floor
from leadline.detection.rules.base import RoundView
from tests.reference.check_inversion import CompactionState, SalienceInversionError, check_inversion
from tests.support.core import Monitor, round_

MESSAGES = {
    "salience inversion": "inversion",
    "provenance floor breached": "provenance-floor",
    "hierarchy pinned": "depth-pin",
}
IN_ORDER = (inversion.RULE, provenance_floor.RULE, depth_pin.RULE)


def reference(prev: CompactionState, curr: CompactionState, spans_at_start: int) -> str | None:
    """Which of its three errors the reference raises, by the name of our rule."""
    try:
        check_inversion(prev, curr, spans_at_start)
    except SalienceInversionError as error:
        (name,) = [rule for words, rule in MESSAGES.items() if str(error).startswith(words)]
        return name
    return None


def ours(prev: CompactionState, curr: CompactionState, spans_at_start: int) -> str | None:
    """The first of our rules that fires."""

    def measured(number: int, state: CompactionState) -> Measurement:
        return Measurement(
            number,
            state.raw_tokens,
            state.summary_tokens,
            state.distinct_source_spans,
            state.query_cosine_retained,
            state.summary_depth_max,
        )

    view = RoundView(
        prev=measured(1, prev),
        now=measured(2, curr),
        pinned_rounds=curr.rounds_at_max_depth,
        baseline_spans=spans_at_start,
        max_depth=curr.summary_depth_max,
        penalizes_depth=None,
        eviction=None,
        policy=FleetPolicy(),
    )
    return next((rule.name for rule in IN_ORDER if rule.judge(view).fired), None)


small = st.integers(0, 12)
tokens = st.one_of(small, st.integers(0, 400_000), st.integers(0, MAX_COUNT))
spans_at_start = st.one_of(st.integers(0, 30), st.integers(0, 5000), st.integers(0, MAX_COUNT))
salience = st.one_of(st.sampled_from([-1.0, 0.0, 0.41, 0.5, 0.68, 1.0]), st.floats(-1e9, 1e9))


@st.composite
def near_boundary(draw: st.DrawFn, total: int = 400_000) -> tuple[int, int]:
    """Raw and summary tokens whose ratio is at 0.25, or a token off it."""
    quarter = draw(st.integers(1, total))
    return max(0, quarter + draw(st.integers(-1, 1))), 3 * quarter + draw(st.integers(-1, 1))


@st.composite
def states(draw: st.DrawFn, at_start: int) -> CompactionState:
    raw, summary = draw(st.tuples(tokens, tokens) | near_boundary())
    assume(raw + summary > 0)
    floor = max(1, int(at_start * 0.20))
    spans = draw(st.one_of(st.integers(max(0, floor - 1), floor + 1), small, st.integers(0, max(at_start, 1))))
    return CompactionState(raw, summary, spans, draw(salience), draw(st.integers(0, 4)), draw(st.integers(0, 8)))


@st.composite
def pairs(draw: st.DrawFn) -> tuple[CompactionState, CompactionState, int]:
    at_start = draw(spans_at_start)
    return draw(states(at_start)), draw(states(at_start)), at_start


def pair(**curr: Any) -> tuple[CompactionState, CompactionState, int]:
    """The document's inversion, with ``curr`` changed."""
    given: dict[str, Any] = {
        "raw_tokens": 240,
        "summary_tokens": 760,
        "distinct_source_spans": 99,
        "query_cosine_retained": 0.51,
        "summary_depth_max": 2,
    }
    return CompactionState(500, 500, 100, 0.5, 1), CompactionState(**given | curr), 214


@settings(max_examples=400)
@given(pairs())
@example(pair())
@example(pair(raw_tokens=250, summary_tokens=750))
@example(pair(raw_tokens=0))
@example(pair(summary_depth_max=1))
@example(pair(distinct_source_spans=100))
@example(pair(query_cosine_retained=0.5))
@example(pair(distinct_source_spans=42, query_cosine_retained=0.1))
@example(pair(distinct_source_spans=41, query_cosine_retained=0.1))
@example(pair(distinct_source_spans=41))
@example(pair(raw_tokens=900, rounds_at_max_depth=5))
@example(pair(raw_tokens=900, rounds_at_max_depth=6))
@example(pair(raw_tokens=900, rounds_at_max_depth=6, summary_depth_max=1))
def test_on_any_pair_of_states_the_decision_is_the_references(given_: tuple[CompactionState, CompactionState, int]) -> None:
    """Which error is raised, or none; the first three rules are asked in the reference's order."""
    prev, curr, at_start = given_
    expected = reference(prev, curr, at_start)
    event(str(expected))
    assert ours(prev, curr, at_start) == expected


@pytest.mark.parametrize(
    ("curr", "expected"),
    [
        ({}, "inversion"),
        ({"raw_tokens": 250, "summary_tokens": 750}, None),
        ({"raw_tokens": 2499, "summary_tokens": 7501}, "inversion"),
        ({"distinct_source_spans": 41}, "inversion"),
        ({"distinct_source_spans": 41, "query_cosine_retained": 0.5}, "provenance-floor"),
        ({"distinct_source_spans": 42, "query_cosine_retained": 0.5}, None),
        ({"raw_tokens": 900, "rounds_at_max_depth": 5}, None),
        ({"raw_tokens": 900, "rounds_at_max_depth": 6}, "depth-pin"),
        ({"distinct_source_spans": 41, "raw_tokens": 900, "rounds_at_max_depth": 6}, "provenance-floor"),
        ({"distinct_source_spans": 0, "rounds_at_max_depth": 6, "summary_depth_max": 1}, None),
    ],
)
def test_at_the_boundaries_both_decide_as_the_document_says(curr: dict[str, Any], expected: str | None) -> None:
    """The oracle itself is held to the document here, so that the property cannot pass on a wrong copy."""
    assert reference(*pair(**curr)) == expected
    assert ours(*pair(**curr)) == expected


@pytest.mark.parametrize(
    ("at_start", "floor"), [(0, 1), (1, 1), (4, 1), (5, 1), (9, 1), (10, 2), (14, 2), (15, 3), (214, 42), (215, 43)]
)
def test_the_floor_rounds_down_and_is_never_below_one(at_start: int, floor: int) -> None:
    for spans in (floor - 1, floor):
        prev, curr, _ = pair(distinct_source_spans=spans, query_cosine_retained=0.1)
        expected = "provenance-floor" if spans < floor else None
        assert reference(prev, curr, at_start) == ours(prev, curr, at_start) == expected


@st.composite
def sessions(draw: st.DrawFn) -> tuple[list[CompactionState], int, int]:
    """Two to nine rounds, their session's spans at the start, and the depth limit."""
    at_start = draw(st.one_of(st.integers(0, 30), st.integers(0, 5000)))
    limit = draw(st.integers(2, 3))
    deep = draw(st.booleans())
    rounds = draw(st.lists(states(at_start), min_size=2, max_size=9))
    pinned = 0
    for state in rounds:
        state.summary_depth_max = limit if deep else min(state.summary_depth_max, limit)
        if deep:
            # Mostly sound rounds, so that the pin is reached before anything else is raised.
            state.raw_tokens = min(limits.MAX_COUNT, state.raw_tokens + state.summary_tokens)
            state.distinct_source_spans = max(1, at_start)
        pinned = pinned + 1 if state.summary_depth_max >= max(limit, 2) else 0
        state.rounds_at_max_depth = pinned
    return rounds, at_start, limit


@settings(max_examples=120)
@given(sessions())
def test_on_any_session_the_first_verdict_is_the_references(session: tuple[list[CompactionState], int, int]) -> None:
    """Through the bytes on the wire and the stored state, up to the first round at which the reference raises anything."""
    rounds, at_start, limit = session
    monitor = Monitor()
    for number, state in enumerate(rounds, 1):
        expected = reference(rounds[number - 2] if number > 1 else state, state, at_start)
        sent = monitor.send(on_the_wire(number, state, at_start, limit))
        assert verdicts(sent)[:1] == ([expected] if expected else []), f"round {number}: {state}"
        if expected:
            event(expected)
            return
    event("none")


def on_the_wire(number: int, state: CompactionState, at_start: int, limit: int) -> Any:
    return round_(
        number,
        raw_tokens=state.raw_tokens,
        summary_tokens=state.summary_tokens,
        distinct_source_spans=state.distinct_source_spans,
        query_cosine_retained=state.query_cosine_retained,
        summary_depth_max=state.summary_depth_max,
        max_depth=limit,
        session_start_spans=at_start,
    )


def verdicts(sent: Sequence[object]) -> list[str]:
    return [item.rule for item in sent if isinstance(item, Violation) and item.rule in MESSAGES.values()]


@settings(max_examples=120)
@given(pairs())
def test_two_rounds_through_the_whole_fold_decide_as_the_reference(given_: tuple[CompactionState, CompactionState, int]) -> None:
    """A sound first round, then any second one."""
    prev, curr, at_start = given_
    prev.summary_depth_max, curr.rounds_at_max_depth = 1, 0
    monitor = Monitor()
    assert verdicts(monitor.send(on_the_wire(1, prev, at_start, 9))) == []
    expected = reference(prev, curr, at_start)
    assert verdicts(monitor.send(on_the_wire(2, curr, at_start, 9)))[:1] == ([expected] if expected else [])


def test_the_oracle_is_the_documents_text() -> None:
    """The digest is that of the document's code block with its white space collapsed; the copy has not been mended since."""
    here = (Path(__file__).parent / "check_inversion.py").read_text(encoding="utf-8")
    text = " ".join(here[here.index("from dataclasses") :].split())
    assert sha256(text.encode()).hexdigest() == "03084ba29b1af61cca72479542bb5f677d819b60ab39ed7a06b56784dd07f1c7"
