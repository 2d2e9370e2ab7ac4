from __future__ import annotations

from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import CompactionPart, ModelRequest, ModelResponse, TextPart
from pydantic_ai.models.function import FunctionModel

from leadline.agent.adapters.conversations import Conversations
from leadline.agent.adapters.pydantic_ai import MonitoredHistory, SummarizerWatch
from tests.agent.adapters.rigs.base import Rig, words


def said(messages: Any) -> str:
    return "\n".join(str(getattr(part, "content", "")) for message in messages for part in message.parts)


class TheRig(Rig):
    held, kept = 9, 3
    summary_tokens = 5
    unseen = 2
    retries = False
    refuses_empty = True
    uses_shallow = False

    def __init__(self, watch: Conversations, *, trimmed: bool = False) -> None:
        super().__init__(watch, trimmed=trimmed)
        self.histories: dict[str, list[Any]] = {}
        self.next_is_opaque = False
        self.summarizer = Agent(
            FunctionModel(lambda messages, _: ModelResponse([TextPart(self.brain.summarize(said(messages)))])),
            capabilities=[SummarizerWatch()],
        )
        self.agent = Agent(
            FunctionModel(lambda messages, _: self.answer(messages)),
            capabilities=[MonitoredHistory(self.compact, watch=watch, count=words)],
        )

    async def compact(self, messages: list[Any]) -> list[Any]:
        """The history processor of the application: what its documentation shows, with a summarizer agent."""
        if len(messages) < 9:
            return messages
        old = messages[2:-3] if self.trimmed else messages[:-3]
        summary = await self.summarizer.run("Summarize.", message_history=old)
        return [ModelRequest(parts=[CompactionPart(content=summary.output)]), *messages[-3:]]

    def answer(self, messages: list[Any]) -> ModelResponse:
        text = TextPart(self.brain.answer(said(messages)))
        if self.next_is_opaque:
            self.next_is_opaque = False
            return ModelResponse([CompactionPart(content=None, id="c-1", provider_name="openai"), text])
        return ModelResponse([text])

    def turn(self, conversation: str, text: str) -> None:
        history = self.histories.get(conversation)
        result = self.agent.run_sync(text, message_history=history, conversation_id=conversation)
        self.histories[conversation] = result.all_messages()

    def compact_opaquely(self, conversation: str) -> None:
        self.next_is_opaque = True
        self.say(conversation, "o1")
        self.say(conversation, "o2")
