"""A framework's working set in the SDK's terms, and the archive that its originals go to before a compaction drops them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from leadline.agent.coverage import is_placeholder

__all__ = ["ARCHIVE_SPANS", "Archive", "ArchiveFactory", "Call", "Entry", "MemoryArchive", "Origin", "approximate_tokens"]

ARCHIVE_SPANS: Final = 20_000
"""Originals that one conversation's archive in memory holds; the oldest go first."""


@dataclass(frozen=True, slots=True)
class Origin:
    """What an earlier process knew of a summary: the ids of its leaves, and its depth."""

    leaves: tuple[str, ...]
    depth: int


@dataclass(frozen=True, slots=True)
class Entry:
    """One message of a framework. ``payload`` is the framework's own object and never leaves the process.

    ``tokens`` by the framework's own counter. ``summary``: a summarizer wrote it. ``origin``: where it came from, for a summary
    that an earlier process made. ``group``: the same for messages that cannot stand without each other, as a tool call and its
    results. ``text`` and ``opaque``: of a summary that was made out of our sight, as by a provider on its side.
    """

    id: str
    tokens: int
    payload: Any = None
    summary: bool = False
    origin: Origin | None = None
    group: str = ""
    text: str | None = None
    opaque: bool = False


@dataclass(slots=True)
class Call:
    """One summarizer call as the framework made it, noted while it runs.

    ``given``: ids of what it was to summarize; ``seen``: of what was really put before the summarizer (``None``: the framework
    keeps nothing back, so all of ``given``). ``text``: what it wrote; ``None`` and ``opaque`` where nobody can read it.
    ``blind``: the call itself was not seen, so nothing is said of what it read.
    """

    given: Sequence[str] = ()
    seen: Sequence[str] | None = None
    text: str | None = None
    opaque: bool = False
    blind: bool = False
    declared_tokens: int | None = None
    consumed_tokens: int | None = None
    output_tokens: int | None = None
    output_cap: int | None = None
    stop_reason: str | None = None

    @property
    def void(self) -> bool:
        """Whether what was written is no summary: nothing at all, or an error in its place. It leads to no source."""
        return self.text is not None and not self.opaque and (not self.text.strip() or is_placeholder(self.text))


class Archive(Protocol):
    """Where originals are kept. Called with the conversation's lock held; what it raises costs the agent nothing but the span."""

    def put(self, span_id: str, payload: Any) -> Sequence[str]:
        """Keep an original; returns ids of those that had to go for it."""

    def get(self, span_id: str) -> Any | None:
        """An original, or ``None`` when it is not there (any more)."""

    def __contains__(self, span_id: object) -> bool: ...


ArchiveFactory = Callable[[str], Archive]
"""Makes the archive of a conversation, given its session id."""


class MemoryArchive:
    """References to the framework's own message objects, at most ``spans``: what the framework still holds costs nothing."""

    def __init__(self, spans: int = ARCHIVE_SPANS) -> None:
        self._spans = spans
        self._kept: dict[str, Any] = {}

    def put(self, span_id: str, payload: Any) -> Sequence[str]:
        self._kept[span_id] = payload
        gone = []
        while len(self._kept) > self._spans:
            gone.append(next(iter(self._kept)))
            del self._kept[gone[-1]]
        return gone

    def get(self, span_id: str) -> Any | None:
        return self._kept.get(span_id)

    def __contains__(self, span_id: object) -> bool:
        return span_id in self._kept


def approximate_tokens(text: str) -> int:
    """A quarter of the characters, at least 1 of what is not empty: where nothing better is known."""
    return -(-len(text) // 4)
