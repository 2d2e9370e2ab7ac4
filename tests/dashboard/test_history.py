"""What is kept of an opened session: bounded by kind, so that rounds never push out what happened once."""

from __future__ import annotations

import time
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException

from leadline.contracts.codec import decode_event
from leadline.contracts.events import Round, Summary
from leadline.dashboard import history as module
from leadline.dashboard.history import MOST_SESSIONS, History, Past, Seen
from leadline.settings import load_settings
from tests.dashboard.feed import Feed
from tests.dashboard.test_access import browser
from tests.dashboard.test_serve import PARTITION, Topics
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


@pytest.mark.timeout(60)
def test_a_session_that_is_looked_at_keeps_its_place(fresh_bootstrap: str) -> None:
    """One page more than there are places, each asking in turn: the others are not looked up anew, and it waits for a place."""
    Topics(fresh_bootstrap)
    now = [0.0]
    history = History(load_settings({}, bootstrap=fresh_bootstrap), clock=lambda: now[0])
    names = [f"s{number}" for number in range(MOST_SESSIONS)]
    try:
        first = [history.open(name, number % 4) for number, name in enumerate(names)]
        for _ in range(100):
            now[0] += 0.5
            assert history.open("one-more", 0) is None
            again = [history.open(name, number % 4) for number, name in enumerate(names)]
            assert all(one is not None and one is other for one, other in zip(first, again, strict=True))
        now[0] += 29.0
        assert all(history.open(name, number % 4) for number, name in enumerate(names) if number)
        assert history.open("one-more", 0) is None
        now[0] += 1.5
        assert history.open("one-more", 0) is not None, "nobody has asked for s0 for half a minute"
        assert history.open("s0", 0) is None
    finally:
        history.close()


@pytest.mark.parametrize(
    ("place", "error", "said"),
    [
        (False, "", "64 other sessions are being looked at"),
        (True, "the events cannot be read: X", "the events cannot be read: X"),
    ],
)
async def test_a_session_is_shown_with_what_its_record_holds_and_says_so(place: bool, error: str, said: str) -> None:
    class Without(History):
        def open(self, session_id: str, partition: int) -> Past | None:
            self.error = error
            return Past(session_id, partition) if place else None

    feed = Feed()
    feed.send(round_(1))
    async with browser(shows=feed.view, history=Without(load_settings({}))) as client:
        document = (await client.get("/api/session?session=s1&agent=a1")).json()
    assert document["past"].startswith(said)
    assert document["rounds"]["round"] == [1]
    assert document["complete"] is not place


@pytest.mark.timeout(60)
def test_a_reader_that_failed_says_so_and_begins_again(fresh_bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    written, feed = Topics(fresh_bootstrap), Feed()
    for number in range(1, 4):
        feed.send(round_(number))
    written.publish(feed)
    well = False

    class Failing(Consumer):  # type: ignore[misc]
        def poll(self, *_: Any) -> Any:
            raise KafkaException(KafkaError(KafkaError._FAIL))

    def consumer(config: dict[str, Any]) -> Any:
        return Consumer(config) if well else Failing(config)

    monkeypatch.setattr(module, "Consumer", consumer)
    monkeypatch.setattr(module, "_AGAIN_S", 0.01)
    history = History(load_settings({}, bootstrap=fresh_bootstrap))
    deadline = time.monotonic() + 30
    try:
        past = history.open("s1", PARTITION)
        assert past is not None
        while not (said := history.error):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert "cannot be read" in said
        well = True
        while not past.complete or len(past.of_agent("a1")) < 3:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert history.error == ""
    finally:
        history.close()
