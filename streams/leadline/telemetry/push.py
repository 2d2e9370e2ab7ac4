"""The metrics of the registry, pushed over OTLP: the same names, labels and exemplars as at ``/metrics``."""

from __future__ import annotations

import time
from collections.abc import Iterable
from threading import Event, Thread
from typing import Any

from opentelemetry.sdk.metrics import Exemplar as OtelExemplar
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.metrics.export import Metric as OtelMetric
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client import CollectorRegistry
from prometheus_client.core import Exemplar, Metric

from leadline import __version__
from leadline.telemetry import names
from leadline.telemetry.calm import CalmMetrics, bounded

__all__ = ["Pusher", "snapshot"]

_OURS = {names.prometheus_name(one).removesuffix("_total").removesuffix("_info"): one for one in names.METRICS}


class Pusher:
    """A daemon thread that pushes every ``every_s`` seconds, and once more at the end."""

    def __init__(self, registry: CollectorRegistry, resource: Resource, exporter: CalmMetrics, every_s: float) -> None:
        self._registry = registry
        self._resource = resource
        self._exporter = exporter
        self._every_s = every_s
        self._began = time.time_ns()
        self._end = Event()
        self._thread = Thread(target=self._run, name="leadline-metrics", daemon=True)
        self._thread.start()

    def push(self) -> None:
        self._exporter.export(snapshot(self._registry, self._resource, self._began, time.time_ns()))

    def close(self, limit_s: float) -> None:
        self._end.set()
        bounded(self.push, limit_s)

    def _run(self) -> None:
        while not self._end.wait(self._every_s):
            self.push()


def snapshot(registry: CollectorRegistry, resource: Resource, began: int, now: int) -> MetricsData:
    """Everything that the registry holds, cumulative. ``began``, ``now``: nanoseconds since 1970."""
    metrics = [made for family in registry.collect() if (made := _metric(family, began, now)) is not None]
    scope = ScopeMetrics(InstrumentationScope("leadline.monitor", __version__), metrics, "")
    return MetricsData([ResourceMetrics(resource, [scope], "")])


def _metric(family: Metric, began: int, now: int) -> OtelMetric | None:
    ours = _OURS.get(family.name)
    name, unit = (ours.name, ours.unit) if ours is not None else (family.name, family.unit)
    data: Any
    if family.type == "histogram":
        points = list(_histograms(family, began, now))
        data = Histogram(points, AggregationTemporality.CUMULATIVE)
    elif family.type == "counter":
        points = [
            NumberDataPoint(sample.labels, began, now, sample.value)
            for sample in family.samples
            if sample.name.endswith("_total")
        ]
        data = Sum(points, AggregationTemporality.CUMULATIVE, True)
    else:
        points = [NumberDataPoint(sample.labels, began, now, sample.value) for sample in family.samples]
        data = Gauge(points)
    return OtelMetric(name, family.documentation, unit, data) if points else None


def _histograms(family: Metric, began: int, now: int) -> Iterable[HistogramDataPoint]:
    """The samples of a family are cumulative by bucket; a data point has them apart."""
    found: dict[tuple[tuple[str, str], ...], dict[str, Any]] = {}
    for sample in family.samples:
        labels = {name: value for name, value in sample.labels.items() if name != "le"}
        one = found.setdefault(tuple(sorted(labels.items())), {"labels": labels, "buckets": [], "exemplars": []})
        if sample.name.endswith("_bucket"):
            one["buckets"].append((float(sample.labels["le"]), sample.value))
            if sample.exemplar is not None:
                one["exemplars"].append(_exemplar(sample.exemplar, now))
        elif sample.name.endswith("_sum"):
            one["sum"] = sample.value
    for one in found.values():
        buckets = sorted(one["buckets"])
        counts = [int(count) for _, count in buckets]
        apart = [count - before for count, before in zip(counts, [0, *counts], strict=False)]
        bounds = [bound for bound, _ in buckets[:-1]]
        yield HistogramDataPoint(
            attributes=one["labels"],
            start_time_unix_nano=began,
            time_unix_nano=now,
            count=counts[-1],
            sum=one["sum"],
            bucket_counts=apart,
            explicit_bounds=bounds,
            min=None,
            max=None,
            exemplars=one["exemplars"],
        )


def _exemplar(given: Exemplar, now: int) -> OtelExemplar:
    labels = given.labels
    at = now if given.timestamp is None else int(float(given.timestamp) * 1e9)
    return OtelExemplar({}, given.value, at, int(labels["span_id"], 16), int(labels["trace_id"], 16))
