"""``masked``: salience has been rising while source spans have been falling. Do not trust this metric.

"Salience metrics that improve while provenance reachability degrades are inverted, not healthy" (salience-inversion document,
"Decision Boundary"). Over the window and whatever the raw ratio is: where the scorer penalizes depth or eviction is rare this is
all that tells that the score and the ground under it part ways.
"""

from __future__ import annotations

from leadline.detection import signals
from leadline.detection.rules.base import Decision, Evidence, Exit, RoundView, Rule, always
from leadline.detection.rules.erosion import spans_trend
from leadline.detection.trend import MIN_ROUNDS, ends, trend

__all__ = ["RULE"]

FIRED = Decision(True, "salience-up-spans-down")
NO_SALIENCE = Decision(False, "salience-not-reported")
FEW = Decision(False, "too-few-rounds")
NOT_RISING = Decision(False, "salience-not-rising")
NOT_FALLING = Decision(False, "spans-not-falling")
SLIGHT = Decision(False, "spans-fell-slightly")


def judge(view: RoundView) -> Decision:
    if view.now.query_cosine_retained is None:
        return NO_SALIENCE
    points = [(item.round, value) for item in view.window if (value := item.query_cosine_retained) is not None]
    if len(points) < MIN_ROUNDS:
        return FEW
    # These comparisons spare the trend wherever there plainly is none.
    first, last = ends([entry.distinct_source_spans for entry in view.window])
    if last >= first:
        return NOT_FALLING
    if last > first * (1 - view.policy.masked_span_fall):
        return SLIGHT
    low, high = ends([value for _, value in points])
    if high <= low:
        return NOT_RISING
    spans, salience = spans_trend(view), trend(points)
    if spans is None or not spans.falling:
        return NOT_FALLING
    return FIRED if salience is not None and salience.rising else NOT_RISING


def leave(view: RoundView, decision: Decision) -> Exit:
    """Over after several rounds in which the two no longer part."""
    return Exit.GOOD if decision in (NOT_RISING, NOT_FALLING, SLIGHT) else Exit.STANDING


def message(view: RoundView) -> str:
    first, now = view.window[0], view.now
    was, salience = signals.apart(first.query_cosine_retained or 0.0, now.query_cosine_retained or 0.0)
    if first.query_cosine_retained is None:
        was = "?"
    return (
        f"masked: over {len(view.window)} rounds salience rose {was} -> {salience} while source "
        f"spans fell {first.distinct_source_spans} -> {now.distinct_source_spans}; the score cannot be trusted"
    )


def threshold(view: RoundView) -> dict[str, float]:
    return {"masked_span_fall": view.policy.masked_span_fall}


def evidence(view: RoundView) -> Evidence:
    return {
        "window_rounds": len(view.window),
        "spans_lost": view.window[0].distinct_source_spans - view.now.distinct_source_spans,
    }


RULE: Rule[RoundView] = Rule(
    name="masked",
    severity="warning",
    action=always("none"),
    judge=judge,
    exit=leave,
    message=message,
    threshold=threshold,
    evidence=evidence,
)
