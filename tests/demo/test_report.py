"""The verdict: each way in which a run can fall short shows, and is not ok."""

from __future__ import annotations

import io
import re

from rich.console import Console

from leadline.contracts.orders import Command, Parameters, Violation
from leadline.demo.fleet import AgentPlan, AgentResult, Heard
from leadline.demo.kinds import KINDS
from leadline.demo.observer import Observed
from leadline.demo.report import Report, judge, percentile

BAD = AgentPlan("bad", "a1", "inverting", 1)
GOOD = AgentPlan("good", "a2", "healthy", 1)
DRIFTING = AgentPlan("adrift", "a3", "drifting", 1)


def violation(session: str, rule: str) -> Violation:
    return Violation(
        violation_id=f"vio-{session}-{rule}",
        incident_id=f"inc-{session}-{rule}",
        rule=rule,
        reason="",
        severity="critical",
        mode="enforce",
        session_id=session,
        agent_id="a",
        fleet="demo",
        epoch=0,
        detected_at="",
        message="",
        action="halt",
    )


def command(session: str, kind: str, seq: int, rule: str = "inversion") -> Command:
    return Command(
        command_id=f"cmd-{session}-{seq}",
        seq=seq,
        incident_id=f"inc-{session}-{rule}",
        kind=kind,  # type: ignore[arg-type]
        session_id=session,
        agent_id="a",
        fleet="demo",
        epoch=0,
        issued_at="",
        expires_at="",
        attempt=1,
        rule=rule,
        reason="",
        parameters=Parameters(),
    )


def result(
    session: str, *, unreleased: tuple[str, ...] = (), state: str = "running", latency: float | None = None, dropped: int = 0
) -> AgentResult:
    heard = [Heard("cmd", "inc", "halt", latency)]
    return AgentResult(session, 10, 1, state, 0.4, heard, list(unreleased), dropped)


def judged(seen: Observed, *results: AgentResult, plans: tuple[AgentPlan, ...] = (BAD, GOOD)) -> Report:
    return judge(plans, results, seen, seconds=1.0, broker="test")


def seen_with(*records: Violation | Command, acked: tuple[str, ...] = ()) -> Observed:
    seen = Observed()
    for record in records:
        if isinstance(record, Violation):
            seen.violations[record.violation_id] = record
        else:
            seen.commands[record.command_id] = record
    seen.acks = {command_id: {"accepted"} for command_id in acked}
    return seen


HALT, RESUME = command("bad", "halt", 1), command("bad", "resume", 2)
FOUND = violation("bad", "inversion")


def test_found_halted_and_recovered_is_ok() -> None:
    """Violation, halt, acknowledged resume, and the agent may compact again."""
    report = judged(seen_with(FOUND, HALT, RESUME, acked=(HALT.command_id, RESUME.command_id)), result("bad"), result("good"))
    assert report.ok
    assert (report.missed, report.false_halts, report.halted, report.recovered) == (0, 0, 1, 1)
    assert (report.commands, report.acknowledged) == (2, 2)


def test_missed() -> None:
    """Another rule than the planted one is no find."""
    report = judged(seen_with(violation("bad", "drift")), result("bad"), result("good"))
    assert not report.ok
    assert report.missed == 1


def test_a_violation_without_its_command_is_no_find() -> None:
    """The rule fired and nothing was sent, or a resume alone, or an order of another kind: there is nothing to release, and still
    the run is not ok. What only drifts needs no command."""
    cap = command("bad", "cap-depth", 1)
    for sent in ((), (RESUME,), (cap, RESUME)):
        report = judged(seen_with(FOUND, *sent, acked=tuple(one.command_id for one in sent)), result("bad"), result("good"))
        assert (report.missed, report.ok) == (1, False), sent
    report = judged(seen_with(violation("adrift", "drift")), result("adrift"), plans=(DRIFTING,))
    assert (report.missed, report.ok) == (0, True)


def test_a_lost_event_is_not_ok() -> None:
    """All is well but for two events that an agent could not send: the sentence tells how many."""
    report = judged(
        seen_with(FOUND, HALT, RESUME, acked=(HALT.command_id, RESUME.command_id)), result("bad", dropped=2), result("good")
    )
    assert not report.ok
    assert "2 events lost" in report.sentence()


def test_false_halt() -> None:
    """A halt of a healthy session, or of one that only drifts, is false even when it was released."""
    for plan in (GOOD, DRIFTING):
        halt, resume = command(plan.session_id, "halt", 1), command(plan.session_id, "resume", 2)
        seen = seen_with(violation(plan.session_id, plan.kind), halt, resume, acked=(halt.command_id, resume.command_id))
        report = judged(seen, result(plan.session_id), plans=(plan,))
        assert report.false_halts == 1
        assert not report.ok


def test_not_recovered() -> None:
    """No resume; a resume that nobody took; an agent that still thinks it is halted; an agent that says nothing."""
    both = (HALT.command_id, RESUME.command_id)
    cases = [
        (seen_with(FOUND, HALT, acked=both), [result("bad", unreleased=("inc-bad-inversion",), state="halted")]),
        (seen_with(FOUND, HALT, RESUME, acked=(HALT.command_id,)), [result("bad")]),
        (seen_with(FOUND, HALT, RESUME, acked=both), [result("bad", state="halted")]),
        (seen_with(FOUND, HALT, RESUME, acked=both), []),
    ]
    for seen, results in cases:
        report = judged(seen, *results, plans=(BAD,))
        assert (report.halted, report.recovered) == (1, 0)
        assert not report.ok


def test_percentiles_are_measured_values() -> None:
    """Nearest rank; unknown without any."""
    values = [float(value) for value in range(1, 101)]
    assert percentile(values, 0.5) == 50.0
    assert percentile(values, 0.99) == 99.0
    assert percentile([7.0], 0.5) == 7.0
    assert percentile([], 0.5) is None


def test_the_tables_fit_80_columns_with_ids_and_rules_whole() -> None:
    """A run with every kind: no line is longer, nothing is cut, the sentence breaks between words,
    healthy sessions are summed up."""
    plans = [AgentPlan(f"demo-0a1b2c-{n:03d}", f"agent-{n:03d}", kind.name, n) for n, kind in enumerate(KINDS)]
    records: list[Violation | Command] = []
    for plan, kind in zip(plans, KINDS, strict=True):
        if kind.rule:
            records += [violation(plan.session_id, rule) for rule in ("masked", "erosion", kind.rule)]
        if kind.command:
            records.append(command(plan.session_id, kind.command, 1, kind.rule))
            records.append(command(plan.session_id, "resume", 2, kind.rule))
    acked = tuple(one.command_id for one in records if isinstance(one, Command))
    report = judged(seen_with(*records, acked=acked), *(result(plan.session_id) for plan in plans), plans=tuple(plans))
    out = io.StringIO()
    report.show(Console(file=out, width=80, force_terminal=True, color_system=None, soft_wrap=True))
    shown = out.getvalue()
    assert max(map(len, shown.splitlines())) <= 80
    assert "…" not in shown
    for plan, kind in zip(plans, KINDS, strict=True):
        assert (plan.session_id in shown) == kind.planted
        assert kind.name in shown
        assert kind.rule in shown
        assert f"{kind.name}  " in shown
        assert kind.says in shown
    assert "2 more" in shown
    assert re.sub(r"\s+", " ", shown).strip().endswith(report.sentence())
