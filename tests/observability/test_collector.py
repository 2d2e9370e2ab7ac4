"""The shipped collector configurations, in a real OpenTelemetry Collector: taken as they are, traces sampled as documented, and
pushed metrics under the names that alerts and dashboards use.

``make observability-test`` builds the collector where Go is here; without it these tests are skipped.
"""

from __future__ import annotations

import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import IdGenerator, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

from leadline.telemetry import names
from leadline.telemetry.setup import PUSH_S
from tests.observability import tools
from tests.observability.collecting import SHIPPED, Kept, running
from tests.observability.queries import asked, rules
from tests.processors.running import MONITOR, ROOT, RunningWorker, until
from tests.support.ports import free_ports

COMPOSE = ROOT / "deploy" / "compose" / "collector.yml"
LABEL = re.compile(r'(\w+)="')
_ADDED = {"job", "instance", "otel_scope_name", "otel_scope_version", "otel_scope_schema_url"}
"""What the collector adds to each series: whose it is."""


@pytest.fixture(scope="module")
def program() -> str:
    found = tools.collector()
    if found is None:
        pytest.skip("the OpenTelemetry Collector is not here: make observability-test builds it where Go is")
    return found


def validated(program: str, *files: Path) -> subprocess.CompletedProcess[str]:
    command = [program, "validate", *(f"--config={file}" for file in files)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("files", [(SHIPPED,), (SHIPPED, COMPOSE)], ids=["alone", "in compose"])
def test_a_collector_takes_the_configuration(program: str, files: tuple[Path, ...]) -> None:
    done = validated(program, *files)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("written", "instead", "said"),
    [
        ("decision_wait:", "decision_weit:", "decision_weit"),
        ("sampled_cache_size:", "sampled_size:", "sampled_size"),
        ("exporters: [prometheus]", "exporters: [prometheu]", "prometheu"),
    ],
)
def test_a_collector_refuses_what_is_misspelt(program: str, tmp_path: Path, written: str, instead: str, said: str) -> None:
    """The kinds of policies are looked at by a starting one alone: the tests below start it."""
    text = SHIPPED.read_text(encoding="utf-8")
    assert text.count(written) == 1
    broken = tmp_path / "collector.yml"
    broken.write_text(text.replace(written, instead))
    done = validated(program, broken)
    assert done.returncode != 0
    assert said in done.stderr


def test_the_collector_of_compose_is_the_release_that_is_tested() -> None:
    """At one release with all its parts, which are all that the configuration names."""
    image = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text(encoding="utf-8"))["services"]["collector"]["image"]
    module = (tools.COLLECTOR / "go.mod").read_text(encoding="utf-8")
    direct = module.split("require (")[1].split(")")[0]
    parts = dict(re.findall(r"opentelemetry-collector-contrib/\w+/(\w+) v(\S+)", direct))
    assert image.rpartition(":")[2] in parts.values()
    assert len({*parts.values(), *re.findall(r"collector/otelcol v(\S+)", direct)}) == 1


def test_a_worker_that_is_gone_is_not_thought_ready_for_long() -> None:
    """Its pushed series end sooner than the alert about a blind monitor waits; two pushes may fail till then."""
    expires = yaml.safe_load(SHIPPED.read_text(encoding="utf-8"))["exporters"]["prometheus"]["metric_expiration"]
    blind = next(rule for rule in rules() if rule.get("alert") == "LeadlineBlind")
    assert (expires, blind["for"]) == ("1m", "2m")
    assert PUSH_S * 3 < 60


class Numbered(IdGenerator):  # type: ignore[misc]
    """Trace ids that are the same each time: the collector's chance goes by them."""

    def __init__(self) -> None:
        self._span = 0

    def generate_trace_id(self) -> int:
        raise AssertionError("every span is given its trace")

    def generate_span_id(self) -> int:
        self._span += 1
        return self._span


class Sender:
    """Ends one span at a time in a trace that the test names, by OpenTelemetry's own SDK."""

    def __init__(self, endpoint: str) -> None:
        self._provider = TracerProvider(id_generator=Numbered(), shutdown_on_exit=False)
        self._provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(endpoint=f"{endpoint}/v1/traces")))
        self._tracer = self._provider.get_tracer("test")

    def send(self, trace_id: int, name: str, **attributes: Any) -> None:
        around = SpanContext(trace_id, 0x1234, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))
        given = {f"leadline.{key}": value for key, value in attributes.items()}
        self._tracer.start_span(name, set_span_in_context(NonRecordingSpan(around)), attributes=given).end()

    def close(self) -> None:
        self._provider.shutdown()


def number(of: int) -> int:
    """A trace id: its last 8 bytes, which chance may go by, are spread as random ones are."""
    return 1 << 120 | (of * 0x9E3779B97F4A7C15) % (1 << 64)


@pytest.fixture
def sampling(program: str, tmp_path: Path) -> Iterator[tuple[Sender, Kept]]:
    """No trace is kept by chance."""
    with running(program, tmp_path, rest=0) as (collector, kept):
        sender = Sender(collector.endpoint)
        yield sender, kept
        sender.close()


@pytest.mark.timeout(200)
def test_what_matters_is_kept_whole_and_the_rest_is_dropped(sampling: tuple[Sender, Kept]) -> None:
    """A verdict keeps the rounds before it and what follows later; so do a batch with verdicts and a failed compaction."""
    sender, kept = sampling
    healthy, violating, batch, idle, failed, succeeded, last = map(number, range(1, 8))
    for round_ in ("round 1", "round 2"):
        sender.send(healthy, round_, outcome="ok")
    sender.send(violating, "round 1", outcome="ok")
    sender.send(violating, names.VERDICT, violation=True)
    sender.send(batch, names.PROCESS, **{"batch.verdicts": 3})
    sender.send(idle, names.PROCESS, **{"batch.verdicts": 0})
    sender.send(failed, names.COMPACT, outcome="failed")
    sender.send(succeeded, names.COMPACT, outcome="ok")
    until("the verdict", lambda: kept.names(violating) == {"round 1", names.VERDICT})

    # What comes after the decision follows it, whatever it says itself.
    sender.send(violating, "round 9", outcome="ok")
    until("a later span of the trace that was kept", lambda: "round 9" in kept.names(violating))
    # This one is decided upon after all that were sent before.
    sender.send(last, names.VERDICT, violation=True)
    until("the last decision", lambda: kept.names(last))
    found = {int.from_bytes(span.trace_id) for span in kept.spans}
    assert found == {violating, batch, failed, last}


@pytest.mark.timeout(200)
def test_of_the_rest_one_in_a_hundred_is_kept(program: str, tmp_path: Path) -> None:
    """The shipped share; by trace id, so that it is the same each time."""
    with running(program, tmp_path) as (collector, kept):
        sender = Sender(collector.endpoint)
        for one in range(1_000):
            sender.send(number(one), "round", outcome="ok")
        last = number(5_000)
        sender.send(last, names.VERDICT, violation=True)
        until("the last decision", lambda: kept.names(last))
        sender.close()
        share = len(kept.spans) - 1
    assert 2 <= share <= 25, "10 are expected: for ids like these by chance some more or less, but always the same"


@pytest.mark.broker
@pytest.mark.e2e
@pytest.mark.timeout(300)
def test_a_workers_violation_and_metrics_come_out_of_the_collector(bootstrap: str, program: str, tmp_path: Path) -> None:
    """An agent and a worker, both processes of their own, send to it as users would have them send."""
    (page,) = free_ports(1)
    with running(program, tmp_path, rest=0) as (collector, kept):
        options = {"otlp_endpoint": collector.endpoint, "otlp_metrics": True, "trace_ratio": 0, "http_port": page}
        worker = RunningWorker(bootstrap, tmp_path / "worker", MONITOR, **options).ready()
        try:
            agent = [sys.executable, "-m", "tests.telemetry.agent_process", bootstrap, collector.endpoint, "collected-1"]
            done = subprocess.run(agent, cwd=ROOT, capture_output=True, text=True, timeout=110, check=False)
            assert done.returncode == 0, f"{done.stderr}\n{worker.log}"
            ours = _exposed(_page(page))
        finally:
            code = worker.stop()
        assert code == 0, worker.log
        _the_trace_is_whole(kept)
        # A stopping worker pushes once more: whatever its page showed is there by then.
        until("the metrics", lambda: _exposed(collector.exposition()).keys() >= ours.keys())
        pushed = _exposed(collector.exposition())
    assert {names.prometheus_name(one) for one in names.METRICS if one.kind in ("counter", "gauge")} <= ours.keys()
    for name, labels in ours.items():
        assert pushed[name] - _ADDED == labels - _ADDED, name
    assert {"job", "instance"} <= pushed["leadline_ready"], "workers are told apart"
    for rule in rules():
        for name, labels in asked(rule["expr"]):
            if name in ours:
                assert labels <= pushed[name], f"{rule.get('alert') or rule.get('record')}: {name}"


def _the_trace_is_whole(kept: Kept) -> None:
    """From the agent's own turn to the recovery; the turn before, in which nothing happened, is dropped."""
    until("the recovery", lambda: any(span.name == names.RECOVERED for span in kept.spans))
    (trace,) = {span.trace_id for span in kept.spans if span.name == names.RECOVERED}
    wanted = {"second turn", names.COMPACT, names.VERDICT, names.COMMAND, names.RECEIVE, names.ACK, names.ANSWERED}
    until("the whole trace", lambda: kept.names(int.from_bytes(trace)) >= wanted)
    until("the batch with the verdict, a trace of its own", lambda: any(span.name == names.PROCESS for span in kept.spans))
    assert "first turn" not in {span.name for span in kept.spans}


def _page(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text: str = answer.read().decode()
        return text


def _exposed(text: str) -> dict[str, set[str]]:
    """Each series' name and its labels, without the ``_created`` ones."""
    found: dict[str, set[str]] = {}
    for line in text.splitlines():
        if line.startswith(("leadline_", "messaging_", "process_")) and not re.match(r"\w+_created\b", line):
            name, _, rest = line.split(" # ")[0].partition("{")
            found.setdefault(name.split(" ")[0], set()).update(LABEL.findall(rest) if rest else ())
    return found
