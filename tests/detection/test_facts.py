"""Declared facts, followed from level to level."""

from __future__ import annotations

from typing import Any

import pytest

from leadline.contracts import limits
from leadline.contracts.codec import Event
from leadline.contracts.events import Checkpoint, Fact, FactState
from leadline.contracts.session_state import FactRecord
from leadline.detection.observe import Finding
from tests.detection.seen import Seen, watch
from tests.support.core import checkpoint, declared, round_, start, status


def lost(seen: Seen) -> tuple[str, ...]:
    return recall(seen).facts


def recall(seen: Seen) -> Finding:
    (found,) = [item for item in seen.last.findings if item.rule == "recall-floor"]
    return found


def fact(seen: Seen, name: str = "C1") -> FactRecord:
    return seen.state.facts[name]


ONE = start(declared("C1"))


@pytest.mark.parametrize(
    ("state", "record"),
    [
        ("verbatim", FactRecord("constraint", kept_level=1)),
        ("abstracted", FactRecord("constraint", kept_level=1)),
        ("absent", FactRecord("constraint", lost_level=1)),
        ("unknown", FactRecord("constraint")),
    ],
)
def test_what_became_of_a_fact_is_noted(state: FactState, record: FactRecord) -> None:
    assert fact(watch(ONE, checkpoint(1, {"C1": state}))) == record


def test_the_three_levels_of_the_document() -> None:
    """Verbatim at L1, abstracted at L2, absent at L3: no level exceeded its budget, none reported a drop; the loss is L3's."""
    seen = watch(ONE, checkpoint(1, {"C1": "verbatim"}), checkpoint(2, {"C1": "abstracted"}))
    assert "recall-floor" not in seen.fired
    seen = watch(checkpoint(3, {"C1": "absent"}), state=seen.state)
    assert lost(seen) == ("C1",)
    assert recall(seen).level == 3
    assert fact(seen) == FactRecord("constraint", kept_level=2, lost_level=3)


def test_constraints_are_lost_although_most_facts_survive() -> None:
    """9 of 11 kept: the class of the two decides, and both are named."""
    tasks = [f"T{n}" for n in range(1, 10)]
    begin = start([*declared("C1", "C2", fact_class="constraint"), *declared(*tasks, fact_class="task", floor=0.5)])
    seen = watch(begin, checkpoint(1, dict.fromkeys(tasks, "verbatim")))
    assert lost(seen) == ("C1", "C2")
    found = recall(seen)
    assert found.parameters.facts == ["C1", "C2"]
    assert found.parameters.level == 1
    assert found.evidence == {"lost_facts": ["C1", "C2"], "first_lost_level": 1}
    assert found.threshold == {"recall_floor.constraint": 1.0}
    assert "'constraint' kept 0 of 2 facts (floor 1)" in found.message


def test_empty_lists_are_loss_of_all_nine() -> None:
    names = [f"C{n}" for n in range(9)]
    seen = watch(start(declared(*names)), checkpoint(1, dict.fromkeys(names, "verbatim")), checkpoint(2, {}))
    assert lost(seen) == tuple(names)


def test_absent_lists_are_no_loss_but_marked() -> None:
    """Facts not reported: no false alarm, and the session says so."""
    seen = watch(ONE, checkpoint(0), checkpoint(1))
    assert "recall-floor" not in seen.fired
    assert seen.state.facts_reported is False
    assert fact(seen) == FactRecord("constraint")


def test_once_reported_the_session_stays_marked_as_reporting() -> None:
    assert watch(ONE).state.facts_reported is None
    assert watch(ONE, checkpoint(0, {"C1": "verbatim"}), checkpoint(1)).state.facts_reported is True
    assert watch(ONE, checkpoint(0), checkpoint(1, {})).state.facts_reported is True


def test_an_opaque_summary_leaves_facts_at_risk_never_absent() -> None:
    seen = watch(ONE, checkpoint(1, {"C1": "absent"}, summary_visible=False))
    assert fact(seen) == FactRecord("constraint")
    assert "recall-floor" not in seen.fired


def test_the_loss_is_attributed_to_the_first_level() -> None:
    """L2 inherits what L1 lost: it does not fire, and the record keeps L1."""
    seen = watch(ONE, checkpoint(1, {}), checkpoint(2, {}))
    assert seen.reasons["recall-floor"] == "lost-at-an-earlier-level"
    assert fact(seen).lost_level == 1


def test_a_lower_level_heard_of_later_takes_the_blame() -> None:
    seen = watch(ONE, checkpoint(2, {}), checkpoint(1, {}))
    assert fact(seen).lost_level == 1
    assert lost(seen) == ("C1",)


def test_only_what_is_lost_here_is_named() -> None:
    seen = watch(start(declared("C1", "C2")), checkpoint(1, {"C2": "verbatim"}), checkpoint(2, {}))
    assert lost(seen) == ("C2",)


def test_a_level_summarized_again_regains_the_fact() -> None:
    seen = watch(ONE, checkpoint(1, {}), checkpoint(1, {"C1": "verbatim"}))
    assert fact(seen) == FactRecord("constraint", kept_level=1)
    again = watch(checkpoint(2, {}), state=seen.state)
    assert fact(again).lost_level == 2
    assert lost(again) == ("C1",)


def test_kept_at_a_level_below_says_nothing_of_the_level_that_lost_it() -> None:
    seen = watch(ONE, checkpoint(2, {}), checkpoint(1, {"C1": "verbatim"}))
    assert fact(seen).lost_level == 2


def test_a_declared_drop_excuses_from_then_on() -> None:
    seen = watch(ONE, checkpoint(1, {}, drops=["C1"]), checkpoint(2, {}))
    assert fact(seen).excused == "declared"
    assert "recall-floor" not in seen.fired


def test_a_drop_declared_after_the_loss_does_not_undo_the_alarm() -> None:
    seen = watch(ONE, checkpoint(1, {}))
    assert "recall-floor" in seen.fired


def test_a_drop_of_a_fact_that_nobody_knows_is_ignored() -> None:
    assert watch(ONE, checkpoint(1, {"C1": "verbatim"}, drops=["X"])).state.facts.keys() == {"C1"}


@pytest.mark.parametrize("order", ["same record", "later record"])
def test_a_later_fact_supersedes_an_earlier_one(order: str) -> None:
    new = declared("C2", supersedes="C1")
    begin: list[Event] = [start([*new, *declared("C1")])] if order == "same record" else [ONE, start(new)]
    seen = watch(*begin, checkpoint(1, {"C2": "verbatim"}))
    assert fact(seen).excused == "superseded"
    assert "recall-floor" not in seen.fired


def test_a_fact_that_was_not_declared_is_adopted_with_its_class() -> None:
    call = checkpoint(1, facts=None)
    seen = watch(
        Checkpoint(
            session_id="s1", agent_id="a1", level=call.level, facts=[status("F1", "absent", fact_class="call", recall_floor=1.0)]
        )
    )
    assert seen.state.facts == {"F1": FactRecord("call", 1.0, lost_level=1)}
    assert lost(seen) == ("F1",)


def test_an_open_call_is_a_fact_like_another() -> None:
    """A pending obligation that the compaction swallowed is named; its unknown answer later does no harm."""
    seen = watch(start(declared("F1", fact_class="open-call")), *[round_(n) for n in range(1, 6)], checkpoint(1, {}, round=5))
    assert lost(seen) == ("F1",)
    assert "recall-floor" not in watch(checkpoint(1, {"F9": "verbatim", "F1": "verbatim"}, round=9), state=seen.state).fired


def test_constraints_decline_while_the_depth_is_pinned() -> None:
    """12, 11, 9, ... 0 constraints at depth 2: the alarm comes with the first one lost."""
    names = [f"C{n}" for n in range(12)]
    seen = watch(start(declared(*names)), checkpoint(2, dict.fromkeys(names, "verbatim")))
    assert "recall-floor" not in seen.fired
    seen = watch(checkpoint(2, dict.fromkeys(names[:11], "verbatim")), state=seen.state)
    assert lost(seen) == ("C11",)


def test_identical_input_three_times_is_judged_three_times() -> None:
    """Facts 6, 6, 4, 1 with other event ids: the third call fires, whatever the calls have in common."""
    names = [f"C{n}" for n in range(6)]
    fired = []
    seen = watch(start(declared(*names)))
    for number, kept in enumerate((6, 6, 4, 1)):
        seen = watch(checkpoint(1, dict.fromkeys(names[:kept], "verbatim"), event_id=f"e{number}"), state=seen.state)
        fired.append("recall-floor" in seen.fired)
    assert fired == [False, False, True, True]


def test_the_highest_floor_of_a_class_holds() -> None:
    begin = start([*declared("C1", floor=0.5), *declared("C2", floor=1.0)])
    assert watch(begin, checkpoint(1, {"C1": "verbatim"})).reasons["recall-floor"] == "class-below-floor!"


def test_facts_past_the_bound_are_counted_not_followed() -> None:
    many = declared(*(f"C{n}" for n in range(limits.MAX_KEPT_FACTS + 7)))
    seen = watch(start(many))
    assert len(seen.state.facts) == limits.MAX_KEPT_FACTS
    assert seen.state.counts.overflow == 7
    assert watch(checkpoint(1, {"new": "absent"}), state=seen.state).state.counts.overflow == 8


def test_long_names_fill_the_room_sooner() -> None:
    """256 facts with names of 256 characters each would outgrow what a broker takes as one record."""
    long = [Fact(fact_id=f"{n:03}" + "\x01" * 253, fact_class="\x02" * 256) for n in range(256)]
    seen = watch(start(long))
    assert 0 < len(seen.state.facts) < 64
    assert seen.state.counts.overflow == 256 - len(seen.state.facts)
    known = next(iter(seen.state.facts))
    kept = watch(start([Fact(fact_id=known, fact_class="short")]), state=seen.state)
    assert kept.state.facts[known].fact_class == "short", "one that is known can still change"


def test_what_is_named_is_bounded_masked_and_on_one_line() -> None:
    secret = "password=hunter2\n\x1b[31m<!channel>"
    names = [secret, *(f"fact-{n}-" + "x" * 60 for n in range(100))]
    found = recall(watch(start(declared(*names, fact_class="Authorization: Bearer abcdef123456")), checkpoint(1, {})))
    assert found.message.isprintable()
    assert "hunter2" not in found.message
    assert "abcdef123456" not in found.message
    assert len(found.message) <= limits.MAX_DETAIL + 20
    assert found.parameters.facts is not None
    for named in (found.facts, found.parameters.facts, found.evidence["lost_facts"]):
        assert isinstance(named, list | tuple)
        assert named[0] == secret, "ids themselves stay exact: the agent must find its fact"
        assert 1 < len(named) <= limits.MAX_NAMED_FACTS
        assert sum(len(name.encode()) for name in named) <= limits.MAX_NAMED_BYTES


def test_the_order_of_names_is_that_of_the_declaration() -> None:
    names = ["b", "a", "c"]
    given: dict[str, Any] = {"input_facts": ["c", "a", "b"]}
    assert lost(watch(start(declared(*names)), checkpoint(1, {}, **given))) == ("b", "a", "c")
