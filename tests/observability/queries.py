"""Every PromQL expression that is shipped, and what it asks for: metrics and labels, by Prometheus' grammar."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import yaml

from leadline.telemetry import names

__all__ = ["DEPLOY", "alerts", "asked", "known", "rules"]

DEPLOY = Path(__file__).resolve().parents[2] / "deploy" / "observability"
_FOREIGN = {"up": {"job", "instance"}}
"""Metrics that Prometheus itself makes."""
_PROCESS = ("process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds", "process_max_fds")


def rules() -> list[dict[str, Any]]:
    """All rules, recording and alerting."""
    loaded = yaml.safe_load((DEPLOY / "prometheus" / "leadline.rules.yml").read_text(encoding="utf-8"))
    return [rule for group in loaded["groups"] for rule in group["rules"]]


def alerts() -> dict[str, dict[str, Any]]:
    return {rule["alert"]: rule for rule in rules() if "alert" in rule}


def known() -> dict[str, set[str]]:
    """Each series that there can be, and its labels."""
    found: dict[str, set[str]] = {name: set(labels) for name, labels in _FOREIGN.items()}
    found |= {name: set() for name in _PROCESS}
    for one in names.METRICS:
        name, labels = names.prometheus_name(one), set(one.labels)
        if one.kind == "histogram":
            found |= {f"{name}_bucket": labels | {"le"}, f"{name}_sum": labels, f"{name}_count": labels}
        else:
            found[name] = labels
    for rule in rules():
        if "record" in rule:
            found[rule["record"]] = _grouped(rule["expr"])
    return found


def _grouped(expression: str) -> set[str]:
    """Labels of a recorded series: those that it is summed by, all of its own."""
    return {label.strip() for group in re.findall(r"by \(([^)]*)\)", expression) for label in group.split(",")} - {"le", ""}


def asked(expression: str) -> Iterator[tuple[str, set[str]]]:
    """Each selector of an expression: the metric and the labels it is picked by. Raises ValueError for what is no PromQL."""
    yield from _selectors(promql_parser.parse(expression))


def _selectors(node: Any) -> Iterator[tuple[str, set[str]]]:
    if isinstance(node, promql_parser.VectorSelector):
        yield node.name or "", {matcher.name for matcher in node.matchers.matchers}
        return
    for name in ("expr", "lhs", "rhs", "vector_selector", "param"):
        inner = getattr(node, name, None)
        if inner is not None and not isinstance(inner, str):
            yield from _selectors(inner)
    for inner in getattr(node, "args", None) or ():
        yield from _selectors(inner)
