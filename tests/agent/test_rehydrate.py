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


def test_a_summary_without_any_ground_gives_its_place_to_its_sources_where_all_come_back() -> None:
    """The second has room for two of its four: it stays, on those."""
    whole, _ = grown(("blind", 4, 1))
    whole.evict([f"blind{n}" for n in range(4)])
    done = rehydrate(whole, lambda span: 100, Bounds(), drop_ungrounded=True)
    assert (done.replaced, len(done.restored)) == (("blind",), 4)
    part, _ = grown(("blind", 4, 1))
    part.evict([f"blind{n}" for n in range(4)])
    done = rehydrate(part, lambda span: 100, Bounds(token_budget=250), drop_ungrounded=True)
    assert (done.replaced, len(done.restored), done.after.ungrounded_summaries) == ((), 2, 0)


def test_no_target_at_all_does_nothing() -> None:
    ledger, archive = grown(("wide", 4, 1))
    assert rehydrate(ledger, archive.get, Bounds()).restored == ()


# -- a full budget


def test_copies_leave_first_then_archived_spans_then_summaries_that_others_cover() -> None:
    """One lost span of 10 comes back into a full budget, again and again; each time what can be spared best makes room."""
    ledger = Ledger()
    for name in ("a", "b", "c", "d"):
        ledger.add_raw(name, 10)
    ledger.add_raw("b again", 10, copy_of="b")
    ledger.summarize("of c, d", ["c", "d"], 10)
    ledger.evict(["d"], archived=True)
    ledger.summarize("of that", ["of c, d"], 10)
    for n in range(4):
        ledger.add_raw(f"lost{n}", 10)
    ledger.evict([f"lost{n}" for n in range(4)])
    left: list[str] = []
    for spans in (5, 6, 7, 8):
        done = rehydrate(ledger, lambda span: 10, Bounds(target_spans=spans, token_budget=60), archives=True)
        left += done.evicted
        assert done.after.distinct_source_spans == min(spans, 7)
        assert done.after.total_tokens == 60
        assert done.after.ungrounded_summaries == 0
    assert left == ["b", "c", "of that"]


def test_without_an_archive_only_copies_leave() -> None:
    """The summary covers the span, but its text would be gone: it stays, and no room is to be had without loss."""
    ledger = Ledger()
    ledger.add_raw("a", 10)
    ledger.summarize("of a", ["a"], 10)
    ledger.add_raw("lost", 10)
    ledger.evict(["lost"])
    bounds = Bounds(target_spans=2, token_budget=20)
    assert rehydrate(ledger, lambda span: 10, bounds, archives=False).evicted == ("of a",)
    assert rehydrate(ledger, lambda span: 10, Bounds(target_spans=3, token_budget=20)).evicted == ()


def test_nothing_leaves_for_a_span_that_cannot_be_brought_back() -> None:
    ledger = Ledger()
    ledger.add_raw("a", 10)
    ledger.add_raw("a again", 10, copy_of="a")
    ledger.add_raw("lost", 10)
    ledger.evict(["lost"])
    done = rehydrate(ledger, lambda span: None, Bounds(target_spans=2, token_budget=20))
    assert (done.evicted, done.failed, done.changed) == ((), ("lost",), False)


def test_one_large_item_gives_way_to_several_spans() -> None:
    """Budget 300 in three items of 100; four lost spans of 40. Four spans are asked for: one item's room holds two. No more than
    needed is traded; and nothing where a trade would not bring more spans than it costs."""
    ledger = Ledger()
    for name in ("a", "b", "c"):
        ledger.add_raw(name, 100)
    for n in range(4):
        ledger.add_raw(f"lost{n}", 40)
    ledger.evict([f"lost{n}" for n in range(4)])
    done = rehydrate(ledger, lambda span: 40, Bounds(target_spans=4, token_budget=300))
    assert (len(done.restored), done.evicted, done.reached) == (2, ("a",), True)
    ledger = Ledger()
    ledger.add_raw("a", 100)
    for n in range(4):
        ledger.add_raw(f"lost{n}", 60)
    ledger.evict([f"lost{n}" for n in range(4)])
    assert not rehydrate(ledger, lambda span: 60, Bounds(target_spans=4, token_budget=100)).changed


def test_a_trade_that_fails_is_undone() -> None:
    """Three spans were to take the place of a large one, only one can be had: the large one stays, the budget holds."""
    ledger = Ledger()
    ledger.add_raw("large", 100)
    for n in range(3):
        ledger.add_raw(f"lost{n}", 30)
    ledger.evict([f"lost{n}" for n in range(3)])
    done = rehydrate(ledger, lambda span: 30 if span == "lost1" else None, Bounds(target_spans=3, token_budget=100))
    assert (done.restored, done.evicted, set(done.failed)) == ((), ("lost1",), {"lost0", "lost2"})
    assert done.after == done.before


def test_summaries_that_can_be_spared_leave_where_no_leaf_fits() -> None:
    """Budget 100: raw 20, summaries of 40 and 40 over leaves of 90 each. No leaf fits in a summary's place; the deeper one stands
    on the same leaf as the other, so it goes: 20 of 60 raw."""
    ledger = Ledger()
    ledger.add_raw("leaf", 90)
    ledger.summarize("S1", ["leaf"], 40)
    ledger.summarize("S2", ["S1"], 40)
    ledger.evict(["leaf"], archived=True)
    ledger.add_raw("m", 20)
    done = rehydrate(ledger, lambda span: 90, Bounds(target_raw_ratio=0.3, token_budget=100, least_spans=2))
    assert (done.evicted, done.replaced, done.reached) == (("S2",), (), True)
    assert done.after.distinct_source_spans == 2


def test_room_is_not_made_at_the_raw_ratios_cost() -> None:
    """60 of 100 are raw. A lost span of 10 needs room: without a copy of 30 raw would be 40 of 80; with a floor of 0.55 the
    summary whose leaf others lead to goes instead."""
    ledger = Ledger()
    ledger.add_raw("a", 30)
    ledger.add_raw("a again", 30, copy_of="a")
    ledger.summarize("of a", ["a"], 30)
    ledger.summarize("of that", ["of a"], 10)
    ledger.add_raw("lost", 10)
    ledger.evict(["lost"])
    bounds = Bounds(target_spans=2, token_budget=100, least_raw_ratio=0.55)
    assert rehydrate(ledger, lambda span: 10, bounds).evicted == ("of that",)


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
    st.booleans(),
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
    archives: bool,
) -> None:
    """Whatever the working set: never past the allowance, but for the room of raw text that left; never past the budget, unless
    it was before; the measurement after is the ledger's; what left is not retained, what came back is; no summary loses its
    ground; spans are not brought below the least, unless they were; ``reached`` says what is so."""
    ledger, archive = grown(
        *((f"g{n}-", count, depth) for n, (count, depth) in enumerate(groups)), tokens=tokens, summary=summary
    )
    ledger.add_raw("m", raw)
    ledger.add_raw("m again", raw, copy_of="m")
    before = ledger.measure()
    bounds = Bounds(0.5, spans, allowance, budget, least)
    done = rehydrate(ledger, archive.get, bounds, archives=archives)
    after = ledger.measure()
    assert done.after == after
    assert done.raw_tokens_restored == sum(tokens for _ in done.restored)
    room = sum(ledger.tokens(item) for item in done.evicted if not ledger.is_summary(item))
    assert allowance is None or done.raw_tokens_restored <= allowance + room
    assert not any(ledger.retained(item) for item in done.dropped)
    assert all(ledger.retained(item) for item in done.restored)
    assert after.ungrounded_summaries <= before.ungrounded_summaries
    assert budget is None or after.total_tokens <= max(budget, before.total_tokens)
    assert after.distinct_source_spans >= min(before.distinct_source_spans, least)
    ratio_holds = after.raw_ratio is None or after.raw_ratio >= 0.5
    assert done.reached == (ratio_holds and (spans is None or after.distinct_source_spans >= spans))
    if allowance is None and budget is None and spans is None:
        assert ratio_holds or after.summaries
