"""A page for each rule, and what it says of thresholds, defaults and reasons is what the code has."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from pathlib import Path
from types import ModuleType

import pytest

from leadline.commands import issue
from leadline.contracts.session_state import Counts
from leadline.detection import signals
from leadline.detection.policy import FleetPolicy
from leadline.detection.rules import RULE_NAMES, UNHEEDED
from leadline.detection.rules.base import Decision

RULES = Path(__file__).parents[2] / "docs" / "rules"
SECTIONS = [
    "How it is computed",
    "Thresholds",
    "When it opens and ends",
    "What it commands",
    "What to do",
    "Known false alarms",
    "Reasons",
]
OF_THE_MONITOR = {"ended_linger_ms", "idle_ms", "modes"}
"""Policy that belongs to no rule."""


def page(rule: str) -> str:
    return (RULES / f"{rule}.md").read_text(encoding="utf-8")


def section(rule: str, title: str) -> str:
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", page(rule), re.MULTILINE | re.DOTALL)
    assert found is not None, f"{rule}: no section {title!r}"
    return found[1]


def module(rule: str) -> ModuleType:
    return importlib.import_module(f"leadline.detection.rules.{rule.replace('-', '_')}")


def thresholds(rule: str) -> dict[str, float]:
    rows = re.findall(r"^\| `(\w+)` \| ([\d.,]+) \|$", section(rule, "Thresholds"), re.MULTILINE)
    return {name: float(value.replace(",", "")) for name, value in rows}


def test_every_rule_has_a_page_and_every_page_a_rule() -> None:
    assert {file.stem for file in RULES.glob("*.md")} == set(RULE_NAMES)


@pytest.mark.parametrize("rule", RULE_NAMES)
def test_each_page_has_its_sections_and_says_something_in_each(rule: str) -> None:
    assert page(rule).startswith(f"# `{rule}`\n")
    assert re.findall(r"^## (.+)$", page(rule), re.MULTILINE) == SECTIONS
    assert all(section(rule, title).strip() for title in SECTIONS)


@pytest.mark.parametrize("rule", [rule for rule in RULE_NAMES if rule != UNHEEDED])
def test_the_reasons_are_those_of_the_code(rule: str) -> None:
    known = {item.reason: item.fired for item in vars(module(rule)).values() if isinstance(item, Decision)}
    rows = re.findall(r"^\| `([a-z0-9-]+)` \| (yes|no) \| .+ \|$", section(rule, "Reasons"), re.MULTILINE)
    assert {reason: fires == "yes" for reason, fires in rows} == known
    assert f"Severity: {module(rule).RULE.severity}." in page(rule)


def test_the_reasons_of_escalation_are_those_of_the_code() -> None:
    rows = re.findall(r"^\| `([a-z0-9-]+)` \| yes \| .+ \|$", section(UNHEEDED, "Reasons"), re.MULTILINE)
    assert set(rows) == set(issue.WHY.values())


@pytest.mark.parametrize("rule", RULE_NAMES)
def test_the_defaults_are_those_of_the_code(rule: str) -> None:
    assert thresholds(rule) == {name: getattr(FleetPolicy(), name) for name in thresholds(rule)}


@pytest.mark.parametrize("rule", [rule for rule in RULE_NAMES if rule != UNHEEDED])
def test_each_threshold_that_the_rule_reads_is_on_its_page(rule: str) -> None:
    """Read by itself, or by the shared signals that it calls."""
    tree = ast.parse(inspect.getsource(module(rule)))
    read = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)} & set(FleetPolicy.__struct_fields__)
    for name in {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)} & {"span_floor", "span_exit"}:
        body = ast.parse(inspect.getsource(getattr(signals, name)))
        read |= {node.attr for node in ast.walk(body) if isinstance(node, ast.Attribute)} & set(FleetPolicy.__struct_fields__)
    assert read <= thresholds(rule).keys()


def test_every_threshold_is_on_some_page() -> None:
    told = {name for rule in RULE_NAMES for name in thresholds(rule)}
    assert told == set(FleetPolicy.__struct_fields__) - OF_THE_MONITOR


@pytest.mark.parametrize("rule", RULE_NAMES)
def test_the_rules_own_commands_are_named(rule: str) -> None:
    """Every literal that its ``action`` can return."""
    if rule == UNHEEDED:
        assert "`stop-agent`" in section(rule, "What it commands")
        return
    source = inspect.getsource(module(rule).RULE.action)
    for kind in re.findall(r'"(halt|cap-depth|retry-level|stop-agent)"', source):
        assert f"`{kind}`" in section(rule, "What it commands")


def test_the_outcomes_of_rounds_are_named_in_the_concepts() -> None:
    concepts = (RULES.parent / "concepts.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(\w+)`", concepts))
    assert {"duplicates", "reordered", "late", "gaps", "stale_epoch", "superseded", "failed", "unknown", "after_end"} <= named
    assert named & set(Counts.__struct_fields__)
