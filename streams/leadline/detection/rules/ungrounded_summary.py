"""``ungrounded-summary``: a retained summary stands on nothing that can still be produced.

The hard invariant of the salience-inversion document, "Operational Effect": every retained summary must have at least one
reachable leaf span. Such a summary can be neither checked nor repaired from inside: rehydrate it from elsewhere, or drop it.
"""

from __future__ import annotations

from leadline.contracts.events import Round, Summary
from leadline.contracts.orders import Parameters, Target
from leadline.contracts.text import plural
from leadline.detection.policy import FleetPolicy
from leadline.detection.rules.base import Decision, Evidence, Exit, RoundView, Rule, Window, always
from leadline.detection.signals import MAX_TARGETS
from leadline.detection.signs import LISTED

__all__ = ["RULE"]

FIRED = Decision(True, "summary-without-leaf")
NOT_REPORTED = Decision(False, "not-reported")
GROUNDED = Decision(False, "all-summaries-grounded")


def _count(view: RoundView) -> int | None:
    """Ungrounded summaries, the larger of what is counted and what is listed; ``None`` where neither is reported."""
    event = view.event
    if event is None:
        return None
    listed = [item.reachable for item in event.summaries or () if item.reachable is not None]
    if event.ungrounded_summaries is None and not listed:
        return 0 if event.summary_depth_max == 0 else None
    return max(event.ungrounded_summaries or 0, listed.count(0))


def _listed(view: RoundView) -> list[Summary]:
    event = view.event
    found = [item for item in (event.summaries or ()) if item.reachable == 0] if event is not None else []
    return sorted(found, key=lambda item: (item.depth, item.id))[:MAX_TARGETS]


def may_fire(window: Window, event: Round, ratio: float, policy: FleetPolicy) -> bool:
    if event.ungrounded_summaries:
        return True
    return bool(event.summaries) and any(item.reachable == 0 for item in event.summaries or ())


def judge(view: RoundView) -> Decision:
    count = _count(view)
    if count is None:
        return NOT_REPORTED
    return FIRED if count else GROUNDED


def leave(view: RoundView, decision: Decision) -> Exit:
    return Exit.OVER if decision is GROUNDED else Exit.STANDING


def message(view: RoundView) -> str:
    count = _count(view) or 0
    kept = plural(count, "retained summary has", "retained summaries have")
    return f"{kept} no reachable source span; rehydrate or drop, nothing in the context can check them"


def threshold(view: RoundView) -> dict[str, float]:
    return {"ungrounded_summaries": 0}


def evidence(view: RoundView) -> Evidence:
    found: Evidence = {"ungrounded_summaries": _count(view) or 0}
    if listed := _listed(view):
        found["summary_ids"] = [item.id for item in listed]
    return found


def parameters(view: RoundView) -> Parameters:
    listed = _listed(view)
    plan = [Target(summary_id=item.id, depth=item.depth, fan_out=item.fan_out, tokens=item.tokens) for item in listed]
    return Parameters(plan=plan or None, drop_ungrounded=True)


RULE: Rule[RoundView] = Rule(
    name="ungrounded-summary",
    severity="critical",
    action=always("halt"),
    judge=judge,
    needs=LISTED,
    may_fire=may_fire,
    extent=_count,
    exit=leave,
    message=message,
    threshold=threshold,
    evidence=evidence,
    parameters=parameters,
)
