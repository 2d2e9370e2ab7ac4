"""``drift``: little raw text is left, yet the sources are all still there. Lossy paraphrase, not inversion: record and go on.

Fires when the raw ratio is below the floor while distinct source spans are stable (salience-inversion document, "Decision
Boundary"). While an inversion is open, a pause in the fall of spans is part of it and no drift.
"""

from __future__ import annotations

from leadline.detection import signals
from leadline.detection.rules.base import Decision, Exit, RoundView, Rule, always
from leadline.detection.signs import POOR

__all__ = ["RULE"]

FIRED = Decision(True, "raw-ratio-low-spans-stable")
UNKNOWN = Decision(False, "no-tokens")
FIRST = Decision(False, "no-previous-round")
GROUNDED = Decision(False, "raw-ratio-at-or-above-floor")
FALLING = Decision(False, "spans-falling")
INVERTED = Decision(False, "inversion-open")


def judge(view: RoundView) -> Decision:
    ratio = view.now.raw_ratio
    if ratio is None:
        return UNKNOWN
    if ratio >= view.policy.raw_ratio_floor:
        return GROUNDED
    if view.prev is None:
        return FIRST
    if signals.spans_falling(view.prev, view.now):
        return FALLING
    return INVERTED if view.inversion_open else FIRED


def leave(view: RoundView, decision: Decision) -> Exit:
    """Over at the exit ratio, or as soon as it has become an inversion."""
    ratio = view.now.raw_ratio
    over = view.inversion_open or (ratio is not None and ratio >= view.policy.raw_ratio_exit)
    return Exit.OVER if over else Exit.STANDING


def message(view: RoundView) -> str:
    ratio, floor = signals.apart(view.now.raw_ratio or 0.0, view.policy.raw_ratio_floor)
    return (
        f"drift: raw ratio {ratio} is below {floor} with source spans stable at "
        f"{view.now.distinct_source_spans}; not an inversion, go on and watch"
    )


def threshold(view: RoundView) -> dict[str, float]:
    return {"raw_ratio_floor": view.policy.raw_ratio_floor, "raw_ratio_exit": view.policy.raw_ratio_exit}


RULE: Rule[RoundView] = Rule(
    name="drift",
    severity="info",
    action=always("none"),
    judge=judge,
    needs=POOR,
    exit=leave,
    message=message,
    threshold=threshold,
)
