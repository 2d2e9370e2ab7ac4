from __future__ import annotations

import tempfile
import uuid
from typing import Any

from openhands.sdk import Agent, LocalConversation
from openhands.sdk.llm import ImageContent, LLMResponse, Message, TextContent
from openhands.sdk.testing import TestLLM
from pydantic import PrivateAttr

from leadline.agent.adapters.conversations import Conversations
from leadline.agent.adapters.openhands import MonitoredSummarizingCondenser
from tests.agent.adapters.rigs.base import Brain, Rig, words


def said(messages: Any) -> str:
    return "\n".join(part.text for message in messages for part in message.content if isinstance(part, TextContent))


class FakeLLM(TestLLM):
    """The condenser's prompt is told from everything else by its system message."""

    _brain: Any = PrivateAttr(default=None)

    def completion(self, messages: Any, *_: Any, **__: Any) -> Any:
        asked = said(messages[1:])
        summarizing = "<EVENT>" in asked
        text = self._brain.summarize(asked) if summarizing else self._brain.answer(asked)
        message = Message(role="assistant", content=[TextContent(text=text)])
        return LLMResponse(message=message, metrics=self._zero_metrics(), raw_response=self._create_model_response(message))

    def vision_is_active(self) -> bool:
        return True


def fake_llm(brain: Brain, usage_id: str = "agent") -> FakeLLM:
    made = FakeLLM(model="fake", usage_id=usage_id)
    made._brain = brain
    return made


class TheRig(Rig):
    held, kept = 9, 3
    summary_tokens = 5
    unseen = 1
    opaque = False
    fails_quietly = True

    def __init__(self, watch: Conversations, *, trimmed: bool = False) -> None:
        super().__init__(watch, trimmed=trimmed)
        self.names: dict[str, str] = {}
        self.workspace = tempfile.TemporaryDirectory()
        self.condenser = MonitoredSummarizingCondenser(
            llm=fake_llm(self.brain, "condenser"),
            max_size=8,
            keep_first=0,
            watch=watch,
            session_id=lambda conversation_id: self.names[conversation_id],
            count=words,
        )
        self.conversations: dict[str, LocalConversation] = {}

    def begin(self, name: str, number: uuid.UUID | None = None, **options: Any) -> LocalConversation:
        number = number or uuid.uuid4()
        self.names[str(number)] = name
        agent = Agent(llm=fake_llm(self.brain), tools=[], include_default_tools=[], condenser=self.condenser)
        made = LocalConversation(
            agent, self.workspace.name, conversation_id=number, visualizer=None, stuck_detection=False, **options
        )
        self.conversations[name] = made
        return made

    def turn(self, conversation: str, text: str) -> None:
        known = self.conversations.get(conversation)
        message: Any = text
        if known is None:
            known = self.begin(conversation)
            if self.trimmed:  # The first message is a picture, which the condenser does not show.
                picture = ImageContent(image_urls=["data:image/png;base64,iVBORw0KGgo="])
                message = Message(role="user", content=[picture])
        known.send_message(message)
        known.run()
