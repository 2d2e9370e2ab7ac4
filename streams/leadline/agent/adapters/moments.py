"""What is remembered of a conversation between two steps: a look at it, a summary that was made, a level to be made again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from leadline.agent.adapters.entries import Entry
from leadline.agent.signals import Signals
from leadline.contracts.orders import Command

__all__ = ["Look", "Made", "Retry"]


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
