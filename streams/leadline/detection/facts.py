"""Following declared facts from level to level."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from msgspec import json
from msgspec.structs import replace

from leadline.contracts import limits
from leadline.contracts.events import Checkpoint, Fact, FactState
from leadline.contracts.session_state import FactRecord

__all__ = ["Standing", "declare", "follow", "lost_at", "room_left", "selected"]

Facts = dict[str, FactRecord]


class Followed(NamedTuple):
    """The facts after a record was applied; ``overflow``: how many could not be kept track of."""

    facts: Facts
    overflow: int


@dataclass(slots=True)
class Standing:
    """One class at one level. ``floor``: the highest that a fact of the class declares, if any does."""

    floor: float | None = None
    kept: int = 0
    lost_here: tuple[str, ...] = ()
    lost_earlier: tuple[str, ...] = ()


def declare(facts: Facts, declared: Iterable[Fact]) -> Followed:
    """Facts that a session start declares; a fact that names another in ``supersedes`` excuses its loss."""
    result, overflow = dict(facts), 0
    declared = list(declared)
    room = _room(facts)
    for fact in declared:
        known = result.get(fact.fact_id)
        size = _size(fact.fact_id, fact.fact_class) - (_size(fact.fact_id, known.fact_class) if known else 0)
        if size > room or (known is None and len(result) >= limits.MAX_KEPT_FACTS):
            overflow += 1
            continue
        room -= size
        result[fact.fact_id] = replace(known or FactRecord(), fact_class=fact.fact_class, recall_floor=fact.recall_floor)
    for fact in declared:
        old = result.get(fact.supersedes) if fact.supersedes else None
        if old is not None:
            result[fact.supersedes] = replace(old, excused="superseded")
    return Followed(result, overflow)


def follow(facts: Facts, checkpoint: Checkpoint) -> Followed:
    """Apply one checkpoint: adopt facts that it brings, note declared drops, and where each fact was kept or first missed.

    A fact that the checkpoint's input held and that its (present) list does not name is absent; where the list itself is
    absent, or the summary is opaque, nothing is known and nothing changes.
    """
    result, overflow = dict(facts), 0
    new = [status for status in checkpoint.facts or () if status.fact_id not in facts]
    room = _room(facts) if new else 0
    for status in new:
        if status.fact_id not in result:
            size = _size(status.fact_id, status.fact_class)
            if size > room or len(result) >= limits.MAX_KEPT_FACTS:
                overflow += 1
                continue
            room -= size
            result[status.fact_id] = FactRecord(fact_class=status.fact_class, recall_floor=status.recall_floor)
    for drop in checkpoint.declared_drops:
        record = result.get(drop.fact_id)
        if record is not None and not record.excused:
            result[drop.fact_id] = replace(record, excused="declared")
    level = checkpoint.level
    for fact_id, state in _states(checkpoint, result):
        record = result[fact_id]
        if state in ("verbatim", "abstracted"):
            regained = record.lost_level is not None and record.lost_level <= level
            result[fact_id] = replace(record, kept_level=level, lost_level=None if regained else record.lost_level)
        elif state == "absent" and not record.excused and (record.lost_level is None or record.lost_level > level):
            result[fact_id] = replace(record, lost_level=level)
    return Followed(result, overflow)


def _size(fact_id: str, fact_class: str) -> int:
    """Bytes of JSON that a fact's two names take."""
    return len(json.encode(fact_id)) + len(json.encode(fact_class))


def _room(facts: Facts) -> int:
    """Bytes that are left for the names of further facts."""
    return limits.MAX_KEPT_FACT_BYTES - sum(_size(fact_id, record.fact_class) for fact_id, record in facts.items())


def lost_at(checkpoint: Checkpoint, facts: Facts) -> dict[str, Standing]:
    """How each class stands at this checkpoint's level; ``facts`` with the checkpoint already applied."""
    classes: dict[str, Standing] = {}
    for fact_id, state in _states(checkpoint, facts):
        record = facts[fact_id]
        if record.excused or state == "unknown":
            continue
        standing = classes.setdefault(record.fact_class, Standing())
        if record.recall_floor is not None:
            standing.floor = max(standing.floor or 0.0, record.recall_floor)
        if state != "absent":
            standing.kept += 1
        elif record.lost_level is not None and record.lost_level < checkpoint.level:
            standing.lost_earlier += (fact_id,)
        else:
            standing.lost_here += (fact_id,)
    return classes


def room_left(checkpoint: Checkpoint) -> int | None:
    """Output tokens that the call's budget (or cap) still had room for; ``None`` where that is not reported."""
    budget = checkpoint.budget_tokens or checkpoint.output_cap
    if not budget or checkpoint.output_tokens is None:
        return None
    return max(0, budget - checkpoint.output_tokens)


def selected(checkpoint: Checkpoint, facts: Facts, spare: float) -> bool:
    """Whether the call re-ranked its input rather than compress it: some facts verbatim, others gone, none abstracted, and at
    least the share ``spare`` of the budget left over (truncation-collapse document, "decision boundary").
    """
    left = room_left(checkpoint)
    if not left or left < spare * (checkpoint.budget_tokens or checkpoint.output_cap or 0):
        return False
    states = {state for fact_id, state in _states(checkpoint, facts) if not facts[fact_id].excused}
    return states >= {"verbatim", "absent"} and "abstracted" not in states


def _states(checkpoint: Checkpoint, facts: Facts) -> list[tuple[str, FactState]]:
    """Each fact that was in the call's input, with what became of it."""
    if checkpoint.facts is None or not checkpoint.summary_visible:
        return []
    reported = {status.fact_id: status.status for status in checkpoint.facts}
    expected = facts if checkpoint.input_facts is None else {*checkpoint.input_facts, *reported} & facts.keys()
    # In the order in which the facts became known: the order is the same on every replay, that of a set is not.
    return [(fact_id, reported.get(fact_id, "absent")) for fact_id in facts if fact_id in expected]
