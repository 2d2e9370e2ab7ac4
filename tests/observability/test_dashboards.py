"""The dashboards: what the generator writes, every query parsed, and asking only for what there is."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from leadline.telemetry import names
from tests.observability.queries import DEPLOY, asked, known, rules

FOLDER = DEPLOY / "grafana"
BOARDS = ("fleet", "pipeline", "session")
_ADDED = {"job", "instance"}


def board(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return loaded


def targets(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Panel title and query of each target."""
    for panel in board(name)["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target


PROMQL = [(f"{name}: {title}", target["expr"]) for name in ("fleet", "pipeline") for title, target in targets(name)]


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_dashboards", FOLDER / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", BOARDS)
def test_a_dashboard_is_what_the_generator_writes(name: str, generator: ModuleType) -> None:
    """Else: ``python deploy/observability/grafana/generate.py``."""
    assert (FOLDER / f"{name}.json").read_text(encoding="utf-8") == generator.encoded(name)
    assert set(generator.BOARDS) == set(BOARDS) == {path.stem for path in FOLDER.glob("*.json")}


@pytest.mark.parametrize(("where", "expression"), PROMQL, ids=[where for where, _ in PROMQL])
def test_a_query_asks_only_for_what_there_is(where: str, expression: str) -> None:
    series = known()
    selectors = list(asked(expression.replace("$fleet", "f1")))
    assert selectors, where
    for metric, labels in selectors:
        assert metric in series, metric
        assert labels <= series[metric] | _ADDED, f"{metric} has no {labels - series[metric]}"


@pytest.mark.parametrize(("where", "expression"), PROMQL, ids=[where for where, _ in PROMQL])
def test_a_query_groups_by_labels_that_there_are(where: str, expression: str) -> None:
    series = known()
    asked_of = {label for metric, _ in asked(expression.replace("$fleet", "f1")) for label in series[metric]} | _ADDED
    grouped = {label.strip() for group in re.findall(r"by \(([^)]*)\)", expression) for label in group.split(",")}
    assert grouped <= asked_of, where


def test_every_metric_is_on_a_dashboard_or_in_a_rule_and_there_are_enough_queries() -> None:
    texts = [expression for _, expression in PROMQL] + [rule["expr"] for rule in rules()]
    looked_at = {metric for text in texts for metric, _ in asked(text.replace("$fleet", "f1"))}
    missing = []
    for one in names.METRICS:
        name = names.prometheus_name(one)
        if not any(metric in (name, f"{name}_bucket", f"{name}_count", f"{name}_sum") for metric in looked_at):
            missing.append(name)
    assert missing == ["leadline_batches_total", "leadline_build_info"]
    assert len(PROMQL) > 30


def test_the_session_board_asks_traces_by_attributes_that_are_set() -> None:
    queries = [target["query"] for _, target in targets("session") if "query" in target]
    assert len(queries) == 2
    listed = {attribute.name for attribute in names.ATTRIBUTES}
    for query in queries:
        asked_for = set(re.findall(r"span\.([a-z_.]+)", query))
        assert asked_for <= listed
        assert names.CONVERSATION in asked_for
        assert '"$session"' in query


@pytest.mark.parametrize("name", BOARDS)
def test_panels_do_not_overlap_and_have_a_source_that_can_be_chosen(name: str) -> None:
    taken: set[tuple[int, int]] = set()
    loaded = board(name)
    variables = {variable["name"] for variable in loaded["templating"]["list"]}
    for panel in loaded["panels"]:
        at = panel["gridPos"]
        cells = {(at.get("x", 0) + dx, at.get("y", 0) + dy) for dx in range(at["w"]) for dy in range(at["h"])}
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
        if "datasource" in panel:
            assert panel["datasource"]["uid"].strip("${}") in variables
