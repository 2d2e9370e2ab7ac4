"""The shipped rules: each asks for what exists, each alert can be acted on, and Prometheus' own tools find nothing wrong."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from leadline.telemetry import names
from leadline.telemetry.labels import LABELS
from tests.observability.queries import DEPLOY, alerts, asked, known, rules
from tests.observability.tools import needed

RUNBOOKS = Path(__file__).resolve().parents[2] / "docs" / "runbooks"
PROMETHEUS = DEPLOY / "prometheus"
_ADDED = {"job", "instance"}
"""Labels that every scraped series has."""


def run(program: str, *arguments: str, cwd: Path = PROMETHEUS) -> str:
    done = subprocess.run([needed(program), *arguments], cwd=cwd, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: str(rule.get("alert") or rule.get("record")))
def test_a_rule_asks_only_for_what_there_is(rule: dict[str, str]) -> None:
    series = known()
    selectors = list(asked(rule["expr"]))
    assert selectors
    for metric, labels in selectors:
        assert metric in series, metric
        assert labels <= series[metric] | _ADDED, f"{metric} has no {labels - series[metric]}"


def test_label_values_that_rules_pick_by_exist() -> None:
    for rule in rules():
        for label, operator, value in re.findall(r'(\w+)(=~?)"([^"]+)"', rule["expr"]):
            if label in LABELS and LABELS[label].values:
                for one in value.split("|") if operator == "=~" else [value]:
                    assert one in LABELS[label].values, f"{label}={one}"


@pytest.mark.parametrize("name", sorted(alerts()))
def test_an_alert_says_how_bad_it_is_and_what_to_do(name: str) -> None:
    alert = alerts()[name]
    assert alert["labels"]["severity"] in ("critical", "warning", "info")
    assert {"summary", "description", "runbook_url"} <= set(alert["annotations"])
    assert "for" in alert
    assert alert["annotations"]["runbook_url"].endswith(f"/{name}.md")
    page = (RUNBOOKS / f"{name}.md").read_text(encoding="utf-8")
    assert page.startswith(f"# {name}\n")
    assert f"Severity: {alert['labels']['severity']}." in page
    for part in ("## What it means", "## Look", "## Mend"):
        assert len(page.split(part)[1].split("##")[0].split()) > 8, f"{part} of {name} says nothing"


def test_there_is_no_page_without_an_alert_and_the_index_lists_all() -> None:
    pages = {path.stem for path in RUNBOOKS.glob("Leadline*.md")}
    assert pages == set(alerts())
    index = (RUNBOOKS / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\((Leadline\w+)\.md\)", index)) == pages


def test_queries_in_the_runbooks_ask_for_what_there_is() -> None:
    series, looked = known(), 0
    for page in RUNBOOKS.glob("Leadline*.md"):
        for text in re.findall(r"`([^`]*\b(?:leadline|messaging|process)_[a-z_]+[^`]*)`", page.read_text(encoding="utf-8")):
            for metric, labels in asked(text):
                looked += 1
                assert metric in series, f"{page.name}: {metric}"
                assert labels <= series[metric] | _ADDED, f"{page.name}: {text}"
    assert looked > 10


def test_no_alert_is_by_worker_or_session() -> None:
    """500 sessions that cross at once, seen by twenty workers, are one alert: all are summed up, by fleet at most."""
    for name, alert in alerts().items():
        if name != "LeadlineWorkerDown":
            assert re.search(r"\b(sum|max|count)\b|leadline:", alert["expr"]), name
        assert "instance" not in alert["expr"]


def test_promtool_finds_nothing_wrong_with_rules_and_configuration() -> None:
    assert "26 rules found" in run("promtool", "check", "rules", "leadline.rules.yml")
    assert "SUCCESS" in run("promtool", "check", "config", "prometheus.yml")


def test_promtool_takes_the_configuration_of_compose(tmp_path: Path) -> None:
    for source in ("compose/prometheus.yml", "observability/prometheus/leadline.rules.yml"):
        shutil.copy(DEPLOY.parent / source, tmp_path)
    assert "SUCCESS" in run("promtool", "check", "config", "prometheus.yml", cwd=tmp_path)


@pytest.mark.timeout(300)
def test_promtools_unit_tests_pass_and_cover_every_alert() -> None:
    files = ("leadline.tests.yml", "leadline.day.tests.yml")
    tested = [test for name in files for test in yaml.safe_load((PROMETHEUS / name).read_text(encoding="utf-8"))["tests"]]
    cases = [case for test in tested for case in test.get("alert_rule_test", ())]
    for name in alerts():
        mine = [case for case in cases if case["alertname"] == name]
        assert [case for case in mine if case.get("exp_alerts")], f"{name} is never seen to fire"
        assert [case for case in mine if not case.get("exp_alerts")], f"{name} is never seen to be over"
    assert run("promtool", "test", "rules", *files).count("SUCCESS") == len(files)


def test_alertmanager_takes_its_configuration_and_sends_alerts_where_they_belong() -> None:
    folder = DEPLOY / "alertmanager"
    assert "SUCCESS" in run("amtool", "check-config", "alertmanager.yml", cwd=folder)
    for name, alert in alerts().items():
        severity = alert["labels"]["severity"]
        labels = [f"alertname={name}", f"severity={severity}", "fleet=f1"]
        went = run("amtool", "config", "routes", "test", "--config.file=alertmanager.yml", *labels, cwd=folder)
        assert went.strip() == ("leadline-pager" if severity == "critical" else "leadline-chat"), name


def test_alerts_are_grouped_by_name_and_fleet() -> None:
    loaded = yaml.safe_load((DEPLOY / "alertmanager" / "alertmanager.yml").read_text(encoding="utf-8"))
    assert loaded["route"]["group_by"] == ["alertname", "fleet"]
    for rule in loaded["inhibit_rules"]:
        for matcher in (*rule["source_matchers"], *rule["target_matchers"]):
            assert set(re.findall(r"Leadline\w+", matcher)) <= set(alerts()), matcher


def test_the_collector_receives_samples_and_exports_by_names_that_exist() -> None:
    loaded = yaml.safe_load((DEPLOY / "collector" / "collector.yml").read_text(encoding="utf-8"))
    for pipeline in loaded["service"]["pipelines"].values():
        for kind in ("receivers", "processors", "exporters"):
            assert set(pipeline[kind]) <= set(loaded[kind])
    assert {"http", "grpc"} == set(loaded["receivers"]["otlp"]["protocols"])
    listed = {attribute.name: attribute.type for attribute in names.ATTRIBUTES}
    types = {"boolean_attribute": "boolean", "numeric_attribute": "int", "string_attribute": "string"}
    policies = loaded["processors"]["tail_sampling"]["policies"]
    keys = {policy[policy["type"]]["key"]: types[policy["type"]] for policy in policies if policy["type"] in types}
    assert keys == {key: listed[key] for key in (names.VIOLATION, names.VERDICTS, names.OUTCOME)}


def test_nothing_that_is_shipped_listens_beyond_loopback() -> None:
    for path in DEPLOY.rglob("*.yml"):
        assert "0.0.0.0" not in path.read_text(encoding="utf-8"), path.name
