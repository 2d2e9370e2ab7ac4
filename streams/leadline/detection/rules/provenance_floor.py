"""``provenance-floor``: too few distinct source spans can still be reached from what is retained.

Fires at depth >= 2 when spans are below ``max(1, int(0.20 * session_start_spans))`` (salience-inversion document,
``check_inversion``): a hard invariant, whatever the ratio and the scorer say.
"""

from __future__ import annotations

from leadline.contracts.orders import Parameters
from leadline.contracts.session_state import Measurement
from leadline.contracts.text import plural
from leadline.detection import signals
from leadline.detection.rules.base import Decision, Evidence, Exit, RoundView, Rule, always
from leadline.detection.signs import DEEP, SCARCE

__all__ = ["RULE"]

_DEPTH = 2

FIRED = Decision(True, "spans-below-floor")
UNKNOWN = Decision(False, "no-tokens")
SHALLOW = Decision(False, "depth-below-2")
ABOVE = Decision(False, "spans-at-or-above-floor")


def judge(view: RoundView) -> Decision:
    now = view.now
    if now.raw_tokens + now.summary_tokens == 0:
        return UNKNOWN
    if now.summary_depth_max < _DEPTH:
        return SHALLOW
    return FIRED if now.distinct_source_spans < signals.span_floor(view.baseline_spans, view.policy) else ABOVE


def leave(view: RoundView, decision: Decision) -> Exit:
    """Over well above the floor, or after several rounds at it, or without a summary of summaries."""
    spans = view.now.distinct_source_spans
    if spans >= signals.span_exit(view.baseline_spans, view.policy):
        return Exit.OVER
    # Of no tokens nothing is known.
    return Exit.GOOD if decision is SHALLOW or decision is ABOVE else Exit.STANDING


def improved(view: RoundView, opening: Measurement | None) -> bool:
    """More spans than when it opened, or no summary of summaries any more."""
    now = view.now
    return now.summary_depth_max < _DEPTH or (opening is not None and now.distinct_source_spans > opening.distinct_source_spans)


def message(view: RoundView) -> str:
    floor = signals.span_floor(view.baseline_spans, view.policy)
    reachable = plural(view.now.distinct_source_spans, "source span is", "source spans are")
    return (
        f"provenance floor breached: {reachable} reachable, the floor is {floor} "
        f"(session start {view.baseline_spans}); rehydrate the lowest-depth summary"
    )


def threshold(view: RoundView) -> dict[str, float]:
    return {
        "span_floor": signals.span_floor(view.baseline_spans, view.policy),
        "span_exit": signals.span_exit(view.baseline_spans, view.policy),
    }


def evidence(view: RoundView) -> Evidence:
    return {"session_start_spans": view.baseline_spans}


def parameters(view: RoundView) -> Parameters:
    return signals.rehydration(view, target_raw_ratio=None, target_spans=signals.span_exit(view.baseline_spans, view.policy))


RULE: Rule[RoundView] = Rule(
    name="provenance-floor",
    severity="critical",
    action=always("halt"),
    judge=judge,
    needs=DEEP | SCARCE,
    exit=leave,
    improved=improved,
    message=message,
    threshold=threshold,
    evidence=evidence,
    parameters=parameters,
)
