"""The span exporter over gRPC, with a faster encoder."""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan

from leadline.telemetry.wire import encode

__all__ = ["GrpcSpans"]


class GrpcSpans(OTLPSpanExporter):  # type: ignore[misc]
    """OpenTelemetry's own in all but the encoding: to read a message from bytes is much faster than to build it."""

    def _translate_data(self, data: Sequence[ReadableSpan]) -> ExportTraceServiceRequest:
        request = ExportTraceServiceRequest()
        request.ParseFromString(encode(data))
        return request
