"""LangChain and LangGraph: their ``SummarizationMiddleware``, reporting and obedient. Extra ``leadline[langchain]``.

::

    watch = Conversations("localhost:9092", agent_id="researcher", token_budget=100_000)
    middleware = MonitoredSummarizationMiddleware(model, watch=watch, trigger=("tokens", 100_000))
    agent = create_agent(model, tools, middleware=[middleware])

What the summarizer really sees is noted in :mod:`leadline.agent.adapters.langchain_summarizer`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Final, Literal, NotRequired

from langchain.agents.middleware.types import AgentState, PrivateStateAttr, hook_config
from langchain_core.messages import AIMessage, AnyMessage, RemoveMessage, ToolMessage
from langgraph.graph.message import REMOVE_ALL_MESSAGES

from leadline.agent.adapters.conversation import Conversation
from leadline.agent.adapters.conversations import Conversations, short_id
from leadline.agent.adapters.entries import Entry, Origin
from leadline.agent.adapters.langchain_summarizer import NotingSummarizer, Turn, passing, redoing, summary_message
from leadline.contracts import limits

__all__ = ["MessageWatch", "MonitoredState", "MonitoredSummarizationMiddleware", "OnHalt"]

OnHalt = Literal["veto", "end"]
_ORIGIN: Final = "leadline"
"""Key of a summary message's ``additional_kwargs`` that says where it came from, for a process that takes the thread up later."""


class MonitoredState(AgentState):
    """The agent's state, and the session id of a run that has no thread of its own."""

    leadline_session: Annotated[NotRequired[str], PrivateStateAttr]  # type: ignore[valid-type]


class MessageWatch:
    """Between LangChain's messages and a conversation. ``count``: tokens of one message; ``on_halt``: see the middleware."""

    def __init__(self, watch: Conversations, count: Any, on_halt: OnHalt) -> None:
        self.watch = watch
        self._count = count
        self._on_halt = on_halt

    def begin_run(self, runtime: Any) -> dict[str, Any] | None:
        """A run without a thread of its own (no checkpointer, or an agent inside another's tool) is a session of its own."""
        update = None
        with self.watch.harmless("the start of a run"):
            thread, inner = _thread_of(runtime)
            if thread is None or inner:
                update = {"leadline_session": f"{short_id(thread or 'run')[:200]}-{uuid.uuid4().hex}"}
        return update

    def end_run(self, state: Any) -> None:
        with self.watch.harmless("the end of a run"):
            own = state.get("leadline_session")
            if own:
                self.watch.end(own)

    def begin(self, state: Any, runtime: Any, messages: Sequence[AnyMessage]) -> Turn | None:
        """Before a model call: what came in, and what the monitor wants. ``None`` where Leadline itself fails."""
        turn = None
        with self.watch.harmless("looking at the messages"):
            turn = self.turn(state, runtime, messages)
            if turn.conversation.may_compact():
                turn.retry = turn.conversation.retry()
            else:
                self._obey(turn)
        return turn

    def turn(self, state: Any, runtime: Any, messages: Sequence[AnyMessage]) -> Turn:
        """What came in; nothing is decided yet."""
        thread, _ = _thread_of(runtime)
        conversation = self.watch.of(state.get("leadline_session") or thread or "run")
        return Turn(conversation, conversation.look(self.entries(messages)))

    def _obey(self, turn: Turn) -> None:
        conversation = turn.conversation
        turn.decided = True
        if conversation.rehydrate():
            turn.update = {"messages": put_back(conversation)}
        else:
            turn.retry = conversation.retry()  # Allowed while halted for this level.
            if turn.retry is None:
                conversation.hold(turn.look)
        if conversation.stopped or self._on_halt == "end":
            turn.update = {**(turn.update or {}), "jump_to": "end"}

    def redone(self, turn: Turn, text: str) -> None:
        """The level of ``turn.retry`` was summarized again."""
        assert turn.retry is not None
        message = self.named(summary_message(text))
        turn.conversation.retried(turn.retry, self.entries([message])[0], turn.call)
        self._sign(turn.conversation, message)
        turn.decided = True
        turn.update = {**(turn.update or {}), "messages": put_back(turn.conversation)}

    def report(self, turn: Turn, after: Sequence[AnyMessage] | None) -> None:
        """The framework's pass is over; ``after``: the working set now, ``None`` where it did nothing."""
        if after is None:
            return
        for message in after:
            self.named(message)
        turn.conversation.compacted("budget", turn.look, self.entries(after), turn.call)
        for message in after:
            if is_summary(message):
                self._sign(turn.conversation, message)

    def entries(self, messages: Iterable[AnyMessage]) -> list[Entry]:
        """Messages as entries, from a provider's own compaction on; a tool call and its results are one group."""
        messages = list(messages)
        found, askers = [], {}
        last = max((at for at, message in enumerate(messages) if _compacted_by_provider(message)), default=0)
        for message in messages[last:]:
            self.named(message)
            group = ""
            if isinstance(message, AIMessage) and message.tool_calls:
                group = message.id or ""
                askers.update({call.get("id"): group for call in message.tool_calls})
            elif isinstance(message, ToolMessage):
                group = askers.get(message.tool_call_id, "")
            summary, text, opaque = is_summary(message), None, False
            block = _compacted_by_provider(message)
            if block is not None:
                text = block.get("content") if isinstance(block.get("content"), str) else None
                summary, opaque = True, not text
            tokens = int(self._count([message]))
            found.append(Entry(short_id(message.id or ""), tokens, message, summary, _origin(message), group, text, opaque))
        return found

    @staticmethod
    def named(message: AnyMessage) -> AnyMessage:
        """With an id: what LangGraph would give it, yet known before the message is in the state."""
        if message.id is None:
            message.id = str(uuid.uuid4())
        return message

    @staticmethod
    def _sign(conversation: Conversation, message: AnyMessage) -> None:
        name = short_id(message.id or "")
        if name in conversation:
            leaves, depth = conversation.origin(name)
            message.additional_kwargs[_ORIGIN] = {"leaves": leaves[: limits.MAX_SUMMARIES], "depth": depth}


class MonitoredSummarizationMiddleware(NotingSummarizer):
    """``SummarizationMiddleware`` (arguments as there) under watch, in sync and async agents.

    ``watch``: the process's :class:`~leadline.agent.adapters.conversations.Conversations`; the thread id is the session id.
    While the monitor's halt stands no compaction runs (``on_halt="veto"``), or the agent's run ends before its next model call
    (``"end"``; a ``stop-agent`` always ends it). What a halt asks to bring back is put back into the messages.
    """

    state_schema = MonitoredState

    def __init__(self, model: Any, *, watch: Conversations, on_halt: OnHalt = "veto", **arguments: Any) -> None:
        super().__init__(model, **arguments)
        self.listen(watch)
        self._messages = MessageWatch(watch, self._partial_token_counter, on_halt)

    def before_agent(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        return self._messages.begin_run(runtime)

    def after_agent(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        self._messages.end_run(state)
        return None

    @hook_config(can_jump_to=["end"])
    def before_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        self._ensure_message_ids(state["messages"])
        turn = self._messages.begin(state, runtime, state["messages"])
        if turn is not None and turn.retry is not None:
            with redoing(self._watch, turn):
                self._messages.redone(turn, self._create_summary(turn.retry.payloads))
        if turn is not None and turn.decided:
            update = turn.update
        else:
            with passing(self._watch, turn):
                update = super().before_model(state, runtime)
            self._done(turn, update)
        if turn is not None:
            with self._watch.harmless("waiting for a verdict"):
                turn.conversation.wait()
        return update

    @hook_config(can_jump_to=["end"])
    async def abefore_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        self._ensure_message_ids(state["messages"])
        turn = self._messages.begin(state, runtime, state["messages"])
        if turn is not None and turn.retry is not None:
            with redoing(self._watch, turn):
                self._messages.redone(turn, await self._acreate_summary(turn.retry.payloads))
        if turn is not None and turn.decided:
            update = turn.update
        else:
            with passing(self._watch, turn):
                update = await super().abefore_model(state, runtime)
            self._done(turn, update)
        if turn is not None:
            with self._watch.harmless("waiting for a verdict"):
                await turn.conversation.wait_async()
        return update

    def _done(self, turn: Turn | None, update: dict[str, Any] | None) -> None:
        if turn is not None:
            with self._watch.harmless("reporting a compaction"):
                after = None if update is None else [one for one in update["messages"] if not isinstance(one, RemoveMessage)]
                self._messages.report(turn, after)


def put_back(conversation: Conversation) -> list[Any]:
    """The state update that makes the messages the conversation's working set."""
    return [RemoveMessage(id=REMOVE_ALL_MESSAGES), *conversation.working()]


def is_summary(message: AnyMessage) -> bool:
    """Whether LangChain's or deepagents' middleware made it a summary."""
    return bool(message.additional_kwargs.get("lc_source") == "summarization")


def _compacted_by_provider(message: AnyMessage) -> dict[str, Any] | None:
    """The block with which a provider says that it compacted all before it, on its side."""
    if not isinstance(message, AIMessage) or isinstance(message.content, str):
        return None
    return next((block for block in message.content if isinstance(block, dict) and block.get("type") == "compaction"), None)


def _origin(message: AnyMessage) -> Origin | None:
    said = message.additional_kwargs.get(_ORIGIN)
    if not isinstance(said, dict):
        return None
    leaves, depth = said.get("leaves"), said.get("depth")
    if not isinstance(leaves, list) or not isinstance(depth, int):
        return None
    return Origin(tuple(leaf for leaf in leaves if isinstance(leaf, str) and 0 < len(leaf) <= limits.MAX_ID), depth)


def _thread_of(runtime: Any) -> tuple[str | None, bool]:
    """The thread id, and whether this agent runs inside another one's."""
    info = getattr(runtime, "execution_info", None)
    return getattr(info, "thread_id", None), "|" in (getattr(info, "checkpoint_ns", None) or "")
