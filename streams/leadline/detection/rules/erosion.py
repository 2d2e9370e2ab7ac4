"""``erosion``: summaries outweigh raw text, and both the raw ratio and the sources are going down. The early warning.

Fires at a raw ratio below 0.5 (the salience-inversion document: the ratio of summary to raw tokens "crosses 1.0 and keeps rising
while the number of distinct source spans referenced by retained summaries falls") where ratio and spans both show a falling trend
over the window and one of them reaches its floor within the horizon at the present pace. It tells how many rounds are left until
the raw ratio reaches the inversion floor and until the spans reach theirs, each with a 90 % interval.
"""

from __future__ import annotations

from collections.abc import Sequence

from leadline.contracts.events import Round
from leadline.contracts.session_state import Measurement
from leadline.contracts.text import plural
from leadline.detection import signals
from leadline.detection.policy import FleetPolicy
from leadline.detection.rules.base import Decision, Evidence, Exit, RoundView, Rule, Window, always
from leadline.detection.signs import OUTWEIGHED, SHRUNK
from leadline.detection.trend import MIN_ROUNDS, Forecast, ends, falling, forecast, middle, trend

__all__ = ["RULE"]

FIRED = Decision(True, "eroding")
UNKNOWN = Decision(False, "no-tokens")
MOSTLY_RAW = Decision(False, "raw-ratio-at-or-above-entry")
PAST = Decision(False, "raw-ratio-below-floor")
FEW = Decision(False, "too-few-rounds")
STEADY = Decision(False, "raw-ratio-not-falling")
SPANS_STEADY = Decision(False, "spans-not-falling")
FAR = Decision(False, "floors-beyond-horizon")


def may_fire(window: Window, event: Round, ratio: float, policy: FleetPolicy) -> bool:
    """In its range, with both falling from end to end, and significantly."""
    if ratio < policy.raw_ratio_floor or len(window) < MIN_ROUNDS:
        return False
    first, second, third, before, last, now = window[0], window[1], window[2], window[-3], window[-2], window[-1]
    # As _ends_fall() would have it of the whole window.
    if middle(before.distinct_source_spans, last.distinct_source_spans, now.distinct_source_spans) >= middle(
        first.distinct_source_spans, second.distinct_source_spans, third.distinct_source_spans
    ) or middle(_ratio(before), _ratio(last), ratio) >= middle(_ratio(first), _ratio(second), _ratio(third)):
        return False
    # Of the two the ratio is the noisier, and so the likelier to show no trend.
    return falling([entry.raw_tokens / (entry.raw_tokens + entry.summary_tokens) for entry in window]) and falling(
        [entry.distinct_source_spans for entry in window]
    )


def _ratio(entry: Measurement) -> float:
    """The raw ratio of what the window holds: none of that is without tokens."""
    return entry.raw_tokens / (entry.raw_tokens + entry.summary_tokens)


def _ends_fall(values: Sequence[float]) -> bool:
    first, last = ends(values)
    return last < first


def judge(view: RoundView) -> Decision:
    ratio = view.now.raw_ratio
    if ratio is None:
        return UNKNOWN
    if ratio >= view.policy.erosion_ratio:
        return MOSTLY_RAW
    if ratio < view.policy.raw_ratio_floor:
        return PAST
    if len(view.window) < MIN_ROUNDS:
        return FEW
    # These comparisons spare the trend wherever there plainly is none.
    if not _ends_fall([entry.raw_ratio or 0.0 for entry in view.window]):
        return STEADY
    spans = [entry.distinct_source_spans for entry in view.window]
    if not _ends_fall(spans):
        return SPANS_STEADY
    ratios = [known for entry in view.window if (known := entry.raw_ratio) is not None]
    if len(ratios) < MIN_ROUNDS:
        return FEW
    if not falling(ratios):
        return STEADY
    if not falling(spans):
        return SPANS_STEADY
    near = [left.rounds for left in _left(view) if left is not None]
    return FIRED if near and min(near) <= view.policy.erosion_horizon else FAR


def leave(view: RoundView, decision: Decision) -> Exit:
    """Over after several rounds of mostly raw text, or in which nothing falls any more, or so slowly that it is far away."""
    return Exit.GOOD if decision in (MOSTLY_RAW, STEADY, SPANS_STEADY, FAR) else Exit.STANDING


def _left(view: RoundView) -> tuple[Forecast | None, Forecast | None]:
    """Rounds until the raw ratio reaches its floor, and until the spans do."""
    ratios = trend([(entry.round, ratio) for entry in view.window if (ratio := entry.raw_ratio) is not None])
    spans = trend([(entry.round, entry.distinct_source_spans) for entry in view.window])
    if ratios is None or spans is None:
        return None, None
    floor = signals.span_floor(view.baseline_spans, view.policy)
    return (
        forecast(view.now.raw_ratio or 0.0, view.policy.raw_ratio_floor, ratios),
        forecast(view.now.distinct_source_spans, floor, spans),
    )


def message(view: RoundView) -> str:
    ratio, spans = _left(view)
    ahead = []
    if ratio is not None:
        ahead.append(f"raw ratio {view.policy.raw_ratio_floor:.2f} in {_told(ratio)}")
    if spans is not None:
        ahead.append(f"the span floor in {_told(spans)}")
    tail = f"; at this pace {' and '.join(ahead)}" if ahead else ""
    return (
        f"erosion: raw ratio {view.now.raw_ratio or 0.0:.2f} and source spans ({view.now.distinct_source_spans}) "
        f"have been falling over {len(view.window)} rounds{tail}"
    )


def _told(left: Forecast) -> str:
    latest = "?" if left.latest is None else str(left.latest)
    return f"about {plural(left.rounds, 'round')} ({left.earliest} to {latest})"


def threshold(view: RoundView) -> dict[str, float]:
    return {
        "erosion_ratio": view.policy.erosion_ratio,
        "raw_ratio_floor": view.policy.raw_ratio_floor,
        "span_floor": signals.span_floor(view.baseline_spans, view.policy),
        "erosion_horizon": view.policy.erosion_horizon,
    }


def evidence(view: RoundView) -> Evidence:
    found: Evidence = {"window_rounds": len(view.window)}
    for name, left in zip(("raw_ratio", "span_floor"), _left(view), strict=True):
        if left is not None:
            found[f"rounds_to_{name}"] = left.rounds
            found[f"rounds_to_{name}_earliest"] = left.earliest
            if left.latest is not None:
                found[f"rounds_to_{name}_latest"] = left.latest
    return found


RULE: Rule[RoundView] = Rule(
    name="erosion",
    severity="warning",
    action=always("none"),
    judge=judge,
    needs=OUTWEIGHED | SHRUNK,
    may_fire=may_fire,
    exit=leave,
    message=message,
    threshold=threshold,
    evidence=evidence,
)
