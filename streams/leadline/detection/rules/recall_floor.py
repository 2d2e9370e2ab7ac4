"""``recall-floor``: facts of a class were kept at a level below the floor that the class declares.

The second condition of validity of the truncation-collapse document. Loss is attributed to the first level at which a fact
vanished: a level that merely inherits the loss does not fire. A declared or superseded drop is no loss, and what an opaque
summary holds is unknown: at risk, never absent. A call that kept some facts word for word, dropped others and had room left is
told as re-ranking: it selected instead of abstracting.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from leadline.contracts.orders import Parameters
from leadline.detection.facts import lost_at, room_left, selected
from leadline.detection.rules.base import CheckpointView, Decision, Evidence, Exit, Rule, always

__all__ = ["RULE"]

FIRED = Decision(True, "class-below-floor")
RERANKED = Decision(True, "re-ranked-below-floor")
OPAQUE = Decision(False, "summary-not-visible")
NOT_REPORTED = Decision(False, "facts-not-reported")
KEPT = Decision(False, "classes-at-or-above-floor")
EARLIER = Decision(False, "lost-at-an-earlier-level")


CARRY: Final = "Summarize this level again and carry each named fact along, its literal values unchanged."
ABSTRACT: Final = (
    "Summarize this level again: shorten every part rather than choose among them; there is room. "
    "Carry each named fact along, its literal values unchanged."
)


class _Shortfall(NamedTuple):
    """One class below its floor at this level."""

    fact_class: str
    floor: float
    kept: int
    known: int
    lost_here: tuple[str, ...]


def _shortfalls(view: CheckpointView) -> list[_Shortfall]:
    here = lost_at(view.checkpoint, view.facts)
    found = []
    for fact_class, standing in sorted(here.items()):
        floor = standing.floor if standing.floor is not None else view.policy.recall_floor
        known = standing.kept + len(standing.lost_here) + len(standing.lost_earlier)
        if known and standing.kept / known < floor:
            found.append(_Shortfall(fact_class, floor, standing.kept, known, standing.lost_here))
    return found


def judge(view: CheckpointView) -> Decision:
    checkpoint = view.checkpoint
    if not checkpoint.summary_visible:
        return OPAQUE
    if checkpoint.facts is None:
        return NOT_REPORTED
    short = _shortfalls(view)
    if not short:
        return KEPT
    if not any(item.lost_here for item in short):
        return EARLIER
    return RERANKED if selected(checkpoint, view.facts, view.policy.rerank_spare) else FIRED


def leave(view: CheckpointView, decision: Decision) -> Exit:
    """Over when the level is summarized again and every class is at its floor."""
    if decision is not KEPT or view.incident is None:
        return Exit.OVER if decision is KEPT else Exit.STANDING
    checkpoint = view.checkpoint
    if checkpoint.input_facts is None or checkpoint.retry_of:
        return Exit.OVER
    # A call over other facts proves nothing of those that were lost.
    lost = set(view.incident.facts)
    kept = {item.fact_id for item in checkpoint.facts or () if item.status in ("verbatim", "abstracted")}
    excused = {fact_id for fact_id in lost if fact_id in view.facts and view.facts[fact_id].excused}
    return Exit.OVER if lost <= kept | excused else Exit.STANDING


def facts(view: CheckpointView) -> tuple[str, ...]:
    return tuple(fact for item in _shortfalls(view) for fact in item.lost_here)


def message(view: CheckpointView) -> str:
    level = view.checkpoint.level
    parts = [
        f"class {item.fact_class or 'unnamed'!r} kept {item.kept} of {item.known} facts (floor {item.floor:g})"
        for item in _shortfalls(view)
        if item.lost_here
    ]
    names = ", ".join(facts(view)[:8])
    how = f"; {room_left(view.checkpoint)} tokens to spare: it selected, it did not abstract" if judge(view) is RERANKED else ""
    return f"recall floor broken at level {level}: {'; '.join(parts)}; lost here: {names}{how}; summarize the level again"


def threshold(view: CheckpointView) -> dict[str, float]:
    return {f"recall_floor.{item.fact_class or 'unnamed'}": item.floor for item in _shortfalls(view)}


def evidence(view: CheckpointView) -> Evidence:
    found: Evidence = {"lost_facts": list(facts(view)), "first_lost_level": view.checkpoint.level}
    if judge(view) is RERANKED:
        found["tokens_to_spare"] = room_left(view.checkpoint) or 0
    return found


def parameters(view: CheckpointView) -> Parameters:
    return Parameters(
        level=view.checkpoint.level,
        facts=list(facts(view)),
        instruction=ABSTRACT if judge(view) is RERANKED else CARRY,
    )


RULE: Rule[CheckpointView] = Rule(
    name="recall-floor",
    severity="critical",
    action=always("retry-level"),
    judge=judge,
    exit=leave,
    message=message,
    threshold=threshold,
    evidence=evidence,
    parameters=parameters,
    facts=facts,
)
