"""Violations and commands as they were published: bounded, searchable, each once by its id. Pure."""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from math import ceil
from typing import Any, Final, Generic, TypeVar

import msgspec

from leadline.contracts.orders import Command, Violation
from leadline.contracts.text import printable, safe
from leadline.contracts.times import parse_ms

__all__ = ["MOST", "Journal", "Kept", "Newest", "percentile", "shown"]

MOST: Final = 5_000
"""Violations that are kept, and commands: the newest by the time they were made, in whatever order they are read."""
_SAMPLES: Final = 1_000

T = TypeVar("T", Violation, Command)


class Kept(Generic[T]):
    """One record. ``at``: when it was made, ms since 1970; ``text``: what a search looks at."""

    __slots__ = ("at", "record", "text", "verdict_ms")

    def __init__(self, record: T, at: int, text: str) -> None:
        self.record: T = record
        self.at = at
        self.text = text
        self.verdict_ms: int | None = None
        """Of a violation: from the receipt of the event that showed it to the verdict."""


class Newest(Generic[T]):
    """The newest ``most`` records, each once by its id. Partitions are read one after the other: what comes last may be old."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: dict[str, Kept[T]] = {}
        self._by_age: list[tuple[int, str]] = []
        """A heap: the oldest first."""

    def add(self, key: str, kept: Kept[T]) -> bool:
        """Whether it is kept: it is new, and not older than all of as many as there may be."""
        if key in self._kept:
            return False
        self._kept[key] = kept
        heapq.heappush(self._by_age, (kept.at, key))
        if len(self._kept) <= self._most:
            return True
        _, oldest = heapq.heappop(self._by_age)
        del self._kept[oldest]
        return oldest != key

    def get(self, key: str) -> Kept[T] | None:
        return self._kept.get(key)

    def values(self) -> Iterable[Kept[T]]:
        """In the order of arrival."""
        return self._kept.values()

    def __contains__(self, key: str) -> bool:
        return key in self._kept

    def __len__(self) -> int:
        return len(self._kept)


class Journal:
    """What the topics said. ``most``: how many of each are kept."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self.violations: Newest[Violation] = Newest(most)
        """By incident: there is one for each."""
        self.commands: Newest[Command] = Newest(most)
        self.verdicts: deque[int] = deque(maxlen=_SAMPLES)
        """Milliseconds from the receipt of an event to the verdict on it."""
        self.recoveries: deque[int] = deque(maxlen=_SAMPLES)
        """Milliseconds from a verdict to the release."""

    def emptied(self) -> Journal:
        """Another one that keeps as many, with nothing in it."""
        return Journal(self._most)

    def add_violation(self, record: Violation, opened_at: int | None = None) -> bool:
        """Whether it is new, and kept. ``opened_at``: when its event was received, where that is known already."""
        if record.incident_id in self.violations:
            return False
        words = (record.rule, record.reason, record.session_id, record.agent_id, record.fleet, record.message, record.mode)
        kept = Kept(record, parse_ms(record.detected_at) or 0, _text(*words, record.severity, record.action))
        new = self.violations.add(record.incident_id, kept)
        if opened_at is not None:
            self.opened(record.incident_id, opened_at)
        return new

    def add_command(self, record: Command) -> bool:
        """Whether it is new, and kept."""
        if record.command_id in self.commands:
            return False
        words = (record.rule, record.kind, record.session_id, record.agent_id, record.fleet, record.reason)
        kept = Kept(record, parse_ms(record.issued_at) or 0, _text(*words))
        new = self.commands.add(record.command_id, kept)
        found = self.violations.get(record.incident_id)
        if record.kind == "resume" and record.attempt == 1 and found is not None:
            self.recoveries.append(max(0, kept.at - found.at))
        return new

    def opened(self, incident_id: str, opened_at: int) -> None:
        """The session's record tells when the event of this incident was received (ms since 1970)."""
        kept = self.violations.get(incident_id)
        if kept is not None and kept.verdict_ms is None:
            kept.verdict_ms = max(0, kept.at - opened_at)
            self.verdicts.append(kept.verdict_ms)

    def search(self, what: str, words: str, limit: int, *, rule: str = "", fleet: str = "") -> list[dict[str, Any]]:
        """The newest ``limit`` of ``what`` (``violations`` or ``commands``) whose text holds every word."""
        wanted = words.lower().split()
        source: Iterable[Kept[Any]] = self.violations.values() if what == "violations" else self.commands.values()
        found = []
        for kept in sorted(source, key=lambda one: -one.at):
            record = kept.record
            if (rule and record.rule != rule) or (fleet and record.fleet != fleet):
                continue
            if all(word in kept.text for word in wanted):
                found.append(shown(kept))
                if len(found) == limit:
                    break
        return found

    def of_session(self, session_id: str, agent_id: str) -> tuple[list[Kept[Violation]], list[Kept[Command]]]:
        """Its violations and commands, oldest first."""
        return (
            sorted(_mine(self.violations.values(), session_id, agent_id), key=lambda one: one.at),
            sorted(_mine(self.commands.values(), session_id, agent_id), key=lambda one: (one.at, one.record.seq)),
        )

    def shadow(self) -> dict[str, Any]:
        """What enforcement would have done: by rule, fleet and action, how often and to how many sessions."""
        records = [kept for kept in self.violations.values() if kept.record.mode == "shadow"]
        groups: dict[tuple[str, str, str], list[Kept[Violation]]] = {}
        for kept in records:
            groups.setdefault((kept.record.rule, kept.record.fleet, kept.record.action), []).append(kept)
        rows = [
            {
                "rule": rule,
                "fleet": fleet,
                "action": action,
                "incidents": len(those),
                "sessions": len({(one.record.session_id, one.record.agent_id) for one in those}),
                "first_at": min(one.at for one in those),
                "last_at": max(one.at for one in those),
                "example": shown(max(those, key=lambda one: one.at)),
            }
            for (rule, fleet, action), those in groups.items()
        ]
        actions = Counter(kept.record.action for kept in records if kept.record.action != "none")
        return {
            "rows": sorted(rows, key=lambda row: -row["incidents"]),
            "incidents": len(records),
            "sessions": len({(one.record.session_id, one.record.agent_id) for one in records}),
            "actions": dict(actions.most_common()),
            "since": min((kept.at for kept in self.violations.values()), default=None),
            "considered": len(self.violations),
        }


def shown(kept: Kept[Any]) -> dict[str, Any]:
    """A record for the page: ids as they are, so that links work; free text redacted and made printable."""
    record = kept.record
    said: dict[str, Any] = msgspec.to_builtins(record)
    said["at"] = kept.at
    for name in ("message", "reason"):
        if name in said:
            said[name] = safe(said[name], 1_000)
    if kept.verdict_ms is not None:
        said["verdict_ms"] = kept.verdict_ms
    return said


def percentile(values: Iterable[int], share: float) -> int | None:
    """Nearest rank; ``None`` without values."""
    ordered = sorted(values)
    return ordered[max(0, ceil(share * len(ordered)) - 1)] if ordered else None


def _text(*words: str) -> str:
    return printable(" ".join(words), 2_000).lower()


def _mine(kept: Iterable[Kept[T]], session_id: str, agent_id: str) -> Iterator[Kept[T]]:
    return (one for one in kept if one.record.session_id == session_id and one.record.agent_id == agent_id)
