"""LangChain's summarizer, noting what it was given, what it really saw, and what it wrote.

The middleware trims its summarizer's input (by default to 4,000 tokens from the end, from a human message on: the summary of the
round before is cut off first, and where no human message falls in that window nothing is sent at all and a fixed sentence takes
the summary's place).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from langchain.agents.middleware.summarization import SummarizationMiddleware
from langchain_core.messages import AnyMessage, HumanMessage
from langchain_core.messages.utils import get_buffer_string
from langchain_core.runnables import RunnableLambda

from leadline.agent.adapters.conversation import Conversation, Look, Retry
from leadline.agent.adapters.conversations import Conversations, short_id
from leadline.agent.adapters.entries import Call
from leadline.contracts import limits

__all__ = ["NotingSummarizer", "Turn", "current_turn", "ids_of", "passing", "redoing", "summary_message"]


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


def ids_of(messages: Iterable[AnyMessage]) -> list[str]:
    return [short_id(message.id or "") for message in messages]


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
