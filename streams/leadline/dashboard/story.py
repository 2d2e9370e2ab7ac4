"""A session's story in sentences, oldest first, and the one sentence that says how it stands. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from leadline.contracts.events import Ack, SessionEnd, SessionStart
from leadline.contracts.manual import Manual
from leadline.contracts.orders import Command, Parameters, Violation
from leadline.contracts.session_state import SessionState
from leadline.contracts.text import plural, safe
from leadline.dashboard.history import Seen
from leadline.dashboard.journal import Kept
from leadline.dashboard.marks import Axis
from leadline.detection.condition import condition

__all__ = ["headline", "story"]

_ANSWERS: Final = {
    "accepted": "accepted",
    "done": "reports done",
    "refused": "refused",
    "expired": "had it too late",
}
_ASKS: Final = {
    "halt": "Halt",
    "cap-depth": "Cap the depth",
    "retry-level": "Retry the level",
    "stop-agent": "Stop the agent",
    "resume": "Released",
}
_TONES: Final = {"critical": "bad", "warning": "warn", "info": "info"}


def story(
    axis: Axis, violations: Iterable[Kept[Violation]], commands: Iterable[Kept[Command]], events: Iterable[Seen]
) -> list[dict[str, Any]]:
    """Entries ``{at, round, tone, kind, text}``; ``at`` in ms since 1970."""
    found: list[tuple[int, int, dict[str, Any]]] = []
    opened = {kept.record.incident_id: kept.at for kept in violations}
    issued = {kept.record.command_id: kept for kept in commands}

    def add(at: int, rank: int, kind: str, tone: str, text: str, where: int | None) -> None:
        found.append((at, rank, {"at": at, "round": where, "tone": tone, "kind": kind, "text": text}))

    for kept in violations:
        record = kept.record
        told = f"{safe(record.message, 1_000)}{_mode(record)}"
        add(kept.at, 1, record.rule, _TONES[record.severity], told, axis.round_of_violation(record))
    for order in commands:
        text = _ordered(order.record)
        if order.record.kind == "resume" and order.record.incident_id in opened:
            text += f", {seconds(order.at - opened[order.record.incident_id])} after the verdict"
        tone = "good" if order.record.kind == "resume" else "act"
        add(order.at, 2, order.record.kind, tone, text, axis.round_at(order.at))
    for seen in events:
        event = seen.event
        if isinstance(event, Ack):
            add(
                seen.at, 3, "ack", "info", _answered(event, issued.get(event.command_id), seen.at), axis.round_before(seen.offset)
            )
        elif isinstance(event, SessionStart):
            add(seen.at, 0, "start", "info", _started(event), None)
        elif isinstance(event, Manual):
            add(seen.at, 0, "by hand", "act", _asked_by_hand(event), axis.round_before(seen.offset))
        elif isinstance(event, SessionEnd):
            ended = f"The session ended{': ' + safe(event.detail) if event.detail else '.'}"
            add(seen.at, 4, "end", "info", ended, axis.round_before(seen.offset))
    return [entry for _, _, entry in sorted(found, key=lambda one: one[:2])]


def headline(state: SessionState, violations: Iterable[Kept[Violation]], commands: Iterable[Kept[Command]]) -> str:
    """How the session stands, and why: the first thing that somebody who opens it reads."""
    word = condition(state)
    last = state.window[-1] if state.window else None
    measured = "nothing was measured yet"
    if last is not None:
        ratio = "unknown" if last.raw_ratio is None else f"{last.raw_ratio:.2f}"
        measured = f"raw ratio {ratio}, {plural(last.distinct_source_spans, 'source span')} at depth {last.summary_depth_max}"
    told = {kept.record.incident_id: kept.record for kept in violations}
    still = [incident for incident in state.incidents if not incident.releasing]
    if still:
        gravest = min(still, key=lambda one: ("critical", "warning", "info").index(_severity(told.get(one.incident_id))))
        record = told.get(gravest.incident_id)
        why = safe(record.message, 500) if record is not None else f"{gravest.rule} since round {gravest.opened_round}"
        others = f" ({len(still) - 1} more open)" if len(still) > 1 else ""
        return f"{word.capitalize()}: {why}{others}. Now: {measured}."
    released = sum(kept.record.kind == "resume" and kept.record.attempt == 1 for kept in commands)
    if released:
        times = "once" if released == 1 else f"{released} times"
        return f"{word.capitalize()}: commanded and released {times}. Now: {measured}."
    return f"{word.capitalize()}. Now: {measured}."


def seconds(ms: int) -> str:
    """A duration for a sentence."""
    if ms < 60_000:
        return f"{max(0, ms) / 1000:.1f} s"
    return f"{ms / 60_000:.1f} min" if ms < 3_600_000 else f"{ms / 3_600_000:.1f} h"


def _severity(record: Violation | None) -> str:
    return "info" if record is None else record.severity


def _mode(record: Violation) -> str:
    if record.mode == "shadow":
        return f" (shadow: enforcement would have sent {record.action})" if record.action != "none" else " (shadow)"
    return " (told, not commanded)" if record.mode == "warn" else ""


def _ordered(record: Command) -> str:
    again = f" (attempt {record.attempt})" if record.attempt > 1 else ""
    if record.kind == "resume":
        return f"Released{again}: {safe(record.reason, 500)}"
    asked = _asked(record.parameters)
    return f"{_ASKS[record.kind]} commanded for {record.rule}{again}{': ' + asked if asked else ''}"


def _asked(parameters: Parameters) -> str:
    parts = []
    if parameters.target_raw_ratio is not None:
        parts.append(f"rehydrate to raw ratio {parameters.target_raw_ratio:.2f}")
    if parameters.target_spans is not None:
        parts.append(f"at least {plural(parameters.target_spans, 'source span')}")
    if parameters.plan:
        parts.append(f"expand {plural(len(parameters.plan), 'summary', 'summaries')}, lowest depth first")
    if parameters.drop_ungrounded:
        parts.append("drop what has no source left")
    if parameters.level is not None:
        parts.append(f"level {parameters.level}")
    if parameters.max_depth is not None:
        parts.append(f"no deeper than {parameters.max_depth}")
    if parameters.facts:
        named = ", ".join(safe(fact, 80) for fact in parameters.facts[:5])
        parts.append(f"keep {named}{' and more' if len(parameters.facts) > 5 else ''}")
    return ", ".join(parts)


def _answered(event: Ack, order: Kept[Command] | None, at: int) -> str:
    what = f"the {order.record.kind}" if order is not None else "a command that is not known here"
    after = f" after {seconds(at - order.at)}" if order is not None and at >= order.at else ""
    said = f"The agent {_ANSWERS[event.outcome]}: {what}{after}"
    if event.outcome == "accepted":
        said = f"The agent accepted {what}{after}"
    if event.raw_tokens_restored:
        said += f", {event.raw_tokens_restored:,} raw tokens restored"
    return f"{said} ({safe(event.detail, 200)})" if event.detail else said


def _asked_by_hand(event: Manual) -> str:
    held_by = safe(event.rule or "the halt by hand", 60)
    what = "to halt this session" if event.action == "halt" else f"to release it from {held_by}"
    return f"{safe(event.who, 100)} asks {what}: {safe(event.why, 500)}"


def _started(event: SessionStart) -> str:
    parts = []
    if event.session_start_spans is not None:
        parts.append(plural(event.session_start_spans, "source span", form=","))
    if event.policy.token_budget is not None:
        parts.append(f"a budget of {event.policy.token_budget:,} tokens")
    if event.facts:
        parts.append(plural(len(event.facts), "declared fact"))
    return f"The session began with {', '.join(parts)}." if parts else "The session began."
