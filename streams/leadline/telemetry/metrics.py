"""The metrics of one worker: fed a batch at a time, shown in OpenMetrics form with exemplars.

The number of series depends on the rules, kinds and fleets there are, never on the number of sessions.
"""

from __future__ import annotations

import platform
from bisect import bisect_left
from collections import Counter as Tally
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import product
from time import perf_counter_ns
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, GCCollector, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.registry import Collector

from leadline import __version__
from leadline.commands.fold import Step
from leadline.commands.issue import MANUAL
from leadline.commands.lifecycle import Move, Signal
from leadline.contracts.events import Ack
from leadline.contracts.orders import Command, Tick, Violation
from leadline.contracts.session_state import Incident, Stage
from leadline.detection.rules import CHECKPOINT_RULES, PRESENCE_RULES, ROUND_RULES, UNHEEDED
from leadline.telemetry import names
from leadline.telemetry.fleets import Fleets
from leadline.telemetry.labels import LABELS, OTHER
from leadline.telemetry.observer import Batch, Sources

__all__ = ["CONTENT_TYPE", "Metrics"]

# Twice the series, for times that nobody asks for.
disable_created_metrics()  # type: ignore[no-untyped-call]

CONTENT_TYPE: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"

_OUTCOMES: Final = {
    Signal.ACCEPTED: "accepted",
    Signal.DONE: "done",
    Signal.REFUSED: "refused",
    Signal.EXPIRED: "expired",
    Signal.DEADLINE: "timeout",
    Signal.NO_EFFECT: "no-effect",
    Signal.RECOVERED: "resolved",
    Signal.RELEASED: "released",
    Signal.WITHDRAWN: "withdrawn",
}
_SEVERITIES: Final[dict[str, str]] = {
    **{rule.name: rule.severity for rule in ROUND_RULES},
    **{rule.name: rule.severity for rule in CHECKPOINT_RULES},
    **{rule.name: rule.severity for rule in PRESENCE_RULES},
    UNHEEDED: "critical",
    MANUAL: "warning",
}
_COUNTED: Final = {
    "leadline.dead_letters.lost": "dead_letters_lost",
    "leadline.delivery.retries": "delivery_retries",
    "leadline.policy.refused": "policy_rejected",
}
"""Counters that the worker keeps itself, by its own names."""


def _known(label: str, value: str) -> str:
    values = LABELS[label].values
    return value if not values or value in values else OTHER


def _exemplar(traceparent: str) -> dict[str, str] | None:
    return {"trace_id": traceparent[3:35], "span_id": traceparent[36:52]} if len(traceparent) == 55 else None


def _zeros(name: str) -> Tally[tuple[str, ...]]:
    return Tally(dict.fromkeys(product(*(LABELS[label].values for label in names.metric(name).labels)), 0))


class Metrics:
    """An :class:`~leadline.telemetry.observer.Observer`. ``now``: ms since 1970. ``fleets_max``: fleets with their own series."""

    def __init__(self, now: Callable[[], int], fleets_max: int = 50) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        self.now = now
        self.source = Sources()
        self.open: Tally[tuple[str, ...]] = _zeros("leadline.incidents.open")
        self.standing: Tally[tuple[str, ...]] = _zeros("leadline.commands.open")
        self.since: dict[int, int] = {}
        """By partition: the broker's time of the last record judged, or when it was taken over; ms since 1970."""
        self._fleets = Fleets(fleets_max)
        self._told_of: set[str] = set()
        """Labels of fleets whose series there are."""
        self._incidents: dict[int, dict[str, tuple[Incident, ...]]] = {}
        self._counters: dict[str, Counter] = {}
        self._histograms: dict[str, Histogram] = {}
        self._children: dict[tuple[str, ...], Any] = {}
        """By name and values of labels, as many as there are series: the library looks longer for one than it counts."""
        for one in names.METRICS:
            name = names.prometheus_name(one)
            if one.kind == "counter" and one.name not in _COUNTED:
                self._counters[one.name] = Counter(name, one.meaning, one.labels, registry=self.registry)
            elif one.kind == "histogram":
                self._histograms[one.name] = Histogram(name, one.meaning, one.labels, buckets=one.buckets, registry=self.registry)
        # What begins to exist when it first happens, happens unseen: an increase needs a value before it.
        for made in (*self._counters.values(), *self._histograms.values()):
            values = [LABELS[label].values for label in made._labelnames]
            if made._labelnames and all(values):
                for combination in product(*values):
                    made.labels(*combination)
        self.registry.register(_Live(self))
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)

    def render(self) -> bytes:
        """The whole exposition, OpenMetrics 1.0."""
        shown: bytes = generate_latest(self.registry)  # type: ignore[no-untyped-call]
        return shown

    # -- what the worker tells

    def judged(self, batch: Batch) -> None:
        batch.judged = perf_counter_ns()

    def delivered(self, batch: Batch) -> None:
        folded = batch.folded
        done = perf_counter_ns()
        self._add("leadline.events", batch.count)
        self._add("leadline.batches", 1)
        self._histograms["messaging.process.duration"].observe((done - batch.began) / 1e9)
        self.since[batch.partition] = batch.stamp if batch.stamp > 0 else self.now()
        for fleet, number in folded.rounds.items():
            self._add("leadline.rounds", number, self._fleet(fleet, number))
        for how, number in folded.irregular.items():
            self._add("leadline.irregular", number, how)
        for why, number in folded.ignored.items():
            self._add("leadline.ignored", number, why)
        for what, number in folded.tolerated.items():
            self._add("leadline.tolerated", number, what)
        for rule, number in folded.failures.items():
            self._add("leadline.rule.failures", number, rule)
        for reason, number in Tally(letter.reason for letter in folded.dead_letters).items():
            self._add("leadline.dead_letters", number, reason)
        if folded.steps:
            self._steps(folded.steps, folded.outputs, (done - batch.judged) / 1e9)
        self._follow(batch.partition, ((key, state.incidents if state else ()) for key, state in folded.states.items()))

    def restored(self, partition: int, incidents: Iterable[tuple[str, tuple[Incident, ...]]], fleets: Iterable[str] = ()) -> None:
        self.revoked((partition,))
        for fleet in sorted(fleets):
            # A timer may tell of a session that is never heard of again.
            if self._fleet(fleet, 0) == OTHER and self._fleets.full:
                break  # So are all the others, save those that have their series.
        self.since[partition] = self.now()
        self._follow(partition, incidents)

    def revoked(self, partitions: Iterable[int]) -> None:
        for partition in partitions:
            self.since.pop(partition, None)
            for known in self._incidents.pop(partition, {}).values():
                self._stand(known, -1)

    def rebalanced(self) -> None:
        self._add("leadline.rebalances", 1)

    def dropped(self, number: int) -> None:
        """Spans were not made or not exported."""
        self._add("leadline.spans.dropped", number)

    def sources(self, sources: Sources) -> None:
        self.source = sources

    def export_failed(self, signal: str) -> None:
        """An export over OTLP, of ``traces`` or ``metrics``, did not get through."""
        self._add("leadline.export.failures", 1, signal)

    # -- inside

    def _add(self, name: str, number: int, *values: str) -> None:
        """``values``: of the metric's labels, in the order of the list of names."""
        self._child(self._counters, name, values).inc(number)

    def _child(self, of: Mapping[str, Counter] | Mapping[str, Histogram], name: str, values: tuple[str, ...]) -> Any:
        if not values:
            return of[name]
        known = (name, *map(_known, names.metric(name).labels, values))
        child = self._children.get(known)
        if child is None:
            child = self._children[known] = of[name].labels(*known[1:])
        return child

    def _observe(self, seen: dict[tuple[str, ...], list[tuple[float, str]]]) -> None:
        """``seen``: by name and values of labels, what was measured in seconds and the context that it belongs to. A bucket shows
        one exemplar, the last: only that is made."""
        for (name, *values), many in seen.items():
            child = self._child(self._histograms, name, tuple(values))
            bounds = names.metric(name).buckets
            last = {bisect_left(bounds, seconds): number for number, (seconds, context) in enumerate(many) if len(context) == 55}
            shown = set(last.values())
            for number, (seconds, context) in enumerate(many):
                child.observe(seconds, _exemplar(context) if number in shown else None)

    def _fleet(self, fleet: str, number: int) -> str:
        label = self._fleets.label(fleet)
        if label == OTHER and number:
            self._add("leadline.fleets.overflow", number)
        if label not in self._told_of:
            self._told_of.add(label)
            self._counters["leadline.rounds"].labels(fleet=label)
            for (rule, severity), mode in product(_SEVERITIES.items(), LABELS["mode"].values):
                self._counters["leadline.violations"].labels(rule=rule, severity=severity, mode=mode, fleet=label)
        return label

    def _steps(self, steps: list[Step], outputs: list[Violation | Command], sending_s: float) -> None:
        now = self.now()
        counted: Tally[tuple[str, ...]] = Tally()
        fleets: Tally[tuple[str, ...]] = Tally()
        seen: dict[tuple[str, ...], list[tuple[float, str]]] = defaultdict(list)
        for step in steps:
            for item in outputs[step.outputs]:
                if isinstance(item, Violation):
                    fleets[item.rule, item.severity, item.mode, item.fleet] += 1
                    cause = "timer" if isinstance(step.event, Tick) else "event"
                    seen["leadline.event_to_verdict", cause].append((max(0, now - step.receive) / 1000, item.traceparent))
                else:
                    counted["leadline.commands", item.kind, "first" if item.attempt == 1 else "again"] += 1
                    seen["leadline.verdict_to_command",].append((sending_s, item.traceparent))
            for move in step.moves:
                _moved(step, move, counted, seen)
        for (rule, severity, mode, fleet), number in fleets.items():
            self._add("leadline.violations", number, rule, severity, mode, self._fleet(fleet, number))
        for (name, *values), number in counted.items():
            self._add(name, number, *values)
        self._observe(seen)

    def _follow(self, partition: int, states: Iterable[tuple[str, tuple[Incident, ...]]]) -> None:
        """Keep the gauges of what is open; only sessions with an incident are remembered."""
        known = self._incidents.setdefault(partition, {})
        for key, incidents in states:
            if not incidents and key not in known:
                continue
            before = known.get(key, ())
            if before is incidents:
                continue
            self._stand(before, -1)
            self._stand(incidents, 1)
            if incidents:
                known[key] = incidents
            else:
                del known[key]

    def _stand(self, incidents: tuple[Incident, ...], number: int) -> None:
        for incident in incidents:
            if not incident.releasing:
                self.open[_known("rule", incident.rule), _known("mode", incident.mode)] += number
            if incident.command is not None:
                self.standing[_known("kind", incident.command.kind), _known("stage", incident.command.stage.value)] += number


def _moved(step: Step, move: Move, counted: Tally[tuple[str, ...]], seen: dict[tuple[str, ...], list[tuple[float, str]]]) -> None:
    command, signal = move.command, move.signal
    outcome = _OUTCOMES.get(signal)
    if command is not None:
        if signal is Signal.IMPROVED and command.stage is not move.stage is Stage.EFFECTIVE:
            outcome = "effective"
        elif signal is Signal.DEADLINE and command.stage is not Stage.ISSUED:
            outcome = "no-effect"  # It was acknowledged: what ran out is the time to show an effect.
        if outcome is not None:
            counted["leadline.command.outcomes", command.kind, outcome] += 1
            if isinstance(step.event, Ack) and command.stage is Stage.ISSUED:
                took = max(0, step.receive - command.issued_at) / 1000
                seen["leadline.command_to_ack", command.kind].append((took, step.trace.traceparent))
    if signal is Signal.RECOVERED:
        lasted = max(0, step.receive - move.incident.opened_at) / 1000
        seen["leadline.incident.duration", move.incident.rule].append((lasted, move.incident.traceparent))


class _Live(Collector):
    """What is only looked up when somebody asks."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        kept = self._metrics
        source = kept.source
        lag = source.lag_records()
        now = kept.now()
        waiting = [now - kept.since[partition] for partition, records in lag.items() if records > 0 and partition in kept.since]
        values = {
            "leadline.lag.records": sum(lag.values()),
            "leadline.lag": max(0, *waiting, 0) / 1000,
            "leadline.sessions": source.sessions(),
            "leadline.state.size": source.state_bytes(),
            "leadline.partitions": len(lag),
            "leadline.ready": float(source.ready()),
            "leadline.restore.remaining": source.restore_left(),
            "leadline.loop.delay": source.loop_delay(),
        }
        for name, value in values.items():
            one = names.metric(name)
            yield GaugeMetricFamily(names.prometheus_name(one), one.meaning, value=value)
        counts = source.counts()
        for name, key in _COUNTED.items():
            one = names.metric(name)
            yield CounterMetricFamily(names.prometheus_name(one), one.meaning, value=counts.get(key, 0))
        for name, tally in (("leadline.incidents.open", kept.open), ("leadline.commands.open", kept.standing)):
            one = names.metric(name)
            family = GaugeMetricFamily(names.prometheus_name(one), one.meaning, labels=one.labels)
            for labels, number in sorted(tally.items()):
                family.add_metric(labels, number)
            yield family
        for name, info in (
            ("leadline.build.info", {"version": __version__, "python": platform.python_version()}),
            ("leadline.policy.info", {"version": source.policy_version()}),
        ):
            one = names.metric(name)
            yield InfoMetricFamily(names.prometheus_name(one).removesuffix("_info"), one.meaning, value=info)
