"""The local guard inside a session, and what a summarizer call is reported with."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from leadline.agent import Fact, Session, State
from leadline.agent.presence import Presence
from leadline.contracts.events import Checkpoint, SessionStart
from leadline.contracts.session_state import SessionState
from leadline.detection.observe import observe
from leadline.detection.policy import FleetPolicy
from leadline.errors import RecallFloorViolation, SalienceInversionError
from tests.agent.support import START, Sink, command, compact, session


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


@pytest.mark.parametrize(("trigger", "outcome"), [("hold", "ok"), ("rehydrate", "ok"), ("budget", "skipped")])
def test_an_agent_that_obeys_a_halt_is_not_pinned_by_that(trigger: str, outcome: Any) -> None:
    """Five passes at the limit, ten rounds in which none ran, then the sixth pass."""
    with session(Sink(), max_depth=2, guard="raise") as one:
        compact(one)
        for _ in range(5):
            one.compacted()
        for _ in range(10):
            one.compacted(trigger, outcome=outcome)
        with pytest.raises(SalienceInversionError, match="depth-pin: hierarchy pinned at depth 2 for 6 rounds"):
            one.compacted()


class Step(NamedTuple):
    """One round, or what happens between two."""

    depth: int = 3
    trigger: str = "budget"
    outcome: Any = "ok"
    cap: bool = False
    retracted: bool = False


steps = st.builds(
    Step,
    st.sampled_from([3, 3, 3, 3, 3, 2]),
    st.sampled_from(["budget", "budget", "hold", "rehydrate", "manual"]),
    st.sampled_from(["ok", "ok", "ok", "skipped", "failed"]),
    st.sampled_from([False] * 15 + [True]),
    st.sampled_from([False] * 7 + [True]),
)


@settings(max_examples=60)
@given(st.lists(steps, max_size=20))
@example([Step()] * 5 + [Step(trigger="hold"), Step(outcome="skipped"), Step(), Step(retracted=True), Step(), Step()])
def test_a_session_finds_itself_pinned_where_the_monitor_does(steps: list[Step]) -> None:
    """And waits for a verdict, closed where it has none, on just these rounds. A pass at the limit may be taken back."""
    sink, state = Sink(), SessionState("s-1", "a-1")
    waiting: dict[str, Any] = {"hold": "hold-on-compact", "hold_seconds": 0.0, "fail_closed": ["*"]}
    one = session(sink, presence=Presence(lambda: 0.0), session_start_spans=10, **waiting)
    one.start()
    for number in range(10):
        one.ledger.add_raw(f"m{number}", 100, 0.4)
    below = "m0"
    for name in ("S1", "S2", "S3"):
        one.ledger.summarize(name, [below], 10, 0.4)
        below = name
    told, depth = 0, 3
    for step in steps:
        if step.cap:
            one.receive(command(1, "cap-depth", max_depth=2))
            state.depth_cap = 2
        if step.depth > depth:
            below = f"{below}+"
            one.ledger.summarize(below, ["S2"], 10, 0.4)
        elif step.depth < depth:
            one.ledger.evict([below])
        depth = step.depth
        before = len(one.warnings)
        one.compacted(step.trigger, outcome=step.outcome)
        found = [str(warning) for warning in list(one.warnings)[before:]]
        if step.retracted and step.depth == 3 and (step.trigger, step.outcome) == ("budget", "ok"):
            one.retract()
        pinned = False
        for event in sink.events[told:]:
            seen = observe(state, event, START, FleetPolicy())
            state = seen.state
            fired = any(finding.rule == "depth-pin" and finding.decision.fired for finding in seen.findings)
            pinned = pinned or fired
        told = len(sink.events)
        assert ([text.split(":")[0] for text in found] == ["depth-pin"]) == pinned, found
        assert (one.state is State.HELD) == pinned


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
