from __future__ import annotations

from typing import Any

from deepagents import create_deep_agent
from deepagents.backends import StateBackend
from langgraph.checkpoint.memory import InMemorySaver

from leadline.agent.adapters.deepagents import MonitoredSummarizationMiddleware
from tests.agent.adapters.rigs.langchain import TheRig as LangChainRig


class TheRig(LangChainRig):
    summary_tokens = 42
    """Deep Agents' own words around a summary, with the path of the history, and five."""

    def make(self, arguments: dict[str, Any]) -> Any:
        arguments["trim_tokens_to_summarize"] = 40 if self.trimmed else None
        backend = StateBackend()
        middleware = MonitoredSummarizationMiddleware(self.model, watch=self.watch, backend=backend, **arguments)
        return create_deep_agent(self.model, backend=backend, middleware=[middleware], checkpointer=InMemorySaver())
