"""A session obeys at its own boundaries, and says what it did."""

from __future__ import annotations

import pytest

from leadline.agent import Fact, State
from leadline.contracts.events import Ack, Checkpoint, Round, SessionEnd
from leadline.contracts.orders import Command, Target
from leadline.errors import SessionHalted
from tests.agent.support import Sink, command, compact, session


def test_a_halt_stops_compaction_until_every_incident_is_resumed() -> None:
    """Two incidents halt; the sentence of each is in the error; one resume is not enough."""
    sink = Sink()
    with session(sink) as one:
        assert one.may_compact()
        one.raise_if_halted()
        one.receive(command(1, incident="A"))
        one.receive(command(2, incident="B"))
        assert not one.may_compact()
        with pytest.raises(SessionHalted, match=r"reason of halt 1.*reason of halt 2"):
            one.raise_if_halted()
        one.receive(command(3, "resume", incident="A"))
        assert not one.may_compact()
        one.receive(command(4, "resume", incident="B"))
        assert one.may_compact()
    assert sink.acks == [
        ("cmd-1", "accepted"),
        ("cmd-2", "accepted"),
        ("cmd-3", "accepted"),
        ("cmd-3", "done"),
        ("cmd-4", "accepted"),
        ("cmd-4", "done"),
    ]


def test_a_halt_between_start_and_end_of_a_compaction_is_seen_at_its_boundary() -> None:
    """Field case: the halt is accepted at once, stays pending during the pass, and is done by the rehydration only."""
    sink = Sink()
    with session(sink) as one:
        with one.compaction():
            archive = compact(one)
            one.receive(command(1, target_raw_ratio=0.3))
            assert [pending.command_id for pending in one.pending] == ["cmd-1"]
        assert sink.acks == [("cmd-1", "accepted")]
        one.rehydrate(archive.get)
        assert one.pending == ()
    assert sink.acks == [("cmd-1", "accepted"), ("cmd-1", "done")]


def test_rehydration_follows_the_halt_and_is_acknowledged_and_measured() -> None:
    """The plan names S2: its four leaves replace it. Ack ``done`` with 400 tokens, then a round of trigger rehydrate."""
    sink = Sink()
    with session(sink) as one:
        archive = compact(one)
        one.compacted()
        plan = [Target(summary_id="S2", depth=2, fan_out=1, tokens=40)]
        one.receive(command(1, target_raw_ratio=0.3, target_spans=2, max_restore_tokens=5_000, plan=plan))
        result = one.rehydrate(archive.get)
        assert not one.may_compact(), "only a resume allows compaction again"
    assert (result.replaced, result.raw_tokens_restored, result.reached) == (("S2",), 400, True)
    done, rounded = sink.events[-3:-1]
    assert isinstance(done, Ack)
    assert (done.outcome, done.raw_tokens_restored) == ("done", 400)
    assert isinstance(rounded, Round)
    assert (rounded.trigger, rounded.raw_tokens, rounded.summary_tokens, rounded.round) == ("rehydrate", 400, 0, 2)
    assert rounded.before is not None
    assert rounded.before.summary_tokens == 40


def test_rehydration_stays_within_the_budget_that_fixed_tokens_leave() -> None:
    """Budget 1,000 with 700 fixed leaves 300: S2's room of 40 included, two or three of four leaves of 100 fit."""
    with session(Sink(), token_budget=1_000, fixed_tokens=700) as one:
        archive = compact(one)
        one.receive(command(1, target_raw_ratio=1.0))
        result = one.rehydrate(archive.get)
    assert result.after.total_tokens <= 300
    assert result.raw_tokens_restored >= 200


def test_a_halt_for_spans_is_served_on_a_full_budget() -> None:
    """Budget 1,000, all of it taken by ten messages of 100, two of which repeat others; six lost spans of 50. Ten distinct spans
    are asked for: one copy's room is enough for two more. The agent is told what left."""
    sink = Sink()
    with session(sink, token_budget=1_000) as one:
        for n in range(6):
            one.ledger.add_raw(f"old{n}", 50)
        one.ledger.evict([f"old{n}" for n in range(6)])
        for n in range(8):
            one.ledger.add_raw(f"m{n}", 100)
        for n in range(2):
            one.ledger.add_raw(f"again{n}", 100, copy_of=f"m{n}")
        one.receive(command(1, rule="provenance-floor", target_spans=10, max_restore_tokens=0))
        result = one.rehydrate(lambda span: 50)
    assert len(result.evicted) == 1
    assert result.dropped == result.evicted
    assert (result.restored, result.reached) == (("old5", "old4"), True)
    assert result.after.total_tokens == 1_000
    assert sink.acks == [("cmd-1", "accepted"), ("cmd-1", "done")]


def test_a_halt_that_is_served_in_part_is_done_and_not_refused() -> None:
    """Twelve spans are asked for, five are to be had: the monitor judges by the next round."""
    sink = Sink()
    with session(sink, token_budget=1_000) as one:
        one.ledger.add_raw("large", 1_000)
        for n in range(12):
            one.ledger.add_raw(f"old{n}", 200)
        one.ledger.evict([f"old{n}" for n in range(12)])
        one.receive(command(1, rule="provenance-floor", target_spans=12))
        result = one.rehydrate(lambda span: 200)
    assert (len(result.restored), result.evicted, result.reached) == (5, ("large",), False)
    assert sink.acks[-1] == ("cmd-1", "done")
    assert "1 item made room" in result.detail


def test_an_ungrounded_summary_gets_a_leaf_back_or_goes() -> None:
    """A halt with drop_ungrounded: of S2 one leaf can be had again, of T none. Nothing else is asked for, and nothing is done."""
    sink = Sink()
    with session(sink) as one:
        archive = compact(one)
        one.ledger.evict(archive)
        one.ledger.add_raw("t", 10)
        one.ledger.summarize("T", ["t"], 20)
        one.ledger.evict(["t"])
        one.ledger.add_raw("u", 10)
        one.ledger.summarize("U", ["u"], 500)
        one.receive(command(1, rule="ungrounded-summary", drop_ungrounded=True))
        result = one.rehydrate(lambda span: 100 if span == "m2" else None)
    assert (result.restored, result.replaced, result.evicted) == (("m2",), ("T",), ())
    assert result.after.ungrounded_summaries == 0
    assert sink.acks[-1] == ("cmd-1", "done")


def test_a_halt_that_asks_for_nothing_but_to_stop_is_done_by_stopping() -> None:
    sink = Sink()
    with session(sink) as one:
        archive = compact(one)
        one.receive(command(1, rule="no-progress"))
        assert not one.rehydrate(archive.get).changed
        assert not one.may_compact()
    assert sink.acks == [("cmd-1", "accepted"), ("cmd-1", "done")]


def test_nothing_restored_is_a_refusal_and_not_done() -> None:
    """The archive is empty: the monitor learns why, and the round shows that nothing changed."""
    sink = Sink()
    with session(sink) as one:
        compact(one)
        one.receive(command(1, target_raw_ratio=0.3))
        one.rehydrate(lambda span: None)
    assert sink.acks == [("cmd-1", "accepted"), ("cmd-1", "refused")]
    [refused] = [event for event in sink.events if isinstance(event, Ack) and event.outcome == "refused"]
    assert "could not be brought back" in refused.detail
    assert sink.rounds[-1].trigger == "rehydrate"


def test_rehydrating_without_a_halt_aims_at_the_policys_exit_level() -> None:
    """0.30: raising the ratio is the agent's right at any time, and there is nothing to acknowledge."""
    sink = Sink()
    with session(sink) as one:
        archive = compact(one)
        assert one.rehydrate(archive.get).reached
    assert sink.acks == []


def test_a_depth_cap_is_done_once_a_round_keeps_to_it_and_stays() -> None:
    """Capped to 1 while at depth 2; done with the first round at depth 1; the limit stays after the resume."""
    sink = Sink()
    with session(sink) as one:
        compact(one)
        one.receive(command(1, "cap-depth", max_depth=1))
        one.compacted()
        assert sink.acks == [("cmd-1", "accepted")]
        assert (one.state, one.depth_limit, one.may_compact()) == (State.CAPPED, 1, True)
        one.ledger.restore(["S1"])
        one.ledger.evict(["S2"])
        one.compacted()
        assert sink.acks == [("cmd-1", "accepted"), ("cmd-1", "done")]
        one.receive(command(2, "resume"))
        assert (one.state, one.depth_limit) == (State.CAPPED, 1)
    assert {rounded.max_depth for rounded in sink.rounds} == {3}, "the agent's own limit is reported, not the cap"


def test_a_retry_is_done_when_its_level_is_summarized_again() -> None:
    """Level 2 is to be retried: a checkpoint of level 1 is not it."""
    sink = Sink()
    with session(sink) as one:
        one.receive(command(1, "retry-level", level=2, facts=["f1"]))
        one.checkpoint(1)
        assert [pending.parameters.facts for pending in one.pending] == [["f1"]]
        one.checkpoint(2)
    assert sink.acks == [("cmd-1", "accepted"), ("cmd-1", "done")]


def calls(sink: Sink) -> list[Checkpoint]:
    return [event for event in sink.events if isinstance(event, Checkpoint)]


def test_the_call_that_obeys_a_retry_names_it() -> None:
    """Two commands ask for level 1: one call answers both and names the first. Calls at other levels, or later, name none."""
    sink = Sink()
    with session(sink) as one:
        one.receive(command(1, "retry-level", incident="A", level=1))
        one.receive(command(2, "retry-level", incident="B", level=1))
        assert [asked.command_id for asked in one.retries] == ["cmd-1", "cmd-2"]
        one.checkpoint(2)
        one.checkpoint(1)
        one.checkpoint(1)
        assert one.retries == ()
    assert [call.retry_of for call in calls(sink)] == ["", "cmd-1", ""]
    assert sink.acks[2:] == [("cmd-1", "done"), ("cmd-2", "done")]


def test_a_call_made_before_the_agent_looked_is_no_retry() -> None:
    """The command comes in the middle of a pass: the pass's next call at that level is an ordinary one."""
    sink = Sink()
    with session(sink) as one:
        one.receive(command(1, "retry-level", level=1))
        one.checkpoint(1)
        one.poll()
        one.checkpoint(1)
    assert [call.retry_of for call in calls(sink)] == ["", "cmd-1"]


def test_the_agent_may_say_itself_which_call_is_the_retry() -> None:
    """A retry of three calls: each names the command; the ordinary one before them does not."""
    sink = Sink()
    with session(sink) as one:
        one.receive(command(1, "retry-level", level=1))
        [asked] = one.retries
        one.checkpoint(1, retry_of="")
        assert one.retries == (asked,)
        for _ in range(3):
            one.checkpoint(1, retry_of=asked.command_id)
    assert [call.retry_of for call in calls(sink)] == ["", "cmd-1", "cmd-1", "cmd-1"]
    assert sink.acks == [("cmd-1", "accepted"), ("cmd-1", "done")]


def test_a_halt_with_a_level_leaves_that_level_as_the_way_out() -> None:
    """No compaction, but level 2 may be summarized again: that call names the halt and is its answer, a rehydration is not. Until
    the release any further call at the level stands for it too."""
    sink = Sink()
    with session(sink) as one:
        archive = compact(one)
        one.receive(command(1, "halt", rule="budget-open", level=2))
        assert (one.state, one.may_compact()) == (State.HALTED, False)
        assert [asked.parameters.level for asked in one.retries] == [2]
        assert [level for level in range(4) if one.may_summarize(level)] == [2]
        one.rehydrate(archive.get)
        assert sink.acks == [("cmd-1", "accepted")]
        one.checkpoint(1)
        one.checkpoint(2)
        assert sink.acks == [("cmd-1", "accepted"), ("cmd-1", "done")]
        assert one.retries == ()
        one.checkpoint(2)
        assert not one.may_compact(), "only the resume ends it"
        one.receive(command(2, "resume", releases="cmd-1"))
        assert one.may_compact()
        one.checkpoint(2)
        one.receive(command(3, "stop-agent", incident="B"))
        one.receive(command(4, "retry-level", incident="C", level=2))
        assert not one.may_summarize(2), "a session that is to stop retries nothing"
    assert [call.retry_of for call in calls(sink)] == ["", "cmd-1", "cmd-1", ""]


def test_no_facts_no_list_of_facts() -> None:
    """None declared: nothing to report, which an empty list would turn into "nothing survived". One that the call brings along is
    reported; and with declared facts an empty list means what it says."""
    sink = Sink()
    with session(sink) as one:
        one.checkpoint(1, text="anything", statuses={}, input_facts=[])
        one.checkpoint(1, statuses={"f9": "verbatim"}, input_facts=["f9"])
    with session(sink, facts=[Fact("f1", "port is 80")]) as one:
        one.checkpoint(1, statuses={}, input_facts=[])
    told = [(None if call.facts is None else len(call.facts), call.input_facts) for call in calls(sink)]
    assert told == [(None, None), (1, ["f9"]), (0, [])]


def test_stop_is_done_by_ending() -> None:
    sink = Sink()
    with session(sink) as one:
        one.receive(command(1, "stop-agent"))
        assert (one.state, one.may_compact()) == (State.STOPPED, False)
    assert sink.acks == [("cmd-1", "accepted"), ("cmd-1", "done")]
    assert isinstance(sink.events[-1], SessionEnd)


def test_a_handler_is_called_in_order_in_the_agents_thread_and_its_error_refuses() -> None:
    """Commands 2 and 1 come; at the boundary they are handled as 1, 2. The second raises: refused with the reason."""
    sink, handled = Sink(), []

    def handle(given: Command) -> None:
        handled.append(given.seq)
        if given.seq == 2:
            raise RuntimeError("no room for it")

    with session(sink, on_command=handle) as one:
        one.receive(command(2, incident="B"))
        one.receive(command(1, incident="A"))
        assert handled == []
        one.poll()
        assert handled == [1, 2]
        assert not one.may_compact(), "a refused halt stays in force"
    assert sink.acks[-1] == ("cmd-2", "refused")
    [refused] = [event for event in sink.events if isinstance(event, Ack) and event.outcome == "refused"]
    assert refused.detail == "RuntimeError: no room for it"


def test_an_acknowledgement_continues_the_commands_trace() -> None:
    sink = Sink()
    parent = f"00-{7:032x}-{9:016x}-01"
    with session(sink) as one:
        one.receive(command(1, traceparent=parent))
    traced = [trace.traceparent for event, trace in zip(sink.events, sink.traces, strict=True) if isinstance(event, Ack)]
    assert traced == [parent]


@pytest.mark.parametrize(
    ("orders", "says"),
    [
        ([], "not halted"),
        ([command(1, "cap-depth", max_depth=2)], "not halted"),
        ([command(1, "stop-agent")], "leave the agent's loop"),
        ([command(1), command(2, "stop-agent")], "leave the agent's loop"),
        ([command(1, level=1)], "session.retries"),
        ([command(1)], ""),
    ],
    ids=["running", "capped", "stopped", "halted and stopped", "halted for a level", "halted"],
)
def test_a_rehydration_that_answers_nothing_is_told_once(
    orders: list[Command], says: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A loop that does nothing else would go on for ever without a word."""
    with session(Sink()) as one:
        one.ledger.add_raw("m1", 100, 0.4)
        for order in orders:
            one.receive(order)
        for _ in range(3):
            one.rehydrate(lambda span: None)
    told = [record.getMessage() for record in caplog.records if "in vain" in record.getMessage()]
    assert len(told) == bool(says)
    assert says in "".join(told)
