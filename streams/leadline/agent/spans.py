"""The agent's spans: one a compaction round, one a command that arrives, one an acknowledgement.

Made with OpenTelemetry's API where the agent has set it up, so that they go where the agent's own spans go; else nothing is made.
No fault of a tracing library reaches the agent.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Final, Self

from leadline import __version__
from leadline.contracts.events import Ack, Round
from leadline.contracts.orders import Command
from leadline.contracts.text import safe
from leadline.contracts.topics import COMMANDS, EVENTS
from leadline.contracts.trace import TraceContext, read_trace
from leadline.telemetry import names

__all__ = ["Scope", "acknowledging", "compacting", "off", "receiving", "reporting"]

Attributes = dict[str, Any]

_MAX_ID: Final = 256

_open_round: ContextVar[Scope | None] = ContextVar("leadline_open_round", default=None)
_open_receipt: ContextVar[str] = ContextVar("leadline_open_receipt", default="")


class Scope:
    """A span that is active for the length of a ``with`` block, or nothing at all. Passes on every exception of the block."""

    def __init__(
        self,
        name: str,
        kind: str,
        about: Mapping[str, Any],
        *,
        parent: TraceContext | None = None,
    ) -> None:
        """``parent``: the context that the span belongs under; it is then linked to the active span. ``None``: that one is the
        parent, if there is one."""
        self._made = (name, kind, about, parent)
        self._span: Any = None
        self._token: Any = None

    def __enter__(self) -> Self:
        try:
            self._begin()
        except Exception:
            self._span = None
        return self

    def say(self, about: Mapping[str, Any]) -> None:
        """Further attributes."""
        try:
            if self._span is not None:
                self._span.set_attributes(about)
        except Exception:
            self._span = None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if self._token is not None:
                from opentelemetry import context

                context.detach(self._token)
            if self._span is not None:
                if kind is not None:
                    self._span.set_attribute(names.ERROR_TYPE, kind.__qualname__)
                self._span.end()
        except Exception:
            self._span = None

    def _begin(self) -> None:
        from opentelemetry import context, trace

        name, kind, about, parent = self._made
        above = context.get_current()
        links = []
        if parent is not None:
            active = trace.get_current_span().get_span_context()
            links = [trace.Link(active)] if active.is_valid else []
            found = _context(parent)
            above = context.Context() if found is None else trace.set_span_in_context(trace.NonRecordingSpan(found))
        tracer = trace.get_tracer_provider().get_tracer("leadline.agent", __version__)
        self._span = tracer.start_span(name, above, trace.SpanKind[kind], about, links)
        self._token = context.attach(trace.set_span_in_context(self._span))


class _Nothing(Scope):
    """No span."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...


_NOTHING: Final = _Nothing("", "", {})
_api: Any = None
"""OpenTelemetry's API; ``False`` where it is not installed or does not work."""


def off() -> bool:
    """Whether nobody has set OpenTelemetry up in this process. Costs next to nothing where that is so."""
    global _api
    if _api is None:
        _api = _found()
    if not _api:
        return True
    # A provider may be set at any time. The public function would look it up in the environment at every round.
    if getattr(_api, "_TRACER_PROVIDER", _api) is None:
        return True
    return isinstance(_api.get_tracer_provider(), _api.ProxyTracerProvider)


def _found() -> Any:
    try:
        from opentelemetry import trace

        trace.get_tracer_provider()  # Loads the one that the environment names, if it does.
    except Exception:
        return False
    return trace


class _Round(Scope):
    """A compaction that is open: the round that is reported meanwhile is its own."""

    def __enter__(self) -> Self:
        super().__enter__()
        self._before = _open_round.set(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        _open_round.reset(self._before)
        super().__exit__(kind, error, trace)


class _Receipt(Scope):
    def __init__(self, command: Command) -> None:
        about = {**_who(command), **_about(command), **_hop("process", COMMANDS.name, command.command_id)}
        parent = TraceContext(command.traceparent, command.tracestate)
        super().__init__(names.RECEIVE, "CONSUMER", about, parent=parent)
        self._id = command.command_id

    def __enter__(self) -> Self:
        super().__enter__()
        self._before = _open_receipt.set(self._id)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        _open_receipt.reset(self._before)
        super().__exit__(kind, error, trace)


class _Told(Scope):
    """Adds a round to the span of the compaction that is open, or has one of its own."""

    def __init__(self, event: Round) -> None:
        self._open = _open_round.get()
        self._about = _measured(event)
        super().__init__(names.COMPACT, "INTERNAL", {**_who(event), names.COMPACTED: True, **self._about})

    def __enter__(self) -> Self:
        if self._open is None:
            return super().__enter__()
        self._open.say(self._about)
        return self


def compacting(session_id: str, agent_id: str, fleet: str, epoch: int, trigger: str) -> Scope:
    """A compaction pass, from its beginning."""
    if off():
        return _NOTHING
    about: Attributes = {names.CONVERSATION: safe(session_id, _MAX_ID), names.AGENT_ID: safe(agent_id, _MAX_ID)}
    if fleet:
        about[names.FLEET] = about[names.AGENT_NAME] = safe(fleet, _MAX_ID)
    about |= {names.EPOCH: epoch, names.COMPACTED: True, names.TRIGGER: safe(trigger, _MAX_ID)}
    return _Round(names.COMPACT, "INTERNAL", about)


def reporting(event: Round) -> Scope:
    """A round is measured and queued."""
    return _NOTHING if off() else _Told(event)


def receiving(command: Command) -> Scope:
    """A command has arrived; a child of its sending."""
    return _NOTHING if off() else _Receipt(command)


def acknowledging(command: Command, event: Ack) -> Scope:
    """An acknowledgement is queued: under the receipt that is open, or else under the command's sending."""
    if off():
        return _NOTHING
    about = {**_who(event), **_about(command), **_hop("send", EVENTS.name, event.event_id), names.OUTCOME: event.outcome}
    here = _open_receipt.get() == command.command_id
    parent = None if here else TraceContext(command.traceparent, command.tracestate)
    return Scope(names.ACK, "PRODUCER", about, parent=parent)


def _context(parent: TraceContext) -> Any:
    """A context as OpenTelemetry has it; ``None`` for what is none."""
    from opentelemetry.trace import SpanContext, TraceFlags, TraceState

    found = read_trace([("traceparent", parent.traceparent.encode()), ("tracestate", parent.tracestate.encode())])
    if not found.traceparent:
        return None
    _, trace_id, span_id, flags = found.traceparent.split("-")[:4]
    state = TraceState.from_header([found.tracestate]) if found.tracestate else None
    return SpanContext(int(trace_id, 16), int(span_id, 16), True, TraceFlags(int(flags, 16)), state)


def _who(one: Round | Ack | Command) -> Attributes:
    about: Attributes = {names.CONVERSATION: safe(one.session_id, _MAX_ID), names.AGENT_ID: safe(one.agent_id, _MAX_ID)}
    if one.fleet:
        about[names.FLEET] = about[names.AGENT_NAME] = safe(one.fleet, _MAX_ID)
    if one.epoch is not None:
        about[names.EPOCH] = one.epoch
    return about


def _about(command: Command) -> Attributes:
    return {
        names.VIOLATION: True,
        names.INCIDENT_ID: command.incident_id,
        names.RULE: safe(command.rule, _MAX_ID),
        names.COMMAND_ID: command.command_id,
        names.COMMAND_KIND: command.kind,
        names.COMMAND_SEQ: command.seq,
        names.ATTEMPT: command.attempt,
    }


def _hop(operation: str, topic: str, message_id: str) -> Attributes:
    return {
        names.MESSAGING_SYSTEM: "kafka",
        names.OPERATION_NAME: operation,
        names.OPERATION_TYPE: operation,
        names.DESTINATION: topic,
        names.MESSAGE_ID: message_id,
    }


def _measured(event: Round) -> Attributes:
    about: Attributes = {
        names.ROUND: event.round,
        names.TRIGGER: safe(event.trigger, _MAX_ID),
        names.OUTCOME: event.outcome,
        names.RAW_TOKENS: event.raw_tokens,
        names.SUMMARY_TOKENS: event.summary_tokens,
        names.SPANS_LEFT: event.distinct_source_spans,
        names.DEPTH: event.summary_depth_max,
    }
    total = event.raw_tokens + event.summary_tokens
    if total:
        about[names.RAW_RATIO] = event.raw_tokens / total
    if event.query_cosine_retained is not None:
        about[names.SALIENCE] = event.query_cosine_retained
    return about
