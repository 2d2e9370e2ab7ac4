"""Ids of the monitor's spans, derived from what they are about. Pure.

A batch that comes again makes the same spans again, not others; a command can name the span of its verdict, made minutes ago by
another worker; and ``leadline story`` finds them without asking a trace store.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple

from leadline.contracts.ids import violation_id
from leadline.contracts.orders import Cause
from leadline.contracts.trace import TraceContext

__all__ = ["Place", "command_span", "incident_place", "move_span", "place", "recovery_span", "root", "verdict_span"]

SAMPLED = 1


class Place(NamedTuple):
    """A span's context as numbers."""

    trace_id: int
    span_id: int
    flags: int = SAMPLED

    def traceparent(self) -> str:
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-{self.flags:02x}"


def place(traceparent: str) -> Place | None:
    """A valid ``traceparent`` as numbers; ``None`` for what is empty or none."""
    if not traceparent:
        return None
    try:
        _, trace, span, flags = traceparent.split("-")[:4]
        found = Place(int(trace, 16), int(span, 16), int(flags, 16))
    except ValueError:
        return None
    return found if found.trace_id and found.span_id and len(trace) == 32 and len(span) == 16 else None


def root(session_id: str, agent_id: str, cause: Cause) -> int:
    """Trace id for what an agent without tracing led to: one for all that one event caused."""
    return _number(16, "trace", session_id, agent_id, cause.event_id, str(cause.partition), str(cause.offset))


def verdict_span(incident_id: str) -> int:
    return _number(8, "verdict", violation_id(incident_id))


def command_span(command_id: str) -> int:
    return _number(8, "command", command_id)


def move_span(command_id: str, signal: str, offset: int) -> int:
    return _number(8, "move", command_id, signal, str(offset))


def recovery_span(incident_id: str) -> int:
    return _number(8, "recovery", incident_id)


def incident_place(context: TraceContext, session_id: str, agent_id: str, cause: Cause) -> tuple[Place | None, int]:
    """Where an incident's spans belong: its event's place, if it had one, and the trace id."""
    found = place(context.traceparent)
    return found, found.trace_id if found is not None else root(session_id, agent_id, cause)


def _number(size: int, *parts: str) -> int:
    """Never 0: that would be no id."""
    digest = blake2b("\0".join(parts).encode("utf-8", "surrogatepass"), digest_size=size, person=b"leadline")
    return int.from_bytes(digest.digest()) or 1
