"""A real OpenTelemetry Collector with the shipped configuration, between whoever sends and a store that keeps what came out."""

from __future__ import annotations

import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import yaml
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest, ExportTraceServiceResponse
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.observability.queries import DEPLOY
from tests.processors.running import until
from tests.support.ports import free_ports

__all__ = ["SHIPPED", "Kept", "RunningCollector", "running"]

SHIPPED = DEPLOY / "collector" / "collector.yml"


class Kept(trace_service_pb2_grpc.TraceServiceServicer):  # type: ignore[misc]
    """The trace store: every span that it was sent, as they came."""

    def __init__(self) -> None:
        self.spans: list[Span] = []

    def Export(self, request: ExportTraceServiceRequest, context: object) -> ExportTraceServiceResponse:
        self.spans += [span for one in request.resource_spans for scope in one.scope_spans for span in scope.spans]
        return ExportTraceServiceResponse()

    def names(self, trace_id: int) -> set[str]:
        """Of the spans of one trace."""
        return {span.name for span in self.spans if int.from_bytes(span.trace_id) == trace_id}


class RunningCollector:
    """The shipped configuration, on free ports. A trace is decided upon after a second rather than half a minute; ``rest``, where
    given, is how many in a hundred are kept by chance."""

    def __init__(self, program: str, folder: Path, store: int, rest: int | None = None) -> None:
        http, grpc_port, self._metrics, self._health = free_ports(4)
        self.endpoint = f"http://127.0.0.1:{http}"
        policies = yaml.safe_load(SHIPPED.read_text(encoding="utf-8"))["processors"]["tail_sampling"]["policies"]
        for policy in policies:
            if rest is not None and policy["type"] == "probabilistic":
                policy["probabilistic"]["sampling_percentage"] = rest
        changes: dict[str, Any] = {
            "receivers": {
                "otlp": {
                    "protocols": {
                        "http": {"endpoint": f"127.0.0.1:{http}"},
                        "grpc": {"endpoint": f"127.0.0.1:{grpc_port}"},
                    }
                }
            },
            "processors": {"tail_sampling": {"decision_wait": "1s", "policies": policies}},
            "exporters": {
                "otlp": {"endpoint": f"127.0.0.1:{store}"},
                "prometheus": {"endpoint": f"127.0.0.1:{self._metrics}"},
            },
            "extensions": {"health_check": {"endpoint": f"127.0.0.1:{self._health}"}},
            # Its own metrics would be on a port that every collector shares.
            "service": {"telemetry": {"metrics": {"level": "none"}}},
        }
        over = folder / "collector.test.yml"
        over.write_text(yaml.safe_dump(changes))
        self._log = (folder / "collector.log").open("w+b")
        command = [program, f"--config={SHIPPED}", f"--config={over}"]
        self._process = subprocess.Popen(command, stdout=self._log, stderr=self._log)
        until("a collector", self._healthy)

    def _healthy(self) -> bool:
        assert self._process.poll() is None, f"the collector ended:\n{Path(self._log.name).read_text()}"
        return _asked(f"http://127.0.0.1:{self._health}/") is not None

    def exposition(self) -> str:
        """What Prometheus would scrape of it."""
        return _asked(f"http://127.0.0.1:{self._metrics}/metrics") or ""

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(20)
            raise
        finally:
            self._log.close()


def _asked(url: str) -> str | None:
    request = urllib.request.Request(url, headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            text: str = answer.read().decode()
            return text
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return None


@contextmanager
def running(program: str, folder: Path, rest: int | None = None) -> Iterator[tuple[RunningCollector, Kept]]:
    """A collector and the store behind it."""
    server = grpc.server(futures.ThreadPoolExecutor(2))
    kept = Kept()
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(kept, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        collector = RunningCollector(program, folder, port, rest)
        try:
            yield collector, kept
        finally:
            collector.stop()
    finally:
        server.stop(0)
