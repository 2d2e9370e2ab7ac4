"""A session's story from what lies on the topics: event, measurements, rule and reason, incident, command, answer, effect.

Pure. Ids of spans are those of the records themselves or derived from them (:mod:`leadline.telemetry.derive`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from leadline.commands.issue import RELEASED_BY_HAND, WITHDRAWN
from leadline.contracts.codec import Event
from leadline.contracts.events import Ack, Round, SessionEnd, SessionStart
from leadline.contracts.orders import Command, Tick, Violation
from leadline.contracts.times import format_ms
from leadline.contracts.trace import TraceContext
from leadline.telemetry import derive

__all__ = ["Kept", "Story", "tell"]

_RECOVERED: Final = "recovered"
_ROUNDS_SHOWN: Final = 10
"""Of the rounds between a command and its end, the last ones."""

Entry = dict[str, Any]


class Kept(NamedTuple):
    """One record of the session as it lies on its topic. ``at``: the broker's time, ms since 1970."""

    topic: str
    partition: int
    offset: int
    at: int
    record: Event | Violation | Command
    trace: TraceContext


class Story(NamedTuple):
    """``incidents``: each with its chain of ``steps``, in the order they happened."""

    session_id: str
    agents: list[str]
    fleet: str
    rounds: int
    ended: bool
    last: Entry | None
    incidents: list[Entry]

    def as_json(self) -> Entry:
        return {"schema": "leadline.story/1", **self._asdict()}


def tell(session_id: str, kept: Sequence[Kept]) -> Story:
    """The story of one session from all its records."""
    events = sorted((one for one in kept if not isinstance(one.record, Violation | Command)), key=lambda one: one.offset)
    violations = [one for one in kept if isinstance(one.record, Violation)]
    commands = [one for one in kept if isinstance(one.record, Command)]
    rounds = [one for one in events if isinstance(one.record, Round)]
    fleets = [one.record.fleet for one in events if not isinstance(one.record, Tick) and one.record.fleet]
    last = _last_of_life(events)
    return Story(
        session_id,
        sorted({one.record.agent_id for one in events}),
        fleets[-1] if fleets else "",
        len(rounds),
        last is not None and isinstance(last.record, SessionEnd),
        _measured(rounds[-1].record) if rounds and isinstance(rounds[-1].record, Round) else None,
        [_incident(one, events, _distinct(commands)) for one in _distinct(violations)],
    )


def _last_of_life(events: Sequence[Kept]) -> Kept | None:
    return next((one for one in reversed(events) if isinstance(one.record, SessionStart | SessionEnd | Round)), None)


def _distinct(kept: Iterable[Kept]) -> list[Kept]:
    """The first of each id, in time: what was sent again after a crash is the same."""
    found: dict[str, Kept] = {}
    for one in sorted(kept, key=lambda one: (one.at, one.offset)):
        record = one.record
        name = record.violation_id if isinstance(record, Violation) else record.command_id if isinstance(record, Command) else ""
        found.setdefault(name, one)
    return list(found.values())


def _incident(opening: Kept, events: Sequence[Kept], commands: Sequence[Kept]) -> Entry:
    violation = opening.record
    assert isinstance(violation, Violation)
    ours = [one for one in commands if isinstance(one.record, Command) and one.record.incident_id == violation.incident_id]
    names = {one.record.command_id for one in ours if isinstance(one.record, Command)}
    answers = [one for one in events if isinstance(one.record, Ack) and one.record.command_id in names]
    steps = [_caused(violation, events), _verdict(opening, violation), *map(_commanded, ours), *map(_answered, answers)]
    steps += _effects(ours, answers, events)
    release = next((one for one in ours if isinstance(one.record, Command) and one.record.kind == "resume"), None)
    unanswered = sorted(names - {one.record.command_id for one in answers if isinstance(one.record, Ack)})
    place = derive.place(violation.traceparent)
    trace_id = place.trace_id if place else derive.root(violation.session_id, violation.agent_id, violation.caused_by)
    status = _status(violation, ours, answers, release)
    return {
        "incident_id": violation.incident_id,
        "rule": violation.rule,
        "reason": violation.reason,
        "severity": violation.severity,
        "mode": violation.mode,
        "trace_id": f"{trace_id:032x}",
        "status": status,
        "recovered_after_ms": release.at - opening.at if release is not None and status == _RECOVERED else None,
        "unanswered": unanswered,
        "steps": sorted((step for step in steps if step), key=lambda step: (step["at"], _ORDER.index(step["what"]))),
    }


_ORDER: Final = ("event", "effect", "verdict", "command", "ack")
"""Of what has the same time."""


def _status(violation: Violation, commands: Sequence[Kept], answers: Sequence[Kept], release: Kept | None) -> str:
    if release is not None:
        assert isinstance(release.record, Command)
        return next((how for how in (RELEASED_BY_HAND, WITHDRAWN) if release.record.reason.startswith(how)), _RECOVERED)
    if not commands:
        return "told, not commanded" if violation.action == "none" or violation.mode != "enforce" else "not commanded"
    return "acknowledged, no recovery yet" if answers else "no acknowledgement"


def _where(one: Kept) -> Entry:
    return {"at": format_ms(one.at), "topic": one.topic, "partition": one.partition, "offset": one.offset}


def _ids(traceparent: str) -> Entry:
    return {"trace_id": traceparent[3:35], "span_id": traceparent[36:52]} if derive.place(traceparent) else {}


def _caused(violation: Violation, events: Sequence[Kept]) -> Entry:
    cause = violation.caused_by
    found = next((one for one in events if one.offset == cause.offset and one.partition == cause.partition), None)
    if found is None:
        return {}
    record = found.record
    step = {"what": "event", **_where(found), "record": str(record.__struct_config__.tag), **_ids(found.trace.traceparent)}
    if violation.caused_by.event_id:
        step["event_id"] = violation.caused_by.event_id
    if isinstance(record, Round):
        step |= _measured(record)
    return step


def _measured(record: Round) -> Entry:
    total = record.raw_tokens + record.summary_tokens
    return {
        "round": record.round,
        "raw_ratio": record.raw_tokens / total if total else None,
        "raw_tokens": record.raw_tokens,
        "summary_tokens": record.summary_tokens,
        "distinct_source_spans": record.distinct_source_spans,
        "query_cosine_retained": record.query_cosine_retained,
        "summary_depth_max": record.summary_depth_max,
    }


def _verdict(one: Kept, violation: Violation) -> Entry:
    return {
        "what": "verdict",
        **_where(one),
        **_ids(violation.traceparent),
        "violation_id": violation.violation_id,
        "message": violation.message,
        "threshold": violation.threshold,
        "evidence": violation.evidence,
        "action": violation.action,
        "policy": violation.policy,
    }


def _commanded(one: Kept) -> Entry:
    command = one.record
    assert isinstance(command, Command)
    return {
        "what": "command",
        **_where(one),
        **_ids(command.traceparent),
        "command_id": command.command_id,
        "kind": command.kind,
        "attempt": command.attempt,
        "seq": command.seq,
        "reason": command.reason,
        "expires_at": command.expires_at,
    }


def _answered(one: Kept) -> Entry:
    ack = one.record
    assert isinstance(ack, Ack)
    return {
        "what": "ack",
        **_where(one),
        **_ids(one.trace.traceparent),
        "command_id": ack.command_id,
        "outcome": ack.outcome,
        "detail": ack.detail,
        "raw_tokens_restored": ack.raw_tokens_restored,
    }


def _effects(commands: Sequence[Kept], answers: Sequence[Kept], events: Sequence[Kept]) -> list[Entry]:
    """What was measured from the first answer to the answer to the release: what the command did."""
    if not answers:
        return []
    since = min(one.offset for one in answers)
    releases = {one.record.command_id for one in commands if isinstance(one.record, Command) and one.record.kind == "resume"}
    ends = [one.offset for one in answers if isinstance(one.record, Ack) and one.record.command_id in releases]
    until = min(ends) if ends else None
    rounds = [
        one for one in events if isinstance(one.record, Round) and one.offset > since and (until is None or one.offset < until)
    ]
    return [
        {"what": "effect", **_where(one), **_ids(one.trace.traceparent), **_measured(one.record)}
        for one in rounds[-_ROUNDS_SHOWN:]
        if isinstance(one.record, Round)
    ]
