"""Silences from their topic: what holds, what has ended, what is refused; on a real broker."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from confluent_kafka import Producer

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


def test_they_are_read_from_the_beginning_of_the_topic(fresh_bootstrap: str) -> None:
    topics.create(load_settings({}, bootstrap=fresh_bootstrap, partitions=2), timeout_s=20.0)
    producer = Producer({"bootstrap.servers": fresh_bootstrap, "log_level": 0})
    for number in range(3):
        producer.produce(SilenceSource.topic, encode(silence(number)), f"x{number}".encode())
    assert producer.flush(20.0) == 0
    source = Source(fresh_bootstrap)
    deadline = time.monotonic() + 60
    while len(source.in_force) < 3:
        assert time.monotonic() < deadline, source.in_force
        source.poll()
        time.sleep(0.01)
    assert {one.silence_id for one in source.in_force} == {"x0", "x1", "x2"}
