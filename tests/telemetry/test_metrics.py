"""What the metrics of a worker say, counted by hand, and how many series they are."""

from __future__ import annotations

import typing
from collections import Counter
from typing import Any

import prometheus_client
import pytest
from opentelemetry.sdk.metrics.export import Gauge, Sum
from opentelemetry.sdk.resources import Resource
from opentelemetry.semconv._incubating.attributes import messaging_attributes
from opentelemetry.semconv._incubating.metrics import messaging_metrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from leadline.commands.fold import Incoming, fold
from leadline.commands.issue import MANUAL
from leadline.commands.lifecycle import Signal
from leadline.contracts.codec import encode
from leadline.contracts.events import AckOutcome
from leadline.contracts.manual import Manual
from leadline.contracts.orders import Command, CommandKind, Mode, Severity
from leadline.contracts.reasons import Reason
from leadline.contracts.session_state import Counts, Stage
from leadline.detection.policy import DEFAULT_POLICY, FleetPolicy
from leadline.detection.rules import RULE_NAMES
from leadline.telemetry import labels, names
from leadline.telemetry.metrics import Metrics
from leadline.telemetry.observer import Batch, Sources
from leadline.telemetry.push import snapshot
from tests.support.core import START, WHO, ack, end, policy, round_, start, tick
from tests.telemetry.watched import SPAN_ID, TRACE_ID, Watched, headers, samples, sunk


def halted() -> tuple[Watched, Command]:
    """A session whose halt was sent two seconds ago."""
    monitor = Watched()
    monitor.tell(start(), round_(1), sunk(2), headers=headers())
    (halt,) = [item for item in monitor.sent if isinstance(item, Command)]
    monitor.now += 2_000
    return monitor, halt


def test_a_violation_its_command_and_its_end_are_counted() -> None:
    monitor, halt = halted()
    seen = monitor.samples()
    assert seen["leadline_events_total"] == 3
    assert seen["leadline_batches_total"] == 1
    assert seen['leadline_rounds_total{fleet="f1"}'] == 2
    assert seen['leadline_violations_total{fleet="f1",mode="enforce",rule="provenance-floor",severity="critical"}'] == 1
    assert seen['leadline_commands_total{attempt="first",kind="halt"}'] == 1
    assert seen['leadline_incidents_open{mode="enforce",rule="provenance-floor"}'] == 1
    assert seen['leadline_commands_open{kind="halt",stage="issued"}'] == 1
    monitor.tell(ack(halt))
    seen = monitor.samples()
    assert seen['leadline_command_outcomes_total{kind="halt",outcome="accepted"}'] == 1
    assert seen['leadline_commands_open{kind="halt",stage="issued"}'] == 0
    assert seen['leadline_commands_open{kind="halt",stage="accepted"}'] == 1
    assert seen['leadline_command_to_ack_seconds_sum{kind="halt"}'] == 2.0
    monitor.now += 3_000
    monitor.tell(round_(3, 0.9), round_(4, 0.9))
    seen = monitor.samples()
    assert seen['leadline_command_outcomes_total{kind="halt",outcome="resolved"}'] == 1
    assert seen['leadline_incidents_open{mode="enforce",rule="provenance-floor"}'] == 0
    assert seen['leadline_incident_duration_seconds_sum{rule="provenance-floor"}'] == 5.0
    assert seen['leadline_commands_open{kind="resume",stage="issued"}'] == 1


def test_a_command_that_nobody_answers_times_out_and_is_sent_again() -> None:
    monitor, _ = halted()
    monitor.now += FleetPolicy().command_ttl_ms
    monitor.tell(tick(monitor.now))
    seen = monitor.samples()
    assert seen['leadline_command_outcomes_total{kind="halt",outcome="timeout"}'] == 1
    assert seen['leadline_commands_total{attempt="again",kind="halt"}'] == 1
    assert seen['leadline_command_to_ack_seconds_count{kind="halt"}'] == 0


def test_a_command_that_was_acknowledged_and_shows_no_effect_in_time_has_not_timed_out() -> None:
    """Else agents that answered would be told of as agents that did not."""
    monitor, halt = halted()
    monitor.tell(ack(halt, "done"), sunk(3))
    monitor.now += FleetPolicy().effect_ttl_ms
    monitor.tell(tick(monitor.now))
    seen = monitor.samples()
    assert seen['leadline_commands_total{attempt="again",kind="halt"}'] == 1
    assert seen['leadline_command_outcomes_total{kind="halt",outcome="no-effect"}'] == 1
    assert seen['leadline_command_outcomes_total{kind="halt",outcome="timeout"}'] == 0


def by_hand(action: str, **changes: Any) -> Manual:
    return Manual(**WHO | {"event_id": "m1", "action": action, "who": "ada", "why": "a drill"} | changes)


def test_what_a_person_releases_has_not_recovered() -> None:
    monitor, halt = halted()
    monitor.tell(ack(halt), by_hand("resume", rule="provenance-floor"))
    seen = monitor.samples()
    assert seen['leadline_command_outcomes_total{kind="halt",outcome="released"}'] == 1
    assert seen['leadline_command_outcomes_total{kind="halt",outcome="resolved"}'] == 0
    assert seen['leadline_incident_duration_seconds_count{rule="provenance-floor"}'] == 0
    assert seen['leadline_incidents_open{mode="enforce",rule="provenance-floor"}'] == 0


def test_a_halt_by_hand_has_its_own_name() -> None:
    monitor = Watched()
    monitor.tell(round_(1))
    named = 'leadline_violations_total{fleet="f1",mode="enforce",rule="manual",severity="warning"}'
    assert monitor.samples()[named] == 0
    monitor.tell(by_hand("halt"))
    assert monitor.samples()[named] == 1
    assert monitor.samples()['leadline_incidents_open{mode="enforce",rule="manual"}'] == 1


def test_what_has_not_happened_yet_is_there_as_zero() -> None:
    """Else its first time is no increase, and no alert fires."""
    monitor = Watched()
    monitor.tell(start(), round_(1))
    seen = monitor.samples()
    assert seen['leadline_violations_total{fleet="f1",mode="enforce",rule="unheeded",severity="critical"}'] == 0
    assert seen['leadline_command_outcomes_total{kind="halt",outcome="timeout"}'] == 0
    assert seen['leadline_dead_letters_total{reason="not-json"}'] == 0
    monitor.tell(sunk(2))
    assert seen.keys() == monitor.samples().keys(), "a verdict of a rule in force makes no new series"


def test_a_session_that_ends_takes_its_incidents_out_of_the_gauges() -> None:
    monitor, _ = halted()
    monitor.tell(end())
    seen = monitor.samples()
    assert seen['leadline_incidents_open{mode="enforce",rule="provenance-floor"}'] == 0
    assert seen['leadline_commands_open{kind="halt",stage="issued"}'] == 0


def test_partitions_that_go_take_their_incidents_along_and_bring_them_back() -> None:
    monitor, _ = halted()
    incidents = monitor.state().incidents
    monitor.metrics.revoked([3])
    assert monitor.samples()['leadline_incidents_open{mode="enforce",rule="provenance-floor"}'] == 0
    monitor.metrics.restored(3, [("key", incidents)])
    monitor.metrics.restored(3, [("key", incidents)])
    assert monitor.samples()['leadline_incidents_open{mode="enforce",rule="provenance-floor"}'] == 1


def test_the_first_verdict_of_a_timer_after_a_takeover_is_an_increase() -> None:
    """The session is of a fleet that this worker has not heard of otherwise: its series are there before it is told."""
    monitor = Watched()
    monitor.tell(start(), round_(1))
    monitor.metrics = Metrics(lambda: monitor.now)
    monitor.metrics.restored(3, [], {"f1"})
    named = 'leadline_violations_total{fleet="f1",mode="enforce",rule="unobserved",severity="warning"}'
    before = monitor.samples()
    assert (before[named], before['leadline_rounds_total{fleet="f1"}']) == (0, 0)
    monitor.now += FleetPolicy().silence_ms
    monitor.tell(tick(monitor.now))
    assert monitor.samples()[named] == 1
    assert monitor.samples().keys() == before.keys()


def test_series_are_made_once_however_many_fleets_agents_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """3,000 fleets in the store and in what comes: the five that have series of their own, and those of all the others. One is
    called as the others are."""
    made: Counter[str] = Counter()
    labels_of = prometheus_client.Counter.labels

    def counting(self: Any, *values: Any, **given: Any) -> Any:
        made[self._name] += 1
        return labels_of(self, *values, **given)

    monitor = Watched(fleets_max=5)
    monkeypatch.setattr(prometheus_client.Counter, "labels", counting)
    monitor.metrics.restored(3, [], ["other", *(f"{n:04}" for n in range(3)), "q", *(f"r{n}" for n in range(3_000))])
    monitor.tell(*(round_(1, session_id=f"s{n}", fleet=f"r{n}") for n in range(100)))
    (per_fleet,) = {
        len([name for name in monitor.samples() if name.startswith("leadline_violations") and f'"{fleet}"' in name])
        for fleet in ("0000", "0001", "0002", "q", "other")
    }
    assert made["leadline_violations"] == 5 * per_fleet
    assert made["leadline_rounds"] <= 2 * 5
    assert monitor.samples()["leadline_fleets_overflow_total"] == 100


def test_a_rule_in_shadow_has_its_series_before_it_first_fires() -> None:
    monitor = Watched(policy=policy(modes={"provenance-floor": "shadow"}))
    monitor.tell(start(), round_(1))
    named = 'leadline_violations_total{fleet="f1",mode="shadow",rule="provenance-floor",severity="critical"}'
    assert monitor.samples()[named] == 0
    monitor.tell(sunk(2))
    assert monitor.samples()[named] == 1


def collected(one: Any) -> str:
    """The name that a collector's Prometheus exporter gives a metric, by the rules of OpenTelemetry's compatibility page: a unit
    of 1 makes a gauge a ratio, a unit in braces is left out."""
    name, unit = one.name.replace(".", "_"), one.unit
    suffix = {"s": "seconds", "By": "bytes", "1": "ratio" if isinstance(one.data, Gauge) else ""}.get(unit, "")
    if suffix and not name.endswith(f"_{suffix}"):
        name = f"{name}_{suffix}"
    return f"{name}_total" if isinstance(one.data, Sum) else name


def test_what_is_pushed_has_the_names_of_what_is_scraped() -> None:
    """The alerts and dashboards ask for these, whichever way the metrics come."""
    monitor, _ = halted()
    told = snapshot(monitor.metrics.registry, Resource({}), 1, 2).resource_metrics[0].scope_metrics[0].metrics
    pushed = {collected(one) for one in told}
    assert {name for name in pushed if name.startswith(("leadline_", "messaging_"))} == {
        names.prometheus_name(one) for one in names.METRICS
    }
    assert {"leadline_ready", "leadline_policy_info", "leadline_build_info", "leadline_lag_seconds"} <= pushed


def test_what_was_wrong_with_records_is_counted_by_its_name() -> None:
    monitor = Watched()
    monitor.tell(b"null", key=b"s1")
    monitor.tell(None, key=b"s1")
    monitor.tell(start(), round_(1), round_(4), round_(4), round_(3))
    seen = monitor.samples()
    assert seen['leadline_dead_letters_total{reason="not-an-object"}'] == 1
    assert seen['leadline_ignored_total{why="tombstone"}'] == 1
    assert seen['leadline_irregular_total{how="gaps"}'] == 2
    assert seen['leadline_irregular_total{how="duplicates"}'] == 1
    assert seen['leadline_irregular_total{how="reordered"}'] == 1


def test_latencies_carry_the_trace_as_an_exemplar() -> None:
    monitor = Watched()
    batch = [monitor.append(event, headers=headers()) for event in (start(), round_(1), sunk(2))]
    assert batch[0].timestamp == START
    monitor.now += 700
    monitor.log.clear()
    monitor.tell(start(), round_(1), sunk(2), headers=headers(), timestamp=START)
    families = {family.name: family for family in text_string_to_metric_families(monitor.metrics.render().decode())}  # type: ignore[no-untyped-call]
    late = families["leadline_event_to_verdict_seconds"]
    (bucket,) = [sample for sample in late.samples if sample.exemplar is not None]
    assert bucket.labels == {"cause": "event", "le": "1.0"}, "0.7 s lie between 0.5 and 1"
    assert bucket.exemplar is not None
    assert bucket.exemplar.value == 0.7
    assert bucket.exemplar.labels["trace_id"] == TRACE_ID
    assert bucket.exemplar.labels["span_id"] != SPAN_ID, "the verdict's own span"


def test_lag_is_told_in_records_and_in_seconds() -> None:
    monitor = Watched()
    waiting = {3: 40, 4: 2}
    monitor.metrics.sources(
        Sources(lag_records=lambda: waiting, ready=lambda: True, sessions=lambda: 7, policy_version=lambda: "v2")
    )
    monitor.tell(round_(1))
    monitor.now += 30_000
    seen = monitor.samples()
    assert seen["leadline_lag_records"] == 42
    assert seen["leadline_lag_seconds"] == 30.0
    assert seen["leadline_partitions"] == 2
    assert seen["leadline_sessions"] == 7
    assert seen["leadline_ready"] == 1
    assert seen['leadline_policy_info{version="v2"}'] == 1
    waiting[3] = 0
    assert monitor.samples()["leadline_lag_seconds"] == 0.0, "of partition 4 nothing is known yet"


@pytest.mark.timeout(400)
@pytest.mark.parametrize("many", [5_000, 100_000])
def test_many_sessions_are_as_many_series_as_100(many: int) -> None:
    """Each has ids and a fleet of its own; the first ten, and then every thousandth, a verdict and a command."""
    well, sick = (encode(made(1, session_id="SESSION", agent_id="AGENT", fleet="FLEET")) for made in (round_, sunk))

    def series(sessions: int) -> set[str]:
        metrics = Metrics(lambda: START, fleets_max=5)
        verdicts = 10 + len(range(1_000, sessions, 1_000))
        for first in range(0, sessions, 2_500):
            batch = []
            for number in range(first, min(sessions, first + 2_500)):
                name = b"s%d" % number
                value = sick if number < 10 or number % 1_000 == 0 else well
                value = value.replace(b"SESSION", name).replace(b"AGENT", name).replace(b"FLEET", name)
                batch.append(Incoming(name, value, 3, number, START))
            told = Batch(3, first, first + len(batch) - 1, len(batch), fold(batch, lambda key: None, DEFAULT_POLICY, START))
            metrics.judged(told)
            metrics.delivered(told)
        seen = samples(metrics)
        assert sum(value for name, value in seen.items() if name.startswith("leadline_violations_total")) == verdicts
        assert sum(value for name, value in seen.items() if name.startswith("leadline_rounds_total")) == sessions
        assert seen["leadline_fleets_overflow_total"] == sessions - 5 + verdicts - 5
        return {line.split(" ")[0] for line in metrics.render().decode().splitlines() if not line.startswith("#")}

    few = series(100)
    assert series(many) == few
    assert len(few) < 1_000


def test_a_label_value_that_is_not_known_is_told_as_other() -> None:
    monitor = Watched()
    folded = monitor.tell(start())
    folded.ignored["made-up"] = 3
    monitor.metrics.delivered(Batch(3, 0, 0, 1, folded))
    assert monitor.samples()['leadline_ignored_total{why="other"}'] == 3


def test_the_values_of_the_labels_are_those_of_the_code() -> None:
    assert set(labels.RULES) == {*RULE_NAMES, MANUAL}
    assert set(labels.KINDS) == set(typing.get_args(CommandKind))
    assert set(labels.REASONS) == {reason.value for reason in Reason}
    assert set(labels.STAGES) == {stage.value for stage in Stage} - {"resolved"}
    assert set(labels.IRREGULAR) == set(Counts.__struct_fields__)
    assert set(labels.LABELS["severity"].values) == set(typing.get_args(Severity))
    assert set(labels.LABELS["mode"].values) == set(typing.get_args(Mode)) - {"off"}
    assert set(typing.get_args(AckOutcome)) <= set(labels.OUTCOMES)
    assert len(labels.OUTCOMES) == len(set(Signal)), "improved is told as effective, a deadline as timeout or no-effect"


def test_every_metric_of_the_list_is_exposed_and_no_other_of_ours() -> None:
    families = {family.name for family in Watched().metrics.registry.collect()}
    listed = {names.prometheus_name(one).removesuffix("_total").removesuffix("_info") for one in names.METRICS}
    ours = {name for name in families if name.startswith(("leadline_", "messaging_"))}
    assert ours == listed
    assert {"process_cpu_seconds", "process_resident_memory_bytes", "process_open_fds"} <= families, "health of the process"


def test_labels_and_attributes_are_listed_and_ids_are_no_labels() -> None:
    for one in names.METRICS:
        assert set(one.labels) <= set(labels.LABELS), one.name
        assert not [label for label in one.labels if label.endswith("id")], one.name
    listed = {attribute.name for attribute in names.ATTRIBUTES}
    for span in names.SPANS:
        assert set(span.attributes) <= listed, span.name


@pytest.mark.parametrize("name", sorted(one.name for one in names.ATTRIBUTES if one.name.startswith("messaging.")))
def test_messaging_attributes_are_those_of_the_installed_conventions(name: str) -> None:
    assert name in {value for value in vars(messaging_attributes).values() if isinstance(value, str)}


def test_messaging_metrics_are_those_of_the_installed_conventions() -> None:
    assert messaging_metrics.MESSAGING_PROCESS_DURATION == "messaging.process.duration"
    assert names.metric("messaging.process.duration").unit == "s"
