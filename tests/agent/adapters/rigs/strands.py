from __future__ import annotations

from typing import Any

from strands import Agent
from strands.models import Model

from leadline.agent.adapters.conversations import Conversations
from leadline.agent.adapters.strands import MonitoredSummarizingConversationManager, text_of
from tests.agent.adapters.rigs.base import Brain, Rig, words


class FakeModel(Model):
    """A window of 100 words; the manager's summary prompt is told from everything else by its system prompt."""

    def __init__(self, brain: Brain) -> None:
        self.brain = brain

    @property
    def context_window_limit(self) -> int:
        return 100

    def update_config(self, **_: Any) -> None: ...

    def get_config(self) -> dict[str, Any]:
        return {}

    def structured_output(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    async def count_tokens(self, messages: Any, *_: Any, **__: Any) -> int:
        return sum(words(text_of(message)) for message in messages)

    async def stream(self, messages: Any, tool_specs: Any = None, system_prompt: Any = None, **_: Any) -> Any:
        said = "\n".join(text_of(message) for message in messages)
        summarizing = "conversation summarizer" in str(system_prompt)
        text = self.brain.summarize(said) if summarizing else self.brain.answer(said)
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockStart": {"start": {}}}
        yield {"contentBlockDelta": {"delta": {"text": text}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn"}}
        used = {"inputTokens": words(said), "outputTokens": words(text), "totalTokens": words(said) + words(text)}
        yield {"metadata": {"usage": used, "metrics": {"latencyMs": 0}}}


class TheRig(Rig):
    held, kept = 9, 3
    summary_tokens = 5
    opaque = False
    fails_quietly = True
    refuses_empty = True

    def __init__(self, watch: Conversations, *, trimmed: bool = False) -> None:
        super().__init__(watch, trimmed=trimmed)
        self.manager = MonitoredSummarizingConversationManager(
            summary_ratio=0.8,
            preserve_recent_messages=3,
            proactive_compression={"compression_threshold": 0.85},
            watch=watch,
            session_id=lambda agent: str(agent.agent_id),
            count=words,
        )
        self.agents: dict[str, Agent] = {}

    def turn(self, conversation: str, text: str) -> None:
        agent = self.agents.get(conversation)
        if agent is None:
            agent = self.agents[conversation] = Agent(
                model=FakeModel(self.brain), conversation_manager=self.manager, agent_id=conversation, callback_handler=None
            )
        agent(text)
