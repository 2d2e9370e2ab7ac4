"""``masked``: salience has been rising while source spans have been falling. Do not trust this metric.

"Salience metrics that improve while provenance reachability degrades are inverted, not healthy" (salience-inversion document,
"Decision Boundary"). Over the window and whatever the raw ratio is: where the scorer penalizes depth or eviction is rare this is
all that tells that the score and the ground under it part ways.
"""

from __future__ import annotations

from leadline.contracts.events import Round
from leadline.detection import signals
from leadline.detection.policy import FleetPolicy
from leadline.detection.rules.base import Decision, Evidence, Exit, RoundView, Rule, Window, always
from leadline.detection.signs import SHRUNK
from leadline.detection.trend import MIN_ROUNDS, ends, falling, middle, rising

__all__ = ["RULE"]

FIRED = Decision(True, "salience-up-spans-down")
NO_SALIENCE = Decision(False, "salience-not-reported")
FEW = Decision(False, "too-few-rounds")
NOT_RISING = Decision(False, "salience-not-rising")
NOT_FALLING = Decision(False, "spans-not-falling")
SLIGHT = Decision(False, "spans-fell-slightly")


def may_fire(window: Window, event: Round, ratio: float, policy: FleetPolicy) -> bool:
    """The spans have fallen so far, from end to end, as :func:`judge` has it."""
    if event.query_cosine_retained is None or len(window) < MIN_ROUNDS:
        return False
    now, before = event.distinct_source_spans, window[-2].distinct_source_spans
    first, second = window[0].distinct_source_spans, window[1].distinct_source_spans
    limit = (first if first > second else second) * (1 - policy.masked_span_fall)
    if now > limit and before > limit:
        return False  # Neither can be the median of the last three, then.
    begun = middle(first, second, window[2].distinct_source_spans)
    ended = middle(window[-3].distinct_source_spans, before, now)
    return ended < begun and ended <= begun * (1 - policy.masked_span_fall)


def judge(view: RoundView) -> Decision:
    if view.now.query_cosine_retained is None:
        return NO_SALIENCE
    salience = [value for item in view.window if (value := item.query_cosine_retained) is not None]
    if len(salience) < MIN_ROUNDS:
        return FEW
    # These comparisons spare the trend wherever there plainly is none.
    spans = [entry.distinct_source_spans for entry in view.window]
    first, last = ends(spans)
    if last >= first:
        return NOT_FALLING
    if last > first * (1 - view.policy.masked_span_fall):
        return SLIGHT
    low, high = ends(salience)
    if high <= low:
        return NOT_RISING
    if not falling(spans):
        return NOT_FALLING
    return FIRED if rising(salience) else NOT_RISING


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
    needs=SHRUNK,
    may_fire=may_fire,
    exit=leave,
    message=message,
    threshold=threshold,
    evidence=evidence,
)
