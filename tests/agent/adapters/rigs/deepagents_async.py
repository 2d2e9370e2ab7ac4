from __future__ import annotations

import asyncio

from tests.agent.adapters.rigs.deepagents import TheRig as SyncRig


class TheRig(SyncRig):
    """The same agent, run by its coroutines."""

    def turn(self, conversation: str, text: str) -> None:
        thread = {"configurable": {"thread_id": conversation}}
        asyncio.run(self.agent.ainvoke({"messages": [{"role": "user", "content": text}]}, thread))
