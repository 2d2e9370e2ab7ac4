"""What only OpenHands has: cut renderings, tool loops, saved and forked conversations, contexts that the model refuses."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agent.adapters.conformance.test_conformance import Fleet


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    made = Fleet("openhands")
    yield made
    made.watch.close()
    assert made.client.close() == 0


def test_what_is_cut_of_an_event_leaves_the_input_open(fleet: Fleet) -> None:
    """Of a message of 1,000 words of one letter the summarizer is shown 497 characters: 249 words of it, and the rest whole.
    The same level again, as the monitor asks, is shown all of it."""
    fleet.rig.turn("c", "w " * 999 + "end")
    for turn in range(4):
        fleet.rig.say("c", f"q{turn}")
    [call] = fleet.calls()
    assert (call.source_spans, call.seen_spans) == (6, 6)
    assert (call.declared_input_tokens, call.consumed_input_tokens) == (1_050, 249 + 50)
    fleet.order("retry-level", level=1)
    fleet.rig.say("c", "after")
    again = fleet.calls()[1]
    assert (again.declared_input_tokens, again.consumed_input_tokens) == (1_050, 1_050)
    assert " end" in fleet.rig.brain.heard[1]
    assert " end" not in fleet.rig.brain.heard[0]


def test_an_asynchronous_run_is_watched_too(fleet: Fleet) -> None:
    rig: Any = fleet.rig
    conversation = rig.begin("c")

    async def run() -> None:
        for turn in range(5):
            conversation.send_message(f"q{turn} u u u u u u u u u")
            await conversation.arun()

    asyncio.run(run())
    [done] = fleet.rounds()
    assert (done.raw_tokens, done.summary_tokens, done.summary_depth_max, done.distinct_source_spans) == (30, 5, 1, 9)
    assert fleet.watch.failures == 0


def test_a_context_that_the_model_refuses_while_halted_ends_the_run_and_is_not_tried_for_ever(fleet: Fleet) -> None:
    from openhands.sdk.conversation.exceptions import ConversationRunError
    from openhands.sdk.llm.exceptions import LLMContextWindowExceedError

    fleet.rig.say("c", "q0")
    fleet.order(level=99)
    tried = []

    def refuse(request: str) -> str:
        tried.append(request)
        raise LLMContextWindowExceedError

    fleet.rig.brain.answer = refuse  # type: ignore[method-assign]
    with pytest.raises(ConversationRunError, match="allows no condensation"):
        fleet.rig.say("c", "q1")
    assert len(tried) == 1
    assert fleet.rig.brain.heard == []


def test_a_stopped_session_ends_its_run(fleet: Fleet) -> None:
    from openhands.sdk.conversation.exceptions import ConversationRunError

    fleet.rig.say("c", "q0")
    fleet.order("stop-agent")
    with pytest.raises(ConversationRunError, match="monitor stopped"):
        fleet.rig.say("c", "q1")
    assert len(fleet.rig.brain.requests) == 1


def test_a_saved_conversation_is_remembered_with_its_depth_and_its_originals(fleet: Fleet, tmp_path: Path) -> None:
    """Two condensations, then another process: the summary's provenance comes from the log, and all can be brought back."""
    rig: Any = fleet.rig
    first = rig.begin("c", persistence_dir=str(tmp_path))
    turns = 0
    while len(rig.brain.heard) < 2:
        turns += 1
        first.send_message(f"q{turns} u u u u u u u u u")
        first.run()
    [summary] = fleet.rounds()[-1].summaries or []
    first.close()

    later = Fleet("openhands")
    again: Any = later.rig
    taken_up = again.begin("c", persistence_dir=str(tmp_path), number=first.id)
    again.condenser.remember(taken_up)
    measured = later.watch.of("c").present().signals
    assert [(one.depth, one.reachable) for one in measured.summaries] == [(2, summary.reachable)]
    assert summary.depth == 2
    later.watch.of("c").session._token_budget = 10_000
    later.order(target_raw_ratio=1.0)
    taken_up.send_message("after u u u u u u u u u")
    taken_up.run()
    spans = [word for word in again.brain.requests[-1].split() if word[0] == "q" or word == "after"]
    assert spans == [*(f"q{turn + 1}" for turn in range(turns)), "after"]
    assert later.watch.failures == 0
    later.watch.close()
    assert later.client.close() == 0


def test_a_fork_is_watched_as_a_conversation_of_its_own(fleet: Fleet) -> None:
    """OpenHands makes a fork's agent from its source's JSON."""
    rig: Any = fleet.rig
    condenser = type(rig.condenser).model_validate(rig.condenser.model_dump())
    assert condenser is not rig.condenser
    assert condenser._watching is rig.condenser._watching
    assert "watch" not in rig.condenser.model_dump()


def test_a_condenser_from_elsewhere_works_unwatched(fleet: Fleet) -> None:
    rig: Any = fleet.rig
    rig.condenser = type(rig.condenser).model_validate(
        {**rig.condenser.model_dump(), "watched_as": "another", "llm": rig.condenser.llm}
    )
    fleet.rig.fill("c")
    assert len(fleet.rig.brain.heard) == 1
    assert fleet.rounds() == []
