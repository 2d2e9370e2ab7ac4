"""The local guard inside a session, and what a summarizer call is reported with."""

from __future__ import annotations

import pytest

from leadline.agent import Fact, Session
from leadline.contracts.events import Checkpoint, SessionStart
from leadline.errors import RecallFloorViolation, SalienceInversionError
from tests.agent.support import Sink, command, compact, session


def cross_the_boundary(one: Session) -> None:
    """Two rounds: ratio 0.5 to 0.0, spans 5 to 4, salience rising, depth 2."""
    compact(one)
    one.ledger.add_raw("raw", 40, 0.1)
    one.compacted()
    one.ledger.evict(["raw"])
    one.compacted()


def test_the_guard_reports_or_raises_as_asked_and_the_round_is_sent_first() -> None:
    for mode in ("report", "off"):
        with session(Sink(), guard=mode) as one:
            cross_the_boundary(one)
        assert [type(found) for found in one.warnings] == ([SalienceInversionError] if mode == "report" else [])
    sink = Sink()
    with session(sink, guard="raise") as one, pytest.raises(SalienceInversionError, match="inversion"):
        cross_the_boundary(one)
    assert len(sink.rounds) == 2


def test_a_pinned_hierarchy_is_noticed_after_more_than_five_rounds() -> None:
    """Depth 2 at max_depth 2: the sixth round is the first past the allowance; a capped session is not pinned."""
    with session(Sink(), max_depth=2) as one:
        compact(one)
        for number in range(1, 7):
            one.compacted()
            assert len(one.warnings) == (number == 6)
    with session(Sink(), max_depth=2) as capped:
        compact(capped)
        capped.receive(command(1, "cap-depth", max_depth=2))
        for _ in range(10):
            capped.compacted()
        assert not capped.warnings


def test_a_checkpoint_reports_each_facts_status_from_the_text_and_never_the_text() -> None:
    """One verbatim, one absent; their class and floor go along; the guard names the lost one."""
    sink = Sink()
    facts = [Fact("f1", "budget is 900", fact_class="value"), Fact("f2", "port is 8080", fact_class="value")]
    with session(sink, facts=facts, guard="raise") as one:
        with pytest.raises(RecallFloorViolation, match="f2"):
            one.checkpoint(1, text="The budget is 900 dollars.", output_tokens=7, stop_reason="stop")
        found = one.checkpoint(1, visible=False)
        assert found == {"f1": "unknown", "f2": "unknown"}
        one.checkpoint(1, text="nothing of it", declared_drops={"f1": "done", "f2": "done"})
        one.checkpoint(1)
    calls = [event for event in sink.events if isinstance(event, Checkpoint)]
    assert calls[0].facts is not None
    assert [(item.fact_id, item.status, item.fact_class) for item in calls[0].facts] == [
        ("f1", "verbatim", "value"),
        ("f2", "absent", "value"),
    ]
    assert (calls[0].output_tokens, calls[0].stop_reason) == (7, "stop")
    assert [call.summary_visible for call in calls] == [True, False, True, True]
    assert calls[3].facts is None, "not reported is not the same as nothing kept"
    assert "dollars" not in repr(sink.events)


def test_facts_can_be_declared_later_and_supersede_earlier_ones() -> None:
    """A second start in the same epoch declares f2 in place of f1; f1's absence is then no loss."""
    sink = Sink()
    with session(sink, facts=[Fact("f1", "port is 80")], guard="raise") as one:
        one.declare([Fact("f2", "port is 8080", supersedes="f1")])
        assert one.checkpoint(1, text="port is 8080") == {"f1": "absent", "f2": "verbatim"}
    starts = [event for event in sink.events if isinstance(event, SessionStart)]
    assert [[fact.fact_id for fact in start.facts] for start in starts] == [["f1"], ["f2"]]
