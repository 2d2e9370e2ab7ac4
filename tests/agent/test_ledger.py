"""The ledger's signals, by hand-worked values."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from leadline.agent import Ledger, LedgerError
from leadline.errors import LeadlineError


def spans(ledger: Ledger, *ids: str, tokens: int = 100) -> None:
    for span_id in ids:
        ledger.add_raw(span_id, tokens)


def test_raw_and_summary_tokens_are_those_of_retained_items() -> None:
    """Two raw spans of 100 and 50 and a summary of 30 are retained: 150 raw, 30 summary, a ratio of 5/6."""
    ledger = Ledger()
    ledger.add_raw("m1", 100)
    ledger.add_raw("m2", 50)
    ledger.summarize("S", ["m1", "m2"], 30)
    now = ledger.measure()
    assert (now.raw_tokens, now.summary_tokens) == (150, 30)
    assert now.raw_ratio == 150 / 180


def test_nothing_at_all_has_an_unknown_ratio_and_no_tokens_either() -> None:
    """0 of 0 is unknown, also with retained items of 0 tokens; exactly 0.0 is a value."""
    ledger = Ledger()
    assert ledger.measure().raw_ratio is None
    ledger.add_raw("m1", 0)
    assert ledger.measure().raw_ratio is None
    assert ledger.measure().distinct_source_spans == 1
    ledger.summarize("S", ["m1"], 40)
    assert ledger.measure().raw_ratio == 0.0


def test_an_evicted_leaf_counts_only_while_its_text_can_be_produced_and_something_points_at_it() -> None:
    """Of three summarized leaves one stays, one is archived, one is gone: 2 spans; without the summary only the first."""
    ledger = Ledger()
    spans(ledger, "m1", "m2", "m3")
    ledger.summarize("S", ["m1", "m2", "m3"], 30)
    ledger.evict(["m2"], archived=True)
    ledger.evict(["m3"])
    assert ledger.measure().distinct_source_spans == 2
    assert ledger.unreachable("S") == ["m3"]
    ledger.evict(["S"])
    assert ledger.measure().distinct_source_spans == 1
    assert ledger.lost() == ["m2", "m3"]


def test_pointers_lead_through_evicted_summaries() -> None:
    """S2 of S1 of m1: with S1 and m1 evicted but m1 archived, m1 is still reachable, at depth 2."""
    ledger = Ledger()
    spans(ledger, "m1")
    ledger.summarize("S1", ["m1"], 20)
    ledger.summarize("S2", ["S1"], 10)
    ledger.evict(["m1"], archived=True)
    ledger.evict(["S1"])
    now = ledger.measure()
    assert (now.distinct_source_spans, now.summary_depth_max, now.ungrounded_summaries) == (1, 2, 0)
    ledger.evict(["m1"], archived=False)
    assert ledger.measure().distinct_source_spans == 0
    assert ledger.measure().ungrounded_summaries == 1


def test_depth_is_that_of_the_deepest_source_plus_one() -> None:
    """Raw is 0; a summary of raw spans 1; one of a depth-1 summary and a raw span 2; the deepest retained one counts."""
    ledger = Ledger()
    spans(ledger, "m1", "m2")
    assert ledger.measure().summary_depth_max == 0
    ledger.summarize("S1", ["m1"], 10)
    assert ledger.measure().summary_depth_max == 1
    ledger.summarize("S2", ["S1", "m2"], 10)
    assert ledger.measure().summary_depth_max == 2
    ledger.evict(["S2"])
    assert ledger.measure().summary_depth_max == 1


def test_mean_salience_is_over_retained_items_that_have_one() -> None:
    """0.2 and 0.8 and one unknown: 0.5; with none known it is absent."""
    ledger = Ledger()
    ledger.add_raw("m1", 1, 0.2)
    ledger.add_raw("m2", 1)
    ledger.summarize("S", ["m1"], 1, 0.8)
    assert ledger.measure().query_cosine_retained == 0.5
    ledger.evict(["m1", "S"])
    assert ledger.measure().query_cosine_retained is None
    ledger.rescore({"m2": -0.25})
    assert ledger.measure().query_cosine_retained == -0.25


def test_wrapped_summaries_are_no_raw_source() -> None:
    """Field case: every node re-injects the last summary as a "raw" message. It counts as summary tokens, at its depth,
    and adds no span: 14 spans stay 14 for 10 rounds while the ratio falls."""
    ledger = Ledger()
    spans(ledger, *(f"m{n}" for n in range(14)), tokens=10)
    ledger.summarize("S0", [f"m{n}" for n in range(14)], 100)
    ledger.evict([f"m{n}" for n in range(14)], archived=True)
    for n in range(10):
        ledger.add_raw(f"wrapped{n}", 90, wraps=f"S{n}")
        ledger.summarize(f"S{n + 1}", [f"wrapped{n}"], 100)
        ledger.evict([f"S{n}"])
        now = ledger.measure()
        assert now.distinct_source_spans == 14
        assert now.raw_tokens == 0
        assert now.raw_ratio == 0.0
    assert ledger.measure().summary_tokens == 100 + 10 * 90
    assert ledger.measure().summary_depth_max == 11


def test_reinjected_text_keeps_the_depth_and_fan_out_of_its_summary() -> None:
    """A wrap of a depth-1 summary of two spans is listed as that: depth 1, fan-out 2, 2 reachable."""
    ledger = Ledger()
    spans(ledger, "m1", "m2")
    ledger.summarize("S", ["m1", "m2"], 10)
    ledger.add_raw("w", 12, wraps="S")
    ledger.evict(["S"])
    [listed] = ledger.measure().summaries
    assert (listed.id, listed.depth, listed.tokens, listed.fan_out, listed.reachable) == ("w", 1, 12, 2, 2)


def test_equal_content_under_different_ids_stays_different_spans() -> None:
    """Field case: s5, s6 and s7 share a content hash and only s5 is a source. By id, s6 and s7 are not reachable through it."""
    ledger = Ledger()
    spans(ledger, "s5", "s6", "s7")
    ledger.summarize("S", ["s5"], 10)
    ledger.evict(["s5", "s6", "s7"], archived=True)
    assert ledger.measure().distinct_source_spans == 1
    assert ledger.lost() == ["s6", "s7"]


def test_declared_copies_of_one_span_count_once() -> None:
    """A span and two copies: one span, all their tokens; with the original gone a copy still carries its text."""
    ledger = Ledger()
    ledger.add_raw("m1", 100)
    ledger.add_raw("copy1", 100, copy_of="m1")
    ledger.add_raw("copy2", 100, copy_of="copy1")
    assert (ledger.measure().distinct_source_spans, ledger.measure().raw_tokens) == (1, 300)
    assert ledger.spans_added == 1
    ledger.evict(["m1", "copy1"])
    assert ledger.measure().distinct_source_spans == 1
    ledger.evict(["copy2"])
    assert ledger.measure().distinct_source_spans == 0


def test_ids_decide_and_not_an_order_of_time() -> None:
    """Field case: e4 came at the same time as e3, which was summarized; e4 was not, so it is lost when it is evicted."""
    ledger = Ledger()
    spans(ledger, "e1", "e2", "e3", "e4")
    ledger.summarize("S", ["e1", "e2", "e3"], 10)
    ledger.evict(["e1", "e2", "e3", "e4"], archived=True)
    assert ledger.lost() == ["e4"]


def test_a_summary_without_reachable_leaf_is_ungrounded_and_listed_first() -> None:
    """Order of the list: no ground first, then lowest depth, then highest fan-out."""
    ledger = Ledger()
    spans(ledger, "m1", "m2", "m3", "gone")
    ledger.summarize("one", ["m1"], 10)
    ledger.summarize("two", ["m2", "m3"], 10)
    ledger.summarize("deep", ["one", "two"], 10)
    ledger.summarize("ghost", ["gone"], 10)
    ledger.summarize("nothing", [], 10)
    ledger.evict(["gone"])
    now = ledger.measure()
    assert now.ungrounded_summaries == 2
    assert [summary.id for summary in now.summaries] == ["ghost", "nothing", "two", "one", "deep"]


def test_expand_replaces_a_summary_by_what_can_be_produced() -> None:
    """Of four leaves one is retained already, two are archived, one is gone: two come back and the summary leaves."""
    ledger = Ledger()
    spans(ledger, "m1", "m2", "m3", "m4")
    ledger.summarize("S", ["m1", "m2", "m3", "m4"], 10)
    ledger.evict(["m2", "m3"], archived=True)
    ledger.evict(["m4"])
    assert ledger.expand("S") == ["m2", "m3"]
    assert list(ledger) == ["m1", "m2", "m3"]
    assert ledger.measure().raw_ratio == 1.0


def test_expand_keeps_a_summary_below_which_nothing_is_left() -> None:
    """Dropping text that nothing replaces is the agent's decision."""
    ledger = Ledger()
    spans(ledger, "m1")
    ledger.summarize("S", ["m1"], 10)
    ledger.evict(["m1"])
    with pytest.raises(LedgerError, match="'S'"):
        ledger.expand("S")
    assert list(ledger) == ["S"]


def test_a_restored_span_can_have_another_size() -> None:
    """The text that came back was cut: 60 tokens in place of 100."""
    ledger = Ledger()
    spans(ledger, "m1")
    ledger.evict(["m1"])
    ledger.restore(["m1"], {"m1": 60})
    assert ledger.measure().raw_tokens == 60


@pytest.mark.parametrize(
    ("deed", "names"),
    [
        (lambda ledger: ledger.summarize("S", ["nobody"], 1), "nobody"),
        (lambda ledger: ledger.summarize("S", ["S"], 1), "cycle"),
        (lambda ledger: ledger.summarize("m1", ["m1"], 1), "cycle"),
        (lambda ledger: ledger.add_raw("m1", 1), "m1"),
        (lambda ledger: ledger.add_raw("", 1), "id"),
        (lambda ledger: ledger.add_raw("x" * 257, 1), "256"),
        (lambda ledger: ledger.add_raw("m2", -3), "m2"),
        (lambda ledger: ledger.add_raw("m2", True), "m2"),
        (lambda ledger: ledger.add_raw("m2", 1.5), "m2"),
        (lambda ledger: ledger.add_raw("m2", 2**53), "m2"),
        (lambda ledger: ledger.add_raw("m2", 1, float("nan")), "m2"),
        (lambda ledger: ledger.add_raw("m2", 1, float("inf")), "m2"),
        (lambda ledger: ledger.add_raw("m2", 1, "high"), "m2"),
        (lambda ledger: ledger.add_raw("m2", 1, copy_of="nobody"), "nobody"),
        (lambda ledger: ledger.add_raw("m2", 1, wraps="m1"), "copy_of"),
        (lambda ledger: ledger.evict(["m1", "nobody"]), "nobody"),
        (lambda ledger: ledger.restore(["nobody"]), "nobody"),
        (lambda ledger: ledger.rescore({"m1": 0.1, "nobody": 0.1}), "nobody"),
        (lambda ledger: ledger.expand("m1"), "m1"),
    ],
)
def test_the_impossible_is_refused_by_name_and_changes_nothing(deed: Callable[[Ledger], None], names: str) -> None:
    """A ValueError of the project's own tree that names the id; the ledger is as it was."""
    ledger = Ledger()
    ledger.add_raw("m1", 10, 0.5)
    before = ledger.measure()
    with pytest.raises(LedgerError, match=names) as caught:
        deed(ledger)
    assert isinstance(caught.value, LeadlineError)
    assert isinstance(caught.value, ValueError)
    assert ledger.measure() == before
    assert "S" not in ledger
    assert "m2" not in ledger


def test_a_hierarchy_can_be_deeper_than_the_stack() -> None:
    """2,000 levels of summaries, all but the last evicted, still lead to the one leaf."""
    ledger = Ledger()
    spans(ledger, "m1")
    below = "m1"
    for level in range(2_000):
        ledger.summarize(f"S{level}", [below], 1)
        ledger.evict([below], archived=True)
        below = f"S{level}"
    assert ledger.leaves(below) == ["m1"]
    assert ledger.measure().distinct_source_spans == 1


# -- forgetting


def test_what_a_summary_stands_on_is_not_forgotten_before_it() -> None:
    """S2 of S1 of two archived spans: only the stray message goes. Once S2 has left, all goes, in whatever order it is told."""
    ledger = Ledger()
    spans(ledger, "m1", "m2", "stray")
    ledger.summarize("S1", ["m1", "m2"], 10)
    ledger.summarize("S2", ["S1"], 5)
    ledger.evict(["m1", "m2", "S1"], archived=True)
    ledger.evict(["stray"])
    everything = ["m1", "m2", "stray", "S1", "S2"]
    before = ledger.measure()
    assert ledger.forget(everything) == ["stray"]
    assert ledger.measure() == before
    ledger.evict(["S2"])
    assert sorted(ledger.forget(["m2", "S1", "m1", "S2"])) == ["S1", "S2", "m1", "m2"]
    assert (ledger.lost(), ledger.spans_added) == ([], 3)
    with pytest.raises(LedgerError, match="unknown id 'm1'"):
        ledger.forget(["m1"])


def test_an_archived_copy_of_a_source_is_kept_with_it() -> None:
    """S was made from the copy; the text is in the archive as the original. Without it S would lose its ground."""
    ledger = Ledger()
    spans(ledger, "m")
    ledger.add_raw("again", 100, copy_of="m")
    ledger.summarize("S", ["again"], 10)
    ledger.evict(["m"], archived=True)
    ledger.evict(["again"])
    assert ledger.forget(["m", "again"]) == []
    assert ledger.measure().ungrounded_summaries == 0
    ledger.evict(["S"])
    assert sorted(ledger.forget(["m", "again", "S"])) == ["S", "again", "m"]


def test_spans_are_told_in_the_order_in_which_they_came_whatever_was_forgotten() -> None:
    """Four go, four come and take their places."""
    ledger = Ledger()
    spans(ledger, "a", "b", "c", "d")
    ledger.evict(["a", "c"])
    ledger.forget(["a", "c"])
    spans(ledger, "e", "a", "f")
    ledger.summarize("S", ["f", "e", "d", "a", "b"], 10)
    assert ledger.leaves("S") == ["b", "d", "e", "a", "f"]
    ledger.evict(["S", "a", "b", "e"])
    assert ledger.lost() == ["b", "e", "a"]
    assert ledger.spans_added == 7


def test_a_session_of_100000_spans_stays_small_and_fast() -> None:
    """What is over is forgotten as the session goes on: the ledger keeps what it retains and what that stands on; a measurement
    at the end costs what one at the beginning did."""
    ledger = Ledger()
    window: list[str] = []
    summaries: list[tuple[str, list[str]]] = []
    for n in range(100_000):
        ledger.add_raw(f"m{n}", 100, 0.5)
        window.append(f"m{n}")
        if len(window) == 200:
            covered, window = window[:100], window[100:]
            ledger.summarize(f"S{n}", covered, 50, 0.5)
            ledger.evict(covered, archived=True)
            summaries.append((f"S{n}", covered))
            if len(summaries) > 5:
                name, below = summaries.pop(0)
                ledger.evict([name])
                assert len(ledger.forget([name, *below])) == 101
    assert len(ledger._items) < 1_000
    assert len(ledger._leaves) < 1_000, "places in the masks are used again"
    assert ledger.spans_added == 100_000
    assert ledger.measure().distinct_source_spans == len(window) + 500


@pytest.mark.parametrize(
    "deed",
    [
        lambda one: one.add_raw("m4", 2),
        lambda one: one.add_raw("m4", 2, copy_of="m1"),
        lambda one: one.add_raw("m4", 2, wraps="S"),
        lambda one: one.summarize("m4", ["m1"], 2),
        lambda one: one.restore(["m2"]),
        lambda one: one.restore(["m1"], {"m1": 2**53 - 10}),
        lambda one: one.expand("S"),
    ],
)
def test_a_working_set_of_more_tokens_than_a_record_carries_is_refused_before_anything_is_changed(
    deed: Callable[[Ledger], object],
) -> None:
    """It has 2**53 - 12 raw and 10 of a summary, so that one is left; ``m2``, which has left, had 20."""
    one = Ledger()
    one.add_raw("m2", 20)
    one.evict(["m2"], archived=True)
    one.add_raw("m1", 2**53 - 12)
    one.summarize("S", ["m2"], 10)
    before = one.measure()
    with pytest.raises(LedgerError, match=r"at most 2\*\*53 - 1 can be reported"):
        deed(one)
    assert "m4" not in one
    assert one._measure() == before
    one.restore(["m1"], {"m1": 2**53 - 12})
    one.add_raw("m4", 1)
    assert one.measure().total_tokens == 2**53 - 1
    one.evict(["m1"])
    one.add_raw("m5", 2**53 - 12)
