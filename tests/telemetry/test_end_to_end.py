"""One violation in one trace, across the agent's process, the monitor's and the collector: with a real OTLP receiver."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from oteltap import OtelTapHttpProtobufReceiver, OtelTapHttpProtobufReceiverSettings

from leadline.cli.main import cli
from leadline.errors import Refused
from leadline.telemetry import derive, names
from tests.processors.running import MONITOR, ROOT, RunningWorker, Topics, bodies, until
from tests.support.ports import free_ports

pytestmark = [pytest.mark.broker, pytest.mark.e2e]

SESSION = "traced-1"


def attributes(span: Span) -> dict[str, Any]:
    """By name; the values as Python has them."""
    found = {}
    for one in span.attributes:
        kind = one.value.WhichOneof("value")
        found[one.key] = getattr(one.value, kind)
    return found


def wrong(span: Span) -> list[str]:
    """What the list of names does not say."""
    listed = {one.name: one for one in names.SPANS}
    types = {one.name: {"string": str, "int": int, "double": float, "boolean": bool}[one.type] for one in names.ATTRIBUTES}
    found = []
    for name, value in attributes(span).items():
        if name not in listed[span.name].attributes or type(value) is not types[name]:
            found.append(f"{span.name}: {name}={value!r}")
    if Span.SpanKind.Name(span.kind) != f"SPAN_KIND_{listed[span.name].kind}":
        found.append(f"{span.name} is {Span.SpanKind.Name(span.kind)}")
    return found


def by_name(spans: Iterable[Span]) -> dict[str, list[Span]]:
    found: dict[str, list[Span]] = defaultdict(list)
    for span in sorted(spans, key=lambda span: span.start_time_unix_nano):
        found[span.name].append(span)
    return found


async def spans_of_a_run(bootstrap: str, folder: Path) -> list[Span]:
    """Everything that a receiver got from an agent and a worker, both processes of their own, until both had ended."""
    (port,) = free_ports(1)
    collector = f"http://127.0.0.1:{port}"
    settings = OtelTapHttpProtobufReceiverSettings(
        http_port=port,
        listen_on_all_interfaces=False,
        print_traces_as_ndjson=False,
        print_logs_as_ndjson=False,
        print_metrics_as_ndjson=False,
    )
    spans: list[Span] = []

    async def collect(receiver: OtelTapHttpProtobufReceiver) -> None:
        async for span in receiver.stream_traces():
            spans.append(span)  # noqa: PERF401 - they are looked at while they come

    def run() -> None:
        worker = RunningWorker(bootstrap, folder / "worker", MONITOR, otlp_endpoint=collector, trace_ratio=0).ready()
        try:
            agent = [sys.executable, "-m", "tests.telemetry.agent_process", bootstrap, collector, SESSION]
            done = subprocess.run(agent, cwd=ROOT, capture_output=True, text=True, timeout=110, check=False)
            assert done.returncode == 0, f"{done.stderr}\n{worker.log}"
            with_release = Topics(bootstrap)
            until("the release's answer", lambda: _answered(with_release))
            with_release.close()
        finally:
            code = worker.stop()
        assert code == 0, worker.log

    async with OtelTapHttpProtobufReceiver(settings) as receiver:
        collecting = asyncio.create_task(collect(receiver))
        await asyncio.sleep(0)
        await asyncio.to_thread(run)
        async with asyncio.timeout(20):
            while not _complete(spans):
                await asyncio.sleep(0.05)
        collecting.cancel()
    return spans


def _answered(topics: Topics) -> bool:
    """The agent has answered its release, and the monitor has judged what came after: the session has ended."""
    kinds = [body["schema"] for body in bodies(topics.read("leadline.events"))]
    states = [body for body in bodies(topics.read("leadline.sessions")) if body["session_id"] == SESSION]
    return "leadline.session-end/1" in kinds and bool(states) and states[-1].get("ended_at") is not None


def _complete(spans: list[Span]) -> bool:
    found = by_name(spans)
    return bool(found[names.RECOVERED]) and len(found[names.COMMAND]) >= 2 and len(found[names.ACK]) >= 3


@pytest.mark.timeout(300)
async def test_a_violation_is_one_trace_from_the_round_to_the_acknowledgement(bootstrap: str, tmp_path: Path) -> None:
    spans = await spans_of_a_run(bootstrap, tmp_path)
    ours = [span for span in spans if span.name in {one.name for one in names.SPANS}]
    assert [line for span in ours for line in wrong(span)] == []
    verdicts = [span for span in ours if span.name == names.VERDICT and attributes(span)[names.RULE] == "provenance-floor"]
    assert len(verdicts) == 1
    (verdict,) = verdicts
    holding = {
        span.trace_id for span in ours if attributes(span).get(names.INCIDENT_ID) == attributes(verdict)[names.INCIDENT_ID]
    }
    assert holding == {verdict.trace_id}, "exactly one trace"
    trace = by_name(span for span in spans if span.trace_id == verdict.trace_id)

    (turn,) = trace["second turn"]
    (compacted,) = trace[names.COMPACT]
    halt, resume = trace[names.COMMAND]
    received, released = trace[names.RECEIVE]
    accepted = next(span for span in trace[names.ACK] if attributes(span)[names.OUTCOME] == "accepted")
    done = next(span for span in trace[names.ACK] if attributes(span)[names.OUTCOME] == "done")
    (recovered,) = trace[names.RECOVERED]
    answered = next(span for span in trace[names.ANSWERED] if attributes(span)[names.SIGNAL] == "accepted")
    assert compacted.parent_span_id == turn.span_id
    assert verdict.parent_span_id == compacted.span_id
    assert halt.parent_span_id == resume.parent_span_id == verdict.span_id
    assert received.parent_span_id == halt.span_id
    assert released.parent_span_id == resume.span_id
    assert accepted.parent_span_id == received.span_id
    assert done.parent_span_id == halt.span_id
    assert answered.parent_span_id == accepted.span_id
    assert recovered.parent_span_id == verdict.span_id
    assert attributes(halt)[names.COMMAND_KIND] == "halt"
    assert attributes(resume)[names.COMMAND_KIND] == "resume"

    # The links: the batch to the event, the verdict to the batch, the answer to the command, what showed the recovery.
    batch = next(span for span in ours if span.span_id == verdict.links[0].span_id)
    assert batch.name == names.PROCESS
    assert batch.trace_id != verdict.trace_id
    assert (verdict.trace_id, compacted.span_id) in {(link.trace_id, link.span_id) for link in batch.links}
    assert [link.span_id for link in answered.links] == [halt.span_id]
    rounds = {span.span_id for span in ours if span.name == names.COMPACT}
    assert {link.span_id for link in recovered.links} <= rounds
    assert len(recovered.links) == 1
    third = next(span for span in spans if span.name == "third turn")
    assert [link.span_id for link in done.links] == [third.span_id]

    # What is on the topics leads to the same spans.
    topics = Topics(bootstrap)
    (violation,) = [body for body in bodies(topics.read("leadline.violations")) if body["rule"] == "provenance-floor"]
    commands = [body for body in bodies(topics.read("leadline.commands")) if body.get("session_id") == SESSION]
    topics.close()
    assert violation["traceparent"][:52] == f"00-{verdict.trace_id.hex()}-{verdict.span_id.hex()}"
    assert int(violation["traceparent"][53:], 16) & 1, "sampled, as the agent's round is"
    assert {body["kind"]: body["traceparent"][36:52] for body in commands} == {
        "halt": halt.span_id.hex(),
        "resume": resume.span_id.hex(),
    }
    _the_story_is_the_same(bootstrap, violation, verdict, accepted)
    assert derive.verdict_span(violation["incident_id"]) == int(verdict.span_id.hex(), 16)


def _the_story_is_the_same(bootstrap: str, violation: dict[str, Any], verdict: Span, accepted: Span) -> None:
    """``leadline story`` tells the chain with the very ids of the spans."""
    result = CliRunner().invoke(cli, ["story", SESSION, "--bootstrap", bootstrap, "--json"])
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert (told["session_id"], told["agents"], told["fleet"], told["ended"]) == (SESSION, ["a1"], "f1", True)
    (incident,) = [one for one in told["incidents"] if one["incident_id"] == violation["incident_id"]]
    assert (incident["rule"], incident["status"], incident["unanswered"]) == ("provenance-floor", "recovered", [])
    assert incident["trace_id"] == verdict.trace_id.hex()
    steps = [(step["what"], step.get("kind") or step.get("outcome") or "") for step in incident["steps"]]
    assert steps[:4] == [("event", ""), ("verdict", ""), ("command", "halt"), ("ack", "accepted")]
    assert [step for step in steps if step[0] == "command"] == [("command", "halt"), ("command", "resume")]
    assert ("effect", "") in steps
    assert {step.get("trace_id") for step in incident["steps"] if step["what"] != "effect"} == {verdict.trace_id.hex()}
    assert incident["steps"][0]["distinct_source_spans"] == 4
    assert incident["steps"][3]["span_id"] == accepted.span_id.hex()
    text = CliRunner().invoke(cli, ["story", SESSION, "--bootstrap", bootstrap])
    assert "provenance-floor" in text.stdout
    assert verdict.trace_id.hex() in text.stdout
    unknown = CliRunner().invoke(cli, ["story", "nobody", "--bootstrap", bootstrap])
    assert isinstance(unknown.exception, Refused)
    assert "there is no record of session 'nobody'" in str(unknown.exception)
