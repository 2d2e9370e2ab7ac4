"""The monitor's spans: one a batch, and for each event that led to something the spans of it, in the agent's own trace.

Spans are made when a batch is judged, since the records that go out carry their contexts, and ended when it is delivered: of a
batch that is given up none is seen, and when it comes again it makes the same ones (:mod:`leadline.telemetry.derive`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from random import random
from typing import Any, Final

from msgspec.structs import replace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.trace import Link, SpanContext, SpanKind

from leadline.commands.fold import Step
from leadline.commands.lifecycle import Move, Signal
from leadline.contracts.orders import Command, Violation
from leadline.contracts.topics import COMMANDS, EVENTS
from leadline.contracts.trace import TraceContext
from leadline.telemetry import attributes, derive, names
from leadline.telemetry.budget import Budget
from leadline.telemetry.derive import Place
from leadline.telemetry.observer import Batch, Unobserved
from leadline.telemetry.spans import KEPT_FLAGS, MadeSpan, Spans, anywhere, context

__all__ = ["Tracing"]

LINKS_MAX: Final = 100
"""Links a span: OpenTelemetry cuts them at 128 unless told otherwise."""
_SHOWN: Final = frozenset(Signal) - {Signal.RECOVERED}

Attributes = dict[str, Any]


class Tracing(Unobserved):
    """An :class:`~leadline.telemetry.observer.Observer`. ``finished(span)`` gets each span of a batch that was delivered; what
    follows from an event that its agent did not sample is no span, and its context goes on as if it were.

    ``ratio``: share of the batches that led to nothing which get a span. ``dropped(number)`` is told of spans that ``budget``
    did not allow.
    """

    def __init__(
        self,
        resource: Resource,
        finished: Callable[[ReadableSpan], None],
        group: str,
        ratio: float,
        budget: Budget,
        dropped: Callable[[int], None],
        chance: Callable[[], float] = random,
    ) -> None:
        self._spans = Spans(resource)
        self._finished = finished
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
        wanted = 1 + sum([len(step.moves) + step.outputs.stop - step.outputs.start for step in steps])
        if not self._budget.take(wanted):
            self._dropped(wanted)
            return
        made = batch.kept = self._batch(batch, [link for step in steps if (link := _link(step.trace)) is not None])
        one = _Making(self._spans, made, made[0].context, time.time_ns())
        outputs = batch.folded.outputs
        for step in steps:
            for index in range(step.outputs.start, step.outputs.stop):
                item = outputs[index]
                where = one.verdict(step, item) if isinstance(item, Violation) else one.command(step, item)
                # What it leads to goes on from its own span.
                outputs[index] = replace(item, traceparent=where.traceparent())
            for move in step.moves:
                if move.signal is Signal.RECOVERED:
                    one.recovered(step, move)
                elif move.signal in _SHOWN and move.command is not None:
                    one.moved(step, move)

    def delivered(self, batch: Batch) -> None:
        if batch.kept:
            now = time.time_ns()
            for span in batch.kept:
                span.end(now)
                self._finished(span)

    def _batch(self, batch: Batch, links: list[Link]) -> list[MadeSpan]:
        """The batch's span, and further ones for the links that it does not hold."""
        folded = batch.folded
        about: Attributes = {
            **_PROCESS,
            names.PARTITION: str(batch.partition),
            names.GROUP: self._group,
            names.BATCH_COUNT: batch.count,
            names.OFFSET: batch.last,
            names.VERDICTS: len(folded.outputs),
            names.DEAD_LETTERS: len(folded.dead_letters),
        }
        began = time.time_ns() - (time.perf_counter_ns() - batch.began)
        made: list[MadeSpan] = []
        for part, first in enumerate(range(0, max(1, len(links)), LINKS_MAX)):
            parent = made[0].context if made else None
            place = anywhere(0 if parent is None else parent.trace_id)
            some = links[first : first + LINKS_MAX]
            made.append(
                self._spans.made(names.PROCESS, SpanKind.CONSUMER, place, parent, {**about, names.PART: part}, some, began)
            )
        return made


class _Making:
    """Adds the spans of one batch to ``made``. ``batch``: the batch's own; ``now``: nanoseconds since 1970."""

    def __init__(self, spans: Spans, made: list[MadeSpan], batch: SpanContext, now: int) -> None:
        self._spans = spans
        self._made = made
        self._links = (Link(batch),)
        self._now = now

    def verdict(self, step: Step, item: Violation) -> Place:
        """The place of its span, also where it is not sampled; so below."""
        event = TraceContext(item.traceparent, item.tracestate)
        found, trace_id = derive.incident_place(event, item.session_id, item.agent_id, item.caused_by)
        flags = derive.SAMPLED if found is None else found.flags & KEPT_FLAGS
        place = Place(trace_id, derive.verdict_span(item.incident_id), flags)
        if flags & derive.SAMPLED:
            parent = None if found is None else context(found, item.tracestate)
            about = attributes.verdict(step, item)
            said = (Event(names.EVALUATION, attributes.evaluation(item), self._now),)
            self._add(names.VERDICT, SpanKind.INTERNAL, place, parent, about, self._links, said)
        return place

    def command(self, step: Step, item: Command) -> Place:
        found, trace_id = derive.incident_place(
            TraceContext(item.traceparent, item.tracestate), item.session_id, item.agent_id, item.caused_by
        )
        flags = derive.SAMPLED if found is None else found.flags
        place = Place(trace_id, derive.command_span(item.command_id), flags & KEPT_FLAGS)
        if flags & derive.SAMPLED:
            parent = Place(trace_id, derive.verdict_span(item.incident_id), flags)
            about = {**attributes.command(step, item), **_SEND, names.MESSAGE_ID: item.command_id}
            link = None if step.trace.traceparent == item.traceparent else _link(step.trace)
            links = () if link is None else (link,)
            self._add(names.COMMAND, SpanKind.PRODUCER, place, context(parent, item.tracestate), about, links)
        return place

    def moved(self, step: Step, move: Move) -> None:
        assert move.command is not None
        incident, command_id = move.incident, move.command.command_id
        trace_id, flags = _trace_of(step, move)
        sent = Place(trace_id, derive.command_span(command_id), flags)
        answer = derive.place(step.trace.traceparent)
        parent = answer or sent
        if not parent.flags & derive.SAMPLED:
            return
        links = () if answer is None else (Link(context(sent, incident.tracestate)),)
        place = Place(parent.trace_id, derive.move_span(command_id, move.signal.value, step.record.offset), parent.flags)
        about = attributes.moved(step, move)
        self._add(names.ANSWERED, SpanKind.INTERNAL, place, context(parent, incident.tracestate), about, links)

    def recovered(self, step: Step, move: Move) -> None:
        incident = move.incident
        trace_id, flags = _trace_of(step, move)
        if not flags & derive.SAMPLED:
            return
        parent = context(Place(trace_id, derive.verdict_span(incident.incident_id), flags), incident.tracestate)
        link = _link(step.trace)
        place = Place(trace_id, derive.recovery_span(incident.incident_id), flags)
        about = attributes.recovered(step, move)
        self._add(names.RECOVERED, SpanKind.INTERNAL, place, parent, about, () if link is None else (link,))

    def _add(
        self,
        name: str,
        kind: SpanKind,
        place: Place,
        parent: SpanContext | None,
        about: Attributes,
        links: tuple[Link, ...],
        events: tuple[Event, ...] = (),
    ) -> None:
        self._made.append(self._spans.made(name, kind, place, parent, about, links, self._now, events))


def _trace_of(step: Step, move: Move) -> tuple[int, int]:
    """The trace id and flags of the verdict that opened the incident."""
    incident, state = move.incident, step.state
    found, trace_id = derive.incident_place(
        TraceContext(incident.traceparent, incident.tracestate), state.session_id, state.agent_id, incident.cause
    )
    return trace_id, derive.SAMPLED if found is None else found.flags


def _link(trace: TraceContext) -> Link | None:
    found = derive.place(trace.traceparent) if trace.traceparent else None
    return None if found is None else Link(context(found, trace.tracestate))


def _hop(operation: str, topic: str) -> Attributes:
    return {
        names.MESSAGING_SYSTEM: "kafka",
        names.OPERATION_NAME: operation,
        names.OPERATION_TYPE: operation,
        names.DESTINATION: topic,
    }


_PROCESS: Final = _hop("process", EVENTS.name)
_SEND: Final = _hop("send", COMMANDS.name)
