"""Load: rounds of healthy sessions with full windows at a rate, from a process of its own.

``python -m benchmarks.engines.loader JOB``.

Sessions are visited in a scattered order, each with its next round. Prints one JSON object: what was sent, and in what time.
"""

from __future__ import annotations

import sys
import time
import zlib
from array import array
from collections.abc import Iterator
from typing import Final

import msgspec
from confluent_kafka import Producer

from leadline.contracts.topics import EVENTS

__all__ = ["FIRST_ROUND", "Load", "Sent", "key_of", "partition_of", "rounds"]

FIRST_ROUND: Final = 18
"""Rounds before this one are taken to have been seen: the window is full."""
_PRIME: Final = 7919
_ROUND: Final = (
    '{"schema":"leadline.round/1","session_id":"%s","agent_id":"a","fleet":"load","epoch":0,"event_id":"%s/%d","round":%d,'
    '"trigger":"budget","raw_tokens":%d,"summary_tokens":80000,"distinct_source_spans":%d,"query_cosine_retained":0.4,'
    '"summary_depth_max":2,"max_depth":4,"session_start_spans":214,"token_budget":180000,"fixed_tokens":8000,'
    '"before":{"raw_tokens":76000,"summary_tokens":80000,"distinct_source_spans":214},"ungrounded_summaries":0,"ts":""}'
)


class Load(msgspec.Struct, kw_only=True):
    """``rate`` 0: as fast as the broker takes it. Ends after ``events`` or ``seconds``, whichever is given."""

    bootstrap: str
    sessions: int
    partitions: int
    rate: float = 0.0
    events: int = 0
    seconds: float = 0.0


class Sent(msgspec.Struct, kw_only=True):
    events: int
    seconds: float


def key_of(number: int) -> str:
    return f"session-{number:07d}"


def partition_of(key: bytes, partitions: int) -> int:
    """As librdkafka chooses it by default, said explicitly: states are written beside the events."""
    return zlib.crc32(key) % partitions


def rounds(sessions: int) -> Iterator[tuple[bytes, bytes]]:
    """Endless: key and value."""
    step = _PRIME if sessions % _PRIME else 1
    last = array("I", [FIRST_ROUND - 1]) * sessions
    at = 0
    while True:
        at = (at + step) % sessions
        last[at] += 1
        number, key = last[at], key_of(at)
        yield key.encode(), (_ROUND % (key, key, number, number, 70_000 + number % 7 * 100, 212 + number % 3)).encode()


def run(given: Load) -> Sent:
    producer = Producer(
        {"bootstrap.servers": given.bootstrap, "linger.ms": 5, "queue.buffering.max.messages": 50_000, "acks": "all"}
    )
    started = time.monotonic()
    sent = 0
    for key, value in rounds(given.sessions):
        if sent % 64 == 0:
            producer.poll(0)
            passed = time.monotonic() - started
            if given.seconds and passed >= given.seconds:
                break
            ahead = sent / given.rate - passed if given.rate else 0.0
            if ahead > 0:
                time.sleep(ahead)
        if given.events and sent >= given.events:
            break
        while True:
            try:
                producer.produce(EVENTS.name, value, key, partition=partition_of(key, given.partitions))
                break
            except BufferError:
                producer.poll(0.05)
        sent += 1
    if producer.flush(60):
        raise RuntimeError("the broker did not take the load")
    return Sent(events=sent, seconds=time.monotonic() - started)


if __name__ == "__main__":
    sys.stdout.write(msgspec.json.encode(run(msgspec.json.decode(sys.argv[1], type=Load))).decode() + "\n")
