"""The active trace, where OpenTelemetry's API happens to be installed; nothing otherwise."""

from __future__ import annotations

from collections.abc import Callable

from leadline.contracts.trace import NO_TRACE, TraceContext

__all__ = ["active_trace"]


def _without() -> TraceContext:
    return NO_TRACE


def _reader() -> Callable[[], TraceContext]:
    try:
        from opentelemetry import context as contexts
        from opentelemetry import trace
    except ImportError:
        return _without

    def read() -> TraceContext:
        current = contexts.get_current()
        if not current:
            return NO_TRACE
        context = trace.get_current_span(current).get_span_context()
        if not context.is_valid:
            return NO_TRACE
        parent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
        return TraceContext(parent, context.trace_state.to_header())

    return read


_read: Callable[[], TraceContext] | None = None


def active_trace() -> TraceContext:
    """W3C context of the span that is active in the calling thread, or :data:`NO_TRACE`. Never raises."""
    global _read
    try:
        if _read is None:
            _read = _reader()
        return _read()
    except Exception:
        # Whatever a tracing library does wrong is no reason for an event not to be sent.
        return NO_TRACE
