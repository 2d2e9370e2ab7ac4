"""One suite for all adapters: the same scenario through each real framework, measured in words (see the rigs)."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from leadline.agent import Client, Fact, MemoryTransport, State
from leadline.agent.adapters.conversation import Conversation
from leadline.agent.adapters.conversations import Conversations
from leadline.agent.holding import Holding
from leadline.contracts.codec import decode_event
from leadline.contracts.events import Ack, AgentEvent, Checkpoint, Round, SessionEnd, SessionStart
from leadline.contracts.topics import EVENTS
from tests.agent.adapters.rigs import NAMES, Rig, rig_of
from tests.agent.support import command


class Fleet:
    """A rig, and what its conversations report."""

    def __init__(self, name: str, **options: Any) -> None:
        self.transport = MemoryTransport(1)
        self.client = Client(self.transport)
        self.watch = Conversations(self.client, agent_id="a-1", token_budget=100, **options)
        self.kind = rig_of(name)
        self.rig: Rig = self.kind(self.watch)

    def events(self, session: str = "c") -> list[AgentEvent]:
        assert self.client.flush() == 0
        found = [decode_event(record.value or b"").event for record in self.transport.records(EVENTS.name)]
        return [event for event in found if event.session_id == session]  # type: ignore[misc]

    def rounds(self, session: str = "c") -> list[Round]:
        return [event for event in self.events(session) if isinstance(event, Round)]

    def calls(self, session: str = "c") -> list[Checkpoint]:
        return [event for event in self.events(session) if isinstance(event, Checkpoint)]

    def order(self, kind: Any = "halt", session: str = "c", seq: int = 1, **parameters: Any) -> None:
        """A command of the monitor's to a conversation, as the listener hands it over."""
        one = self.watch.of(session).session
        given = command(seq, kind, session_id=session, epoch=one.epoch, expires_at=one._report._clock() + 60_000, **parameters)
        one.receive(given)

    def acks(self, session: str = "c") -> list[tuple[str, str]]:
        return [(event.command_id, event.outcome) for event in self.events(session) if isinstance(event, Ack)]


@pytest.fixture(params=NAMES)
def fleet(request: pytest.FixtureRequest) -> Iterator[Fleet]:
    made = Fleet(request.param)
    yield made
    made.watch.close()
    assert made.client.close() == 0


def test_a_pass_is_reported_with_what_was_there_before_and_after(fleet: Fleet) -> None:
    """Messages of ten words: all raw before; after it those kept, and a summary that stands on what was dropped."""
    fleet.rig.fill("c")
    kind, dropped = fleet.kind, fleet.kind.held - fleet.kind.kept
    [call], [done] = fleet.calls(), fleet.rounds()
    assert done.before is not None
    assert (done.before.raw_tokens, done.before.summary_tokens) == (10 * kind.held, 0)
    assert (done.raw_tokens, done.summary_tokens) == (10 * kind.kept, kind.summary_tokens)
    assert (done.before.distinct_source_spans, done.distinct_source_spans) == (kind.held, kind.held)
    assert (done.summary_depth_max, done.dropped_spans, done.ungrounded_summaries) == (1, 0, 0)
    assert (done.outcome, done.session_start_spans, done.token_budget) == ("ok", kind.held, 100)
    assert done.summaries is not None
    [summary] = done.summaries
    assert (summary.depth, summary.fan_out, summary.reachable) == (1, dropped, dropped)
    assert (call.level, call.source_spans, call.seen_spans, call.unseen_span_ids) == (1, dropped, dropped, [])
    assert call.summary_visible
    assert call.output_tokens == 5
    assert fleet.watch.failures == 0


def test_the_depth_is_that_of_the_provenance(fleet: Fleet) -> None:
    """The summary before goes into the next one: each is a level deeper, and no source span gets lost on the way."""
    turns = 0
    while len(fleet.rig.brain.heard) < 3:
        turns += 1
        fleet.rig.say("c", f"q{turns}")
    rounds = fleet.rounds()
    assert [done.summary_depth_max for done in rounds] == [1, 2, 3]
    assert [call.level for call in fleet.calls()] == [1, 2, 3]
    assert [done.distinct_source_spans for done in rounds] == sorted({done.distinct_source_spans for done in rounds})
    last = rounds[-1]
    assert last.distinct_source_spans in (2 * turns, 2 * turns - 1), "the last answer comes after a pass before the model call"
    assert last.summaries is not None
    assert [summary.reachable for summary in last.summaries] == [last.distinct_source_spans - fleet.kind.kept]
    assert fleet.watch.failures == 0


def test_what_the_summarizer_was_not_given_is_named(fleet: Fleet) -> None:
    """Dropped minus seen, by id: the collapse signal. Those spans can't be reached any more."""
    if fleet.kind.unseen is None:
        pytest.skip("this framework gives its summarizer everything that it drops")
    fleet.rig = fleet.kind(fleet.watch, trimmed=True)
    fleet.rig.fill("c")
    [call], [done] = fleet.calls(), fleet.rounds()
    dropped = call.source_spans
    assert dropped is not None
    assert call.seen_spans == dropped - fleet.kind.unseen
    assert call.unseen_span_ids is not None
    assert len(call.unseen_span_ids) == fleet.kind.unseen == done.dropped_spans
    assert done.before is not None
    assert done.distinct_source_spans == done.before.distinct_source_spans - fleet.kind.unseen


def test_a_halt_stops_the_next_compaction_and_not_the_agent(fleet: Fleet) -> None:
    """The veto: the agent goes on answering, nothing is summarized, and each pass that did not run is measured."""
    fleet.rig.say("c", "q0")
    fleet.order(level=99)  # A halt without a rehydration.
    for turn in range(1, 10):
        fleet.rig.say("c", f"q{turn}")
    assert fleet.rig.brain.heard == []
    assert len(fleet.rig.brain.requests) == 10
    assert "q0" in fleet.rig.brain.requests[-1], "everything is still in the context"
    assert {done.trigger for done in fleet.rounds()} == {"hold"}
    assert {done.summary_tokens for done in fleet.rounds()} == {0}
    fleet.order("resume", seq=2)
    fleet.rig.say("c", "q10")
    assert len(fleet.rig.brain.heard) == 1
    assert fleet.watch.failures == 0


def test_a_rehydration_puts_the_spans_back(fleet: Fleet) -> None:
    """The halt asks for nothing but raw text: the model's next request holds the originals in their order, and no summary."""
    turns = fleet.rig.fill("c")
    fleet.watch.of("c").session._token_budget = 10_000
    fleet.order(target_raw_ratio=1.0)
    fleet.rig.say("c", "after")
    request = fleet.rig.brain.requests[-1]
    spans = [word for word in request.split() if word.startswith(("q", "answer-", "after"))]
    assert spans[:3] == ["q1", "answer-1", "q2"]
    assert [word for word in spans if word[0] != "a"] == [f"q{turn + 1}" for turn in range(turns)]
    assert spans[-1] == "after"
    assert "summary-1" not in request
    [last] = [done for done in fleet.rounds() if done.trigger == "rehydrate"]
    assert (last.summary_tokens, last.summary_depth_max) == (0, 0)
    assert last.raw_tokens == 10 * (2 * turns + 1)
    assert fleet.acks() == [("cmd-1", "accepted"), ("cmd-1", "done")]
    assert len(fleet.rig.brain.heard) == 1, "it does not start the next compaction"
    fleet.rig.say("c", "later")
    assert "q1 " in fleet.rig.brain.requests[-1], "and they stay"
    assert fleet.watch.failures == 0


def test_after_a_rehydration_and_its_release_compaction_goes_on(fleet: Fleet) -> None:
    fleet.rig.fill("c")
    fleet.watch.of("c").session._token_budget = 10_000
    fleet.order(target_raw_ratio=1.0)
    fleet.rig.say("c", "after")
    fleet.order("resume", seq=2)
    fleet.rig.say("c", "later")
    fleet.rig.say("c", "last")
    assert len(fleet.rig.brain.heard) >= 2
    last = [done for done in fleet.rounds() if done.trigger == "budget"][-1]
    assert last.outcome == "ok"
    assert last.ungrounded_summaries == 0
    assert last.distinct_source_spans == max(done.distinct_source_spans for done in fleet.rounds())
    assert fleet.watch.failures == 0


def test_a_level_is_summarized_again(fleet: Fleet) -> None:
    """At once where the framework can be asked; by its own next pass where it decides itself, which is given that input anew."""
    fleet.rig.fill("c")
    [first] = fleet.calls()
    fleet.watch.of("c").session._token_budget = 10_000
    fleet.order("retry-level", level=1)
    fleet.rig.say("c", "after")
    if not fleet.kind.retries:
        turns = 0
        while len(fleet.rig.brain.heard) == 1:
            turns += 1
            assert turns < 9
            assert "summary-1" not in fleet.rig.brain.requests[-1]
            fleet.rig.say("c", f"later{turns}")
        fleet.rig.say("c", "last")
    again = fleet.calls()[1]
    assert (again.retry_of, again.level) == ("cmd-1", 1)
    assert again.source_spans == again.seen_spans
    assert again.unseen_span_ids == []
    assert first.source_spans is not None
    assert again.source_spans is not None
    if fleet.kind.retries:
        assert again.source_spans == first.source_spans
    else:
        assert again.source_spans >= first.source_spans
    assert fleet.acks() == [("cmd-1", "accepted"), ("cmd-1", "done")]
    assert "q1 " in fleet.rig.brain.heard[1]
    assert "summary-2" in fleet.rig.brain.requests[-1]
    assert "summary-1" not in fleet.rig.brain.requests[-1]
    assert fleet.watch.failures == 0


def test_a_level_whose_input_has_no_room_is_refused_where_the_framework_cannot_be_asked(fleet: Fleet) -> None:
    if fleet.kind.retries:
        pytest.skip("this framework summarizes the input without taking it into the context")
    fleet.rig.fill("c")
    fleet.watch.of("c").session._token_budget = 60
    fleet.order("retry-level", level=1)
    fleet.rig.say("c", "after")
    assert fleet.acks() == [("cmd-1", "accepted"), ("cmd-1", "refused")]
    assert "summary-1" in fleet.rig.brain.requests[-1]


def test_concurrent_conversations_of_one_instance_do_not_mix(fleet: Fleet) -> None:
    """Four at once, with different words: each summarizer call was given words of one of them only, and so says each report."""

    def run(name: str) -> None:
        for turn in range(7):
            fleet.rig.say(name, f"{name}-q{turn}")

    threads = [threading.Thread(target=run, args=(f"t{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    heard = fleet.rig.brain.heard
    assert len(heard) == sum(len(fleet.rounds(f"t{n}")) for n in range(4)) >= 4
    assert all(len({name for name in ("t0-q", "t1-q", "t2-q", "t3-q") if name in text}) == 1 for text in heard)
    expected = [done.distinct_source_spans for done in fleet.rounds("t0")]
    for n in range(4):
        assert [done.distinct_source_spans for done in fleet.rounds(f"t{n}")] == expected
        assert [done.ungrounded_summaries for done in fleet.rounds(f"t{n}")] == [0] * len(expected)
    assert fleet.watch.failures == 0


@pytest.mark.parametrize("broken", ["look", "compacted", "may_compact", "shallow"])
def test_what_leadline_does_wrong_never_reaches_the_agent(fleet: Fleet, broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def raises(*_: Any, **__: Any) -> Any:
        raise RuntimeError("a defect")

    monkeypatch.setattr(Conversation, broken, raises)
    for turn in range(6):
        fleet.rig.say("c", f"q{turn}")
    assert len(fleet.rig.brain.requests) == 6
    assert len(fleet.rig.brain.heard) >= 1
    used = broken != "shallow" or fleet.rig.uses_shallow
    assert (fleet.watch.failures > 0) is used


def test_a_failing_summarizer_is_told_and_treated_as_the_framework_does(fleet: Fleet) -> None:
    fleet.rig.brain.fails = RuntimeError("no model")
    raised = 0
    for turn in range(6):
        try:
            fleet.rig.say("c", f"q{turn}")
        except RuntimeError:
            raised += 1
    assert (raised == 0) is fleet.kind.fails_quietly
    assert {done.outcome for done in fleet.rounds()} == {"failed"}
    assert {done.summary_tokens for done in fleet.rounds()} == {0}


def test_an_empty_summary_is_told(fleet: Fleet) -> None:
    fleet.rig.brain.summary = ""
    with contextlib.suppress(Exception):
        fleet.rig.fill("c")
    calls, rounds = fleet.calls(), fleet.rounds()
    if fleet.kind.refuses_empty:
        assert {done.outcome for done in rounds} == {"failed"}
    else:
        assert [call.output_tokens for call in calls] == [0]


@pytest.mark.parametrize("text", ["", "Error generating summary: the model is overloaded"])
def test_what_is_no_summary_leads_to_nothing_until_its_spans_are_back(fleet: Fleet, text: str) -> None:
    """Everything was put before the summarizer, and nothing of it is left: all that was dropped counts as dropped."""
    if not text and fleet.kind.refuses_empty:
        pytest.skip("an empty summary is an error in this framework")
    fleet.rig.brain.summary = text
    turns = fleet.rig.fill("c")
    dropped = fleet.kind.held - fleet.kind.kept
    [call], [done] = fleet.calls(), fleet.rounds()
    assert (call.source_spans, call.seen_spans, call.unseen_span_ids) == (dropped, dropped, [])
    assert (done.ungrounded_summaries, done.dropped_spans, done.distinct_source_spans) == (1, dropped, fleet.kind.kept)
    fleet.watch.of("c").session._token_budget = 10_000
    fleet.order(drop_ungrounded=True)
    fleet.rig.say("c", "after")
    request = fleet.rig.brain.requests[-1]
    assert [word for word in request.split() if word[0] == "q"] == [f"q{turn + 1}" for turn in range(turns)]
    assert "summary" not in request
    [last] = [done for done in fleet.rounds() if done.trigger == "rehydrate"]
    assert (last.summary_tokens, last.ungrounded_summaries, last.distinct_source_spans) == (0, 0, 2 * turns + 1)
    assert fleet.watch.failures == 0


@pytest.mark.parametrize("name", NAMES)
def test_it_waits_for_the_verdict_where_it_is_told_to_and_blocks_no_event_loop(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The summary leaves out a constraint, which the local guard finds: the turn goes on once the monitor's halt is there."""
    rig_of(name)
    waiting, in_loop = threading.Event(), []
    wait, look = Holding.wait, Holding.look

    def waits(self: Holding, commanded: Any) -> Any:
        with contextlib.suppress(RuntimeError):
            in_loop.append(asyncio.get_running_loop())
        waiting.set()
        return wait(self, commanded)

    def looks(self: Holding, commanded: Any) -> Any:
        waiting.set()
        return look(self, commanded)

    monkeypatch.setattr(Holding, "wait", waits)
    monkeypatch.setattr(Holding, "look", looks)
    constraint = Fact("C1", "never rotate the key", fact_class="constraint")
    fleet = Fleet(name, facts=[constraint], hold="hold-on-compact", hold_seconds=60.0)

    def command_once_it_waits() -> None:
        if waiting.wait(30):
            fleet.order(level=1)

    thread = threading.Thread(target=command_once_it_waits)
    thread.start()
    fleet.rig.fill("c")
    thread.join()
    assert waiting.is_set()
    assert in_loop == []
    assert fleet.watch.of("c").session.state is State.HALTED
    assert fleet.watch.failures == 0
    fleet.watch.close()
    assert fleet.client.close() == 0


def test_an_opaque_summary_is_not_visible(fleet: Fleet) -> None:
    """What it holds is at risk, never absent; of what a provider read on its side nothing is claimed."""
    if not fleet.kind.opaque:
        pytest.skip("a summary is always text in this framework")
    fleet.rig.say("c", "q1")
    fleet.rig.compact_opaquely("c")
    [call] = fleet.calls()
    assert not call.summary_visible
    [done] = fleet.rounds()
    assert done.summary_depth_max == 1
    assert fleet.watch.failures == 0


def test_a_session_begins_and_ends(fleet: Fleet) -> None:
    fleet.rig.say("c", "q1")
    fleet.watch.end("c")
    start, end = fleet.events()
    assert isinstance(start, SessionStart)
    assert isinstance(end, SessionEnd)
    assert start.policy.token_budget == 100
