"""The monitor's spans: which there are, whose trace they are in, what they say and what they cost."""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk.trace import ReadableSpan

from leadline.contracts.codec import encode
from leadline.contracts.orders import Command, Violation
from leadline.detection.policy import FleetPolicy
from leadline.processors.outputs import outgoing
from leadline.telemetry import names
from leadline.telemetry.observer import Batch
from tests.support.core import ack, round_, start, tick
from tests.telemetry.watched import SPAN_ID, TRACE_ID, Watched, against_the_list, context_of, headers, parent_of, sunk


def trace_of(span: ReadableSpan) -> str:
    return context_of(span)[3:35]


def test_a_verdict_and_its_command_are_in_the_trace_of_the_agents_round() -> None:
    monitor = Watched()
    folded = monitor.tell(start(), round_(1), sunk(2), headers=headers(tracestate="vendor=1"))
    (verdict,), (command,), (batch,) = (monitor.named(name) for name in (names.VERDICT, names.COMMAND, names.PROCESS))
    assert trace_of(verdict) == trace_of(command) == TRACE_ID
    assert parent_of(verdict) == SPAN_ID
    assert parent_of(command) == context_of(verdict)[36:52]
    assert batch.parent is None
    assert trace_of(batch) != TRACE_ID, "a batch is of many traces and so of none"
    assert [f"{link.context.trace_id:032x}" for link in batch.links] == [TRACE_ID]
    assert [link.context.span_id for link in verdict.links] == [batch.get_span_context().span_id]
    violation, halt = folded.outputs
    assert violation.traceparent == context_of(verdict)
    assert halt.traceparent == context_of(command)
    assert violation.tracestate == halt.tracestate == "vendor=1"


def test_what_is_sent_has_the_context_of_its_span_once() -> None:
    folded = (monitor := Watched()).tell(start(), round_(1), sunk(2), headers=headers())
    for item in folded.outputs:
        sent = [value for name, value in outgoing(item, 3).headers if name == "traceparent"]
        assert sent == [item.traceparent.encode()]
        assert encode(item).count(b'"traceparent"') == 1
    assert len(monitor.spans) == 3


def test_attributes_are_those_of_the_list_and_say_what_was_decided() -> None:
    monitor = Watched()
    monitor.tell(start(), round_(1), sunk(2, 0.4), headers=headers())
    (halt,) = [item for item in monitor.sent if isinstance(item, Command)]
    monitor.tell(ack(halt), headers=headers(halt.traceparent))
    monitor.tell(round_(3, 0.9), round_(4, 0.9), headers=headers())
    assert {span.name for span in monitor.spans} == {one.name for one in names.SPANS if one.process == "monitor"}
    assert [wrong for span in monitor.spans for wrong in against_the_list(span)] == []
    (verdict,) = monitor.named(names.VERDICT)
    said = dict(verdict.attributes or {})
    assert said[names.RULE] == "provenance-floor"
    assert said[names.CONVERSATION] == "s1"
    assert said[names.AGENT_NAME] == said[names.FLEET] == "f1"
    assert (said[names.RAW_TOKENS], said[names.SUMMARY_TOKENS], said[names.RAW_RATIO]) == (40_000, 60_000, 0.4)
    assert (said[names.SPANS_LEFT], said[names.CAUSE], said[names.OFFSET]) == (5, "round", 2)
    (event,) = verdict.events
    assert event.name == names.EVALUATION
    assert dict(event.attributes or {})[names.EVALUATION_NAME] == "provenance-floor"
    (recovered,) = monitor.named(names.RECOVERED)
    assert parent_of(recovered) == context_of(verdict)[36:52]
    assert trace_of(recovered) == TRACE_ID


def test_what_decides_about_sampling_is_there_when_the_span_begins() -> None:
    """Attributes that are set later are not seen by a sampler."""
    monitor = Watched()
    monitor.tell(start(), round_(1), sunk(2), headers=headers())
    for span in monitor.spans:
        if span.name != names.PROCESS:
            assert (span.attributes or {})[names.VIOLATION] is True


def test_a_timers_verdict_joins_the_trace_of_the_sessions_last_event() -> None:
    monitor = Watched()
    monitor.tell(start(), round_(1), headers=headers())
    monitor.now += FleetPolicy().silence_ms
    monitor.tell(tick(monitor.now))
    (verdict,) = monitor.named(names.VERDICT)
    assert (verdict.attributes or {})[names.RULE] == "unobserved"
    assert (verdict.attributes or {})[names.CAUSE] == "tick"
    assert (trace_of(verdict), parent_of(verdict)) == (TRACE_ID, SPAN_ID)


def test_a_command_that_goes_unheeded_and_its_escalation_stay_in_the_trace() -> None:
    monitor = Watched()
    monitor.tell(start(), round_(1), sunk(2), headers=headers())
    for _ in range(FleetPolicy().attempts):
        monitor.now += FleetPolicy().command_ttl_ms
        monitor.tell(tick(monitor.now))
    kinds = [(span.attributes or {})[names.COMMAND_KIND] for span in monitor.named(names.COMMAND)]
    assert kinds == ["halt"] * FleetPolicy().attempts + ["stop-agent"]
    assert {trace_of(span) for span in monitor.spans if span.name != names.PROCESS} == {TRACE_ID}
    assert [(span.attributes or {})[names.SIGNAL] for span in monitor.named(names.ANSWERED)] == [
        "deadline"
    ] * FleetPolicy().attempts


def test_without_a_trace_of_the_agents_all_that_one_event_led_to_is_one_trace() -> None:
    monitor = Watched()
    monitor.tell(start(), round_(1), sunk(2))
    for _ in range(FleetPolicy().attempts):
        monitor.now += FleetPolicy().command_ttl_ms
        monitor.tell(tick(monitor.now))
    spans = [span for span in monitor.spans if span.name != names.PROCESS]
    assert len({trace_of(span) for span in spans}) == 1
    roots = [span for span in spans if span.parent is None]
    assert [(span.attributes or {})[names.RULE] for span in roots] == ["provenance-floor", "unheeded"]


def test_a_batch_that_comes_again_makes_the_same_spans() -> None:
    """A worker dies after its outputs were sent and before its state was stored."""
    once, twice = Watched(), Watched()
    for monitor in (once, twice):
        monitor.tell(start(), round_(1), headers=headers())
    once.tell(sunk(2), headers=headers())
    twice.tell(sunk(2), deliver=False, headers=headers())
    assert twice.spans == [], "of a batch that was given up nothing is seen"
    twice.log.pop()
    twice.tell(sunk(2), headers=headers())
    for name in (names.VERDICT, names.COMMAND):
        assert [context_of(span) for span in once.named(name)] == [context_of(span) for span in twice.named(name)]


def test_an_agent_that_is_not_sampled_is_not_and_its_context_goes_on() -> None:
    monitor = Watched()
    folded = monitor.tell(start(), round_(1), sunk(2), headers=headers(f"00-{TRACE_ID}-{SPAN_ID}-00"))
    assert [span.name for span in monitor.spans] == [names.PROCESS]
    assert [(item.traceparent[3:35], item.traceparent[-2:]) for item in folded.outputs] == [(TRACE_ID, "00")] * 2


def test_contexts_that_are_none_are_ignored_and_counted() -> None:
    monitor = Watched()
    monitor.tell(start(), headers=headers(f"00-{'0' * 32}-{SPAN_ID}-01"))
    monitor.tell(round_(1), headers=headers("nonsense"))
    monitor.tell(sunk(2), headers=headers(f"00-{TRACE_ID}-{'0' * 16}-01"))
    assert monitor.samples()['leadline_tolerated_total{what="bad-trace-context"}'] == 3
    (verdict,) = monitor.named(names.VERDICT)
    assert verdict.parent is None


def test_links_past_the_limit_go_into_further_spans() -> None:
    """250 sessions cross at once, each in its own trace."""
    monitor = Watched()
    events = []
    for number in range(250):
        who: dict[str, Any] = {"session_id": f"s{number}", "event_id": f"e{number}"}
        context = headers(f"00-{number + 1:032x}-{number + 1:016x}-01")
        events.append(monitor.append(sunk(1, **who), headers=context))
    told = Batch(3, 0, 249, 250, monitor.fold(events))
    monitor.tracing.judged(told)
    monitor.tracing.delivered(told)
    parts = monitor.named(names.PROCESS)
    assert [len(span.links) for span in parts] == [100, 100, 50]
    assert [(span.attributes or {})[names.PART] for span in parts] == [0, 1, 2]
    assert len({span.get_span_context().trace_id for span in parts}) == 1
    linked = {link.context.trace_id for span in parts for link in span.links}
    assert linked == set(range(1, 251))


def test_a_batch_that_led_to_nothing_gets_a_span_by_chance_only() -> None:
    never, always = Watched(ratio=0.0), Watched(ratio=1.0)
    for monitor in (never, always):
        monitor.tell(start(), round_(1), headers=headers())
    assert never.spans == []
    (batch,) = always.spans
    assert list(batch.links) == []
    assert (batch.attributes or {})[names.BATCH_COUNT] == 2


def test_past_the_budget_no_span_is_made_and_the_agents_context_goes_on() -> None:
    monitor = Watched(most=3)
    first = monitor.tell(start(), round_(1), sunk(2), headers=headers())
    assert len(monitor.spans) == 3
    second = monitor.tell(sunk(1, session_id="s2"), headers=headers())
    assert len(monitor.spans) == 3
    assert monitor.refused == 3
    assert [item.traceparent for item in second.outputs] == [f"00-{TRACE_ID}-{SPAN_ID}-01"] * 2
    assert isinstance(first.outputs[0], Violation)


def test_hostile_ids_are_bounded_and_cleaned() -> None:
    monitor = Watched()
    session = "s\n\x1b[31m" + "x" * 200
    monitor.tell(sunk(1, session_id=session, fleet="api_key=hunter2hunter2"), headers=headers())
    (verdict,) = monitor.named(names.VERDICT)
    said = dict(verdict.attributes or {})
    assert str(said[names.CONVERSATION]).isprintable()
    assert "hunter2" not in str(said[names.FLEET])
