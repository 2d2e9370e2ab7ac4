from __future__ import annotations

from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.memory import InMemorySaver

from leadline.agent.adapters.conversations import Conversations
from leadline.agent.adapters.langchain import MonitoredSummarizationMiddleware
from tests.agent.adapters.rigs.base import Brain, Rig, words

__all__ = ["FakeModel", "TheRig", "count"]


def count(messages: Any) -> int:
    return sum(words(str(message.content)) for message in messages)


class FakeModel(BaseChatModel):
    """Tells the middleware's summary prompt from everything else."""

    brain: Any
    opaque: list[bool] = []  # noqa: RUF012 - a field of pydantic's, copied for each model

    @property
    def _llm_type(self) -> str:
        return "fake"

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **_: Any) -> ChatResult:
        brain: Brain = self.brain
        said = "\n".join(str(message.content) for message in messages)
        if "Context Extraction Assistant" in said:
            return _result(AIMessage(brain.summarize(said), response_metadata={"finish_reason": "stop"}))
        answer = brain.answer(said)
        if self.opaque:
            self.opaque.clear()
            return _result(AIMessage([{"type": "compaction", "content": None}, {"type": "text", "text": answer}]))
        return _result(AIMessage(answer))


def _result(message: AIMessage) -> ChatResult:
    return ChatResult(generations=[ChatGeneration(message=message)])


class TheRig(Rig):
    held, kept = 9, 3
    summary_tokens = 14  # "Here is a summary of the conversation to date:" and five.
    unseen = 2

    def __init__(self, watch: Conversations, *, trimmed: bool = False) -> None:
        super().__init__(watch, trimmed=trimmed)
        self.model = FakeModel(brain=self.brain)
        self.agent = self.make({"trigger": ("messages", 9), "keep": ("messages", 3), "token_counter": count})

    def make(self, arguments: dict[str, Any]) -> Any:
        arguments["trim_tokens_to_summarize"] = 40 if self.trimmed else None
        middleware: Any = MonitoredSummarizationMiddleware(self.model, watch=self.watch, **arguments)
        return create_agent(self.model, middleware=[middleware], checkpointer=InMemorySaver())

    def turn(self, conversation: str, text: str) -> None:
        self.agent.invoke({"messages": [{"role": "user", "content": text}]}, {"configurable": {"thread_id": conversation}})

    def compact_opaquely(self, conversation: str) -> None:
        self.model.opaque.append(True)
        self.say(conversation, "o1")
        self.say(conversation, "o2")
