"""The bytes that spans become are, field by field, what OpenTelemetry's own encoder makes of them."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource
from opentelemetry.trace import SpanKind

from leadline.contracts.orders import Command
from leadline.telemetry import names
from leadline.telemetry.spans import Spans, anywhere
from leadline.telemetry.wire import encode
from tests.support.core import ack, round_, start
from tests.telemetry.watched import Watched, headers, sunk


def read(spans: Any) -> ExportTraceServiceRequest:
    request = ExportTraceServiceRequest()
    request.ParseFromString(encode(spans))
    return request


def test_every_span_of_the_monitor_is_encoded_as_the_library_does() -> None:
    monitor = Watched(ratio=1.0)
    monitor.tell(start(), round_(1), headers=headers())
    monitor.tell(sunk(2, 0.4), headers=headers(tracestate="vendor=1,other=2"))
    (halt,) = [item for item in monitor.sent if isinstance(item, Command)]
    monitor.tell(ack(halt), headers=headers(halt.traceparent, "vendor=1"))
    monitor.tell(round_(3, 0.9), round_(4, 0.9), headers=headers())
    monitor.tell(sunk(1, session_id="s\u00e4\u4e16" * 40, agent_id="a" * 300))
    monitor.tell(*[sunk(1, session_id=f"many{number}") for number in range(120)], headers=headers())
    assert {span.name for span in monitor.spans} == {one.name for one in names.SPANS if one.process == "monitor"}
    assert read(monitor.spans) == encode_spans(monitor.spans)


@pytest.mark.parametrize(
    "value", ["", "x" * 127, "x" * 128, "x" * 20_000, True, False, 0, -1, 127, 128, 2**63 - 1, -(2**63), 0.0, -1.5, 1e300]
)
def test_values_at_their_bounds(value: Any) -> None:
    span = Spans(Resource({"service.name": "one"})).made("one", SpanKind.CONSUMER, anywhere(), None, {"a": value}, (), 1)
    span.end(2)
    assert read([span]) == encode_spans([span])


def test_what_cannot_be_encoded_is_refused_and_not_sent_in_part() -> None:
    span = Spans(Resource({})).made("one", SpanKind.INTERNAL, anywhere(), None, {"a": object()}, (), 1)
    with pytest.raises(TypeError, match="a is a object"):
        encode([span])


def test_of_no_spans_nothing_is_made() -> None:
    assert encode([]) == b""
