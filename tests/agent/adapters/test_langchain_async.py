"""LangChain's coroutines: several conversations of one agent in one event loop."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.agent.adapters.conformance.test_conformance import Fleet
from tests.agent.adapters.rigs import rig_of

NAMES = ("langchain", "deepagents")


@pytest.mark.parametrize("name", NAMES)
def test_conversations_that_take_turns_in_one_loop_do_not_mix(name: str) -> None:
    """The model lets the others run before each answer, in the middle of a compaction too: each summarizer call is noted where it
    belongs, and a failure of one is that one's alone."""
    rig_of(name)
    from tests.agent.adapters.rigs.langchain import FakeModel

    class Yielding(FakeModel):
        async def _agenerate(self, messages: Any, *arguments: Any, **named: Any) -> Any:
            for _ in range(3):
                await asyncio.sleep(0)
            return self._generate(messages)

    fleet = Fleet(name)
    rig: Any = fleet.rig
    rig.model = Yielding(brain=rig.brain)
    agent = rig.make({"trigger": ("messages", 9), "keep": ("messages", 3)})
    running = {"now": 0, "most": 0}

    async def converse(thread: str) -> None:
        for turn in range(10):
            running["now"] += 1
            running["most"] = max(running["most"], running["now"])
            message = {"role": "user", "content": f"{thread}-q{turn} u u u u u u u u u"}
            await agent.ainvoke({"messages": [message]}, {"configurable": {"thread_id": thread}})
            running["now"] -= 1

    async def all_of_them() -> None:
        await asyncio.gather(*(converse(f"t{n}") for n in range(4)))

    asyncio.run(all_of_them())
    assert running["most"] == 4
    assert all(len({n for n in range(4) if f"t{n}-q" in text}) == 1 for text in rig.brain.heard)
    expected = [(done.outcome, done.distinct_source_spans, done.summary_depth_max) for done in fleet.rounds("t0")]
    assert len(expected) >= 2
    for n in range(4):
        name_of = f"t{n}"
        assert [(done.outcome, done.distinct_source_spans, done.summary_depth_max) for done in fleet.rounds(name_of)] == expected
        calls = fleet.calls(name_of)
        assert len(calls) == len(expected)
        assert all(call.source_spans == call.seen_spans and call.unseen_span_ids == [] for call in calls)
    assert fleet.watch.failures == 0
    fleet.watch.close()
    assert fleet.client.close() == 0


@pytest.mark.parametrize("name", NAMES)
def test_a_run_that_is_cancelled_in_the_middle_of_a_compaction_leaves_the_conversation_usable(name: str) -> None:
    rig_of(name)
    from tests.agent.adapters.rigs.langchain import FakeModel

    fleet = Fleet(name)
    rig: Any = fleet.rig
    summarizing = asyncio.Event()

    class Stuck(FakeModel):
        async def _agenerate(self, messages: Any, *arguments: Any, **named: Any) -> Any:
            if "Context Extraction Assistant" in str(messages[-1].content) and not summarizing.is_set():
                summarizing.set()
                await asyncio.Event().wait()
            return self._generate(messages)

    rig.model = Stuck(brain=rig.brain)
    agent = rig.make({"trigger": ("messages", 9), "keep": ("messages", 3)})

    async def turn(number: int) -> None:
        message = {"role": "user", "content": f"q{number} u u u u u u u u u"}
        await agent.ainvoke({"messages": [message]}, {"configurable": {"thread_id": "c"}})

    async def run() -> None:
        number = 0
        while not summarizing.is_set():
            number += 1
            running = asyncio.ensure_future(turn(number))
            waiting = asyncio.ensure_future(summarizing.wait())
            await asyncio.wait([running, waiting], return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert fleet.rounds() == []
        await turn(number + 1)

    asyncio.run(run())
    [done] = fleet.rounds()
    assert (done.outcome, done.summary_depth_max, done.ungrounded_summaries) == ("ok", 1, 0)
    assert fleet.watch.failures == 0
    fleet.watch.close()
    assert fleet.client.close() == 0
