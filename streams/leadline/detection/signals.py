"""The numbers that several rules share, each computed in one place."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from leadline.contracts.events import Summary
from leadline.contracts.orders import Parameters, Target
from leadline.contracts.session_state import Measurement
from leadline.detection.policy import FleetPolicy

if TYPE_CHECKING:
    # The rules import this module.
    from leadline.detection.rules.base import RoundView

__all__ = ["apart", "rehydration", "salience_rising", "span_exit", "span_floor", "spans_falling"]

MAX_TARGETS = 16
"""Summaries in one rehydration plan."""


def apart(one: float, other: float) -> tuple[str, str]:
    """Two numbers for a sentence that calls them different: with two digits, more only where they would look the same."""
    digits = 2
    while one != other and digits < 6 and f"{one:.{digits}f}" == f"{other:.{digits}f}":
        digits += 1
    return f"{one:.{digits}f}", f"{other:.{digits}f}"


def span_floor(baseline_spans: int, policy: FleetPolicy) -> int:
    """The least number of distinct source spans: a share of those at session start, at least 1.

    Rounds down as the reference function does (salience-inversion document, ``check_inversion``).
    """
    return max(1, int(baseline_spans * policy.span_floor_fraction))


def span_exit(baseline_spans: int, policy: FleetPolicy) -> int:
    """The number of spans at which a breach of the floor is over at once; never more than there were at the start."""
    floor = span_floor(baseline_spans, policy)
    return max(floor, min(baseline_spans, ceil(floor * policy.span_exit_factor)))


def spans_falling(prev: Measurement, now: Measurement) -> bool:
    """Fewer distinct source spans than in the previous round."""
    return now.distinct_source_spans < prev.distinct_source_spans


def salience_rising(prev: Measurement, now: Measurement) -> bool | None:
    """Higher mean salience than in the previous round; ``None`` where either round did not report it."""
    if now.query_cosine_retained is None or prev.query_cosine_retained is None:
        return None
    return now.query_cosine_retained > prev.query_cosine_retained


def rehydration(view: RoundView, *, target_raw_ratio: float | None, target_spans: int) -> Parameters:
    """What a halt asks for: expand the lowest-depth summaries with the highest fan-out first, until the targets hold.

    ``max_restore_tokens`` bounds it so that the result fits the budget: free tokens, plus those of the summaries that the
    expansion replaces. Without listed summaries there is no plan, and the agent orders its own the same way.
    """
    event = view.event
    listed = event.summaries if event is not None and event.summaries else []
    expandable = sorted((item for item in listed if item.reachable != 0 and item.depth > 0), key=_order)[:MAX_TARGETS]
    plan = [Target(summary_id=item.id, depth=item.depth, fan_out=item.fan_out, tokens=item.tokens) for item in expandable]
    bound = None
    if view.token_budget:
        free = view.token_budget - view.fixed_tokens - view.now.raw_tokens - view.now.summary_tokens
        replaced = sum(item.tokens for item in expandable) if expandable else view.now.summary_tokens
        bound = max(0, free + replaced)
    return Parameters(
        target_raw_ratio=target_raw_ratio,
        target_spans=target_spans,
        max_restore_tokens=bound,
        plan=plan or None,
    )


def _order(item: Summary) -> tuple[int, int, str]:
    return (item.depth, -item.fan_out, item.id)
