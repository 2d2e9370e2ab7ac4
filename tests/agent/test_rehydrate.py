"""Rehydration reaches its targets, in the document's order, and stays within its bounds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from leadline.agent import Ledger
from leadline.agent.rehydrate import Bounds, rehydrate


def grown(*groups: tuple[str, int, int], tokens: int = 100, summary: int = 50) -> tuple[Ledger, dict[str, int]]:
    """A ledger of summaries ``(name, leaves, depth)`` with all leaves archived, and the archive."""
    ledger, archive = Ledger(), {}
    for name, count, depth in groups:
        leaves = [f"{name}{n}" for n in range(count)]
        for leaf in leaves:
            ledger.add_raw(leaf, tokens)
            archive[leaf] = tokens
        below = leaves
        for level in range(1, depth):
            ledger.summarize(f"{name}^{level}", below, summary)
            ledger.evict(below, archived=True)
            below = [f"{name}^{level}"]
        ledger.summarize(name, below, summary)
        ledger.evict(below, archived=True)
    return ledger, archive


def test_lowest_depth_first_then_highest_fan_out() -> None:
    """Deep (depth 2, of 9), narrow (depth 1, of 2), wide (depth 1, of 4): wide is expanded first, then narrow.

    150 summary tokens; wide gives 400 of 500 raw (0.8). With a target of 0.9: narrow too, 600 of 650 (0.92).
    """
    ledger, archive = grown(("deep", 9, 2), ("narrow", 2, 1), ("wide", 4, 1))
    asked: list[str] = []

    def restore(span: str) -> int | None:
        asked.append(span)
        return archive.get(span)

    first = rehydrate(ledger, restore, Bounds(target_raw_ratio=0.30))
    assert (first.replaced, first.raw_tokens_restored, first.reached) == (("wide",), 400, True)
    assert first.after.raw_ratio == 400 / 500
    second = rehydrate(ledger, restore, Bounds(target_raw_ratio=0.90))
    assert second.replaced == ("narrow",)
    assert asked == ["wide0", "wide1", "wide2", "wide3", "narrow0", "narrow1"]


def test_the_plan_goes_before_the_ledgers_own_order_and_may_name_what_is_gone() -> None:
    ledger, archive = grown(("deep", 9, 2), ("wide", 4, 1))
    done = rehydrate(ledger, archive.get, Bounds(target_raw_ratio=0.30), plan=["vanished", "deep0", "deep"])
    assert done.replaced == ("deep",)
    assert done.raw_tokens_restored == 900


def test_nothing_is_touched_when_the_targets_hold_already() -> None:
    ledger, archive = grown(("wide", 4, 1))
    ledger.add_raw("m", 1_000)
    done = rehydrate(ledger, archive.get, Bounds(target_raw_ratio=0.30, target_spans=5))
    assert (done.restored, done.replaced, done.reached) == ((), (), True)


def test_an_allowance_is_never_exceeded() -> None:
    """At most 250 tokens: two of the four leaves of 100 come back. The floor of 3 spans keeps the summary in its place."""
    ledger, archive = grown(("wide", 4, 1))
    done = rehydrate(ledger, archive.get, Bounds(target_raw_ratio=0.9, max_restore_tokens=250, least_spans=3))
    assert (done.raw_tokens_restored, done.replaced, done.reached) == (200, (), False)
    assert done.after.distinct_source_spans == 4
    assert "targets not reached" in done.detail


def test_a_full_budget_gets_room_from_the_summary_that_is_replaced() -> None:
    """Budget 400: 250 raw and a summary of 150 that stands for four leaves of 100. No token is free, the summary's 150 let
    one leaf back: 350 of 350 raw, 2 spans of 5, which is the least that is asked for."""
    ledger, archive = grown(("wide", 4, 1), summary=150)
    ledger.add_raw("m", 250)
    done = rehydrate(ledger, archive.get, Bounds(target_raw_ratio=0.9, token_budget=400, least_spans=2))
    assert (done.raw_tokens_restored, done.replaced, done.reached) == (100, ("wide",), True)
    assert done.after.total_tokens == 350
    assert done.after.distinct_source_spans == 2


def test_spans_below_the_floor_are_fetched_though_no_summary_points_at_them_any_more() -> None:
    """Ratio is fine, spans are not: lost leaves come back, newest first, no more of them than are needed."""
    ledger = Ledger()
    for n in range(6):
        ledger.add_raw(f"m{n}", 10)
    ledger.evict([f"m{n}" for n in range(5)])
    done = rehydrate(ledger, lambda span: 10, Bounds(target_raw_ratio=0.3, target_spans=3))
    assert (done.restored, done.reached) == (("m4", "m3"), True)


def test_ground_is_restored_under_a_summary_that_may_stay() -> None:
    """The ratio holds, but both leaves of a summary are gone: they come back, the summary stays."""
    ledger, archive = grown(("wide", 2, 1))
    ledger.evict(["wide0", "wide1"])
    ledger.add_raw("m", 1_000)
    done = rehydrate(ledger, archive.get, Bounds(target_raw_ratio=0.3, target_spans=3))
    assert (done.restored, done.replaced, done.reached) == (("wide0", "wide1"), (), True)


def test_what_cannot_be_brought_back_is_named_and_asked_for_once() -> None:
    """None and an exception are both "cannot"; a size that is none, too. The ledger does not count on a None any more."""
    ledger, _ = grown(("a", 4, 1))
    asked: list[str] = []

    def restore(span: str) -> int | None:
        asked.append(span)
        if span == "a0":
            return None
        if span == "a1":
            raise OSError("archive away")
        return -5 if span == "a2" else 100

    done = rehydrate(ledger, restore, Bounds(target_raw_ratio=1.0, target_spans=9))
    assert (done.restored, done.failed, done.replaced) == (("a3",), ("a0", "a1", "a2"), ("a",))
    assert sorted(asked) == ["a0", "a1", "a2", "a3"]
    assert not done.reached


def test_a_summary_without_any_ground_stays_unless_it_is_to_be_dropped() -> None:
    ledger, _ = grown(("ghost", 2, 1))
    assert rehydrate(ledger, lambda span: None, Bounds(target_raw_ratio=0.3)).replaced == ()
    done = rehydrate(ledger, lambda span: None, Bounds(target_raw_ratio=0.3), drop_ungrounded=True)
    assert done.replaced == ("ghost",)
    assert done.after.ungrounded_summaries == 0


def test_no_target_at_all_does_nothing() -> None:
    ledger, archive = grown(("wide", 4, 1))
    assert rehydrate(ledger, archive.get, Bounds()).restored == ()


GROUPS = st.lists(st.tuples(st.integers(0, 6), st.integers(1, 3)), max_size=5)


@given(
    GROUPS,
    st.integers(0, 40),
    st.integers(0, 60),
    st.integers(0, 400),
    st.none() | st.integers(0, 300),
    st.none() | st.integers(0, 400),
    st.none() | st.integers(0, 20),
    st.integers(1, 10),
)
def test_bounds_hold_and_targets_are_told_truly(
    groups: list[tuple[int, int]],
    tokens: int,
    summary: int,
    raw: int,
    allowance: int | None,
    budget: int | None,
    spans: int | None,
    least: int,
) -> None:
    """Whatever the working set: never past the allowance; never past the budget, unless it was before; the measurement after
    is the ledger's; spans are not brought below the least, unless they were; ``reached`` says what is so."""
    ledger, archive = grown(
        *((f"g{n}-", count, depth) for n, (count, depth) in enumerate(groups)), tokens=tokens, summary=summary
    )
    ledger.add_raw("m", raw)
    before = ledger.measure()
    bounds = Bounds(0.5, spans, allowance, budget, least)
    done = rehydrate(ledger, archive.get, bounds)
    after = ledger.measure()
    assert done.after == after
    assert done.raw_tokens_restored == sum(tokens for _ in done.restored)
    assert allowance is None or done.raw_tokens_restored <= allowance
    assert budget is None or after.total_tokens <= max(budget, before.total_tokens)
    assert after.distinct_source_spans >= min(before.distinct_source_spans, least)
    ratio_holds = after.raw_ratio is None or after.raw_ratio >= 0.5
    assert done.reached == (ratio_holds and (spans is None or after.distinct_source_spans >= spans))
    if allowance is None and budget is None and spans is None:
        assert ratio_holds or after.summaries
