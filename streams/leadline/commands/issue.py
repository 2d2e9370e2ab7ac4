"""Making the records that go out: violations and commands, with ids derived from their cause."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from leadline.commands.lifecycle import Signal
from leadline.contracts import ids
from leadline.contracts.codec import Event
from leadline.contracts.events import Round
from leadline.contracts.manual import Manual
from leadline.contracts.orders import Action, Cause, Command, CommandKind, Parameters, Tick, Violation
from leadline.contracts.session_state import CommandState, Incident, SessionState, Stage
from leadline.contracts.text import safe
from leadline.contracts.times import format_ms
from leadline.detection.observe import Finding
from leadline.detection.policy import FleetPolicy
from leadline.detection.rounds import Arrival
from leadline.detection.rules import UNHEEDED
from leadline.detection.rules.base import Decision, Exit

__all__ = [
    "MANUAL",
    "RELEASED_BY_HAND",
    "WITHDRAWN",
    "by_hand",
    "command",
    "opened",
    "opened_by",
    "subject_of",
    "unheeded",
    "violation",
]


MANUAL: Final = "manual"
"""Rule of an incident that a person opened; no measurement opens or ends one."""
RELEASED_BY_HAND: Final = "released by hand"
WITHDRAWN: Final = "withdrawn"
"""How the reason of a ``resume`` begins that no measurement led to: a person's word, or a rule that is enforced no more."""

WHY: Final = {
    Signal.DEADLINE: "no-acknowledgement-or-effect-in-time",
    Signal.NO_EFFECT: "acknowledged-without-effect",
    Signal.REFUSED: "refused",
    Signal.EXPIRED: "expired-at-the-agent",
}
"""Why a command counts as unheeded."""


def opened(state: SessionState, finding: Finding, opened_by: str, policy: FleetPolicy, now: int, cause: Cause) -> Incident:
    """A new incident. ``opened_by`` is the round or event that opened it: the same on every replay."""
    return Incident(
        incident_id=ids.incident_id(state.session_id, state.agent_id, state.epoch, finding.rule, finding.subject, opened_by),
        rule=finding.rule,
        subject=finding.subject,
        mode=policy.mode(finding.rule),
        opened_at=now,
        opened_round=finding.round if finding.round is not None else (state.last_round or 0),
        opening=state.window[-1] if finding.level is None and state.window else None,
        level=finding.level,
        call_input=finding.call_input,
        facts=finding.facts,
        extent=finding.extent,
        cause=cause,
        traceparent=state.traceparent,
        tracestate=state.tracestate,
    )


def violation(state: SessionState, incident: Incident, finding: Finding, sent_at: int, version: str) -> Violation:
    """The one violation of an incident, sent at ``sent_at`` (ms since 1970) under this ``version`` of the policy.

    In shadow mode ``action`` is what enforcement would have done."""
    action: Action = finding.action if incident.mode in ("enforce", "shadow") else "none"
    return Violation(
        violation_id=ids.violation_id(incident.incident_id),
        incident_id=incident.incident_id,
        rule=incident.rule,
        reason=finding.decision.reason,
        severity=finding.severity,
        mode=incident.mode,
        session_id=state.session_id,
        agent_id=state.agent_id,
        fleet=state.fleet,
        epoch=state.epoch,
        detected_at=format_ms(sent_at),
        message=finding.message,
        action=action,
        round=finding.round,
        level=finding.level,
        before=finding.before,
        now=finding.now,
        threshold=finding.threshold,
        evidence=finding.evidence,
        policy=version,
        caused_by=incident.cause,
        traceparent=incident.traceparent,
        tracestate=incident.tracestate,
    )


def command(
    state: SessionState,
    incident: Incident,
    kind: CommandKind,
    attempt: int,
    parameters: Parameters,
    reason: str,
    policy: FleetPolicy,
    now: int,
    sent_at: int,
    version: str,
) -> tuple[Incident, Command]:
    """Issue a command for ``incident``; takes the next ``seq`` from ``state`` (a working copy).

    ``now`` is the time of the event that led here, and all that the state remembers: the same on every replay. ``sent_at``, on
    the wire, is the time of sending: an agent must not drop as expired what a monitor that was away sends late.
    """
    seq = state.next_seq
    state.next_seq = seq + 1
    record = Command(
        command_id=ids.command_id(incident.incident_id, kind, attempt),
        seq=seq,
        incident_id=incident.incident_id,
        kind=kind,
        session_id=state.session_id,
        agent_id=state.agent_id,
        fleet=state.fleet,
        epoch=state.epoch,
        issued_at=format_ms(sent_at),
        expires_at=format_ms(sent_at + policy.command_ttl_ms),
        attempt=attempt,
        rule=incident.rule,
        reason=reason,
        parameters=parameters,
        policy=version,
        caused_by=incident.cause,
        traceparent=incident.traceparent,
        tracestate=incident.tracestate,
    )
    kept = CommandState(
        command_id=record.command_id,
        seq=seq,
        kind=kind,
        stage=Stage.ISSUED,
        attempt=attempt,
        issued_at=now,
        deadline=now + policy.command_ttl_ms,
        parameters=parameters,
        reason=reason,
    )
    return replace(incident, command=kept), record


def subject_of(incident: Incident) -> str:
    """What an ``unheeded`` incident is about: the rule, and the level if it has one."""
    return f"{incident.rule}/{incident.subject}" if incident.subject else incident.rule


def by_hand(state: SessionState, event: Manual) -> Finding:
    """A person halts the session."""
    return Finding(
        MANUAL,
        "",
        Decision(True, "halted-by-hand"),
        Exit.STANDING,
        improved=False,
        severity="warning",
        action="halt",
        message=f"halted by hand by {safe(event.who, 100)}: {safe(event.why, 300)}",
        evidence={"who": safe(event.who, 100)},
        round=state.last_round,
        now=state.window[-1].measured() if state.window else None,
    )


def unheeded(state: SessionState, parent: Incident, failed: CommandState, why: str, policy: FleetPolicy) -> Finding:
    """A command of ``parent`` had no acknowledgement, or no effect, after its attempts."""
    subject = subject_of(parent)
    return Finding(
        UNHEEDED,
        subject,
        Decision(True, why),
        Exit.STANDING,
        improved=False,
        severity="critical",
        # An agent that only its release did not reach is sound: people are told, it is not stopped.
        action="none" if failed.kind == "resume" else "stop-agent",
        message=f"{failed.kind} for {subject} was not heeded ({why}) after {failed.attempt} of {policy.attempts} attempts",
        threshold={"attempts": policy.attempts},
        evidence={"command_id": failed.command_id, "kind": failed.kind},
        round=state.last_round,
        now=state.window[-1].measured() if state.window else None,
    )


def opened_by(event: Event, state: SessionState, arrival: Arrival | None) -> str:
    """What names the opening on every replay: the round, the event's id, or the last event before the silence."""
    # What others opened in the session's name must not have the ids of what its fleet opens.
    return _opened_by(event, state, arrival) + (" signed" if state.taken_over else "")


def _opened_by(event: Event, state: SessionState, arrival: Arrival | None) -> str:
    if type(event) is Round:
        if arrival in (Arrival.DUPLICATE, Arrival.LATE):
            # The round has been there before, and so may have been an incident that it opened.
            counts = state.counts
            return f"again {counts.duplicates + counts.late + counts.stale_epoch}"
        # A round that was taken back or done again may open what it opened before.
        return f"r{event.round}" + (f" again {state.counts.superseded}" if state.counts.superseded else "")
    if type(event) is Tick:
        return f"after {state.last_seen}"
    # An agent may use an event id twice; two incidents must not have one id.
    return f"{event.event_id}#{state.opened}"
