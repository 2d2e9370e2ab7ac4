"""Exporters that keep calm: one warning when the collector does not take what it is sent, one line when it does again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from threading import Lock, Thread
from typing import Any, Final

from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult, MetricsData
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

__all__ = ["CalmMetrics", "CalmSpans", "Trouble", "bounded", "queue"]

log = logging.getLogger(__name__)

QUEUE_MAX: Final = 8_192
DELAY_MS: Final = 1_000

# What these say of each failed export, retry and full queue is said once by :class:`Trouble`, and counted.
for _name in ("opentelemetry.exporter", "opentelemetry.sdk._shared_internal", "opentelemetry.sdk.metrics"):
    logging.getLogger(_name).setLevel(logging.CRITICAL + 1)


class Trouble:
    """Whether the collector takes what it is sent. Thread safe. ``failed(signal)`` is called for each export that failed."""

    def __init__(self, endpoint: str, failed: Callable[[str], None]) -> None:
        self._endpoint = endpoint
        self._failed = failed
        self._down: set[str] = set()
        self._lock = Lock()

    def tell(self, signal: str, ok: bool, why: str = "") -> None:
        if not ok:
            self._failed(signal)
        with self._lock:
            before = bool(self._down)
            (self._down.discard if ok else self._down.add)(signal)
            changed = before is not bool(self._down)
        if changed and not ok:
            log.warning(
                "%s do not reach the collector at %s%s: check that it runs; detection goes on, what is too much is dropped",
                signal,
                self._endpoint,
                f" ({why})" if why else "",
            )
        elif changed:
            log.info("telemetry reaches the collector at %s again", self._endpoint)


class CalmSpans(SpanExporter):  # type: ignore[misc]
    """A span exporter that tells ``trouble`` and never raises."""

    def __init__(self, inner: SpanExporter, trouble: Trouble) -> None:
        self._inner = inner
        self._trouble = trouble

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        why = ""
        try:
            result = self._inner.export(spans)
        except Exception as error:
            result, why = SpanExportResult.FAILURE, type(error).__name__
        self._trouble.tell("traces", result is SpanExportResult.SUCCESS, why)
        return result

    def shutdown(self) -> None:
        self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return bool(self._inner.force_flush(timeout_millis))


class CalmMetrics:
    """The same for metrics."""

    def __init__(self, inner: MetricExporter, trouble: Trouble) -> None:
        self._inner = inner
        self._trouble = trouble

    def export(self, data: MetricsData) -> None:
        why = ""
        try:
            ok = self._inner.export(data) is MetricExportResult.SUCCESS
        except Exception as error:
            ok, why = False, type(error).__name__
        self._trouble.tell("metrics", ok, why)

    def shutdown(self) -> None:
        self._inner.shutdown()


class _Queue(BatchSpanProcessor):  # type: ignore[misc]
    """Counts what it has to drop."""

    dropped: Callable[[int], None] = staticmethod(lambda number: None)

    def on_end(self, span: ReadableSpan) -> None:
        inner: Any = self._batch_processor
        if len(inner._queue) >= QUEUE_MAX:
            self.dropped(1)
            return
        super().on_end(span)


def queue(exporter: SpanExporter, dropped: Callable[[int], None]) -> BatchSpanProcessor:
    """A bounded queue with a thread of its own that sends; what does not fit is dropped and told."""
    made = _Queue(exporter, max_queue_size=QUEUE_MAX, schedule_delay_millis=DELAY_MS, max_export_batch_size=512)
    made.dropped = dropped
    return made


def bounded(call: Callable[[], object], limit_s: float) -> bool:
    """Run ``call`` for at most ``limit_s`` seconds; whether it ended. What hangs is left behind in a daemon thread."""
    thread = Thread(target=call, name="leadline-telemetry-end", daemon=True)
    thread.start()
    thread.join(limit_s)
    return not thread.is_alive()
