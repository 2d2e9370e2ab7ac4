"""Sending to a real broker: each record is confirmed, or an exception stands in its place."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from leadline.processors import topics as declared
from leadline.processors.outputs import Outgoing, Sent
from leadline.processors.send import Sender, SendError, producer_config
from leadline.settings import Settings
from tests.processors.running import Topics
from tests.support.ports import free_ports

TOPIC = "leadline.commands"


@pytest.fixture
async def open_(tmp_path: Path) -> AsyncIterator[Callable[..., Sender]]:
    opened: list[Sender] = []

    def open_one(
        bootstrap: str, heard: Callable[[], object] = int, settings: dict[str, Any] | None = None, **more: Any
    ) -> Sender:
        config = producer_config(Settings(bootstrap=bootstrap, data_dir=tmp_path, **(settings or {})))
        opened.append(Sender({**config, **more}, heard))
        return opened[-1]

    yield open_one
    for sender in opened:
        await sender.close(0.1)


def out(value: bytes, topic: str = TOPIC, partition: int | None = 1) -> Outgoing:
    return Outgoing(topic, partition, b"k", value, (("schema", b"x"),))


@pytest.fixture(scope="module")
def made(bootstrap: str) -> str:
    declared.create(Settings(bootstrap=bootstrap, partitions=2))
    return bootstrap


async def test_all_are_confirmed_in_order_and_each_confirmation_is_an_answer(made: str, open_: Callable[..., Sender]) -> None:
    told: list[int] = []
    sender = open_(made, lambda: told.append(1))
    sent = await sender.send_all([out(b"%d" % number) for number in range(50)], 20)
    first = sent[0]
    assert isinstance(first, Sent)
    assert sent == [Sent(1, first.offset + number) for number in range(50)]
    assert len(told) == 50
    topics = Topics(made)
    found = [message for message in topics.read(TOPIC) if message.offset() >= first.offset]
    topics.close()
    assert [message.value() for message in found] == [b"%d" % number for number in range(50)]
    assert (found[0].key(), found[0].headers()) == (b"k", [("schema", b"x")])


async def test_nothing_to_send_needs_no_broker(open_: Callable[..., Sender]) -> None:
    assert await open_("127.0.0.1:1").send_all([], 1) == []


async def test_a_record_that_is_too_large_is_refused_for_good_and_its_neighbours_are_not(
    made: str, open_: Callable[..., Sender]
) -> None:
    sender = open_(made, settings={"max_request_bytes": 2000})
    small, large, last = await sender.send_all([out(b"a"), out(b"x" * 3000), out(b"b")], 20)
    assert isinstance(small, Sent)
    assert isinstance(last, Sent)
    assert isinstance(large, SendError)
    assert not large.retriable
    assert "MSG_SIZE_TOO_LARGE" in str(large)


async def test_a_partition_that_is_not_there_may_come_back(made: str, open_: Callable[..., Sender]) -> None:
    """As that of a topic that is just made anew; its neighbour is confirmed."""
    refused, sent = await open_(made).send_all([out(b"a", partition=9), out(b"b")], 60)
    assert isinstance(refused, SendError | TimeoutError)
    assert getattr(refused, "retriable", True)
    assert isinstance(sent, Sent)


async def test_a_broker_that_is_away_ends_the_wait_and_nothing_is_known(open_: Callable[..., Sender]) -> None:
    (port,) = free_ports(1)
    answers = await open_(f"127.0.0.1:{port}", log_level=0).send_all([out(b"a"), out(b"b")], 0.1)
    assert [type(answer) for answer in answers] == [TimeoutError, TimeoutError]


async def test_a_buffer_that_is_never_drained_is_not_waited_for_for_ever(open_: Callable[..., Sender]) -> None:
    """Room for one record and no broker: the second finds no place in time, the first no confirmation."""
    (port,) = free_ports(1)
    sender = open_(f"127.0.0.1:{port}", log_level=0, **{"queue.buffering.max.messages": 1})
    first, second = await sender.send_all([out(b"a"), out(b"b")], 0.1)
    assert isinstance(first, TimeoutError)
    assert isinstance(second, TimeoutError)
    assert "buffer is full" in str(second)


async def test_calls_at_the_same_time_have_their_own_answers(made: str, open_: Callable[..., Sender]) -> None:
    sender = open_(made)
    one, two = await asyncio.gather(
        sender.send_all([out(b"one", partition=0)] * 3, 20), sender.send_all([out(b"two", partition=1)] * 2, 20)
    )
    assert [answer.partition for answer in one if isinstance(answer, Sent)] == [0, 0, 0]
    assert [answer.partition for answer in two if isinstance(answer, Sent)] == [1, 1]
