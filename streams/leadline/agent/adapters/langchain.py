"""LangChain and LangGraph: their ``SummarizationMiddleware``, reporting and obedient. Extra ``leadline[langchain]``.

::

    watch = Conversations("localhost:9092", agent_id="researcher", token_budget=100_000)
    middleware = MonitoredSummarizationMiddleware(model, watch=watch, trigger=("tokens", 100_000))
    agent = create_agent(model, tools, middleware=[middleware])

What the summarizer really sees is noted where the middleware trims its input (by default to 4,000 tokens from the end, from a
human message on: the summary of the round before is cut off first, and where no human message falls in that window nothing is
sent at all and a fixed sentence takes the summary's place).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal, NotRequired

from langchain.agents.middleware.summarization import SummarizationMiddleware
from langchain.agents.middleware.types import AgentState, PrivateStateAttr, hook_config
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, RemoveMessage, ToolMessage
from langchain_core.messages.utils import get_buffer_string
from langchain_core.runnables import RunnableLambda
from langgraph.graph.message import REMOVE_ALL_MESSAGES

from leadline.agent.adapters.conversation import Conversation, Look, Retry
from leadline.agent.adapters.conversations import Conversations, short_id
from leadline.agent.adapters.entries import Call, Entry, Origin
from leadline.contracts import limits

__all__ = [
    "MessageWatch",
    "MonitoredState",
    "MonitoredSummarizationMiddleware",
    "NotingSummarizer",
    "OnHalt",
    "Turn",
    "current_turn",
    "ids_of",
    "passing",
    "redoing",
]

OnHalt = Literal["veto", "end"]
_ORIGIN: Final = "leadline"
"""Key of a summary message's ``additional_kwargs`` that says where it came from, for a process that takes the thread up later."""


class MonitoredState(AgentState):
    """The agent's state, and the session id of a run that has no thread of its own."""

    leadline_session: Annotated[NotRequired[str], PrivateStateAttr]  # type: ignore[valid-type]


@dataclass(slots=True)
class Turn:
    """What Leadline knows and decided of one model call. ``update``: what the middleware returns, once it is ``decided``."""

    conversation: Conversation
    look: Look
    call: Call = field(default_factory=Call)
    whole: bool = False
    """The summarizer is to be given its input untrimmed: it fits."""
    decided: bool = False
    update: dict[str, Any] | None = None
    retry: Retry | None = None


_TURN: ContextVar[Turn | None] = ContextVar("leadline_turn", default=None)
"""Of the run at hand: middleware instances are shared by concurrent runs."""


def current_turn() -> Turn | None:
    """That of the run at hand, inside the framework's own pass."""
    return _TURN.get()


@contextmanager
def noting(turn: Turn | None) -> Iterator[None]:
    """Summarizer calls in this block are noted in ``turn``."""
    token = _TURN.set(turn)
    try:
        yield
    finally:
        _TURN.reset(token)


def summary_message(text: str) -> HumanMessage:
    """A summary as the middleware words it."""
    return SummarizationMiddleware._build_new_messages(text)[0]


class NotingSummarizer(SummarizationMiddleware):
    """Notes what its summarizer was given, saw and wrote. Does nothing else than its base where nobody listens."""

    def listen(self, watch: Conversations) -> None:
        """To be called once, after the base is initialized."""
        self._watch = watch
        self._summary_model: Any = self._summary_model | RunnableLambda(_note_reply)

    def _trim_messages_for_summary(self, messages: list[AnyMessage]) -> list[AnyMessage]:
        turn = _TURN.get()
        trimmed: list[AnyMessage] = messages if turn is not None and turn.whole else super()._trim_messages_for_summary(messages)
        if turn is not None:
            with self._watch.harmless("noting what the summarizer sees"):
                call = turn.call
                call.seen = [*(call.seen or ()), *ids_of(trimmed)]
                call.consumed_tokens = (call.consumed_tokens or 0) + self._count(trimmed)
                if not trimmed:
                    call.stop_reason = "placeholder"  # No model is asked: a fixed sentence stands for the summary.
        return trimmed

    def _overflow_retry_prompt(self, messages: list[AnyMessage]) -> str | None:
        prompt: str | None = super()._overflow_retry_prompt(messages)
        turn = _TURN.get()
        if turn is not None and prompt is not None:
            with self._watch.harmless("noting what the summarizer sees"):
                cut = [one for one in messages if get_buffer_string([one], format="xml") not in prompt]
                gone = set(ids_of(cut))
                turn.call.seen = [span for span in turn.call.seen or () if span not in gone]
                turn.call.consumed_tokens = max(0, (turn.call.consumed_tokens or 0) - self._count(cut))
        return prompt

    def _create_summary(self, messages_to_summarize: list[AnyMessage]) -> str:
        parts = self._opened(messages_to_summarize)
        text = "\n\n".join([super(NotingSummarizer, self)._create_summary(part) for part in parts])
        self._wrote(text)
        return text

    async def _acreate_summary(self, messages_to_summarize: list[AnyMessage]) -> str:
        parts = self._opened(messages_to_summarize)
        text = "\n\n".join([await super(NotingSummarizer, self)._acreate_summary(part) for part in parts])
        self._wrote(text)
        return text

    def _opened(self, messages: list[AnyMessage]) -> list[list[AnyMessage]]:
        """What the summarizer is to be given, in as many calls as it takes: one, unless a command asks for more."""
        turn = _TURN.get()
        parts = [messages]
        if turn is not None:
            with self._watch.harmless("looking at what is to be summarized"):
                ids = ids_of(messages)
                entries = turn.conversation.shallow(ids)
                if [entry.id for entry in entries] != ids:
                    turn.whole = True
                    messages = [entry.payload for entry in entries]
                turn.call.given = ids_of(messages)
                turn.call.declared_tokens = self._count(messages)
                if turn.whole:
                    parts = self._parts(messages)
        return parts

    def _wrote(self, text: str) -> None:
        turn = _TURN.get()
        if turn is not None:
            with self._watch.harmless("looking at a summary"):
                turn.call.text = text
                if not text.strip():
                    turn.call.output_tokens = 0
                elif turn.call.output_tokens is None:
                    turn.call.output_tokens = self._count([HumanMessage(content=text)])

    def _parts(self, messages: Sequence[AnyMessage]) -> list[list[AnyMessage]]:
        """The messages in their order, cut so that each part fits what one summarizer call takes."""
        most = self.trim_tokens_to_summarize
        parts: list[list[AnyMessage]] = [[]]
        for message in messages:
            if most is not None and parts[-1] and self._count([*parts[-1], message]) > most:
                parts.append([])
            parts[-1].append(message)
        return parts

    def _count(self, messages: Iterable[AnyMessage]) -> int:
        return int(self._partial_token_counter(list(messages)))


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
            return turn.update
        with passing(self._watch, turn):
            update = super().before_model(state, runtime)
        return self._done(turn, update)

    @hook_config(can_jump_to=["end"])
    async def abefore_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        self._ensure_message_ids(state["messages"])
        turn = self._messages.begin(state, runtime, state["messages"])
        if turn is not None and turn.retry is not None:
            with redoing(self._watch, turn):
                self._messages.redone(turn, await self._acreate_summary(turn.retry.payloads))
        if turn is not None and turn.decided:
            return turn.update
        with passing(self._watch, turn):
            update = await super().abefore_model(state, runtime)
        return self._done(turn, update)

    def _done(self, turn: Turn | None, update: dict[str, Any] | None) -> dict[str, Any] | None:
        if turn is not None:
            with self._watch.harmless("reporting a compaction"):
                after = None if update is None else [one for one in update["messages"] if not isinstance(one, RemoveMessage)]
                self._messages.report(turn, after)
        return update


@contextmanager
def redoing(watch: Conversations, turn: Turn) -> Iterator[None]:
    """Around the call that a retry makes: untrimmed, and a failure is refused to the monitor instead of raised."""
    turn.whole = True
    with watch.harmless("summarizing a level again"), noting(turn):
        try:
            yield
        except Exception as error:
            assert turn.retry is not None
            turn.conversation.refuse(turn.retry, f"{type(error).__name__} while the level was summarized again")
    turn.whole, turn.call = False, Call()


@contextmanager
def passing(watch: Conversations, turn: Turn | None) -> Iterator[None]:
    """Around the framework's own pass; one that raises is reported as failed."""
    with noting(turn):
        try:
            yield
        except Exception:
            if turn is not None and turn.call.given:
                with watch.harmless("reporting a failed compaction"):
                    turn.conversation.failed("budget", turn.look)
            raise


def put_back(conversation: Conversation) -> list[Any]:
    """The state update that makes the messages the conversation's working set."""
    return [RemoveMessage(id=REMOVE_ALL_MESSAGES), *conversation.working()]


def ids_of(messages: Iterable[AnyMessage]) -> list[str]:
    return [short_id(message.id or "") for message in messages]


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


def _note_reply(reply: Any) -> Any:
    """Why the model stopped, and how much it wrote, where it says so."""
    turn = _TURN.get()
    said = getattr(reply, "response_metadata", None)
    if turn is not None and isinstance(said, dict):
        reason = said.get("finish_reason") or said.get("stop_reason")
        if isinstance(reason, str):
            turn.call.stop_reason = reason[: limits.MAX_ID]
        used = getattr(reply, "usage_metadata", None) or {}
        if isinstance(used.get("output_tokens"), int):
            turn.call.output_tokens = (turn.call.output_tokens or 0) + used["output_tokens"]
    return reply


def _thread_of(runtime: Any) -> tuple[str | None, bool]:
    """The thread id, and whether this agent runs inside another one's."""
    info = getattr(runtime, "execution_info", None)
    return getattr(info, "thread_id", None), "|" in (getattr(info, "checkpoint_ns", None) or "")
