"""Rounds on one axis, and where on it something happened that has a time or an offset but no round. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from leadline.contracts.events import Ack, Round
from leadline.contracts.orders import Command, Violation
from leadline.contracts.session_state import Measurement, SessionState
from leadline.contracts.text import safe
from leadline.dashboard.history import Seen
from leadline.dashboard.journal import Kept

__all__ = ["Axis", "axis_of", "marks"]

_MIDWAY: Final = 0.5


class Point(NamedTuple):
    """One round. ``at`` (ms since 1970) and ``offset`` are unknown (-1) where only the session's record tells of it."""

    round: int
    raw_ratio: float | None
    spans: int
    cosine: float | None
    depth: int
    raw_tokens: int
    summary_tokens: int
    trigger: str = ""
    at: int = -1
    offset: int = -1


class Axis:
    """The rounds of one epoch, ascending."""

    def __init__(self, points: list[Point]) -> None:
        self.points = points
        timed = [point for point in points if point.offset >= 0]
        self._timed = timed
        self._times = [point.at for point in timed]
        self._offsets = [point.offset for point in timed]

    def columns(self) -> dict[str, list[Any]]:
        """As a chart wants them: a list for each field, all of one length."""
        names = Point._fields[:-1]
        return {name: [_short(getattr(point, name)) for point in self.points] for name in names}

    def round_at(self, at: int) -> int | None:
        """The last round that the broker had at this time."""
        index = bisect_right(self._times, at)
        return self._timed[index - 1].round if index else None

    def round_before(self, offset: int) -> int | None:
        """The last round that stands before this offset, or at it."""
        index = bisect_right(self._offsets, offset)
        return self._timed[index - 1].round if index else None

    def round_of_violation(self, record: Violation) -> int | None:
        if record.round is not None:
            return record.round
        return self.round_before(record.caused_by.offset)

    def between(self, offset: int) -> float | None:
        """Midway between two rounds where an offset is neither's."""
        found = self.round_before(offset)
        return None if found is None else found + (_MIDWAY if offset not in self._offsets else 0.0)

    def moment(self, at: int) -> float | None:
        """A time as a place between two rounds."""
        index = bisect_right(self._times, at)
        if not index:
            return None
        before = self._timed[index - 1]
        if index == len(self._timed):
            return before.round + (_MIDWAY if at > before.at else 0.0)
        after = self._timed[index]
        return before.round + (at - before.at) / max(1, after.at - before.at) * (after.round - before.round)


def axis_of(state: SessionState, events: Iterable[Seen]) -> Axis:
    """What the session's record keeps, and what was seen on the events topic of the same epoch."""
    points = {entry.round: _point(entry) for entry in state.window}
    for seen in events:
        event = seen.event
        if isinstance(event, Round) and event.epoch == state.epoch and event.outcome != "failed":
            total = event.raw_tokens + event.summary_tokens
            points[event.round] = Point(
                event.round,
                event.raw_tokens / total if total else None,
                event.distinct_source_spans,
                event.query_cosine_retained,
                event.summary_depth_max,
                event.raw_tokens,
                event.summary_tokens,
                safe(event.trigger, 60),
                seen.at,
                seen.offset,
            )
    return Axis([points[number] for number in sorted(points)])


def marks(
    axis: Axis, violations: Iterable[Kept[Violation]], commands: Iterable[Kept[Command]], events: Iterable[Seen]
) -> list[dict[str, Any]]:
    """``{x, kind, label, text}`` for the chart; ``kind`` is ``incident``, ``command``, ``release`` or ``ack``; commands and
    releases name their ``incident``.

    What happened before the first round that is known has no place and is left out.
    """
    found: list[dict[str, Any]] = []
    rounds: dict[str, float | None] = {}
    for kept in violations:
        record = kept.record
        x: float | None = axis.round_of_violation(record)
        rounds[record.incident_id] = x
        found.append(
            {"x": x, "kind": "incident", "label": record.rule, "text": safe(record.message, 500), "severity": record.severity}
        )
    kinds: dict[str, str] = {}
    for order in commands:
        command = order.record
        kinds[command.command_id] = command.kind
        x = axis.moment(order.at)
        place = rounds.get(command.incident_id) if x is None and command.kind != "resume" else x
        kind = "release" if command.kind == "resume" else "command"
        text = safe(command.reason, 500)
        found.append({"x": place, "kind": kind, "label": command.kind, "text": text, "incident": command.incident_id})
    for seen in events:
        if isinstance(seen.event, Ack):
            label = f"{kinds.get(seen.event.command_id, 'command')} {seen.event.outcome}"
            found.append({"x": axis.between(seen.offset), "kind": "ack", "label": label, "text": safe(seen.event.detail, 200)})
    return sorted((mark for mark in found if mark["x"] is not None), key=lambda mark: mark["x"])


def _short(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) else value


def _point(entry: Measurement) -> Point:
    return Point(
        entry.round,
        entry.raw_ratio,
        entry.distinct_source_spans,
        entry.query_cosine_retained,
        entry.summary_depth_max,
        entry.raw_tokens,
        entry.summary_tokens,
    )
