"""``budget-open``: a summarizer call did not consume its whole input, or never saw some of the source spans.

Budget closure is the first condition of validity of the truncation-collapse document: input consumed == input declared, and
no source span unseen. What the call says of its own success is not looked at.
"""

from __future__ import annotations

from leadline.contracts.orders import Action, Parameters
from leadline.contracts.text import plural
from leadline.detection.calls import stands_for
from leadline.detection.rules.base import CheckpointView, Decision, Evidence, Exit, Rule

__all__ = ["RULE"]

NOT_CONSUMED = Decision(True, "input-not-consumed")
UNSEEN = Decision(True, "spans-unseen")
DISAGREE = Decision(True, "counters-disagree")
CLOSED = Decision(False, "budget-closed")
NOT_REPORTED = Decision(False, "not-reported")


def _unread_tokens(view: CheckpointView) -> int:
    """Declared minus consumed; 0 where either is not reported."""
    declared, consumed = view.checkpoint.declared_input_tokens, view.checkpoint.consumed_input_tokens
    return 0 if declared is None or consumed is None else declared - consumed


def _unseen_spans(view: CheckpointView) -> int:
    source, seen, named = view.checkpoint.source_spans, view.checkpoint.seen_spans, view.checkpoint.unseen_span_ids or ()
    counted = 0 if source is None or seen is None else source - seen
    return max(counted, len(named)) if named else counted


def judge(view: CheckpointView) -> Decision:
    unread, unseen = _unread_tokens(view), _unseen_spans(view)
    if unseen > 0:
        return UNSEEN
    if unread > 0:
        return NOT_CONSUMED
    if unread < 0 or unseen < 0:
        return DISAGREE
    checkpoint = view.checkpoint
    tokens = checkpoint.declared_input_tokens is not None and checkpoint.consumed_input_tokens is not None
    spans = checkpoint.unseen_span_ids is not None or (checkpoint.source_spans is not None and checkpoint.seen_spans is not None)
    return CLOSED if tokens or spans else NOT_REPORTED


def leave(view: CheckpointView, decision: Decision) -> Exit:
    """Over when the level is summarized again and this time closes."""
    return Exit.OVER if decision is CLOSED and stands_for(view) else Exit.STANDING


def message(view: CheckpointView) -> str:
    level = view.checkpoint.level
    parts = []
    if (unseen := _unseen_spans(view)) > 0:
        names = ", ".join((view.checkpoint.unseen_span_ids or [])[:8])
        total = view.checkpoint.source_spans
        spans = plural(unseen, "source span was", "source spans were")
        spans = spans if total is None else f"{unseen} of {plural(total, 'source span was', 'source spans were')}"
        which = f" ({names})" if names else ""
        parts.append(f"{spans} never seen by the summarizer{which}")
    if (unread := _unread_tokens(view)) > 0:
        parts.append(f"{unread} of {view.checkpoint.declared_input_tokens} input tokens were not consumed")
    if not parts:
        return f"counters disagree at level {level}: more was consumed or seen than was declared; count both the same way"
    return f"silent truncation at level {level}: {' and '.join(parts)}; summarize the level again"


def threshold(view: CheckpointView) -> dict[str, float]:
    return {"unread_tokens": 0, "unseen_spans": 0}


def evidence(view: CheckpointView) -> Evidence:
    found: Evidence = {"unread_tokens": _unread_tokens(view), "unseen_spans": _unseen_spans(view)}
    checkpoint = view.checkpoint
    limit = checkpoint.consumed_input_tokens or checkpoint.budget_tokens
    if checkpoint.declared_input_tokens is not None and limit:
        found["overshoot"] = round(checkpoint.declared_input_tokens / limit, 2)
    if checkpoint.unseen_span_ids:
        found["unseen_span_ids"] = list(checkpoint.unseen_span_ids)
    if checkpoint.stop_reason is not None:
        found["stop_reason"] = checkpoint.stop_reason
    return found


def parameters(view: CheckpointView) -> Parameters:
    return Parameters(
        level=view.checkpoint.level,
        instruction="Summarize this level again from its whole input; split the input where it does not fit one call.",
    )


def action(view: CheckpointView) -> Action:
    """Counters that disagree show no loss: that is told, not commanded."""
    return "none" if judge(view) is DISAGREE else "retry-level"


RULE: Rule[CheckpointView] = Rule(
    name="budget-open",
    severity="critical",
    action=action,
    judge=judge,
    exit=leave,
    message=message,
    threshold=threshold,
    evidence=evidence,
    parameters=parameters,
    on_repeat="halt",
)
