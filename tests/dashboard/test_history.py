"""What is kept of an opened session: bounded by kind, so that rounds never push out what happened once."""

from __future__ import annotations

from leadline.contracts.codec import decode_event
from leadline.contracts.events import Round, Summary
from leadline.dashboard.history import Past, Seen
from tests.support.core import Monitor, ack, checkpoint, round_, start


def halted() -> Monitor:
    monitor = Monitor()
    monitor.send(round_(1, 0.60, distinct_source_spans=200, query_cosine_retained=0.5, summary_depth_max=2))
    monitor.send(round_(2, 0.24, distinct_source_spans=150, query_cosine_retained=0.6, summary_depth_max=2))
    return monitor


def test_rounds_and_calls_give_way_to_newer_ones_and_acknowledgements_do_not() -> None:
    past = Past("s1", 0)
    answer = ack(halted().commands[0], event_id="k1")
    past.add(Seen(0, 0, start()))
    past.add(Seen(1, 1, answer))
    for number in range(2, 4_002):
        past.add(Seen(number, number, round_(number) if number % 2 else checkpoint(1)))
    seen = past.of_agent("a1")
    assert [one.event for one in seen[:2]] == [start(), answer]
    assert (len(seen), seen[-1].offset) == (2 + 2_000 + 500, 4_001)
    assert [one.offset for one in seen] == sorted(one.offset for one in seen)
    assert past.version == 4_002


def test_only_the_newest_list_of_summaries_is_kept_for_each_agent() -> None:
    past = Past("s1", 0)
    listed = [Summary(id="S1", depth=1, tokens=5)]
    for number, agent in enumerate(("a1", "a2", "a1", "a1")):
        past.add(Seen(number, number, round_(number, agent_id=agent, summaries=None if number == 3 else listed)))
    told = {
        agent: [one.event.summaries for one in past.of_agent(agent) if isinstance(one.event, Round)] for agent in ("a1", "a2")
    }
    assert told == {"a1": [None, listed, None], "a2": [listed]}


def test_the_monitors_own_ticks_are_no_event_of_the_session() -> None:
    past = Past("s1", 0)
    monitor = Monitor()
    monitor.send(round_(1))
    monitor.tick(60_000)
    assert monitor.log[-1].value is not None
    past.add(Seen(0, 0, decode_event(monitor.log[-1].value).event))
    assert past.of_agent("a1") == []
