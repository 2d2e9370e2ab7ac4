"""The monitor's spans: one a batch, and for each event that led to something the spans of it, in the agent's own trace.

Spans are made when a batch is judged, since the records that go out carry their contexts, and ended when it is delivered: of a
batch that is given up none is seen, and when it comes again it makes the same ones (:mod:`leadline.telemetry.derive`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from random import random
from typing import Any, Final

from msgspec.structs import replace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.id_generator import IdGenerator, RandomIdGenerator
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, SpanKind, TraceFlags, TraceState, set_span_in_context
from opentelemetry.trace import Span as OtelSpan

from leadline import __version__
from leadline.commands.fold import Step
from leadline.commands.lifecycle import Move, Signal
from leadline.contracts.orders import Command, Violation
from leadline.contracts.topics import COMMANDS, EVENTS
from leadline.contracts.trace import TraceContext
from leadline.telemetry import attributes, derive, names
from leadline.telemetry.budget import Budget
from leadline.telemetry.observer import Batch, Unobserved

__all__ = ["DerivedIds", "Tracing"]

LINKS_MAX: Final = 100
"""Links a span: OpenTelemetry cuts them at 128 unless told otherwise."""
_SHOWN: Final = frozenset(Signal) - {Signal.RECOVERED}

Attributes = dict[str, Any]


class DerivedIds(IdGenerator):  # type: ignore[misc]
    """Gives out the ids that it was told to; random ones otherwise. Not thread safe: the event loop alone makes spans."""

    def __init__(self) -> None:
        self._random = RandomIdGenerator()
        self.trace_id = 0
        self.span_id = 0

    def generate_span_id(self) -> int:
        found, self.span_id = self.span_id, 0
        return found or int(self._random.generate_span_id())

    def generate_trace_id(self) -> int:
        found, self.trace_id = self.trace_id, 0
        return found or int(self._random.generate_trace_id())


class Tracing(Unobserved):
    """An :class:`~leadline.telemetry.observer.Observer`. ``provider`` uses ``ids``, and samples as the parent does.

    ``ratio``: share of the batches that led to nothing which get a span. ``dropped(number)`` is told of spans that ``budget``
    did not allow.
    """

    def __init__(
        self,
        provider: TracerProvider,
        ids: DerivedIds,
        group: str,
        ratio: float,
        budget: Budget,
        dropped: Callable[[int], None],
        chance: Callable[[], float] = random,
    ) -> None:
        self._tracer = provider.get_tracer("leadline.monitor", __version__)
        self._ids = ids
        self._group = group
        self._ratio = ratio
        self._budget = budget
        self._dropped = dropped
        self._chance = chance

    def judged(self, batch: Batch) -> None:
        steps = batch.folded.steps
        if not steps:
            if self._ratio and self._chance() < self._ratio:
                batch.kept = self._batch(batch, [])
            return
        made: list[OtelSpan] = []
        batch.kept = made
        wanted = 1 + sum(len(step.moves) + step.outputs.stop - step.outputs.start for step in steps)
        if not self._budget.take(wanted):
            self._dropped(wanted)
            return
        links = [link for step in steps if (link := _link(step.trace)) is not None]
        made += self._batch(batch, links)
        here = made[0].get_span_context()
        for step in steps:
            for index in range(step.outputs.start, step.outputs.stop):
                item = batch.folded.outputs[index]
                span = self._verdict(step, item, here) if isinstance(item, Violation) else self._command(step, item)
                made.append(span)
                batch.folded.outputs[index] = _carrying(item, span)
            made += [self._move(step, move) for move in step.moves if move.signal in _SHOWN and move.command is not None]
            made += [self._recovered(step, move) for move in step.moves if move.signal is Signal.RECOVERED]

    def delivered(self, batch: Batch) -> None:
        if batch.kept:
            now = time.time_ns()
            for span in batch.kept:
                span.end(now)

    # -- the spans

    def _batch(self, batch: Batch, links: list[Link]) -> list[OtelSpan]:
        """The batch's span, and further ones for the links that it does not hold."""
        folded = batch.folded
        about: Attributes = {
            **_hop("process", EVENTS.name),
            names.PARTITION: str(batch.partition),
            names.GROUP: self._group,
            names.BATCH_COUNT: batch.count,
            names.OFFSET: batch.last,
            names.VERDICTS: len(folded.outputs),
            names.DEAD_LETTERS: len(folded.dead_letters),
        }
        began = time.time_ns() - (time.perf_counter_ns() - batch.began)
        made: list[OtelSpan] = []
        context = Context()
        for part, first in enumerate(range(0, max(1, len(links)), LINKS_MAX)):
            span = self._tracer.start_span(
                names.PROCESS,
                context,
                SpanKind.CONSUMER,
                {**about, names.PART: part},
                links[first : first + LINKS_MAX],
                began,
            )
            if not made:
                context = set_span_in_context(span, Context())
            made.append(span)
        return made

    def _verdict(self, step: Step, item: Violation, batch: SpanContext) -> OtelSpan:
        event = TraceContext(item.traceparent, item.tracestate)
        found, trace_id = derive.incident_place(event, item.session_id, item.agent_id, item.caused_by)
        about = attributes.verdict(step, item)
        self._ids.span_id = derive.verdict_span(item.incident_id)
        self._ids.trace_id = trace_id if found is None else 0
        parent = Context() if found is None else _parent(found, item.tracestate)
        span = self._tracer.start_span(names.VERDICT, parent, SpanKind.INTERNAL, about, [Link(batch)])
        span.add_event(names.EVALUATION, attributes.evaluation(item))
        return span

    def _command(self, step: Step, item: Command) -> OtelSpan:
        context = TraceContext(item.traceparent, item.tracestate)
        links = [] if step.trace.traceparent == item.traceparent else [link for link in (_link(step.trace),) if link is not None]
        return self._start(
            names.COMMAND,
            SpanKind.PRODUCER,
            _under_verdict(item, item.incident_id, context),
            item.tracestate,
            derive.command_span(item.command_id),
            attributes.command(step, item) | _hop("send", COMMANDS.name) | {names.MESSAGE_ID: item.command_id},
            links,
        )

    def _move(self, step: Step, move: Move) -> OtelSpan:
        assert move.command is not None
        incident = move.incident
        sent = _of(step, move)._replace(span_id=derive.command_span(move.command.command_id))
        answer = derive.place(step.trace.traceparent)
        links = [] if answer is None else [Link(_context(sent, incident.tracestate))]
        span_id = derive.move_span(move.command.command_id, move.signal.value, step.record.offset)
        about = attributes.moved(step, move)
        return self._start(names.ANSWERED, SpanKind.INTERNAL, answer or sent, incident.tracestate, span_id, about, links)

    def _recovered(self, step: Step, move: Move) -> OtelSpan:
        incident = move.incident
        links = [link for link in (_link(step.trace),) if link is not None]
        span_id = derive.recovery_span(incident.incident_id)
        about = attributes.recovered(step, move)
        return self._start(names.RECOVERED, SpanKind.INTERNAL, _of(step, move), incident.tracestate, span_id, about, links)

    def _start(
        self,
        name: str,
        kind: SpanKind,
        parent: derive.Place,
        tracestate: str,
        span_id: int,
        about: Attributes,
        links: Iterable[Link] = (),
    ) -> OtelSpan:
        self._ids.span_id = span_id
        return self._tracer.start_span(name, _parent(parent, tracestate), kind, about, list(links))


def _of(step: Step, move: Move) -> derive.Place:
    """The place of the verdict that opened the incident."""
    incident, state = move.incident, step.state
    found, trace_id = derive.incident_place(
        TraceContext(incident.traceparent, incident.tracestate), state.session_id, state.agent_id, incident.cause
    )
    flags = derive.SAMPLED if found is None else found.flags
    return derive.Place(trace_id, derive.verdict_span(incident.incident_id), flags)


def _under_verdict(item: Command, incident_id: str, context: TraceContext) -> derive.Place:
    found, trace_id = derive.incident_place(context, item.session_id, item.agent_id, item.caused_by)
    return derive.Place(trace_id, derive.verdict_span(incident_id), derive.SAMPLED if found is None else found.flags)


def _carrying(item: Violation | Command, span: OtelSpan) -> Violation | Command:
    """The record with the context of its own span, so that what it leads to goes on from there."""
    own = span.get_span_context()
    traceparent = derive.Place(own.trace_id, own.span_id, int(own.trace_flags)).traceparent()
    return replace(item, traceparent=traceparent)


def _context(one: derive.Place, tracestate: str = "") -> SpanContext:
    state = TraceState.from_header([tracestate]) if tracestate else None
    return SpanContext(one.trace_id, one.span_id, True, TraceFlags(one.flags), state)


def _parent(one: derive.Place, tracestate: str) -> Context:
    return set_span_in_context(NonRecordingSpan(_context(one, tracestate)), Context())


def _link(trace: TraceContext) -> Link | None:
    found = derive.place(trace.traceparent)
    return None if found is None else Link(_context(found, trace.tracestate))


def _hop(operation: str, topic: str) -> Attributes:
    return {
        names.MESSAGING_SYSTEM: "kafka",
        names.OPERATION_NAME: operation,
        names.OPERATION_TYPE: operation,
        names.DESTINATION: topic,
    }
