"""A collector that is closed, hangs or is slow: one warning, nothing raised, an end in time; and what a good one is sent."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections.abc import Iterator
from concurrent import futures
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest, ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest, ExportTraceServiceResponse
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from leadline.telemetry import names
from leadline.telemetry.calm import queue
from leadline.telemetry.observer import Batch
from leadline.telemetry.setup import Options, Telemetry
from tests.support.core import START, Monitor, round_, start
from tests.support.ports import free_ports
from tests.telemetry.watched import headers, samples, sunk

EXPORT_S = 0.3


def violate(telemetry: Telemetry, session: str = "s1") -> None:
    """One batch that leads to a verdict and a command."""
    monitor = Monitor()
    who: dict[str, Any] = {"session_id": session}
    batch = [monitor.append(event, headers=headers()) for event in (start(**who), round_(1, **who), sunk(2, **who))]
    told = Batch(3, 0, 2, 3, monitor.fold(batch), stamp=START)
    telemetry.judged(told)
    telemetry.delivered(told)


@pytest.fixture
def hanging() -> Iterator[int]:
    """A port that takes connections and never answers."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(64)
        yield listening.getsockname()[1]


class _Late(BaseHTTPRequestHandler):
    """Answers each request well after its sender has given it up."""

    over: threading.Event

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.over.wait(EXPORT_S + 0.7)
        with contextlib.suppress(OSError):
            self.send_response(200)
            self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


@pytest.fixture
def late() -> Iterator[int]:
    """A port that takes connections and answers too late."""
    _Late.over = threading.Event()
    with ThreadingHTTPServer(("127.0.0.1", 0), _Late) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.server_address[1]
        _Late.over.set()
        server.shutdown()
        thread.join(60)


@pytest.fixture
def closed() -> int:
    (port,) = free_ports(1)
    return port


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize(
    ("trouble", "protocol"),
    [
        ("closed", "http/protobuf"),
        ("closed", "grpc"),
        ("hanging", "http/protobuf"),
        ("hanging", "grpc"),
        ("late", "http/protobuf"),
    ],
)
def test_a_collector_that_is_not_there_costs_one_warning_and_no_more_than_its_limit_at_the_end(
    protocol: str, trouble: str, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leadline.telemetry.setup.EXPORT_S", EXPORT_S)
    port = request.getfixturevalue(trouble)
    telemetry = Telemetry(Options(endpoint=f"http://127.0.0.1:{port}", protocol=protocol, push=True, push_s=0.05), lambda: START)
    told = threading.Event()
    failed = telemetry.metrics.export_failed
    count = 0

    def counted(signal: str) -> None:
        nonlocal count
        failed(signal)
        count += 1
        if count >= 3:
            told.set()

    trouble_of = telemetry._pusher._exporter._trouble  # type: ignore[union-attr]
    monkeypatch.setattr(trouble_of, "_failed", counted)
    violate(telemetry)
    assert told.wait(60), "three exports failed"
    ended = threading.Thread(target=telemetry.close, args=(0.5,))
    ended.start()
    ended.join(60)
    assert not ended.is_alive()
    (warning,) = warnings(caplog)
    assert f"127.0.0.1:{port}" in warning
    assert sum(value for name, value in samples(telemetry.metrics).items() if name.startswith("leadline_export_failures")) >= 3


def test_past_a_full_queue_spans_are_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A collector that takes one batch of 512 and hangs: 512 more wait, and the rest of 1,600 is dropped at once."""
    monkeypatch.setattr("leadline.telemetry.calm.QUEUE_MAX", 512)
    go_on = threading.Event()

    class Hangs(InMemorySpanExporter):  # type: ignore[misc]
        def export(self, spans: Any) -> Any:
            go_on.wait(60)
            return super().export(spans)

    dropped: list[int] = []
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(queue(Hangs(), dropped.append))
    tracer = provider.get_tracer("test")
    for _ in range(1_600):
        tracer.start_span("one").end()
    assert 576 <= sum(dropped) <= 1_088
    go_on.set()
    provider.shutdown()


class Collector(trace_service_pb2_grpc.TraceServiceServicer, metrics_service_pb2_grpc.MetricsServiceServicer):  # type: ignore[misc]
    """Keeps what it is sent over gRPC."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.metrics: dict[str, Any] = {}
        self.resource: dict[str, str] = {}
        self.both = threading.Event()

    def Export(self, request: Any, context: object) -> Any:
        if isinstance(request, ExportTraceServiceRequest):
            for resource in request.resource_spans:
                self.resource |= {one.key: one.value.string_value for one in resource.resource.attributes}
                for scope in resource.scope_spans:
                    self.spans += scope.spans
            answer: Any = ExportTraceServiceResponse()
        else:
            assert isinstance(request, ExportMetricsServiceRequest)
            for resource in request.resource_metrics:
                for scope in resource.scope_metrics:
                    self.metrics |= {metric.name: metric for metric in scope.metrics}
            answer = ExportMetricsServiceResponse()
        seen = self.metrics.get("leadline.events")
        if self.spans and seen is not None and seen.sum.data_points[0].as_double == 3:
            self.both.set()
        return answer


def test_spans_and_metrics_over_grpc_have_the_names_of_the_list() -> None:
    server = grpc.server(futures.ThreadPoolExecutor(2))
    collector = Collector()
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(collector, server)
    metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(collector, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        options = Options(endpoint=f"http://127.0.0.1:{port}", protocol="grpc", push=True, push_s=0.1, instance="worker-1")
        telemetry = Telemetry(options, lambda: START + 700)
        violate(telemetry)
        assert collector.both.wait(60)
        telemetry.close(5.0)
    finally:
        server.stop(0)
    assert {span.name for span in collector.spans} == {names.PROCESS, names.VERDICT, names.COMMAND}
    assert collector.resource["service.name"] == "leadline-monitor"
    assert collector.resource["service.instance.id"] == "worker-1"
    ours = {name for name in collector.metrics if name.startswith(("leadline.", "messaging."))}
    assert ours <= {one.name for one in names.METRICS}
    assert "leadline.violations" in ours
    (late,) = [one for one in collector.metrics["leadline.event_to_verdict"].histogram.data_points if one.count]
    assert (late.count, late.sum) == (1, 0.7)
    assert list(late.explicit_bounds[:2]) == [0.005, 0.01]
    assert sum(late.bucket_counts) == 1
    assert late.bucket_counts[7] == 1, "0.7 s lie between 0.5 and 1"
    assert late.exemplars[0].trace_id.hex() == "4bf92f3577b34da6a3ce929d0e0e4736"
