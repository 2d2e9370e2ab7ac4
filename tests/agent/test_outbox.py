"""The queue behind the emitter: bounded, and what matters least gives way first."""

from __future__ import annotations

import pytest

from leadline.agent.outbox import ONCE, ORDINARY, SUMMARIZED, TELLING, Entry, Outbox, rank_of
from leadline.contracts.events import Ack, AgentEvent, Checkpoint, FactStatus, SessionStart
from leadline.contracts.trace import NO_TRACE
from tests.agent.support import round_event


def entry(name: str, rank: int = ORDINARY, size: int = 1) -> Entry:
    return Entry(round_event(name), NO_TRACE, rank, size)


def drain(outbox: Outbox) -> list[str]:
    found = []
    while (one := outbox.pop()) is not None:
        found.append(one.event.session_id)
    return found


def push(outbox: Outbox, one: Entry) -> list[str]:
    """Names of those that gave way."""
    return [gone.event.session_id for gone in outbox.push(one)]


def test_what_matters_least_gives_way_first_the_oldest_of_it_before_the_newer() -> None:
    """A queue of 4: start, r1, an alarm, r2; r3 takes r1's place and keeps the order; two more alarms take r2's and r3's."""
    outbox = Outbox(4, 1_000)
    for one in (entry("start", ONCE), entry("r1"), entry("alarm 1", TELLING), entry("r2")):
        assert push(outbox, one) == []
    assert push(outbox, entry("r3")) == ["r1"]
    assert push(outbox, entry("alarm 2", TELLING)) == ["r2"]
    assert push(outbox, entry("alarm 3", TELLING)) == ["r3"]
    assert push(outbox, entry("alarm 4", TELLING)) == ["alarm 1"]
    assert drain(outbox) == ["start", "alarm 2", "alarm 3", "alarm 4"]


def test_where_all_others_matter_more_a_round_gives_way_itself_and_anything_else_the_oldest() -> None:
    outbox = Outbox(2, 1_000)
    outbox.push(entry("a", ONCE))
    outbox.push(entry("b", ONCE))
    assert push(outbox, entry("r")) == ["r"]
    assert push(outbox, entry("c", ONCE)) == ["a"]
    assert drain(outbox) == ["b", "c"]


def test_bytes_are_bounded_too() -> None:
    """Of at most 10 bytes: three of 4 do not fit, and a large one empties the queue rather than be refused."""
    outbox = Outbox(100, 10)
    assert push(outbox, entry("r1", size=4)) == []
    assert push(outbox, entry("r2", size=4)) == []
    assert push(outbox, entry("r3", size=4)) == ["r1"]
    assert push(outbox, entry("big", size=50)) == ["r2", "r3"]
    assert drain(outbox) == ["big"]


def test_emptied_slots_do_not_pile_up() -> None:
    """An entry that never leaves at the head, and 20,000 rounds behind it."""
    outbox = Outbox(10, 1_000)
    outbox.push(entry("start", ONCE))
    for n in range(20_000):
        outbox.push(entry(f"r{n}"))
    assert len(outbox._entries) < 100
    assert drain(outbox) == ["start", *(f"r{n}" for n in range(19_991, 20_000))]


@pytest.mark.parametrize(
    ("event", "rank"),
    [
        (SessionStart(session_id="s", agent_id="a"), ONCE),
        (Ack(session_id="s", agent_id="a", command_id="c", seq=1, outcome="done"), ONCE),
        (round_event(), ORDINARY),
        (round_event(outcome="failed"), TELLING),
        (round_event(ungrounded_summaries=1), TELLING),
        (round_event(summary_depth_max=2, raw_tokens=42, summary_tokens=100), TELLING),  # 0.296 raw
        (round_event(summary_depth_max=2, raw_tokens=43, summary_tokens=100), ORDINARY),  # 0.301
        (round_event(summary_depth_max=2, distinct_source_spans=1), TELLING),  # of 10: the floor is 2
        (round_event(summary_depth_max=3), TELLING),  # at the limit
        (round_event(raw_tokens=None), ORDINARY),
        (Checkpoint(session_id="s", agent_id="a", level=1, source_spans=3, seen_spans=3), SUMMARIZED),
        (Checkpoint(session_id="s", agent_id="a", level=1, source_spans=3, seen_spans=2), TELLING),
        (Checkpoint(session_id="s", agent_id="a", level=1, stop_reason="length"), TELLING),
        (
            Checkpoint(session_id="s", agent_id="a", level=1, facts=[FactStatus(fact_id="f", status="absent")]),
            TELLING,
        ),
    ],
)
def test_an_alarm_may_rest_on_it(event: AgentEvent, rank: int) -> None:
    assert rank_of(event) == rank
