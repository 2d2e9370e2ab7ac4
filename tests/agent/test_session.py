"""A session reports what its ledger measures."""

from __future__ import annotations

import pytest

from leadline.agent import Fact
from leadline.contracts.events import Round, SessionEnd, SessionStart
from leadline.contracts.times import format_ms
from leadline.errors import Refused
from tests.agent.support import START, Clock, Sink, compact, session


def test_the_life_of_a_session_on_the_wire() -> None:
    """Start with policy and facts, a round measured from the ledger, the end; every event with an id of its own."""
    sink, clock = Sink(), Clock()
    facts = [Fact("f1", "never deploy on Friday", fact_class="rule", recall_floor=1.0)]
    with session(sink, clock, facts=facts, fleet="research", fixed_tokens=500, session_start_spans=3) as one:
        before = one.measure()
        compact(one)
        clock.now += 1_000
        one.compacted("budget", before=before)
    start, rounded, end = sink.events
    assert isinstance(start, SessionStart)
    assert (start.session_id, start.agent_id, start.fleet, start.epoch) == ("s-1", "a-1", "research", 7)
    assert (start.policy.token_budget, start.policy.max_depth, start.session_start_spans) == (10_000, 3, 3)
    assert [(fact.fact_id, fact.fact_class, fact.recall_floor) for fact in start.facts] == [("f1", "rule", 1.0)]
    assert isinstance(rounded, Round)
    assert (rounded.round, rounded.trigger, rounded.ts) == (1, "budget", format_ms(START + 1_000))
    assert (rounded.raw_tokens, rounded.summary_tokens, rounded.distinct_source_spans) == (0, 40, 4)
    assert (rounded.query_cosine_retained, rounded.summary_depth_max) == (0.8, 2)
    assert (rounded.session_start_spans, rounded.token_budget, rounded.fixed_tokens) == (3, 10_000, 500)
    assert rounded.before is not None
    assert rounded.before.raw_tokens == 0
    assert isinstance(end, SessionEnd)
    assert len({event.event_id for event in sink.events}) == 3


def test_the_baseline_is_what_was_there_before_the_first_round() -> None:
    """Not given: 4 spans before the first round; it stays 4 when more come."""
    sink = Sink()
    with session(sink) as one:
        compact(one)
        one.compacted()
        one.ledger.add_raw("more", 10)
        one.compacted()
    assert [rounded.session_start_spans for rounded in sink.rounds] == [4, 4]


def test_a_compaction_block_is_measured_before_and_after_and_reports_failure() -> None:
    """The second block raises: reported as failed, and the error goes on to the agent."""
    sink = Sink()
    with session(sink) as one:
        with one.compaction("budget"):
            compact(one)
        with pytest.raises(KeyError), one.compaction("budget"):
            raise KeyError("summarizer")
    first, second = sink.rounds
    assert first.before is not None
    assert (first.before.raw_tokens, first.summary_tokens, first.outcome) == (0, 40, "ok")
    assert (second.round, second.outcome) == (2, "failed")


def test_a_round_can_be_taken_back() -> None:
    """Field case: completed, then failed: the same number again, as failed; the next has a new one."""
    sink = Sink()
    with session(sink) as one:
        one.ledger.add_raw("m", 10)
        one.retract()
        one.compacted()
        one.retract()
        one.compacted()
        one.retract()
        one.retract()
    told = [(rounded.round, rounded.outcome) for rounded in sink.rounds]
    assert told == [(1, "ok"), (1, "failed"), (2, "ok"), (2, "failed")]


def test_the_guard_compares_with_the_round_before_one_that_was_taken_back() -> None:
    """Ratio 0 throughout, salience rising. Spans 4, then 3 and an inversion, taken back; then 4: against 4 that is none."""
    with session(Sink()) as one:
        archive = compact(one)
        one.compacted()
        one.ledger.evict(["m0"])
        one.ledger.rescore({"S2": 0.85})
        one.compacted()
        assert len(one.warnings) == 1
        one.retract()
        one.ledger.restore(["m0"])
        one.ledger.evict(["m0"], archived=True)
        one.ledger.rescore({"S2": 0.9})
        one.compacted()
        assert len(one.warnings) == 1
        assert set(archive) == set(one.ledger.leaves("S2"))


def test_spans_dropped_for_good_are_counted_per_round() -> None:
    """Two are evicted without an archive before the first round, none before the second."""
    sink = Sink()
    with session(sink) as one:
        for n in range(3):
            one.ledger.add_raw(f"m{n}", 10)
        one.ledger.evict(["m0", "m1"])
        one.ledger.evict(["m2"], archived=True)
        one.compacted()
        one.compacted()
    assert [rounded.dropped_spans for rounded in sink.rounds] == [2, 0]


def test_a_restarted_session_is_in_a_later_epoch() -> None:
    """Nobody gave one: it is taken from the clock, and so rises with every restart, within one millisecond too."""
    clock = Clock()
    first, again = session(Sink(), clock, epoch=None), session(Sink(), clock, epoch=None)
    clock.now += 1
    assert first.epoch < again.epoch < session(Sink(), clock, epoch=None).epoch


def test_ids_that_no_record_can_carry_are_refused_at_once() -> None:
    for name, wrong in (("session_id", ""), ("agent_id", ""), ("agent_id", "x" * 257), ("fleet", "x" * 257)):
        with pytest.raises(Refused, match=name):
            session(Sink(), None, **{name: wrong})
    session(Sink(), fleet="")
