"""Everything the session page shows, as plain data. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from leadline.contracts.events import Checkpoint, Round, Summary
from leadline.contracts.session_state import SessionState
from leadline.contracts.text import safe
from leadline.dashboard.history import Seen
from leadline.dashboard.journal import Journal, shown
from leadline.dashboard.marks import axis_of, marks
from leadline.dashboard.story import headline, story
from leadline.detection.condition import condition
from leadline.detection.policy import FleetPolicy
from leadline.detection.signals import span_floor
from leadline.detection.trend import Trend, forecast, trend

__all__ = ["session_page"]

_LISTED: Final = 200
_TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}", re.ASCII)


def session_page(
    state: SessionState, journal: Journal, events: list[Seen], policy: FleetPolicy, *, complete: bool, trace_url: str = ""
) -> dict[str, Any]:
    """``events``: of this session and agent, oldest first; ``complete``: the look back at them is done."""
    violations, commands = journal.of_session(state.session_id, state.agent_id)
    of_epoch = [kept for kept in violations if kept.record.epoch == state.epoch]
    orders = [kept for kept in commands if kept.record.epoch == state.epoch]
    axis = axis_of(state, events)
    traced = next((kept.record.traceparent for kept in reversed(of_epoch) if kept.record.traceparent), state.traceparent)
    return {
        "session": _session(state),
        "headline": headline(state, of_epoch, orders),
        "rounds": axis.columns(),
        "thresholds": _thresholds(state, policy),
        "marks": marks(axis, of_epoch, orders, events),
        "forecast": _forecasts(state, policy),
        "provenance": _provenance(events, state.epoch),
        "facts": _facts(state),
        "levels": _levels(events, state.epoch),
        "incidents": _incidents(state),
        "violations": [shown(kept) for kept in reversed(violations)],
        "commands": [shown(kept) for kept in reversed(commands)],
        "story": story(axis, violations, commands, events),
        "trace": _trace(traced, trace_url),
        "complete": complete,
    }


def _session(state: SessionState) -> dict[str, Any]:
    told = (
        *("session_id", "agent_id", "fleet", "epoch", "last_seen", "started", "ended_at", "token_budget", "fixed_tokens"),
        *(
            "max_depth",
            "depth_cap",
            "penalizes_depth",
            "baseline_spans",
            "last_round",
            "pinned_rounds",
            "stalled_rounds",
            "opened",
        ),
    )
    last = state.window[-1] if state.window else None
    return {name: getattr(state, name) for name in told} | {
        "condition": condition(state),
        "eviction": safe(state.eviction or "", 40),
        "counts": {name: count for name, count in msgspec.structs.asdict(state.counts).items() if count},
        "now": None if last is None else msgspec.to_builtins(last.measured()),
    }


def _thresholds(state: SessionState, policy: FleetPolicy) -> dict[str, float | int | None]:
    return {
        "raw_ratio_floor": policy.raw_ratio_floor,
        "raw_ratio_exit": policy.raw_ratio_exit,
        "span_floor": span_floor(state.baseline_spans, policy) if state.baseline_spans else None,
        "max_depth": state.max_depth or None,
        "pin_rounds": policy.pin_rounds,
    }


def _forecasts(state: SessionState, policy: FleetPolicy) -> list[dict[str, Any]]:
    """Rounds until a floor is reached, for what is falling significantly; the line itself, so that it can be drawn."""
    if not state.window:
        return []
    now = state.window[-1]
    floor = span_floor(state.baseline_spans, policy) if state.baseline_spans else 1
    ratios = trend([(entry.round, ratio) for entry in state.window if (ratio := entry.raw_ratio) is not None])
    spans = trend([(entry.round, entry.distinct_source_spans) for entry in state.window])
    asked = (("raw_ratio", now.raw_ratio, policy.raw_ratio_floor, ratios), ("spans", now.distinct_source_spans, floor, spans))
    return [found for name, value, level, line in asked if (found := _forecast(name, value, level, line, now.round)) is not None]


def _forecast(name: str, value: float | None, level: float, line: Trend | None, round: int) -> dict[str, Any] | None:
    if value is None or line is None or not line.falling:
        return None
    left = forecast(value, level, line)
    if left is None:
        return None
    return {"what": name, "floor": level, "from_round": round, "slope": line.slope, "level": line.level, **left._asdict()}


def _provenance(events: Iterable[Seen], epoch: int) -> dict[str, Any] | None:
    """The retained summaries as the last round listed them; ``None`` where no round lists any."""
    last: Round | None = None
    for seen in events:
        if isinstance(seen.event, Round) and seen.event.epoch == epoch and seen.event.summaries is not None:
            last = seen.event
    if last is None or last.summaries is None:
        return None
    depths: dict[int, list[Summary]] = {}
    for item in last.summaries:
        depths.setdefault(item.depth, []).append(item)
    return {
        "round": last.round,
        "ungrounded": sum(item.reachable == 0 for item in last.summaries),
        "by_depth": [
            {
                "depth": depth,
                "summaries": len(those),
                "tokens": sum(item.tokens for item in those),
                "fan_out": sum(item.fan_out for item in those) / len(those),
                "ungrounded": sum(item.reachable == 0 for item in those),
            }
            for depth, those in sorted(depths.items())
        ],
        "listed": [
            msgspec.to_builtins(item) | {"id": safe(item.id, 120)}
            for item in sorted(last.summaries, key=lambda one: (one.reachable != 0, -one.depth, -one.fan_out))[:_LISTED]
        ],
        "more": max(0, len(last.summaries) - _LISTED),
    }


def _facts(state: SessionState) -> list[dict[str, Any]]:
    """Those that were lost come first, the ones without an excuse before the others."""
    rows = [
        {
            "fact_id": safe(name, 120),
            "fact_class": safe(fact.fact_class, 60),
            "recall_floor": fact.recall_floor,
            "kept_level": fact.kept_level,
            "lost_level": fact.lost_level,
            "excused": fact.excused,
        }
        for name, fact in state.facts.items()
    ]
    return sorted(rows, key=_loss)


def _loss(row: dict[str, Any]) -> tuple[bool, bool, str]:
    gone = row["lost_level"] is not None or bool(row["excused"])
    return not gone, bool(row["excused"]), str(row["fact_id"])


def _levels(events: Iterable[Seen], epoch: int) -> list[dict[str, Any]]:
    """The last summarizer call of each level."""
    last: dict[int, Seen] = {}
    for seen in events:
        if isinstance(seen.event, Checkpoint) and seen.event.epoch in (None, epoch):
            last[seen.event.level] = seen
    rows = []
    for level, seen in sorted(last.items()):
        call = seen.event
        assert isinstance(call, Checkpoint)
        kept = None if call.facts is None else sum(fact.status in ("verbatim", "abstracted") for fact in call.facts)
        rows.append(
            {
                "level": level,
                "at": seen.at,
                "declared": call.declared_input_tokens,
                "consumed": call.consumed_input_tokens,
                "source_spans": call.source_spans,
                "seen_spans": call.seen_spans,
                "output_tokens": call.output_tokens,
                "stop_reason": safe(call.stop_reason or "", 60),
                "facts_kept": kept,
                "facts": None if call.facts is None else len(call.facts),
            }
        )
    return rows


def _incidents(state: SessionState) -> list[dict[str, Any]]:
    return [
        {
            "incident_id": one.incident_id,
            "rule": one.rule,
            "subject": one.subject,
            "mode": one.mode,
            "opened_at": one.opened_at,
            "opened_round": one.opened_round,
            "firings": one.firings,
            "releasing": one.releasing,
            "command": None
            if one.command is None
            else {
                "kind": one.command.kind,
                "stage": one.command.stage.value,
                "attempt": one.command.attempt,
                "issued_at": one.command.issued_at,
                "reason": safe(one.command.reason, 500),
            },
        }
        for one in state.incidents
    ]


def _trace(traceparent: str, template: str) -> dict[str, str] | None:
    found = _TRACEPARENT.fullmatch(traceparent)
    if found is None:
        return None
    return {"trace_id": found[1], "url": template.replace("{trace_id}", found[1]) if template else ""}
