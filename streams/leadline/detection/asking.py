"""Asking one rule about one view, and putting words to what it found. Pure."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

from msgspec import Struct

from leadline.contracts.orders import Action, CommandKind, Measured, Parameters, Severity
from leadline.contracts.session_state import Incident, SessionState
from leadline.detection import bounded
from leadline.detection.calls import call_input
from leadline.detection.policy import FleetPolicy
from leadline.detection.rules.base import CheckpointView, Decision, Evidence, Exit, PresenceView, RoundView, Rule

__all__ = ["FAILED", "Finding", "Reasons", "ask", "failed", "standing"]

V = TypeVar("V", RoundView, CheckpointView, PresenceView)

Reasons = list[tuple[str, Decision]]
"""What each rule that was asked said, fired or not."""

_NO_PARAMETERS = Parameters()


FAILED = Decision(False, "rule-failed")
"""Of a rule that raised instead of deciding. What it has open stands."""


class Finding(Struct, frozen=True, gc=False):
    """A rule that fired, or that has an incident open and says how it stands."""

    rule: str
    subject: str
    """``L2`` for a checkpoint level, empty for the session as a whole."""
    decision: Decision
    exit: Exit
    improved: bool
    """Against the measurement at which the open incident began."""
    extent: int = 0
    severity: Severity = "info"
    action: Action = "none"
    message: str = ""
    threshold: dict[str, float] = {}
    evidence: Evidence = {}
    parameters: Parameters = _NO_PARAMETERS
    facts: tuple[str, ...] = ()
    on_repeat: CommandKind | None = None
    round: int | None = None
    level: int | None = None
    call_input: int | None = None
    before: Measured | None = None
    now: Measured | None = None


class _Place(NamedTuple):
    """Where in the session's life a finding was made."""

    round: int | None = None
    level: int | None = None
    call_input: int | None = None
    before: Measured | None = None
    now: Measured | None = None


def standing(state: SessionState, rule: str, subject: str) -> Incident | None:
    """The incident that ``rule`` has open about ``subject``, if any."""
    for item in state.incidents:
        if item.rule == rule and item.subject == subject and not item.releasing:
            return item
    return None


def ask(
    rule: Rule[V],
    view: V,
    state: SessionState,
    policy: FleetPolicy,
    subject: str,
    findings: list[Finding],
    reasons: Reasons | None,
) -> bool:
    """Ask one rule; put words to it only where it fired or has an incident open. Returns whether it fired.

    A rule that raises has a defect: that is a finding too (:data:`FAILED`), and the other rules are asked all the same.
    """
    if policy.modes and policy.mode(rule.name) == "off":
        return False
    try:
        decision = rule.judge(view)
        known = standing(state, rule.name, subject) if state.incidents else None
        if decision.fired:
            findings.append(_fired(rule, view, known, subject, decision))
        elif known is not None:
            findings.append(_stands(rule, view, known, subject, decision))
    except Exception:
        findings.append(failed(rule, subject))
        return False
    if reasons is not None:
        reasons.append((rule.name, decision))
    return decision.fired


def failed(rule: Rule[V], subject: str = "") -> Finding:
    """What there is to say of a rule that raised."""
    return Finding(rule.name, subject, FAILED, Exit.STANDING, False)


def _stands(rule: Rule[V], view: V, known: Incident, subject: str, decision: Decision) -> Finding:
    asked = view._replace(incident=known) if isinstance(view, CheckpointView) else view
    place = _place(view)
    return Finding(
        rule.name,
        subject,
        decision,
        rule.exit(asked, decision),
        _improved(rule, view, known),
        _extent(rule, view) or 0,
        round=place.round,
        level=place.level,
        call_input=place.call_input,
        before=place.before,
        now=place.now,
    )


def _fired(rule: Rule[V], view: V, known: Incident | None, subject: str, decision: Decision) -> Finding:
    place = _place(view)
    # Words are made where somebody will read them: an incident that has its command needs no more.
    told = known is not None and known.command is not None and rule.on_repeat is None
    return Finding(
        rule.name,
        subject,
        decision,
        Exit.STANDING,
        _improved(rule, view, known),
        _extent(rule, view) or 0,
        rule.severity,
        rule.action(view),
        "" if told else bounded.said(rule.message(view)),
        {} if known is not None else bounded.thresholds(rule.threshold(view)),
        {} if known is not None else bounded.shown(rule.evidence(view)),
        bounded.told(rule.parameters(view)),
        bounded.named(rule.facts(view)),
        rule.on_repeat,
        place.round,
        place.level,
        place.call_input,
        place.before,
        place.now,
    )


def _extent(rule: Rule[V], view: V) -> int | None:
    return None if rule.extent is None else rule.extent(view)


def _improved(rule: Rule[V], view: V, known: Incident | None) -> bool:
    if rule.improved(view, known.opening if known is not None else None):
        return True
    extent = _extent(rule, view)
    return known is not None and extent is not None and extent < known.extent


def _place(view: RoundView | CheckpointView | PresenceView) -> _Place:
    if isinstance(view, RoundView):
        before = view.prev.measured() if view.prev is not None else None
        return _Place(view.now.round if view.event is None else view.event.round, None, None, before, view.now.measured())
    if isinstance(view, CheckpointView):
        checkpoint = view.checkpoint
        return _Place(checkpoint.round, checkpoint.level, call_input(checkpoint))
    return _Place(view.round)
