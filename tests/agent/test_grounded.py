"""Grounded eviction: the most salient stays, every summary keeps a source, the floor holds, and the cost is told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline.agent import GroundedEviction, Ledger
from leadline.errors import LeadlineError


def spans(ledger: Ledger, **salience: float) -> None:
    """Raw spans of 100 tokens."""
    for name, score in salience.items():
        ledger.add_raw(name, 100, score)


def test_the_last_source_of_a_summary_is_held_and_something_else_leaves_in_its_place() -> None:
    """S (0.9) stands on m1 (0.1) alone; m2 (0.3) and m3 (0.5) stand for themselves. 350 tokens, room for 250: salience alone
    drops m1; grounded, m2 goes, which costs the 100 tokens that m1 keeps."""
    ledger = Ledger()
    spans(ledger, m1=0.1, m2=0.3, m3=0.5)
    ledger.summarize("S", ["m1"], 50, 0.9)
    plan = GroundedEviction().plan(ledger, 250, 1)
    assert (plan.evict, plan.held, plan.displaced) == (("m2",), ("m1",), ("m2",))
    assert (plan.held_tokens, plan.displaced_tokens, plan.tokens, plan.fits) == (100, 100, 250, True)


def test_where_nothing_is_endangered_it_is_plain_eviction_by_salience_and_costs_nothing() -> None:
    """Two sources, one of which may go; within the budget nothing leaves at all."""
    ledger = Ledger()
    spans(ledger, m1=0.1, m2=0.3)
    ledger.summarize("S", ["m1", "m2"], 50, 0.9)
    plan = GroundedEviction().plan(ledger, 150, 1)
    assert (plan.evict, plan.held, plan.held_tokens, plan.displaced) == (("m1",), (), 0, ())
    assert GroundedEviction().plan(ledger, 250, 1).evict == ()


def test_with_an_archive_sources_may_leave_and_summaries_still_lead_to_them() -> None:
    ledger = Ledger()
    spans(ledger, m1=0.1, m2=0.3)
    ledger.summarize("S", ["m1", "m2"], 50, 0.9)
    plan = GroundedEviction(archives=True).plan(ledger, 50, 10)
    assert (plan.evict, plan.held) == (("m1", "m2"), ())
    # The floor of 10 spans at the start is 2: S is all that leads to them.
    assert GroundedEviction(archives=True).plan(ledger, 49, 10).evict == ("m1", "m2")
    assert not GroundedEviction(archives=True).plan(ledger, 49, 10).fits


def test_a_summary_leaves_where_it_and_its_ground_are_too_large() -> None:
    """120 tokens are left for S (50) and m1 (100): S is what can go, as m1 is the floor."""
    ledger = Ledger()
    spans(ledger, m1=0.1)
    ledger.summarize("S", ["m1"], 50, 0.9)
    plan = GroundedEviction().plan(ledger, 120, 1)
    assert (plan.evict, plan.tokens, plan.fits) == (("S",), 100, True)


def test_the_floor_holds_even_past_the_budget_and_that_is_told() -> None:
    """10 spans at the start make a floor of 2: of four spans two stay, though only one fits."""
    ledger = Ledger()
    spans(ledger, m1=0.1, m2=0.2, m3=0.3, m4=0.4)
    plan = GroundedEviction().plan(ledger, 100, 10)
    assert (plan.evict, plan.tokens, plan.fits) == (("m1", "m2"), 200, False)


def test_a_copy_may_go_while_another_carries_the_text() -> None:
    ledger = Ledger()
    spans(ledger, m1=0.1)
    ledger.add_raw("again", 100, 0.05, copy_of="m1")
    ledger.summarize("S", ["m1"], 50, 0.9)
    assert GroundedEviction().plan(ledger, 150, 1).evict == ("again",)


def test_numbers_that_are_none_are_refused() -> None:
    with pytest.raises(LeadlineError, match=r"token_budget must be a whole number from 0 to \d+, not -1"):
        GroundedEviction().plan(Ledger(), -1, 1)


@given(
    st.lists(st.tuples(st.integers(1, 50), st.floats(0, 1)), min_size=1, max_size=12),
    st.lists(st.tuples(st.sets(st.integers(0, 15), min_size=1, max_size=4), st.floats(0, 1)), max_size=6),
    st.integers(0, 400),
    st.integers(0, 40),
    st.booleans(),
)
def test_whatever_the_working_set_the_plan_keeps_its_promises(
    raw: list[tuple[int, float]], made: list[tuple[set[int], float]], budget: int, baseline: int, archives: bool
) -> None:
    """After the plan: no summary lost its last source, spans at their floor or where they were below it, and the plan's own
    numbers are the ledger's."""
    ledger = Ledger()
    names = []
    for n, (tokens, salience) in enumerate(raw):
        names.append(f"m{n}")
        ledger.add_raw(names[-1], tokens, salience)
    for n, (sources, salience) in enumerate(made):
        ledger.summarize(f"S{n}", {names[at % len(names)] for at in sources}, 10, salience)
        names.append(f"S{n}")
    before = ledger.measure()
    plan = GroundedEviction(archives=archives).plan(ledger, budget, baseline)
    ledger.evict(plan.evict, archived=archives)
    after = ledger.measure()
    assert after.ungrounded_summaries == 0
    assert after.distinct_source_spans >= min(max(1, baseline // 5), before.distinct_source_spans)
    assert after.total_tokens == plan.tokens
    assert plan.fits == (plan.tokens <= budget)
    if plan.fits or before.total_tokens <= budget:
        assert after.total_tokens <= budget
