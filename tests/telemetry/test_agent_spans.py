"""The SDK's spans: in the agent's own trace, under the command that they answer, and never in the agent's way."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from leadline.agent.trace import active_trace
from leadline.contracts.events import Ack, AgentEvent, Round
from leadline.contracts.orders import Command, Parameters
from leadline.contracts.times import format_ms
from leadline.contracts.trace import NO_TRACE, TraceContext
from leadline.telemetry import names
from tests.agent.support import START, Clock, session
from tests.agent.support import Sink as Events
from tests.telemetry.watched import SPAN_ID, TRACE_ID, TRACEPARENT, against_the_list, context_of, parent_of


class Sink(Events):
    """Keeps the context that each event would be sent with, as the emitter chooses it."""

    def __init__(self) -> None:
        super().__init__()
        self.contexts: list[tuple[AgentEvent, str]] = []

    def emit(self, event: AgentEvent, *, trace: TraceContext = NO_TRACE) -> bool:
        active = active_trace()
        self.contexts.append((event, (active if active.traceparent else trace).traceparent))
        return super().emit(event, trace=trace)

    def context(self, kind: type[AgentEvent]) -> str:
        return [context for event, context in self.contexts if isinstance(event, kind)][-1]


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """OpenTelemetry set up as an agent would, for one test."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    # What trace.set_tracer_provider does; that can be done once in a process only.
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    assert trace.get_tracer_provider() is provider
    yield exporter
    assert [wrong for span in exporter.get_finished_spans() if span.name != "turn" for wrong in against_the_list(span)] == []


def named(spans: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in spans.get_finished_spans() if span.name == name]


def halt(one_epoch: int, traceparent: str = TRACEPARENT) -> Command:
    return Command(
        command_id="cmd-1",
        seq=1,
        incident_id="inc-1",
        kind="halt",
        session_id="s1",
        agent_id="a1",
        fleet="f1",
        epoch=one_epoch,
        issued_at=format_ms(START),
        expires_at=format_ms(START + 60_000),
        attempt=1,
        rule="inversion",
        reason="halted",
        parameters=Parameters(target_raw_ratio=0.3),
        traceparent=traceparent,
    )


def test_a_compaction_is_one_span_in_the_agents_trace(spans: InMemorySpanExporter) -> None:
    sink = Sink()
    tracer = trace.get_tracer_provider().get_tracer("agent")
    with session(sink, Clock()) as one, tracer.start_as_current_span("turn"):
        one.ledger.add_raw("m1", 300)
        with one.compaction("budget"):
            one.ledger.summarize("S1", ["m1"], 100)
            one.ledger.evict(["m1"])
    (compacted,), (turn,) = named(spans, names.COMPACT), named(spans, "turn")
    assert parent_of(compacted) == context_of(turn)[36:52]
    assert sink.context(Round) == context_of(compacted)
    said = dict(compacted.attributes or {})
    assert said[names.COMPACTED] is True
    assert said[names.CONVERSATION] == one.session_id
    assert (said[names.ROUND], said[names.RAW_TOKENS], said[names.SUMMARY_TOKENS], said[names.DEPTH]) == (1, 0, 100, 1)
    assert said[names.OUTCOME] == "ok"


def test_a_round_that_is_only_reported_has_a_span_too(spans: InMemorySpanExporter) -> None:
    sink = Sink()
    with session(sink, Clock()) as one:
        one.ledger.add_raw("m1", 300)
        one.compacted()
    (compacted,) = named(spans, names.COMPACT)
    assert compacted.parent is None
    assert sink.context(Round) == context_of(compacted)


def test_a_compaction_that_fails_says_so_and_raises_what_it_raised(spans: InMemorySpanExporter) -> None:
    with session(Sink(), Clock()) as one, pytest.raises(KeyError, match="mine"), one.compaction():
        raise KeyError("mine")
    (compacted,) = named(spans, names.COMPACT)
    said = dict(compacted.attributes or {})
    assert (said[names.OUTCOME], said[names.ERROR_TYPE]) == ("failed", "KeyError")


def test_receipt_and_acknowledgement_go_on_in_the_commands_trace(spans: InMemorySpanExporter) -> None:
    sink = Sink()
    with session(sink, Clock()) as one:
        one.receive(halt(one.epoch))
    (receipt,), (ack,) = named(spans, names.RECEIVE), named(spans, names.ACK)
    assert context_of(receipt)[3:35] == context_of(ack)[3:35] == TRACE_ID
    assert parent_of(receipt) == SPAN_ID
    assert parent_of(ack) == context_of(receipt)[36:52]
    assert sink.context(Ack) == context_of(ack)
    assert (ack.attributes or {})[names.OUTCOME] == "accepted"
    assert (receipt.attributes or {})[names.VIOLATION] is True


def test_what_is_said_later_belongs_to_the_command_and_is_linked_to_the_agents_span(spans: InMemorySpanExporter) -> None:
    sink = Sink()
    tracer = trace.get_tracer_provider().get_tracer("agent")
    with session(sink, Clock()) as one:
        command = halt(one.epoch)
        one.receive(command)
        with tracer.start_as_current_span("turn") as turn:
            one.done(command)
    _, done = named(spans, names.ACK)
    assert context_of(done)[3:35] == TRACE_ID
    assert parent_of(done) == SPAN_ID
    assert [link.context for link in done.links] == [turn.get_span_context()]
    assert (done.attributes or {})[names.OUTCOME] == "done"
    assert sink.context(Ack) == context_of(done)


@pytest.mark.parametrize("wrong", ["", "nonsense", f"00-{'0' * 32}-{SPAN_ID}-01", f"00-{TRACE_ID}-{'0' * 16}-01"])
def test_a_command_without_a_valid_context_begins_a_trace(spans: InMemorySpanExporter, wrong: str) -> None:
    sink = Sink()
    with session(sink, Clock()) as one:
        one.receive(halt(one.epoch, wrong))
    (receipt,), (ack,) = named(spans, names.RECEIVE), named(spans, names.ACK)
    assert receipt.parent is None
    assert parent_of(ack) == context_of(receipt)[36:52]


def test_without_a_set_up_nothing_is_made_and_the_commands_context_goes_on() -> None:
    assert isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
    sink = Sink()
    with session(sink, Clock()) as one:
        one.ledger.add_raw("m1", 300)
        one.compacted()
        one.receive(halt(one.epoch))
    assert sink.context(Round) == ""
    assert sink.context(Ack) == TRACEPARENT


def test_a_tracing_library_that_fails_is_not_the_agents_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", object())
    sink = Sink()
    with session(sink, Clock()) as one:
        one.ledger.add_raw("m1", 300)
        with one.compaction():
            pass
        one.receive(halt(one.epoch))
    assert [type(event).__name__ for event, _ in sink.contexts] == ["SessionStart", "Round", "Ack", "SessionEnd"]
    assert sink.context(Ack) == TRACEPARENT
