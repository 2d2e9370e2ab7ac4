"""Silences from their topic: what holds, what has ended, what is refused; on a real broker."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from leadline.contracts.codec import encode
from leadline.contracts.manual import Silence
from leadline.contracts.times import format_ms
from leadline.detection.policy import DEFAULT_POLICY, Policy
from leadline.processors import topics
from leadline.processors.silences import MOST, SilenceSource
from leadline.settings import load_settings
from tests.support.core import START


def silence(number: int = 1, **changes: Any) -> Silence:
    said = {"silence_id": f"x{number}", "rule": "inversion", "fleet": "f1", "at": format_ms(START), "who": "ada", "why": "known"}
    return Silence(**said | {"expires_at": format_ms(START + 60_000)} | changes)


class Source(SilenceSource):
    def __init__(self, bootstrap: str = "127.0.0.1:1") -> None:
        self.time = START
        self.counts: Counter[str] = Counter()
        super().__init__(load_settings({}, bootstrap=bootstrap), lambda: self.time, self.counts)


def test_the_last_record_of_a_silence_counts() -> None:
    source = Source()
    source.take(encode(silence()))
    assert [one.silence_id for one in source.in_force] == ["x1"]
    source.take(encode(silence(lifted=True)))
    assert list(source.in_force) == []
    source.take(encode(silence()))
    source.time += 60_000
    source.take(encode(silence(2, expires_at=format_ms(START + 120_000))))
    assert [one.silence_id for one in source.in_force] == ["x2"], "the first has expired"


def test_a_policy_without_silences_stays_the_very_same() -> None:
    source = Source()
    assert list(source.in_force) == []
    assert source.over(DEFAULT_POLICY) is DEFAULT_POLICY
    source.take(encode(silence()))
    under = source.over(DEFAULT_POLICY)
    assert under == Policy(silences=(silence(),))
    assert source.over(DEFAULT_POLICY) is under, "made once, not for every batch"


def test_what_cannot_be_read_or_is_too_many_is_counted_and_left_out() -> None:
    source = Source()
    source.take(b"{}")
    for number in range(MOST + 1):
        source.take(encode(silence(number)))
    assert (len(source.in_force), source.counts["silences_refused"]) == (MOST, 2)


def put(bootstrap: str, *silences: Silence) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for one in silences:
        producer.produce(SilenceSource.topic, encode(one), one.silence_id.encode())
    assert producer.flush(20.0) == 0


async def test_all_of_them_hold_before_anything_is_judged(fresh_bootstrap: str) -> None:
    """From the beginning of the topic, over all its partitions; one that was lifted is never in force in between."""
    topics.create(load_settings({}, bootstrap=fresh_bootstrap, partitions=3), timeout_s=20.0)
    empty = Source(fresh_bootstrap)
    told: list[str] = []
    await empty.read_first(told.append, lambda: False)
    assert (empty.complete, empty.in_force, told[-1]) == (True, (), "")
    put(fresh_bootstrap, *(silence(number) for number in range(9)), silence(4, lifted=True))
    source = Source(fresh_bootstrap)
    await source.read_first(told.append, lambda: False)
    assert {one.silence_id for one in source.in_force} == {f"x{number}" for number in range(9) if number != 4}
    put(fresh_bootstrap, silence(10))
    deadline = time.monotonic() + 60
    while len(source.in_force) < 9:
        assert time.monotonic() < deadline, source.in_force
        source.poll()
        time.sleep(0.01)


async def test_a_topic_that_cannot_be_read_yet_is_waited_for_with_a_sentence(fresh_bootstrap: str) -> None:
    source, told = Source(fresh_bootstrap), asyncio.Queue[str]()
    reading = asyncio.create_task(source.read_first(told.put_nowait, lambda: False))
    said = await asyncio.wait_for(told.get(), 60)
    assert "nothing is judged before the silences have been read: topic leadline.silences does not exist" in said
    assert not source.complete
    topics.create(load_settings({}, bootstrap=fresh_bootstrap, partitions=2), timeout_s=20.0)
    put(fresh_bootstrap, silence())
    await asyncio.wait_for(reading, 60)
    while not told.empty():
        said = told.get_nowait()
    assert (said, source.complete) == ("", True)


def test_only_what_is_said_of_the_topic_keeps_it_from_being_read() -> None:
    """The client looks for its group's coordinator, which it has no use for."""

    def said(code: int, topic: str | None) -> Any:
        return SimpleNamespace(error=lambda: KafkaError(code), topic=lambda: topic, partition=lambda: 0)

    source = Source()
    source._look_at(said(KafkaError.GROUP_AUTHORIZATION_FAILED, None))
    with pytest.raises(KafkaException):
        source._look_at(said(KafkaError.TOPIC_AUTHORIZATION_FAILED, SilenceSource.topic))


async def test_a_stop_ends_the_waiting() -> None:
    source, told = Source(), list[str]()
    await asyncio.wait_for(source.read_first(told.append, lambda: bool(told)), 60)
    assert (source.complete, len(told), told[-1]) == (False, 2, "")


def test_what_was_in_force_stays_while_the_topic_is_read_anew(fresh_bootstrap: str) -> None:
    """The client was given up after an error: until the topic has been read to its end once more, nothing changes."""
    topics.create(load_settings({}, bootstrap=fresh_bootstrap, partitions=1), timeout_s=20.0)
    put(fresh_bootstrap, silence(1), silence(2), silence(1, lifted=True))
    source = Source(fresh_bootstrap)
    source.poll(60)
    assert [one.silence_id for one in source.in_force] == ["x2"]
    source._drop()
    put(fresh_bootstrap, silence(3))
    source._connected()
    source.take(encode(silence(1)))
    assert [one.silence_id for one in source.in_force] == ["x2"]
    source.poll(60)
    assert [one.silence_id for one in source.in_force] == ["x2", "x3"]
