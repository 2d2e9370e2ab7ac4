"""Writes the dashboards beside it: ``python deploy/observability/grafana/generate.py``. Needs grafana-foundation-sdk.

Made from code so that each query is looked at by the tests; what is changed in Grafana's editor is lost with the next run.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

from grafana_foundation_sdk.builders import dashboard, loki, prometheus, stat, table, tempo, text, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import DataSourceRef, GridPos

__all__ = ["BOARDS", "encoded", "main"]

FOLDER: Final = Path(__file__).parent

METRICS: Final = DataSourceRef(type_val="prometheus", uid="${metrics}")
TRACES: Final = DataSourceRef(type_val="tempo", uid="${traces}")
LOGS: Final = DataSourceRef(type_val="loki", uid="${logs}")


class Board:
    """Panels from left to right, 24 columns a row."""

    def __init__(self, uid: str, title: str, about: str) -> None:
        self.made = dashboard.Dashboard(title).uid(uid).description(about).tags(["leadline"]).time("now-6h", "now").refresh("30s")
        self._x = self._y = self._height = 0

    def source(self, name: str, kind: str, label: str) -> None:
        self.made.with_variable(dashboard.DatasourceVariable(name).label(label).type(kind))

    def place(self, panel: Any, width: int, height: int) -> None:
        if self._x + width > 24:
            self._x, self._y, self._height = 0, self._y + self._height, 0
        self.made.with_panel(panel.grid_pos(GridPos(h=height, w=width, x=self._x, y=self._y)))
        self._x, self._height = self._x + width, max(self._height, height)

    def graph(self, title: str, about: str, unit: str, *queries: tuple[str, str], exemplars: bool = False) -> None:
        panel = timeseries.Panel().title(title).description(about).unit(unit).datasource(METRICS).min(0)
        for expression, legend in queries:
            panel.with_target(_query(expression, legend).exemplar(exemplars))
        self.place(panel, 8, 8)

    def number(self, title: str, about: str, unit: str, expression: str, width: int = 4) -> None:
        panel = stat.Panel().title(title).description(about).unit(unit).datasource(METRICS)
        self.place(panel.with_target(_query(expression, "")), width, 4)


def _query(expression: str, legend: str) -> Any:
    return prometheus.Dataquery().expr(expression).legend_format(legend)


def fleet() -> Board:
    board = Board("leadline-fleet", "Leadline: fleets", "Which fleets lose their grounding, and what is done about it.")
    board.source("metrics", "prometheus", "Metrics")
    board.made.with_variable(
        dashboard.QueryVariable("fleet")
        .label("Fleet")
        .datasource(METRICS)
        .query("label_values(leadline_rounds_total, fleet)")
        .multi(True)
        .include_all(True)
        .all_value(".*")
    )
    pick = 'fleet=~"$fleet"'
    board.number("Sessions", "Sessions that are watched.", "short", "sum(leadline_sessions)")
    board.number("Open incidents", "All rules and modes.", "short", "sum(leadline_incidents_open)")
    board.number("Halts in flight", "Not answered yet.", "short", 'sum(leadline_commands_open{kind="halt", stage="issued"})')
    board.number("Escalated", "Commands that nobody heeded.", "short", 'sum(leadline_commands_open{stage="escalated"})')
    board.number("Inversions, 1 h", "", "short", f'sum(increase(leadline_violations_total{{rule="inversion", {pick}}}[1h]))')
    silent = f'sum(increase(leadline_violations_total{{rule="unobserved", {pick}}}[1h]))'
    board.number("Unobserved, 1 h", "Silent, or with holes.", "short", silent)
    board.graph(
        "Inversions per round",
        "Share of compaction rounds that cross the boundary. Compare before and after a release.",
        "percentunit",
        (f"leadline:inversions_per_round:ratio30m{{{pick}}}", "{{fleet}}"),
    )
    board.graph(
        "Violations by rule",
        "Incidents that open.",
        "short",
        (f"sum by (rule) (rate(leadline_violations_total{{{pick}}}[5m])) * 60", "{{rule}}"),
    )
    rounds = f"sum by (fleet) (rate(leadline_rounds_total{{{pick}}}[5m]))"
    board.graph("Rounds", "Compaction rounds a second.", "ops", (rounds, "{{fleet}}"))
    board.graph("Open incidents by rule", "", "short", ("sum by (rule) (leadline_incidents_open) > 0", "{{rule}}"))
    board.graph(
        "Commands and what became of them",
        "",
        "short",
        ("sum by (kind) (increase(leadline_commands_total[5m]))", "sent {{kind}}"),
        ("sum by (outcome) (increase(leadline_command_outcomes_total[5m])) > 0", "{{outcome}}"),
    )
    board.graph(
        "Time to recovery, median",
        "From the opening of an incident to its recovery.",
        "s",
        ("histogram_quantile(0.5, sum by (le, rule) (rate(leadline_incident_duration_seconds_bucket[30m])))", "{{rule}}"),
        exemplars=True,
    )
    return board


def pipeline() -> Board:
    board = Board("leadline-pipeline", "Leadline: pipeline", "Whether the monitor itself is well.")
    board.source("metrics", "prometheus", "Metrics")
    board.number("Workers ready", "", "short", "count(leadline_ready == 1) or vector(0)")
    board.number("Partitions", "Owned by workers that answer.", "short", "sum(leadline_partitions)")
    board.number("Lag", "Age of the oldest record that waits.", "s", "max(leadline_lag_seconds)")
    board.number("Dead letters, 1 h", "", "short", "sum(increase(leadline_dead_letters_total[1h]))")
    versions = "count(count by (version) (leadline_policy_info))"
    board.number("Policies", "Versions in force; more than one is a roll-out.", "short", versions)
    board.number("Rebalances, 1 h", "", "short", "sum(increase(leadline_rebalances_total[1h]))")
    late = "sum by (le) (rate(leadline_event_to_verdict_seconds_bucket[5m]))"
    board.graph(
        "Event to verdict",
        "From the broker's receipt to the confirmed violation. The dots lead to traces.",
        "s",
        (f"histogram_quantile(0.5, {late})", "median"),
        (f"histogram_quantile(0.99, {late})", "99 %"),
        exemplars=True,
    )
    board.graph(
        "Verdict to command, command to answer",
        "",
        "s",
        ("histogram_quantile(0.99, sum by (le) (rate(leadline_verdict_to_command_seconds_bucket[5m])))", "command sent, 99 %"),
        ("leadline:command_to_ack_seconds:p99_15m", "{{kind}} answered, 99 %"),
        exemplars=True,
    )
    judged = "sum by (instance) (rate(leadline_events_total[1m]))"
    board.graph("Events judged", "A second, by worker.", "ops", (judged, "{{instance}}"))
    board.graph("Lag in records", "", "short", ("sum by (instance) (leadline_lag_records)", "{{instance}}"))
    board.graph(
        "One batch",
        "From the fold to its confirmed outputs.",
        "s",
        ("histogram_quantile(0.99, sum by (le) (rate(messaging_process_duration_seconds_bucket[5m])))", "99 %"),
    )
    board.graph(
        "Records that were odd",
        "",
        "short",
        ("sum by (reason) (increase(leadline_dead_letters_total[5m])) > 0", "dead letter: {{reason}}"),
        ("sum by (how) (increase(leadline_irregular_total[5m])) > 0", "{{how}}"),
        ("sum by (why) (increase(leadline_ignored_total[5m])) > 0", "ignored: {{why}}"),
        ("sum by (what) (increase(leadline_tolerated_total[5m])) > 0", "tolerated: {{what}}"),
    )
    board.graph(
        "State",
        "",
        "bytes",
        ("sum by (instance) (leadline_state_size_bytes)", "on disk, {{instance}}"),
        ("sum by (instance) (process_resident_memory_bytes)", "memory, {{instance}}"),
    )
    board.graph(
        "CPU and event loop",
        "",
        "short",
        ("sum by (instance) (rate(process_cpu_seconds_total[1m]))", "cores, {{instance}}"),
        ("max by (instance) (leadline_loop_delay_seconds)", "loop late by s, {{instance}}"),
    )
    board.graph(
        "Delivery and telemetry",
        "",
        "short",
        ("sum(rate(leadline_delivery_retries_total[5m]))", "records sent again"),
        ("sum(leadline_restore_remaining)", "records to restore"),
        ("sum by (signal) (rate(leadline_export_failures_total[5m]))", "failed exports of {{signal}}"),
        ("sum(rate(leadline_spans_dropped_total[5m]))", "spans dropped"),
        ("sum by (rule) (increase(leadline_rule_failures_total[5m])) > 0", "failures of {{rule}}"),
    )
    return board


def session() -> Board:
    about = "One session by its id, through traces and logs: ids are no labels of metrics."
    board = Board("leadline-session", "Leadline: one session", about)
    board.source("traces", "tempo", "Traces")
    board.source("logs", "loki", "Logs")
    board.made.with_variable(dashboard.TextBoxVariable("session").label("Session id"))
    board.place(
        text.Panel()
        .title("How to read this")
        .content("Enter a session id above. `leadline story SESSION` tells the same from the topics, without any trace store."),
        24,
        3,
    )
    verdicts = '{ span.gen_ai.conversation.id = "$session" && span.leadline.violation = true }'
    board.place(
        table.Panel()
        .title("Traces with a verdict")
        .datasource(TRACES)
        .with_target(tempo.TempoQuery().query(verdicts).query_type("traceql").limit(50).datasource(TRACES)),
        24,
        9,
    )
    rounds = '{ span.gen_ai.conversation.id = "$session" && span.gen_ai.conversation.compacted = true }'
    board.place(
        table.Panel()
        .title("Compaction rounds")
        .datasource(TRACES)
        .with_target(tempo.TempoQuery().query(rounds).query_type("traceql").limit(50).datasource(TRACES)),
        24,
        9,
    )
    board.place(
        table.Panel()
        .title("What the monitor logged")
        .datasource(LOGS)
        .with_target(loki.Dataquery().expr('{service_name="leadline-monitor"} | json | session="$session"').datasource(LOGS)),
        24,
        9,
    )
    return board


BOARDS: Final = {"fleet": fleet, "pipeline": pipeline, "session": session}


def encoded(name: str) -> str:
    """A dashboard as Grafana imports it."""
    return JSONEncoder(sort_keys=True, indent=2).encode(BOARDS[name]().made.build()) + "\n"


def main() -> int:
    for name in BOARDS:
        (FOLDER / f"{name}.json").write_text(encoded(name), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
