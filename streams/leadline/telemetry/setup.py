"""The telemetry of one worker: what is observed, shown and sent, and how it ends. The one place that puts the parts together."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from opentelemetry.sdk.metrics.export import MetricExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter
from opentelemetry.trace import NoOpTracer

from leadline import __version__
from leadline.contracts.session_state import Incident
from leadline.telemetry.budget import Budget
from leadline.telemetry.calm import CalmMetrics, CalmSpans, Trouble, bounded, queue
from leadline.telemetry.metrics import Metrics
from leadline.telemetry.observer import Batch, Observer, Sources
from leadline.telemetry.push import Pusher
from leadline.telemetry.tracing import Tracing

__all__ = ["Options", "Telemetry", "exporters"]

SPANS_A_SECOND: Final = 100.0
"""What a worker makes for long: at some 150 us a span with its export (`docs/performance.md`), 1.5 % of a core."""
SPANS_AT_ONCE: Final = 1_200
"""500 sessions that cross a boundary at the same moment have a verdict and a command each."""
EXPORT_S: Final = 5.0
PUSH_S: Final = 15.0


@dataclass(frozen=True, slots=True)
class Options:
    """``endpoint`` empty: nothing is sent. ``protocol``: ``http/protobuf`` or ``grpc``. ``push``: metrics are sent too."""

    endpoint: str = ""
    protocol: str = "http/protobuf"
    push: bool = False
    push_s: float = PUSH_S
    ratio: float = 0.01
    fleets_max: int = 50
    group: str = "leadline"
    instance: str = ""


class Telemetry:
    """Observes with metrics, and with traces where there is an endpoint. ``now``: ms since 1970."""

    def __init__(self, options: Options, now: Callable[[], int]) -> None:
        self.metrics = Metrics(now, options.fleets_max)
        self._observers: Sequence[Observer] = (self.metrics,)
        self._queue: SpanProcessor | None = None
        self._pusher: Pusher | None = None
        if not options.endpoint:
            return
        spans, metrics = exporters(options)
        trouble = Trouble(options.endpoint, self.metrics.export_failed)
        resource = _resource(options)
        # Who switches OpenTelemetry off as a whole (OTEL_SDK_DISABLED) gets no spans either.
        if not isinstance(TracerProvider(shutdown_on_exit=False).get_tracer(__name__), NoOpTracer):
            self._queue = queue(CalmSpans(spans, trouble), self.metrics.dropped)
            budget = Budget(SPANS_A_SECOND, SPANS_AT_ONCE, time.monotonic)
            tracing = Tracing(resource, self._queue.on_end, options.group, options.ratio, budget, self.metrics.dropped)
            # Traces first: what they put into the records is what the metrics show as exemplars.
            self._observers = (tracing, self.metrics)
        if metrics is not None:
            self._pusher = Pusher(self.metrics.registry, resource, CalmMetrics(metrics, trouble), options.push_s)

    def close(self, limit_s: float = 2.0) -> None:
        """Send what is left; returns within ``limit_s`` seconds, whatever the collector does."""
        until = time.monotonic() + limit_s
        if self._pusher is not None:
            self._pusher.close(limit_s / 2)
        if self._queue is not None:
            bounded(self._queue.shutdown, max(0.0, until - time.monotonic()))

    # -- the observer

    def judged(self, batch: Batch) -> None:
        for one in self._observers:
            one.judged(batch)

    def delivered(self, batch: Batch) -> None:
        for one in self._observers:
            one.delivered(batch)

    def restored(self, partition: int, incidents: Iterable[tuple[str, tuple[Incident, ...]]], fleets: Iterable[str] = ()) -> None:
        self.metrics.restored(partition, incidents, fleets)

    def revoked(self, partitions: Iterable[int]) -> None:
        self.metrics.revoked(partitions)

    def rebalanced(self) -> None:
        self.metrics.rebalanced()

    def sources(self, sources: Sources) -> None:
        self.metrics.sources(sources)


def exporters(options: Options) -> tuple[SpanExporter, MetricExporter | None]:
    """Those of OpenTelemetry; headers, certificates and the like come from its own variables, ``OTEL_EXPORTER_OTLP_...``."""
    base = options.endpoint.rstrip("/")
    metrics: MetricExporter | None = None
    if options.protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcMetrics

        from leadline.telemetry.otlp_grpc import GrpcSpans

        if options.push:
            metrics = GrpcMetrics(endpoint=base, timeout=EXPORT_S)
        return GrpcSpans(endpoint=base, timeout=EXPORT_S), metrics
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as HttpMetrics

    from leadline.telemetry.otlp_http import HttpSpans

    if options.push:
        metrics = HttpMetrics(endpoint=f"{base}/v1/metrics", timeout=EXPORT_S)
    return HttpSpans(endpoint=f"{base}/v1/traces", timeout=EXPORT_S), metrics


def _resource(options: Options) -> Resource:
    """Who sends; ``OTEL_SERVICE_NAME`` and ``OTEL_RESOURCE_ATTRIBUTES`` win."""
    ours = {"service.name": "leadline-monitor", "service.version": __version__}
    if options.instance:
        ours["service.instance.id"] = options.instance
    return Resource(ours).merge(OTELResourceDetector().detect())
