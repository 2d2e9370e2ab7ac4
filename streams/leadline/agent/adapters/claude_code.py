"""Claude Code's transcripts as events: what was in the context at each compaction. Needs no extra.

A transcript (JSONL, append-only; nothing is ever taken out of it) has one record a message. A compaction appends a
``compact_boundary``, whose metadata names what is preserved verbatim, and then a message with ``isCompactSummary``. What the
summarizer was really given is not said, so nothing is claimed of it. Records that come again, as after a second compaction in one
process, are told by their ``uuid``; those of subagents are other conversations.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
from msgspec.structs import replace

from leadline.agent.adapters.conversation import Conversation, Look
from leadline.agent.adapters.entries import Call, Entry, MemoryArchive, approximate_tokens
from leadline.agent.facts import Fact
from leadline.agent.session import Session
from leadline.contracts import limits
from leadline.contracts.events import AgentEvent, SessionStart
from leadline.contracts.text import safe
from leadline.contracts.times import parse_ms
from leadline.contracts.trace import NO_TRACE, TraceContext

__all__ = ["Message", "Transcript", "events_of"]

AGENT: Final = "claude-code"
_EVERYTHING: Final = 10_000_000
"""Originals: the transcript itself keeps them."""
_DEEPEST: Final = 200
"""Levels of a tool's input that are written as text, where there are more than can be."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message of the main conversation."""

    uuid: str
    time: int | None
    role: str
    text: str
    calls: tuple[str, ...] = ()
    """Ids of tool calls that it makes."""
    answers: tuple[str, ...] = ()
    """Ids of tool calls whose results it holds."""
    summary: bool = False

    @property
    def tokens(self) -> int:
        return approximate_tokens(self.text)


@dataclass(slots=True)
class _Boundary:
    uuid: str
    time: int | None
    trigger: str
    kept: tuple[str, ...]
    """Ids of what is preserved; ``head`` and ``tail`` where only the ends of a stretch are named."""
    head: str = ""
    tail: str = ""


@dataclass(slots=True)
class Transcript:
    """Reads a transcript's lines and follows the context through them. Never raises for anything that a line can hold.

    ``skipped``: lines that are no JSON object. ``facts``: what every summary must carry along.
    """

    session_id: str = ""
    agent_id: str = AGENT
    fleet: str = ""
    token_budget: int = 0
    facts: Sequence[Fact] = ()
    restored: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Ids of messages that were put back into the context, by the compaction that they were lost in."""
    skipped: int = 0
    epoch: int | None = None
    working: list[Message] = field(default_factory=list)
    """What is in the context now."""
    boundaries: list[str] = field(default_factory=list)
    """Ids of the compactions so far."""
    _events: list[AgentEvent] = field(default_factory=list)
    _seen: set[str] = field(default_factory=set)
    _open: _Boundary | None = None
    _before: Look | None = None
    _now: int = 0
    conversation: Conversation | None = None

    def read(self, lines: Iterable[bytes]) -> Iterator[AgentEvent]:
        """The events that the lines amount to, each as soon as it is told."""
        for line in lines:
            if line.strip():
                self._line(line)
                yield from self.drain()

    def finish(self) -> Iterator[AgentEvent]:
        """The session is over: its last event."""
        if self.conversation is not None:
            self.conversation.session.end()
            yield from self.drain()

    def look(self) -> Look | None:
        """The context as it is now; ``None`` before the first message."""
        if self.conversation is None:
            return None
        return self.conversation.look(_entries(self.working))

    # -- one line

    def _line(self, line: bytes) -> None:
        try:
            record = orjson.loads(line)
        except orjson.JSONDecodeError:
            record = None
        if not isinstance(record, dict):
            self.skipped += 1
            return
        uuid, kind = record.get("uuid"), record.get("type")
        if record.get("isSidechain") or not isinstance(uuid, str) or not 0 < len(uuid) <= limits.MAX_ID or uuid in self._seen:
            return
        if kind == "system" and record.get("subtype") == "compact_boundary":
            self._seen.add(uuid)
            self._begin(record)
            self._open = _boundary(record)
            self._before = self.look()
        elif kind in ("user", "assistant") and isinstance(record.get("message"), dict):
            self._seen.add(uuid)
            self._begin(record)
            message = _message(record)
            if message is None:
                return
            if message.summary and self._open is not None:
                self._compacted(message)
            else:
                self.working.append(message)

    def _begin(self, record: dict[str, Any]) -> None:
        self._now = _time(record) or self._now
        if self.conversation is not None:
            return
        self.session_id = self.session_id or _id(record.get("sessionId")) or "unknown"
        session = Session(
            self,
            self.session_id,
            agent_id=self.agent_id,
            token_budget=self.token_budget,
            max_depth=1024,
            fleet=self.fleet,
            facts=self.facts,
            # The same whenever the transcript is read: what was sent before is recognized.
            epoch=self._now if self.epoch is None else self.epoch,
            clock=lambda: self._now,
        )
        session.start()
        self.conversation = Conversation(session, MemoryArchive(_EVERYTHING))

    def _compacted(self, summary: Message) -> None:
        boundary, self._open = self._open, None
        assert boundary is not None
        kept = _kept(boundary, self.working)
        after = [summary, *(message for message in self.working if message.uuid in kept)]
        if self.conversation is not None and self._before is not None:
            text = summary.text
            call = Call(text=text, output_tokens=approximate_tokens(text) if text.strip() else 0, blind=True)
            self.conversation.compacted(boundary.trigger, self._before, _entries(after), call)
        self.boundaries.append(boundary.uuid)
        back = set(self.restored.get(boundary.uuid, ()))
        self.working = [*after, *(message for message in self.working if message.uuid in back - kept)]

    # -- the session's sink

    def emit(self, event: AgentEvent, *, trace: TraceContext = NO_TRACE) -> bool:
        """Takes an event of the session over, under an id that is the same whenever the transcript is read."""
        number = len(self._seen)
        kind = type(event).__name__.lower()
        event = replace(event, event_id=f"{kind}-{number}")
        if isinstance(event, SessionStart) and not self.token_budget:
            event = replace(event, policy=replace(event.policy, token_budget=None, max_depth=None))
        self._events.append(event)
        return True

    def drain(self) -> list[AgentEvent]:
        """Events that were not handed out yet."""
        events, self._events = self._events, []
        return events


def events_of(lines: Iterable[bytes], transcript: Transcript | None = None) -> Iterator[AgentEvent]:
    """All events of a transcript that is over."""
    transcript = transcript or Transcript()
    yield from transcript.read(lines)
    yield from transcript.finish()


def _entries(messages: Iterable[Message]) -> list[Entry]:
    found, askers = [], {}
    for message in messages:
        group = message.uuid if message.calls else ""
        askers.update(dict.fromkeys(message.calls, message.uuid))
        for answered in message.answers:
            group = askers.get(answered, group)
        found.append(Entry(message.uuid, message.tokens, message, message.summary, group=group))
    return found


def _message(record: dict[str, Any]) -> Message | None:
    said = record["message"]
    content = said.get("content")
    blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
    texts, calls, answers = [], [], []
    for block in blocks:
        if not isinstance(block, dict):
            continue
        if block.get("type") == "tool_use":
            calls.append(_id(block.get("id")))
            texts.append(_dumped(block.get("input")))
        elif block.get("type") == "tool_result":
            answers.append(_id(block.get("tool_use_id")))
            texts.append(_dumped(block.get("content")))
        elif isinstance(block.get("text"), str):
            texts.append(block["text"])
    summary = record.get("isCompactSummary") is True
    text = "\n".join(texts)
    if not text and not summary:
        return None
    return Message(record["uuid"], _time(record), str(record.get("type")), text, tuple(calls), tuple(answers), summary)


def _boundary(record: dict[str, Any]) -> _Boundary:
    said = record.get("compactMetadata")
    said = said if isinstance(said, dict) else {}
    named = said.get("preservedMessages")
    named = named if isinstance(named, dict) else {}
    kept = named.get("allUuids") or named.get("uuids") or ()
    segment = said.get("preservedSegment")
    segment = segment if isinstance(segment, dict) else {}
    return _Boundary(
        record["uuid"],
        _time(record),
        _id(said.get("trigger")) or "unknown",
        tuple(uuid for uuid in kept if isinstance(uuid, str)) if isinstance(kept, list) else (),
        "" if kept else _id(segment.get("headUuid")),
        "" if kept else _id(segment.get("tailUuid")),
    )


def _kept(boundary: _Boundary, working: Sequence[Message]) -> set[str]:
    if not boundary.head:
        return set(boundary.kept)
    found: set[str] = set()
    for message in working:
        if message.uuid == boundary.head or found:
            found.add(message.uuid)
        if message.uuid == boundary.tail:
            break
    return found


def _time(record: dict[str, Any]) -> int | None:
    """When it was, if that is usable: no event carries a time before 1970."""
    said = record.get("timestamp")
    ms = parse_ms(said) if isinstance(said, str) else None
    return None if ms is None or ms < 0 else ms


def _id(value: object) -> str:
    return safe(value, limits.MAX_ID) if isinstance(value, str) else ""


def _dumped(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):  # Pictures are no text: how many tokens they take is not said.
        return "\n".join(block["text"] for block in value if isinstance(block, dict) and isinstance(block.get("text"), str))
    try:
        return orjson.dumps(value).decode()
    except orjson.JSONEncodeError:  # It reads deeper than it writes.
        return orjson.dumps(_cut(value, _DEEPEST)).decode()


def _cut(value: object, levels: int) -> object:
    """The outer ``levels`` of a value; what is nested deeper is left out."""
    if isinstance(value, dict):
        return {key: _cut(one, levels - 1) for key, one in value.items()} if levels else {}
    if isinstance(value, list):
        return [_cut(one, levels - 1) for one in value] if levels else []
    return value
