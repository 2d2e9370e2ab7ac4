"""What the tests of incidents share: policies of a few rules, deep rounds, a session that is halted."""

from __future__ import annotations

from typing import Any

from leadline.contracts.events import Round
from leadline.contracts.orders import Mode
from leadline.contracts.session_state import Stage
from leadline.detection.policy import FleetPolicy, Policy
from leadline.detection.rules import RULE_NAMES, UNHEEDED
from tests.support.core import Monitor, policy, round_

__all__ = ["EFFECT", "TTL", "inverted", "only", "sink", "stage"]

TTL, EFFECT = FleetPolicy().command_ttl_ms, FleetPolicy().effect_ttl_ms


def only(*rules: str, **changes: Any) -> Policy:
    """A policy in which just ``rules`` (and ``unheeded``) are on."""
    modes: dict[str, Mode] = dict.fromkeys(sorted({*RULE_NAMES} - {*rules, UNHEEDED}), "off")
    return policy(modes=modes | changes.pop("modes", {}), **changes)


def sink(number: int, ratio: float, spans: int = 100, salience: float = 0.5, **changes: Any) -> Round:
    """A deep round."""
    given: dict[str, Any] = {"summary_depth_max": 2, "distinct_source_spans": spans, "query_cosine_retained": salience}
    return round_(number, ratio, **given | changes)


def inverted(monitor: Monitor | None = None, **changes: Any) -> Monitor:
    """A session halted at round 2 for an inversion, at raw ratio 0.20 with 99 spans."""
    monitor = monitor or Monitor(only("inversion", **changes))
    monitor.send(sink(1, 0.26), sink(2, 0.20, 99, 0.51))
    assert monitor.told() == ["inversion!", "halt#1"]
    return monitor


def stage(monitor: Monitor, rule: str = "inversion") -> Stage:
    command = monitor.incident(rule).command
    assert command is not None
    return command.stage
