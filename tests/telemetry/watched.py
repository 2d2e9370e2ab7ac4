"""The core with its telemetry, without a broker: a partition, a clock that is moved by hand, spans in a list."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from leadline.commands.fold import Folded
from leadline.telemetry import names
from leadline.telemetry.budget import Budget
from leadline.telemetry.metrics import Metrics
from leadline.telemetry.observer import Batch
from leadline.telemetry.tracing import Tracing
from tests.support.core import Monitor, round_

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN_ID = "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE_ID}-{SPAN_ID}-01"


def headers(traceparent: str = TRACEPARENT, tracestate: str = "") -> list[tuple[str, bytes]]:
    return [("traceparent", traceparent.encode()), *([("tracestate", tracestate.encode())] if tracestate else [])]


def sunk(number: int, ratio: float | None = None, **changes: Any) -> Any:
    """A round that breaks the provenance floor by itself."""
    return round_(number, ratio, **{"summary_depth_max": 2, "distinct_source_spans": 5} | changes)


class Watched(Monitor):
    """A monitor whose batches are told to metrics and tracing, as a worker tells them."""

    def __init__(self, ratio: float = 0.0, most: int = 10_000, fleets_max: int = 50, **given: Any) -> None:
        super().__init__(**given)
        self.exporter = InMemorySpanExporter()
        self.metrics = Metrics(lambda: self.now, fleets_max)
        self.refused = 0
        finished, budget = SimpleSpanProcessor(self.exporter).on_end, Budget(0.0, most, lambda: 0.0)
        self.tracing = Tracing(Resource({}), finished, "leadline", ratio, budget, self._refused)

    def _refused(self, number: int) -> None:
        self.refused += number

    def tell(self, *events: Any, deliver: bool = True, **wire: Any) -> Folded:
        """One batch, applied as a worker does; returns the fold's answer with what went out."""
        batch = [self.append(event, **wire) for event in events]
        folded = self.fold(batch)
        told = Batch(3, batch[0].offset, batch[-1].offset, len(batch), folded, stamp=batch[-1].timestamp)
        self.tracing.judged(told)
        self.metrics.judged(told)
        if deliver:
            self.sent += folded.outputs
            self.tracing.delivered(told)
            self.metrics.delivered(told)
            self.keep(folded)
        return folded

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]

    def samples(self) -> dict[str, float]:
        return samples(self.metrics)


def samples(metrics: Metrics) -> dict[str, float]:
    """The exposition as ``name{label="value"}`` to its value; comments and exemplars are left out."""
    return dict(_samples(metrics.render().decode()))


def _samples(text: str) -> Iterator[tuple[str, float]]:
    for line in text.splitlines():
        if not line.startswith("#"):
            series, _, value = line.split(" # ")[0].rpartition(" ")
            yield series, float(value)


def context_of(span: ReadableSpan) -> str:
    """The ``traceparent`` that names the span."""
    found = span.get_span_context()
    assert found is not None
    return f"00-{found.trace_id:032x}-{found.span_id:016x}-{int(found.trace_flags):02x}"


def parent_of(span: ReadableSpan) -> str:
    assert span.parent is not None
    return f"{span.parent.span_id:016x}"


def against_the_list(span: ReadableSpan) -> list[str]:
    """What a span has that the list of names does not say: nothing, it is hoped."""
    listed = {one.name: one for one in names.SPANS}
    if span.name not in listed:
        return [f"span {span.name!r} is not listed"]
    one = listed[span.name]
    types = {attribute.name: attribute.type for attribute in names.ATTRIBUTES}
    kinds = {"string": str, "int": int, "double": float, "boolean": bool}
    wrong = [] if span.kind.name == one.kind else [f"{span.name} is {span.kind.name}, not {one.kind}"]
    for name, value in (span.attributes or {}).items():
        if name not in one.attributes:
            wrong.append(f"{span.name} has {name}, which is not listed for it")
        elif type(value) is not kinds[types[name]]:
            wrong.append(f"{name} of {span.name} is a {type(value).__name__}, not {types[name]}")
    return wrong
