"""What telemetry tells of compactions becomes rounds, and nothing else does."""

from __future__ import annotations

import importlib.util

import orjson
import pytest

from leadline.contracts.codec import decode_event, encode
from leadline.errors import Malformed
from leadline.ingest.mapping import compaction_of, rounds_of
from leadline.ingest.otlp import Kind, decode
from leadline.lab.replay import ReplayDriver
from tests.ingest.sent import ADK, CLAUDE, FLAGGED, HARNESS, OTHER, SPAN, TRACE, logs, spans


def told(value: bytes, kind: Kind = "traces") -> list[tuple[str, str, str, str]]:
    found = [compaction_of(signal) for signal in decode(value, kind)]
    return [(one.session_id, one.agent_id, one.trigger, one.outcome) for one in found if one is not None]


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (spans(ADK), "traces", ("adk-1", "desk", "token_threshold", "ok")),
        (spans(ADK, failed=True), "traces", ("adk-1", "desk", "token_threshold", "failed")),
        (spans(HARNESS), "traces", ("pai-1", "desk", "summarizing", "ok")),
        (spans(FLAGGED), "traces", ("any-1", "desk", "compacted", "ok")),
        (logs(CLAUDE), "logs", ("cc-1", "claude-code", "auto", "ok")),
        (logs({**CLAUDE, "success": "false"}), "logs", ("cc-1", "claude-code", "auto", "failed")),
    ],
    ids=["adk", "adk failed", "pydantic-ai", "flag", "claude code", "claude code failed"],
)
def test_who_tells_of_a_compaction(value: bytes, kind: Kind, expected: tuple[str, str, str, str]) -> None:
    assert told(value, kind) == [expected]


def test_a_summarizer_that_wrote_nothing_failed() -> None:
    name, values = ADK
    without = {key: value for key, value in values.items() if key != "gen_ai.compaction.result_event_id"}
    assert told(spans((name, without))) == [("adk-1", "desk", "token_threshold", "failed")]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (spans(OTHER), "traces"),
        (spans(("chat", {"gen_ai.conversation.compacted": False, "gen_ai.conversation.id": "a"})), "traces"),
        (spans((ADK[0], {"gen_ai.operation.name": "compact_events"})), "traces"),
        (logs({"event.name": "api_request", "session.id": "cc-1"}, body="claude_code.api_request"), "logs"),
        (logs({"event.name": "compaction", "session.id": "x"}, service="a-database", body="compaction"), "logs"),
        (b"{}", "traces"),
    ],
    ids=["no compaction", "not flagged", "whose?", "another event", "a database", "nothing"],
)
def test_what_tells_of_none_or_not_of_whose(value: bytes, kind: Kind) -> None:
    assert told(value, kind) == []


def test_a_round_claims_nothing_that_was_not_told() -> None:
    """Zero tokens of both kinds is unknown: the monitor notes the rounds and finds nothing wrong."""
    compactions = [one for one in map(compaction_of, decode(spans(ADK, ADK), "traces")) if one is not None]
    made = [event for event, _ in rounds_of(compactions, {}, epoch=5)]
    assert [(event.round, event.epoch, event.event_id) for event in made] == [
        (1, 5, f"otlp-{TRACE}-{SPAN}"),
        (2, 5, f"otlp-{TRACE}-{int(SPAN, 16) + 1:016x}"),
    ]
    for event in made:
        assert (event.raw_tokens, event.summary_tokens, event.before, event.summaries) == (0, 0, None, None)
        assert (event.dropped_spans, event.ungrounded_summaries, event.query_cosine_retained) == (None, None, None)
    driver = ReplayDriver()
    for event in made:
        driver.feed(encode(event))
    assert (driver.violations, driver.dead_letters) == ([], [])
    [state] = driver.states.values()
    assert state.last_round == 2


def test_compactions_that_fail_again_and_again_are_found() -> None:
    compactions = [one for one in map(compaction_of, decode(spans(*[ADK] * 8, failed=True), "traces")) if one is not None]
    driver = ReplayDriver()
    for event, _ in rounds_of(compactions, {}, epoch=5):
        driver.feed(event)
    assert {(violation.rule, violation.reason) for violation in driver.violations} == {("no-progress", "compaction-failed")}


def test_rounds_count_on() -> None:
    compactions = [one for one in map(compaction_of, decode(spans(ADK), "traces")) if one is not None]
    [(event, _)] = rounds_of(compactions, {("adk-1", "desk"): 4}, epoch=5, fleet="f")
    assert (event.round, event.fleet) == (5, "f")
    assert decode_event(encode(event)).event == event


@pytest.mark.skipif(importlib.util.find_spec("opentelemetry.proto") is None, reason="opentelemetry-proto is not installed")
@pytest.mark.parametrize(
    ("value", "kind"), [(spans(ADK, HARNESS, OTHER), "traces"), (logs(CLAUDE), "logs")], ids=["traces", "logs"]
)
def test_protobuf_tells_the_same_as_json(value: bytes, kind: Kind) -> None:
    """Encoded by OpenTelemetry's own messages; its JSON has ids in base64, OTLP's in hexadecimal."""
    import base64

    from google.protobuf.json_format import ParseDict
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    given = orjson.loads(value)
    for group in given.get("resourceSpans", []):
        for span in group["scopeSpans"][0]["spans"]:
            for name in ("traceId", "spanId"):
                span[name] = base64.b64encode(bytes.fromhex(span[name])).decode()
    message = ParseDict(given, ExportTraceServiceRequest() if kind == "traces" else ExportLogsServiceRequest())
    assert decode(message.SerializeToString(), kind) == decode(value, kind)


@pytest.mark.parametrize(
    "value",
    [
        b"nonsense",
        b"\xff\xff",
        b"[1]",
        b'{"resourceSpans": 7}',
        b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"attributes": 1}]}]}]}',
    ],
)
def test_what_is_no_otlp_is_malformed(value: bytes) -> None:
    with pytest.raises(Malformed):
        decode(value, "traces")
