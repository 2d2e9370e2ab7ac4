"""What a span or a log record of OpenTelemetry tells of a compaction, as a round. Pure.

==============================  =========================================================  ====================================
who                             what                                                       session
==============================  =========================================================  ====================================
Google ADK                      span with ``gen_ai.operation.name`` ``compact_events``     ``gen_ai.conversation.id``
Pydantic AI's harness           span ``compact_messages``                                  ``gen_ai.conversation.id``, trace id
Claude Code                     log record ``event.name`` ``compaction``                   ``session.id``
anyone                          span with ``gen_ai.conversation.compacted`` true           ``gen_ai.conversation.id``
==============================  =========================================================  ====================================

None of them says what was raw and what was summary, which spans remain, or how deep summaries are. Such a round has zero tokens
of both kinds, which is *unknown* by the contract and never a violation: it tells that a compaction ran, when, why, and whether it
failed. Nothing that was not said is made up.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Literal, NamedTuple

from leadline.contracts import limits
from leadline.contracts.events import Round, RoundOutcome
from leadline.contracts.times import format_ms

__all__ = ["Compaction", "Signal", "compaction_of", "rounds_of"]

Value = str | int | float | bool | None
_LATEST_MS: Final = 253_370_764_800_000
"""The year 9999: later times cannot be written down."""


class Signal(NamedTuple):
    """One span or log record. ``time_ms``: its end, or when it was logged; ``failed``: its status says error."""

    kind: Literal["span", "log"]
    name: str
    attributes: Mapping[str, Value]
    resource: Mapping[str, Value]
    time_ms: int
    trace_id: str = ""
    span_id: str = ""
    failed: bool = False


class Compaction(NamedTuple):
    """A compaction that ran, or was tried. ``identity`` tells it from every other one."""

    session_id: str
    agent_id: str
    trigger: str
    outcome: RoundOutcome
    time_ms: int
    identity: str
    traceparent: str = ""


def compaction_of(signal: Signal) -> Compaction | None:
    """What it tells, ``None`` where it tells of no compaction, or not of whose."""
    told = _adk(signal) or _claude_code(signal) or _harness(signal) or _flagged(signal)
    if told is None:
        return None
    session, trigger, outcome = told
    agent = _text(signal.resource.get("service.name")) or _text(signal.attributes.get("gen_ai.agent.name")) or "otlp"
    if not session:
        return None
    return Compaction(
        session[: limits.MAX_ID],
        agent[: limits.MAX_ID],
        trigger[: limits.MAX_ID],
        outcome,
        min(max(0, signal.time_ms), _LATEST_MS),
        _identity(signal, session),
        f"00-{signal.trace_id}-{signal.span_id}-01" if signal.trace_id and signal.span_id else "",
    )


def rounds_of(
    compactions: Iterable[Compaction], counts: Mapping[tuple[str, str], int], *, epoch: int, fleet: str = ""
) -> Iterator[tuple[Round, Compaction]]:
    """A round each. ``counts``: how many rounds a session and agent had before in this epoch; it is not changed."""
    known = dict(counts)
    for one in compactions:
        key = (one.session_id, one.agent_id)
        known[key] = known.get(key, 0) + 1
        yield (
            Round(
                session_id=one.session_id,
                agent_id=one.agent_id,
                fleet=fleet,
                epoch=epoch,
                ts=format_ms(one.time_ms),
                event_id=one.identity,
                round=known[key],
                trigger=one.trigger,
                # Unknown: see the module's docstring.
                raw_tokens=0,
                summary_tokens=0,
                distinct_source_spans=0,
                summary_depth_max=0,
                max_depth=0,
                session_start_spans=0,
                token_budget=0,
                outcome=one.outcome,
            ),
            one,
        )


Told = tuple[str, str, RoundOutcome]


def _adk(signal: Signal) -> Told | None:
    said = signal.attributes
    if signal.kind != "span" or said.get("gen_ai.operation.name") != "compact_events":
        return None
    # Without the id of a resulting event its summarizer wrote nothing.
    failed = signal.failed or "gen_ai.compaction.result_event_id" not in said
    return _text(said.get("gen_ai.conversation.id")), _text(said.get("gen_ai.compaction.trigger")), _outcome(failed)


def _claude_code(signal: Signal) -> Told | None:
    said = signal.attributes
    named = {signal.name, _text(said.get("event.name"))}
    ours = "claude_code.compaction" in named or (
        "compaction" in named and _text(signal.resource.get("service.name")) == "claude-code"
    )
    if signal.kind != "log" or not ours:
        return None
    failed = said.get("success") in ("false", False)
    return _text(said.get("session.id")), _text(said.get("trigger")), _outcome(failed)


def _harness(signal: Signal) -> Told | None:
    if signal.kind != "span" or signal.name != "compact_messages":
        return None
    session = _text(signal.attributes.get("gen_ai.conversation.id")) or signal.trace_id
    return session, _text(signal.attributes.get("compaction.strategy")), _outcome(signal.failed)


def _flagged(signal: Signal) -> Told | None:
    if signal.kind != "span" or signal.attributes.get("gen_ai.conversation.compacted") is not True:
        return None
    return _text(signal.attributes.get("gen_ai.conversation.id")), "compacted", _outcome(signal.failed)


def _outcome(failed: bool) -> RoundOutcome:
    return "failed" if failed else "ok"


def _text(value: Value) -> str:
    return value if isinstance(value, str) else ""


def _identity(signal: Signal, session: str) -> str:
    """The same whenever the signal is read again."""
    if signal.kind == "span" and signal.trace_id and signal.span_id:
        return f"otlp-{signal.trace_id}-{signal.span_id}"
    parts = (session, signal.name, str(signal.time_ms), str(signal.attributes.get("event.sequence")))
    return f"otlp-{hashlib.sha256('|'.join(parts).encode(errors='replace')).hexdigest()[:32]}"
