"""The local guard against the founding document's own function."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline.agent import Signals, check_inversion, check_recall
from leadline.contracts.events import Checkpoint, DeclaredDrop, Fact, FactState, FactStatus
from leadline.detection.facts import declare, follow
from leadline.detection.policy import FleetPolicy
from leadline.errors import Halted, RecallFloorViolation, SalienceInversionError

# -- the reference, transcribed from the salience-inversion document


@dataclass
class CompactionState:
    raw_tokens: int
    summary_tokens: int
    distinct_source_spans: int
    query_cosine_retained: float
    summary_depth_max: int
    rounds_at_max_depth: int = 0

    @property
    def raw_ratio(self) -> float:
        total = self.raw_tokens + self.summary_tokens
        return 0.0 if total == 0 else self.raw_tokens / total


def reference(prev: CompactionState, curr: CompactionState, session_start_spans: int) -> str:
    """What the document's ``check_inversion`` raises, by its first word; empty when it returns."""
    if curr.summary_depth_max < 2:
        return ""
    span_floor = max(1, int(session_start_spans * 0.20))
    spans_falling = curr.distinct_source_spans < prev.distinct_source_spans
    salience_rising = curr.query_cosine_retained > prev.query_cosine_retained
    if curr.raw_ratio < 0.25 and spans_falling and salience_rising:
        return "inversion"
    if curr.distinct_source_spans < span_floor:
        return "provenance-floor"
    if curr.rounds_at_max_depth > 5:
        return "depth-pin"
    return ""


STATES = st.builds(
    CompactionState,
    raw_tokens=st.integers(0, 60),
    summary_tokens=st.integers(0, 60),
    distinct_source_spans=st.integers(0, 30),
    query_cosine_retained=st.sampled_from([-0.1, 0.0, 0.41, 0.41000001, 0.68, 1.0]),
    summary_depth_max=st.integers(0, 4),
    rounds_at_max_depth=st.integers(0, 8),
).filter(lambda state: state.raw_tokens + state.summary_tokens > 0)


def signals(state: CompactionState) -> Signals:
    return Signals(
        state.raw_tokens,
        state.summary_tokens,
        state.distinct_source_spans,
        state.query_cosine_retained,
        state.summary_depth_max,
    )


def ours(prev: CompactionState, curr: CompactionState, session_start_spans: int) -> str:
    try:
        check_inversion(signals(prev), signals(curr), session_start_spans, curr.rounds_at_max_depth)
    except SalienceInversionError as error:
        return str(error).partition(":")[0]
    return ""


@given(STATES, STATES, st.integers(0, 200))
def test_every_decision_is_the_documents(prev: CompactionState, curr: CompactionState, session_start_spans: int) -> None:
    """Over generated pairs with tokens: the same of the three violations, or none, as the document's function."""
    assert ours(prev, curr, session_start_spans) == reference(prev, curr, session_start_spans)


def test_the_observed_session_crosses_the_boundary() -> None:
    """The document's own numbers: ratio 0.09, spans 45 to 37, salience 0.66 to 0.68, depth 3."""
    before, after = Signals(18, 182, 45, 0.66, 3), Signals(18, 182, 37, 0.68, 3)
    with pytest.raises(SalienceInversionError, match="inversion") as caught:
        check_inversion(before, after, 214)
    assert isinstance(caught.value, Halted)


def test_no_tokens_is_unknown_and_a_first_round_has_nothing_to_fall_from() -> None:
    """0 of 0 raises nothing; without a previous measurement only the floor and the pin can."""
    check_inversion(Signals(1, 9, 9, 0.1, 2), Signals(0, 0, 0, 0.9, 2), 10)
    check_inversion(None, Signals(1, 9, 9, 0.9, 2), 10)
    with pytest.raises(SalienceInversionError, match="provenance-floor"):
        check_inversion(None, Signals(1, 9, 1, 0.9, 2), 10)


def test_stated_conditions_of_validity_and_policy_decide() -> None:
    """A scorer that penalizes depth, eviction only at overflow, or a lower floor in the policy: drift at most."""
    before, after = Signals(20, 80, 50, 0.4, 3), Signals(20, 80, 40, 0.6, 3)
    with pytest.raises(SalienceInversionError):
        check_inversion(before, after, 100)
    check_inversion(before, after, 100, penalizes_depth=True)
    check_inversion(before, after, 100, eviction="overflow")
    check_inversion(before, after, 100, policy=FleetPolicy(raw_ratio_floor=0.1))


FACTS = [
    Fact(fact_id="c1", fact_class="constraint", recall_floor=1.0),
    Fact(fact_id="c2", fact_class="constraint", recall_floor=1.0),
    Fact(fact_id="t1", fact_class="task", recall_floor=0.5),
    Fact(fact_id="t2", fact_class="task", recall_floor=0.5),
]


def recall(level: int, drops: tuple[str, ...] = (), **statuses: FactState) -> None:
    call = Checkpoint(
        session_id="s",
        agent_id="a",
        level=level,
        facts=[FactStatus(fact_id=fact_id, status=status) for fact_id, status in statuses.items()],
        declared_drops=[DeclaredDrop(fact_id=fact_id) for fact_id in drops],
    )
    check_recall(call, follow(declare({}, FACTS).facts, call).facts)


def test_a_class_below_its_floor_is_named_with_the_facts_the_level_and_the_floor() -> None:
    """c2 vanishes at level 2: one of two constraints is kept, and their floor is 1."""
    with pytest.raises(RecallFloorViolation) as caught:
        recall(2, c1="verbatim", c2="absent", t1="verbatim", t2="verbatim")
    for part in ("c2", "constraint", "level 2", "floor 1"):
        assert part in str(caught.value)
    assert "c1" not in str(caught.value)


def test_half_of_a_class_with_floor_one_half_is_enough_and_a_declared_drop_is_no_loss() -> None:
    """One of two tasks at floor 0.5; and a constraint whose drop was declared."""
    recall(1, c1="verbatim", c2="abstracted", t1="absent", t2="verbatim")
    recall(1, drops=("c2",), c1="verbatim", c2="absent", t1="verbatim", t2="verbatim")
