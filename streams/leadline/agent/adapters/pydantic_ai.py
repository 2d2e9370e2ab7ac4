"""Pydantic AI: a history processor that compacts, under watch, as a capability. Extra ``leadline[pydantic-ai]``.

::

    watch = Conversations("localhost:9092", agent_id="helper", token_budget=100_000)
    agent = Agent(model, capabilities=[MonitoredHistory(summarize_old_messages, watch=watch)])
    summarizer = Agent(cheap_model, capabilities=[SummarizerWatch()])  # tells what the summarizer really sees

Messages have no ids here, and requests that follow each other become one: a span is a part of a request, or a whole response,
told by a digest, which includes its time. System prompts are no spans. What the processor puts into the history that was not
there before is text that a summarizer wrote. A ``CompactionPart`` of a provider takes the place of all before it; where its text
is encrypted the summary is opaque.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.capabilities.process_history import ProcessHistory
from pydantic_ai.messages import CompactionPart, ModelMessagesTypeAdapter, ModelRequest

from leadline.agent.adapters.conversation import Conversation, Look
from leadline.agent.adapters.conversations import Conversations
from leadline.agent.adapters.entries import Call, Entry, approximate_tokens

__all__ = ["MonitoredHistory", "SummarizerWatch"]


@dataclass(slots=True)
class _Turn:
    conversation: Conversation
    look: Look
    call: Call
    names: dict[str, str]
    """Ids by digest, of what the processor was given."""


_TURN: ContextVar[_Turn | None] = ContextVar("leadline_pydantic_ai_turn", default=None)


@dataclass
class SummarizerWatch(AbstractCapability[Any]):
    """For the agent that a processor summarizes with: notes which messages really reach its model, and what it answers.

    A processor that quotes messages instead of passing them on as history tells it itself, with :meth:`saw`.
    """

    async def before_model_request(self, ctx: Any, request_context: Any) -> Any:
        self.saw(request_context.messages)
        return request_context

    async def after_model_request(self, ctx: Any, *, request_context: Any, response: Any) -> Any:
        turn = _TURN.get()
        if turn is not None and response.finish_reason is not None:
            turn.call.stop_reason = str(response.finish_reason)
        return response

    @staticmethod
    def saw(messages: Iterable[Any]) -> None:
        """These messages were put before the summarizer, in the processor that is running now."""
        turn = _TURN.get()
        if turn is not None:
            units = [unit for message in messages for unit in _units(message)]
            known = [turn.names[digest] for digest in map(_digest, units) if digest in turn.names]
            turn.call.seen = list(dict.fromkeys([*(turn.call.seen or ()), *known]))


class MonitoredHistory(ProcessHistory[Any]):
    """``ProcessHistory`` under watch: ``processor`` as there, or ``None`` where only a provider compacts.

    ``watch``: the process's conversations; the run's ``conversation_id`` is the session id. ``count(text)``: tokens of a text;
    left out, a quarter of its characters. While the monitor's halt stands the processor is not run.
    """

    def __init__(self, processor: Any = None, *, watch: Conversations, count: Callable[[str], int] = approximate_tokens) -> None:
        super().__init__(processor or _unchanged)
        self._watch = watch
        self._count = count

    async def before_model_request(self, ctx: Any, request_context: Any) -> Any:
        turn, vetoed = None, False
        with self._watch.harmless("looking at the messages"):
            turn = self._look(ctx, request_context.messages)
            vetoed = not turn.conversation.may_compact()
            if self._reopen(turn.conversation) or (vetoed and turn.conversation.rehydrate()):
                # As ProcessHistory writes what its processor returns: into this request and into the run's history.
                request_context.messages = [*_systems(request_context.messages), *turn.conversation.working()]
                ctx.messages[:] = request_context.messages
                turn = self._look(ctx, request_context.messages)
            elif vetoed:
                turn.conversation.hold(turn.look)
            await turn.conversation.wait_async()
        if vetoed:
            return request_context
        token = _TURN.set(turn)
        try:
            request_context = await super().before_model_request(ctx, request_context)
        except Exception:
            if turn is not None:
                with self._watch.harmless("reporting a failed compaction"):
                    turn.conversation.failed("budget", turn.look)
            raise
        finally:
            _TURN.reset(token)
        if turn is not None:
            with self._watch.harmless("reporting a compaction"):
                self._report(turn, request_context.messages)
                await turn.conversation.wait_async()
        return request_context

    @staticmethod
    def _reopen(conversation: Conversation) -> bool:
        """A processor cannot be asked for a level again, as it decides itself what it summarizes: its input goes back into the
        history, which the processor compacts anew. Whether the history changed by that."""
        changed = False
        retry = conversation.retry()
        while retry is not None:
            if not conversation.reopen(retry):
                conversation.refuse(retry, "there is no room for the input of that level, which the processor would need again")
            else:
                changed = changed or bool(retry.replaces)
            retry = conversation.retry()
        return changed

    def _look(self, ctx: Any, messages: Sequence[Any]) -> _Turn:
        conversation = self._watch.of(ctx.conversation_id or ctx.run_id or "run")
        entries = self._entries(messages)
        names = {_digest(entry.payload): entry.id for entry in entries}
        return _Turn(conversation, conversation.look(entries), Call(), names)

    def _report(self, turn: _Turn, messages: Sequence[Any]) -> None:
        before = set(turn.look.ids)
        entries = [entry if entry.id in before else replace(entry, summary=True) for entry in self._entries(messages)]
        if {entry.id for entry in entries} == before:
            return
        new = [entry for entry in entries if entry.summary and entry.id not in turn.conversation]
        call = turn.call
        if new:
            call.text = "\n".join(map(_text, new[0].payload.parts))
            call.output_tokens = self._count(call.text) if call.text.strip() else 0
        if call.seen is None:
            call.blind = True  # Nobody told what the processor's summarizer was given.
        turn.conversation.compacted("budget", turn.look, entries, call)

    def _entries(self, messages: Sequence[Any]) -> list[Entry]:
        """From the last provider's compaction on: what stands before it reaches no model any more."""
        last = max((at for at, message in enumerate(messages) if _by_provider(message)), default=0)
        found: list[Entry] = []
        askers: dict[str, str] = {}
        times: Counter[str] = Counter()
        for at, message in enumerate(messages):
            for unit in _units(message):
                digest = _digest(unit)
                times[digest] += 1
                name = digest if times[digest] == 1 else f"{digest}-{times[digest]}"
                if at >= last:
                    found.append(self._entry(name, unit, askers))
        return found

    def _entry(self, name: str, unit: Any, askers: dict[str, str]) -> Entry:
        group = ""
        for part in unit.parts:
            call_id = getattr(part, "tool_call_id", None)
            if part.part_kind == "tool-call" and call_id:
                group = askers.setdefault(call_id, group or name)
            elif call_id in askers:
                group = askers[call_id]
        tokens = sum(self._count(_text(part)) for part in unit.parts)
        compactions = [part for part in unit.parts if isinstance(part, CompactionPart)]
        text = "\n".join(part.content for part in compactions if part.content) or None
        opaque = bool(compactions) and text is None
        return Entry(name, tokens, unit, bool(compactions), group=group, text=text, opaque=opaque)


def _unchanged(messages: list[Any]) -> list[Any]:
    return messages


def _units(message: Any) -> list[Any]:
    """A request's parts, each as a request of its own but for system prompts; a response is one."""
    if message.kind != "request":
        return [message]
    if len(message.parts) == 1 and message.parts[0].part_kind != "system-prompt":
        return [message]
    return [replace(message, parts=[part]) for part in message.parts if part.part_kind != "system-prompt"]


def _systems(messages: Iterable[Any]) -> list[Any]:
    """The system prompts of a history, as a request of their own."""
    found = [part for message in messages if message.kind == "request" for part in message.parts]
    systems = [part for part in found if part.part_kind == "system-prompt"]
    return [ModelRequest(parts=systems)] if systems else []


def _digest(unit: Any) -> str:
    """Of kind and parts: what else a message carries may change while it stays the same message."""
    dumped = ModelMessagesTypeAdapter.dump_python([unit], mode="json")[0]
    parts = str((dumped["kind"], dumped["parts"], dumped.get("timestamp") if dumped["kind"] == "response" else None))
    return hashlib.sha256(parts.encode(errors="replace")).hexdigest()[:32]


def _text(part: Any) -> str:
    for name in ("content", "args"):
        value = getattr(part, name, None)
        if value is not None:
            return value if isinstance(value, str) else str(value)
    return ""


def _by_provider(message: Any) -> bool:
    return message.kind == "response" and any(isinstance(part, CompactionPart) for part in message.parts)
