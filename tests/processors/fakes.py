"""A tiny fold with the real one's interface: enough state to prove that none is lost, and one rule."""

from __future__ import annotations

from collections.abc import Sequence

from leadline.commands.fold import DeadLetter, Folded, Incoming, Load, Removed
from leadline.contracts.codec import decode_event
from leadline.contracts.events import Round, SessionEnd, SessionStart
from leadline.contracts.ids import command_id, incident_id, state_key, violation_id
from leadline.contracts.orders import Cause, Command, Tick, Violation
from leadline.contracts.session_state import Counts, SessionState
from leadline.contracts.times import format_ms
from leadline.contracts.trace import read_trace
from leadline.detection.policy import Policy
from leadline.errors import Malformed

TICKED = "ticked"


def tiny_fold(batch: Sequence[Incoming], load: Load, policy: Policy, now: int) -> Folded:
    """A round with no raw tokens is a violation and a halt. Counts rounds in ``pinned_rounds``; a start with a
    ``token_budget`` sets a deadline that many milliseconds later; the tick that comes then is a violation too; a
    session's end removes it. ``detail`` of an end that is ``boom`` is a bug in the fold."""
    folded = Folded()
    seen: dict[str, SessionState | None] = {}
    gone: dict[str, int] = {}
    for record in batch:
        if record.value is None:
            folded.ignored["tombstone"] = folded.ignored.get("tombstone", 0) + 1
            continue
        try:
            event = decode_event(record.value).event
            if record.key != event.session_id.encode():
                raise Malformed("key-mismatch", "the key is not the session id")
        except Malformed as error:
            folded.dead_letters.append(DeadLetter(record, error.reason, error.detail))
            continue
        key = state_key(event.session_id, event.agent_id)
        if key not in seen:
            stored = load(key)
            gone[key] = stored.offset if isinstance(stored, Removed) else -1
            seen[key] = None if isinstance(stored, Removed) else stored
        if seen[key] is None and record.offset <= gone[key]:
            folded.states[key] = None
            continue
        state = seen[key] or SessionState(event.session_id, event.agent_id)
        folded.states.setdefault(key, state)
        if record.offset <= state.offset:
            folded.ignored["replayed"] = folded.ignored.get("replayed", 0) + 1
            continue
        state = state.working_copy()
        state.offset = record.offset
        state.last_seen = record.timestamp
        if isinstance(event, SessionStart) and event.policy.token_budget is not None:
            state.deadline = record.timestamp + event.policy.token_budget
        elif isinstance(event, Round):
            state.pinned_rounds += 1
            if event.raw_tokens == 0:
                _halt(folded, record, event.session_id, event.agent_id, "inversion", f"{event.round}")
        elif isinstance(event, Tick):
            state.counts = Counts(late=state.counts.late + 1)
            if state.deadline is not None and record.timestamp >= state.deadline:
                _halt(folded, record, event.session_id, event.agent_id, TICKED, f"{state.deadline}")
                state.deadline = None
        elif isinstance(event, SessionEnd):
            if event.detail == "boom":
                raise RuntimeError("a bug: password=hunter2")
            seen[key] = folded.states[key] = None
            continue
        seen[key] = folded.states[key] = state
    return folded


def _halt(folded: Folded, record: Incoming, session: str, agent: str, rule: str, opened_by: str) -> None:
    trace = read_trace(record.headers)
    incident = incident_id(session, agent, 0, rule, "", opened_by)
    cause = Cause(event_id=opened_by, partition=record.partition, offset=record.offset)
    at = format_ms(max(record.timestamp, 0))
    folded.outputs.append(
        Violation(
            violation_id=violation_id(incident),
            incident_id=incident,
            rule=rule,
            reason="boundary-crossed",
            severity="critical",
            mode="enforce",
            session_id=session,
            agent_id=agent,
            fleet="",
            epoch=0,
            detected_at=at,
            message="no raw tokens are left",
            action="halt",
            caused_by=cause,
            traceparent=trace.traceparent,
            tracestate=trace.tracestate,
        )
    )
    folded.outputs.append(
        Command(
            command_id=command_id(incident, "halt", 1),
            seq=record.offset,
            incident_id=incident,
            kind="halt",
            session_id=session,
            agent_id=agent,
            fleet="",
            epoch=0,
            issued_at=at,
            expires_at=at,
            attempt=1,
            rule=rule,
            reason="boundary-crossed",
            caused_by=cause,
            traceparent=trace.traceparent,
            tracestate=trace.tracestate,
        )
    )
