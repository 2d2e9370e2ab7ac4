"""Strands Agents: their ``SummarizingConversationManager``, reporting and obedient. Extra ``leadline[strands]``.

::

    watch = Conversations("localhost:9092", agent_id="helper", token_budget=100_000)
    agent = Agent(model=model, conversation_manager=MonitoredSummarizingConversationManager(watch=watch))

The summarizer is given the oldest messages whole. While the monitor's halt stands nothing is summarized: where the model reports
an overflow, that error goes to the caller, as it does where the framework has nothing to summarize.
"""

from __future__ import annotations

import json
import uuid
import weakref
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

from strands.agent.conversation_manager import SummarizingConversationManager
from strands.hooks import BeforeModelCallEvent

from leadline.agent.adapters.conversation import Conversation, Look
from leadline.agent.adapters.conversations import Conversations, short_id
from leadline.agent.adapters.entries import Call, Entry, Origin, approximate_tokens
from leadline.contracts import limits

__all__ = ["MonitoredSummarizingConversationManager"]

_ORIGIN: Final = "leadline"


@dataclass(slots=True)
class _Turn:
    conversation: Conversation
    look: Look
    call: Call = field(default_factory=Call)
    failed: bool = False


_TURN: ContextVar[_Turn | None] = ContextVar("leadline_strands_turn", default=None)


class MonitoredSummarizingConversationManager(SummarizingConversationManager):
    """``SummarizingConversationManager`` (arguments as there) under watch; one may serve several agents.

    ``watch``: the process's conversations. ``session_id(agent)``: the agent's session; left out, that of its session manager, or
    one of its own. ``count(text)``: tokens of a text; left out, a quarter of its characters.
    """

    def __init__(
        self,
        *arguments: Any,
        watch: Conversations,
        session_id: Callable[[Any], str] | None = None,
        count: Callable[[str], int] = approximate_tokens,
        **named: Any,
    ) -> None:
        super().__init__(*arguments, **named)
        self._watch = watch
        self._session_id = session_id
        self._count = count
        self._own: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()

    def get_state(self) -> dict[str, Any]:
        """As the base's, under its name: sessions stay good for either."""
        return {**super().get_state(), "__name__": SummarizingConversationManager.__name__}

    def restore_from_session(self, state: dict[str, Any]) -> Any:
        return super().restore_from_session({**state, "__name__": type(self).__name__})

    def register_hooks(self, registry: Any, **arguments: Any) -> None:
        """Ours first: what the monitor wants is known before anything is reduced."""
        registry.add_callback(BeforeModelCallEvent, self._before_model)
        super().register_hooks(registry, **arguments)
        registry.add_callback(BeforeModelCallEvent, self._await_verdict)

    def reduce_context(self, agent: Any, e: Exception | None = None, **arguments: Any) -> None:
        turn, vetoed = None, False
        with self._watch.harmless("looking at the messages"):
            turn = self._look(agent)
            vetoed = not turn.conversation.may_compact()
            if vetoed:
                turn.conversation.hold(turn.look)
        if vetoed:
            if e is not None:
                raise e
            return
        token = _TURN.set(turn)
        try:
            super().reduce_context(agent, e, **arguments)
        finally:
            _TURN.reset(token)
            if turn is not None:
                with self._watch.harmless("reporting a compaction"):
                    self._report(turn, agent)

    def _generate_summary(self, messages: list[Any], agent: Any) -> Any:
        turn = _TURN.get()
        if turn is not None:
            with self._watch.harmless("looking at what is to be summarized"):
                entries = turn.conversation.shallow(self._name(message) for message in messages)
                if all(entry.payload is not None for entry in entries):
                    messages = [entry.payload for entry in entries]
                turn.call.given = [self._name(message) for message in messages]
                turn.call.declared_tokens = turn.call.consumed_tokens = sum(map(self._tokens, messages))
        try:
            summary = super()._generate_summary(messages, agent)
        except Exception:
            if turn is not None:
                turn.failed = True
            raise
        if turn is not None:
            with self._watch.harmless("looking at a summary"):
                self._note(turn.call, summary)
        return summary

    def _note(self, call: Call, summary: Any) -> None:
        call.text = text_of(summary)
        call.output_tokens = self._count(call.text) if call.text.strip() else 0

    def _before_model(self, event: Any) -> None:
        with self._watch.harmless("looking at the messages"):
            agent = event.agent
            turn = self._look(agent)
            conversation = turn.conversation
            allowed = conversation.may_compact()
            if not allowed and conversation.rehydrate():
                agent.messages[:] = conversation.working()
            self._retry(conversation, agent)
            if conversation.stopped:
                event.cancel = "The monitor stopped this session: its context can no longer be trusted."

    async def _await_verdict(self, event: Any) -> None:
        """Last of all: on what was reported since the last model call."""
        with self._watch.harmless("waiting for a verdict"):
            await self._watch.of(self._session_of(event.agent)).wait_async()

    def _retry(self, conversation: Conversation, agent: Any) -> None:
        retry = conversation.retry()
        if retry is None:
            return
        try:
            summary = super()._generate_summary(retry.payloads, agent)
        except Exception as error:
            conversation.refuse(retry, f"{type(error).__name__} while the level was summarized again")
            return
        tokens = sum(map(self._tokens, retry.payloads))
        call = Call(declared_tokens=tokens, consumed_tokens=tokens)
        self._note(call, summary)
        conversation.retried(retry, self._entry(summary, summary=True), call)
        self._sign(conversation, summary)
        agent.messages[:] = conversation.working()

    def _look(self, agent: Any) -> _Turn:
        conversation = self._watch.of(self._session_of(agent))
        return _Turn(conversation, conversation.look(self._entries(conversation, agent.messages)))

    def _report(self, turn: _Turn, agent: Any) -> None:
        if turn.failed:
            turn.conversation.failed("budget", turn.look)
            return
        made = self._summary_message
        entries = self._entries(turn.conversation, agent.messages, made if turn.call.given else None)
        if turn.conversation.compacted("budget", turn.look, entries, turn.call) and made is not None:
            self._sign(turn.conversation, made)

    def _session_of(self, agent: Any) -> str:
        if self._session_id is not None:
            return self._session_id(agent)
        given = getattr(agent, "_session_id", None)
        if isinstance(given, str) and given:
            return given
        return self._own.setdefault(agent, f"{agent.agent_id}-{uuid.uuid4().hex}")

    def _entries(self, conversation: Conversation, messages: Iterable[Any], made: Any = None) -> list[Entry]:
        found, askers = [], {}
        for message in messages:
            group = ""
            for block in message["content"]:
                if "toolUse" in block:
                    group = self._name(message)
                    askers[block["toolUse"].get("toolUseId")] = group
                elif "toolResult" in block:
                    group = askers.get(block["toolResult"].get("toolUseId"), group)
            summary = message is made or _said(message) is not None
            found.append(self._entry(message, summary=summary, group=group))
        return found

    def _entry(self, message: Any, *, summary: bool, group: str = "") -> Entry:
        return Entry(self._name(message), self._tokens(message), message, summary, _said(message) if summary else None, group)

    @staticmethod
    def _name(message: Any) -> str:
        if not message.get("tracking_id"):
            message["tracking_id"] = str(uuid.uuid4())
        return short_id(message["tracking_id"])

    def _tokens(self, message: Any) -> int:
        return sum(
            self._count(block["text"] if "text" in block else json.dumps(block, default=str)) for block in message["content"]
        )

    def _sign(self, conversation: Conversation, message: Any) -> None:
        leaves, depth = conversation.origin(self._name(message))
        custom = message.setdefault("metadata", {}).setdefault("custom", {})
        custom[_ORIGIN] = {"leaves": leaves[: limits.MAX_SUMMARIES], "depth": depth}


def text_of(message: Any) -> str:
    """The text of a message's blocks."""
    return "\n".join(block["text"] for block in message["content"] if "text" in block)


def _said(message: Any) -> Origin | None:
    said = message.get("metadata", {}).get("custom", {}).get(_ORIGIN)
    if not isinstance(said, dict) or not isinstance(said.get("leaves"), list) or not isinstance(said.get("depth"), int):
        return None
    return Origin(tuple(str(leaf) for leaf in said["leaves"]), said["depth"])
