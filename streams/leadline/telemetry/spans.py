"""Spans that are made whole, in one step.

The monitor knows all of a span when it makes it. A tracer's way, to start a span, ask a sampler that can only say what the
parent said, copy and check each attribute, and end it, takes several times as long.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import getrandbits
from typing import Any, Final

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, TraceFlags, TraceState

from leadline import __version__
from leadline.telemetry.derive import SAMPLED, Place

__all__ = ["KEPT_FLAGS", "MadeSpan", "Spans", "anywhere", "context"]

KEPT_FLAGS: Final = TraceFlags.SAMPLED | TraceFlags.RANDOM_TRACE_ID
"""Of the parent's flags: whether it is sampled, and that its trace id is random. Others are not passed on."""
_SCOPE: Final = InstrumentationScope("leadline.monitor", __version__)
_UNSET: Final = Status()


class MadeSpan(ReadableSpan):  # type: ignore[misc]
    """A span that is complete but for its end. Attributes are plain, bounded values; nothing may be added to them."""

    def end(self, at: int) -> None:
        """``at``: nanoseconds since 1970."""
        self._end_time = at


class Spans:
    """Makes the spans of one worker, which all have its ``resource``."""

    def __init__(self, resource: Resource) -> None:
        self._resource = resource

    def made(
        self,
        name: str,
        kind: SpanKind,
        place: Place,
        parent: SpanContext | None,
        about: dict[str, Any],
        links: Iterable[Link],
        began: int,
        events: tuple[Event, ...] = (),
    ) -> MadeSpan:
        """``began``: nanoseconds since 1970. The trace state is the parent's."""
        state = None if parent is None else parent.trace_state
        own = SpanContext(place.trace_id, place.span_id, False, TraceFlags(place.flags & KEPT_FLAGS), state)
        return MadeSpan(name, own, parent, self._resource, about, events, tuple(links), kind, None, _UNSET, began, None, _SCOPE)


def context(one: Place, tracestate: str = "") -> SpanContext:
    """Of a span that another process made."""
    state = TraceState.from_header([tracestate]) if tracestate else None
    return SpanContext(one.trace_id, one.span_id, True, TraceFlags(one.flags), state)


def anywhere(trace_id: int = 0) -> Place:
    """A new place: in this trace, or in one of its own."""
    return Place(trace_id or getrandbits(128) or 1, getrandbits(64) or 1, SAMPLED)
