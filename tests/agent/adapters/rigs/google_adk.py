from __future__ import annotations

import asyncio
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.apps.app import EventsCompactionConfig
from google.adk.apps.llm_event_summarizer import LlmEventSummarizer
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.genai.types import Blob, Content, GenerateContentResponseUsageMetadata, Part

from leadline.agent.adapters.conversations import Conversations
from leadline.agent.adapters.google_adk import LeadlinePlugin
from tests.agent.adapters.rigs.base import Rig, words


def said(contents: Any) -> str:
    return "\n".join(part.text or "" for content in contents for part in content.parts or ())


class FakeLlm(BaseLlm):
    """Says how long each prompt was, in words."""

    brain: Any
    opaque: list[bool] = []  # noqa: RUF012 - a field of pydantic's, copied for each model

    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> Any:
        text = said(llm_request.contents)
        if "conversation history between a user and an AI agent" in text:
            parts = [Part(text=self.brain.summarize(text))]
            if self.opaque:
                parts = [Part(inline_data=Blob(data=b"encrypted", mime_type="application/octet-stream"))]
            yield LlmResponse(content=Content(role="model", parts=parts))
            return
        used = GenerateContentResponseUsageMetadata(prompt_token_count=words(text))
        yield LlmResponse(content=Content(role="model", parts=[Part(text=self.brain.answer(text))]), usage_metadata=used)


class TheRig(Rig):
    held, kept = 8, 3
    summary_tokens = 5
    unseen = 1
    retries = False
    uses_shallow = False
    fails_quietly = True

    def __init__(self, watch: Conversations, *, trimmed: bool = False) -> None:
        super().__init__(watch, trimmed=trimmed)
        self.llm = FakeLlm(model="fake", brain=self.brain)
        plugin = LeadlinePlugin(watch, count=words)
        app = App(
            name="rig",
            root_agent=LlmAgent(name="agent", model=self.llm),
            plugins=[plugin],
            events_compaction_config=EventsCompactionConfig(
                summarizer=plugin.summarizer(LlmEventSummarizer(self.llm)), token_threshold=70, event_retention_size=3
            ),
        )
        self.sessions = InMemorySessionService()
        self.runner = Runner(app=app, session_service=self.sessions)

    def turn(self, conversation: str, text: str) -> None:
        asyncio.run(self._turn(conversation, text))

    async def _turn(self, conversation: str, text: str) -> None:
        known = await self.sessions.get_session(app_name="rig", user_id="u", session_id=conversation)
        part = Part(text=text)
        if known is None:
            await self.sessions.create_session(app_name="rig", user_id="u", session_id=conversation)
            if self.trimmed:  # The first message is a picture, which ADK's summarizer is not shown.
                part = Part(inline_data=Blob(data=b"picture", mime_type="image/png"))
        message = Content(role="user", parts=[part])
        async for _ in self.runner.run_async(user_id="u", session_id=conversation, new_message=message):
            pass

    def compact_opaquely(self, conversation: str) -> None:
        self.llm.opaque.append(True)
        self.fill(conversation, "o")
