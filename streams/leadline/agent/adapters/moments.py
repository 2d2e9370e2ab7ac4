"""What is remembered of a conversation between two steps: a look, a summary that was made, a level to be made again, groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from leadline.agent.adapters.entries import Entry
from leadline.agent.signals import Signals
from leadline.contracts.orders import Command

__all__ = ["Groups", "Look", "Made", "Retry"]


@dataclass(frozen=True, slots=True)
class Look:
    """A working set at one moment."""

    signals: Signals
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Made:
    """A summarizer call at ``level``: the summary that it wrote, and the ids of what it was given."""

    level: int
    summary_id: str
    given: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Retry:
    """A level that is to be summarized again: ``entries`` are its whole input; ``replaces`` is the summary that it takes the
    place of, empty where it takes that of its input."""

    command: Command
    level: int
    replaces: str
    entries: tuple[Entry, ...]

    @property
    def payloads(self) -> list[Any]:
        return [entry.payload for entry in self.entries]


class Groups:
    """Which messages cannot stand without each other, as a tool call and its results."""

    def __init__(self) -> None:
        self._of: dict[str, str] = {}
        self._members: dict[str, list[str]] = {}

    def add(self, entry: Entry) -> None:
        if entry.group and entry.id not in self._of:
            self._of[entry.id] = entry.group
            self._members.setdefault(entry.group, []).append(entry.id)

    def mates(self, item: str) -> list[str]:
        """The others of its group."""
        group = self._of.get(item)
        return [] if group is None else [mate for mate in self._members[group] if mate != item]
