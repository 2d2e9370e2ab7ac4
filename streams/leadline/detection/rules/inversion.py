"""``inversion``: the working set became more salient by its own metric while it became less grounded.

Fires when a summary of summaries is present (depth >= 2), the raw ratio is below the floor, and distinct source spans fell
while mean salience rose against the previous round; only where the scorer does not penalize depth and eviction is continuous
(salience-inversion document, "Condition of Validity" and "Decision Boundary"; a condition not stated is taken to hold).
"""

from __future__ import annotations

from leadline.contracts.orders import Parameters
from leadline.contracts.session_state import Measurement
from leadline.detection import signals
from leadline.detection.rules.base import Decision, Evidence, Exit, RoundView, Rule, always
from leadline.detection.signs import DEEP, POOR

__all__ = ["RULE"]

_DEPTH = 2

FIRED = Decision(True, "boundary-crossed")
UNKNOWN = Decision(False, "no-tokens")
SHALLOW = Decision(False, "depth-below-2")
PENALIZED = Decision(False, "scorer-penalizes-depth")
OVERFLOW_ONLY = Decision(False, "eviction-only-at-overflow")
FIRST = Decision(False, "no-previous-round")
GROUNDED = Decision(False, "raw-ratio-at-or-above-floor")
SPANS_STABLE = Decision(False, "spans-not-falling")
NO_SALIENCE = Decision(False, "salience-not-reported")
SALIENCE_STABLE = Decision(False, "salience-not-rising")


def judge(view: RoundView) -> Decision:
    now, prev = view.now, view.prev
    ratio = now.raw_ratio
    if ratio is None:
        return UNKNOWN
    if now.summary_depth_max < _DEPTH:
        return SHALLOW
    if view.penalizes_depth:
        return PENALIZED
    if view.eviction == "overflow":
        return OVERFLOW_ONLY
    if ratio >= view.policy.raw_ratio_floor:
        return GROUNDED
    if prev is None:
        return FIRST
    if not signals.spans_falling(prev, now):
        return SPANS_STABLE
    rising = signals.salience_rising(prev, now)
    if rising is None:
        return NO_SALIENCE
    return FIRED if rising else SALIENCE_STABLE


def leave(view: RoundView, decision: Decision) -> Exit:
    """Over at the exit ratio with spans at or above the floor; in between it stands, so a hovering value does not flap."""
    ratio = view.now.raw_ratio
    if ratio is None or ratio < view.policy.raw_ratio_exit:
        return Exit.STANDING
    floor = signals.span_floor(view.baseline_spans, view.policy)
    return Exit.OVER if view.now.distinct_source_spans >= floor else Exit.STANDING


def improved(view: RoundView, opening: Measurement | None) -> bool:
    """More raw text and no fewer spans than when it opened."""
    ratio = view.now.raw_ratio
    if opening is None or ratio is None:
        return False
    return ratio > (opening.raw_ratio or 0.0) and view.now.distinct_source_spans >= opening.distinct_source_spans


def message(view: RoundView) -> str:
    now, prev = view.now, view.prev
    assert prev is not None
    ratio, floor = signals.apart(now.raw_ratio or 0.0, view.policy.raw_ratio_floor)
    was, salience = signals.apart(prev.query_cosine_retained or 0.0, now.query_cosine_retained or 0.0)
    return (
        f"salience inversion: raw ratio {ratio} is below {floor}, source spans fell "
        f"{prev.distinct_source_spans} -> {now.distinct_source_spans} while salience rose "
        f"{was} -> {salience}; halt compaction and rehydrate"
    )


def threshold(view: RoundView) -> dict[str, float]:
    return {"raw_ratio_floor": view.policy.raw_ratio_floor, "raw_ratio_exit": view.policy.raw_ratio_exit}


def evidence(view: RoundView) -> Evidence:
    prev = view.prev
    found: Evidence = {}
    if prev is not None and prev.summary_tokens > 0:
        found["summary_growth"] = round(view.now.summary_tokens / prev.summary_tokens, 3)
    return found


def parameters(view: RoundView) -> Parameters:
    floor = signals.span_floor(view.baseline_spans, view.policy)
    return signals.rehydration(view, target_raw_ratio=view.policy.raw_ratio_exit, target_spans=floor)


RULE: Rule[RoundView] = Rule(
    name="inversion",
    severity="critical",
    action=always("halt"),
    judge=judge,
    needs=DEEP | POOR,
    exit=leave,
    improved=improved,
    message=message,
    threshold=threshold,
    evidence=evidence,
    parameters=parameters,
)
