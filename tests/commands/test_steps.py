"""What the fold tells those who watch: which event led to what, what became of commands, and how rounds came."""

from __future__ import annotations

from typing import Any

import pytest

from leadline.commands.fold import Folded
from leadline.commands.lifecycle import Signal
from leadline.contracts.codec import encode
from leadline.contracts.events import Ack, Round
from leadline.contracts.manual import Manual
from leadline.contracts.orders import Tick
from leadline.contracts.session_state import Stage
from leadline.contracts.trace import TraceContext
from leadline.detection import observe as observing
from leadline.detection import quiet
from leadline.detection.policy import FleetPolicy
from leadline.detection.rules import CHECKPOINT_RULES, MAY_FIRE, ROUND_RULES
from leadline.detection.rules.base import Decision, RoundView, Rule
from tests.support.core import WHO, Monitor, ack, checkpoint, end, policy, round_, start, tick

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def sunk(number: int, ratio: float = 0.2) -> Round:
    return round_(number, ratio, summary_depth_max=2, distinct_source_spans=5, query_cosine_retained=0.5)


def told(monitor: Monitor, *events: object, **wire: object) -> Folded:
    """The fold's whole answer to a batch that is applied too."""
    batch = [monitor.append(event, **wire) for event in events]  # type: ignore[arg-type]
    folded = monitor.fold(batch)
    monitor.read(batch)
    return folded


def test_a_healthy_event_is_no_step() -> None:
    folded = told(Monitor(), start(), round_(1), round_(2))
    assert folded.steps == []
    assert folded.rounds == {"f1": 2}
    assert folded.irregular == {}


def test_a_verdict_is_a_step_with_its_event_its_trace_and_its_outputs() -> None:
    monitor = Monitor()
    folded = told(monitor, start(), round_(1), sunk(2), headers=[("traceparent", TRACE.encode())])
    (step,) = folded.steps
    assert step.record.offset == 2
    assert step.receive == monitor.now
    assert step.trace == TraceContext(TRACE)
    assert folded.outputs[step.outputs] == folded.outputs
    assert {item.rule for item in folded.outputs} == {"provenance-floor"}
    assert step.moves == ()


def test_acknowledgement_recovery_and_its_release_are_moves() -> None:
    monitor = Monitor()
    monitor.send(start(), round_(1), sunk(2))
    (halt,) = monitor.commands
    (accepted,) = told(monitor, ack(halt)).steps
    assert isinstance(accepted.event, Ack)
    (move,) = accepted.moves
    assert (move.signal, move.stage, move.incident.rule) == (Signal.ACCEPTED, Stage.ACCEPTED, "provenance-floor")
    assert move.command is not None
    assert (move.command.command_id, move.command.stage) == (halt.command_id, Stage.ISSUED)
    well = round_(3, 0.9, summary_depth_max=2)
    (recovered,) = (
        step for step in told(monitor, well, round_(4, 0.9), round_(5, 0.9)).steps if step.outputs.start < step.outputs.stop
    )
    assert [(move.signal, move.stage) for move in recovered.moves] == [(Signal.RECOVERED, Stage.RESOLVED)]
    resume = monitor.commands[-1]
    assert resume.kind == "resume"
    (released,) = told(monitor, ack(resume, "done")).steps
    assert [(move.signal, move.stage) for move in released.moves] == [(Signal.DONE, Stage.RESOLVED)]


def test_a_deadline_is_a_step_of_the_timer() -> None:
    monitor = Monitor()
    monitor.send(start(), round_(1), sunk(2))
    monitor.now += FleetPolicy().command_ttl_ms
    (step,) = told(monitor, tick(monitor.now)).steps
    assert isinstance(step.event, Tick)
    assert step.trace == TraceContext()
    assert [move.signal for move in step.moves] == [Signal.DEADLINE]
    assert [item.kind for item in monitor.commands] == ["halt", "halt"]


def test_doubled_reordered_late_and_missing_rounds_are_counted_in_the_batch() -> None:
    """After rounds 1 and 4 (two are missing) come 4 again, 3 at last, and round 1 of long ago."""
    monitor = Monitor()
    folded = told(monitor, start(), round_(1), round_(4), round_(4), round_(3), round_(100), round_(2))
    assert folded.irregular == {"gaps": 97, "duplicates": 1, "reordered": 1, "late": 1}
    assert folded.rounds == {"f1": 4}, "1, 4, 3 and 100 were judged"
    assert told(monitor, round_(101)).irregular == {}, "only what this batch adds"


def test_rounds_of_an_old_epoch_or_after_the_end_are_not_judged() -> None:
    monitor = Monitor()
    folded = told(monitor, round_(1, epoch=1), round_(2, epoch=0), round_(2, epoch=1), end(epoch=1), round_(3, epoch=1))
    assert folded.irregular == {"stale_epoch": 1, "after_end": 1}
    assert folded.rounds == {"f1": 2}


def test_what_a_person_or_a_policy_ends_is_no_recovery() -> None:
    """Nothing was measured: the move says who ended it, and so does the command that releases the agent."""
    monitor = Monitor()
    monitor.send(start(), round_(1), sunk(2))
    by_hand = Manual(**WHO, event_id="m1", action="resume", rule="provenance-floor", who="ada", why="a drill")
    (step,) = told(monitor, by_hand).steps
    assert [(move.signal, move.stage) for move in step.moves] == [(Signal.RELEASED, Stage.RESOLVED)]
    assert monitor.commands[-1].reason == "released by hand by ada: a drill"
    monitor = Monitor()
    monitor.send(start(), round_(1), sunk(2))
    monitor.policy = policy(modes={"provenance-floor": "shadow"})
    (step,) = told(monitor, sunk(3)).steps
    assert [(move.signal, move.stage) for move in step.moves] == [(Signal.WITHDRAWN, Stage.RESOLVED)]
    assert monitor.commands[-1].reason == "withdrawn: provenance-floor is in mode shadow now"


def test_what_was_applied_before_is_counted_once() -> None:
    monitor = Monitor()
    batch = [monitor.append(event) for event in (start(), round_(1), round_(4))]
    monitor.read(batch)
    again = monitor.fold(batch)
    assert again.irregular == {}
    assert again.rounds == {}
    assert again.ignored == {"replayed": 3}
    assert encode(round_(4)) == batch[2].value


def test_a_rule_that_raises_takes_no_other_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its failure is told; a neighbour still finds the placeholder summary; a later event is judged as ever."""

    def broken(view: object) -> Decision:
        raise ZeroDivisionError

    rules = tuple(rule._replace(judge=broken) if rule.name == "budget-open" else rule for rule in CHECKPOINT_RULES)
    monkeypatch.setattr("leadline.detection.observe.CHECKPOINT_RULES", rules)
    monitor = Monitor()
    folded = told(monitor, start(), checkpoint(0, output_tokens=0))
    assert folded.failures == {"budget-open": 1}
    assert {item.rule for item in folded.outputs} == {"silent-drop"}
    assert folded.dead_letters == []
    assert {item.rule for item in told(monitor, round_(1), sunk(2)).outputs} == {"provenance-floor"}


@pytest.mark.parametrize("part", ["may_fire", "judge", "message", "parameters"])
def test_a_rule_of_rounds_that_raises_takes_no_other_with_it(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the way that asks only the rules which may fire: `inversion` would fire here and has a defect in one of its parts. That
    is told; the span floor is found all the same. Where only the look ahead is broken the rule is asked, and finds what it finds.
    """

    def broken(*_: object) -> bool:
        raise ZeroDivisionError

    changes: dict[str, Any] = {part: broken}

    def mend(rule: Rule[RoundView]) -> Rule[RoundView]:
        return rule._replace(**changes) if rule.name == "inversion" else rule

    monkeypatch.setattr(observing, "ROUND_RULES", tuple(map(mend, ROUND_RULES)))
    monkeypatch.setattr(quiet, "MAY_FIRE", tuple(tuple(map(mend, rules)) for rules in MAY_FIRE))
    monitor = Monitor()
    falling = round_(1, 0.2, summary_depth_max=2, distinct_source_spans=100, query_cosine_retained=0.4)
    folded = told(monitor, start(), falling, sunk(2))
    assert folded.failures["inversion"] >= 1
    found = {item.rule for item in folded.outputs}
    assert "provenance-floor" in found
    assert ("inversion" in found) is (part == "may_fire")
    assert folded.dead_letters == []
    assert monitor.state().last_round == 2


@pytest.mark.parametrize("part", ["exit", "improved"])
def test_what_a_rule_has_open_stands_where_it_raises(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monitor = Monitor()
    told(monitor, start(), round_(1), sunk(2))

    def broken(*_: object) -> bool:
        raise ZeroDivisionError

    changes: dict[str, Any] = {part: broken}
    rules = tuple(rule._replace(**changes) if rule.name == "provenance-floor" else rule for rule in ROUND_RULES)
    monkeypatch.setattr(observing, "ROUND_RULES", rules)
    folded = told(monitor, round_(3))
    assert folded.failures == {"provenance-floor": 1}
    assert [incident.rule for incident in monitor.state().incidents] == ["provenance-floor"]
    assert monitor.state().last_round == 3
