from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

import pytest

from leadline.commands.fold import DeadLetter, Incoming
from leadline.errors import BrokerError
from leadline.processors.outputs import Delivery, Outgoing, Send, Sent, Undeliverable, dead_letter


class Away(Exception):
    retriable = True


class TooLarge(Exception):
    retriable = False


class FakeBroker:
    """Keeps what it confirms, by lane. ``refuse`` decides for each record whether it fails, and how."""

    def __init__(self, refuse: Callable[[Outgoing, int], Exception | None] = lambda record, number: None) -> None:
        self.lanes: dict[tuple[str, int | None], list[bytes | None]] = {}
        self.refuse = refuse
        self.number = 0
        self.in_flight = self.most_in_flight = 0
        self.up = True

    async def send(self, record: Outgoing) -> Awaitable[Sent]:
        self.number += 1
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        return asyncio.ensure_future(self._confirm(record, self.number))

    async def _confirm(self, record: Outgoing, number: int) -> Sent:
        await asyncio.sleep(0.001)
        self.in_flight -= 1
        if error := self.refuse(record, number):
            raise error
        lane = self.lanes.setdefault((record.topic, record.partition), [])
        lane.append(record.value)
        return Sent(record.partition or 0, len(lane) - 1)

    async def reachable(self) -> bool:
        return self.up


def one_by_one(send: Callable[[Outgoing], Awaitable[Awaitable[Sent]]]) -> Send:
    """All handed over first, then all awaited, as the real sender does."""

    async def outcome(handed: Awaitable[Sent], timeout_s: float) -> Sent | BaseException:
        try:
            async with asyncio.timeout(timeout_s):
                return await handed
        except Exception as error:
            return error

    async def send_all(records: Sequence[Outgoing], timeout_s: float) -> list[Sent | BaseException]:
        handed = [await send(record) for record in records]
        return [await outcome(each, timeout_s) for each in handed]

    return send_all


def delivery(broker: FakeBroker, counts: Counter[str] | None = None, away_s: float = 5, letters_s: float = 0.3) -> Delivery:
    async def pause(seconds: float) -> None:
        await asyncio.sleep(min(seconds, 0.01))

    return Delivery(one_by_one(broker.send), broker.reachable, away_s, letters_s, Counter() if counts is None else counts, pause)


def records(number: int, partitions: int = 2) -> list[Outgoing]:
    return [Outgoing("t", i % partitions, b"k", b"%d" % i) for i in range(number)]


async def test_all_are_in_flight_together_and_answers_keep_their_order() -> None:
    broker = FakeBroker()
    sent = await delivery(broker).confirm(records(6))
    assert broker.most_in_flight == 6
    assert sent == [Sent(0, 0), Sent(1, 0), Sent(0, 1), Sent(1, 1), Sent(0, 2), Sent(1, 2)]


async def test_nothing_to_send_is_confirmed_at_once() -> None:
    assert await delivery(FakeBroker()).confirm([]) == []


async def test_a_failure_is_repeated_with_all_that_follow_on_its_partition() -> None:
    """So that the last copies stand in order; other partitions are not sent twice."""
    broker = FakeBroker(lambda record, number: Away() if number == 3 else None)
    await delivery(broker).confirm(records(6))
    assert broker.lanes["t", 0] == [b"0", b"4", b"2", b"4"]
    assert broker.lanes["t", 1] == [b"1", b"3", b"5"]


async def test_a_broker_that_stays_away_ends_it_with_a_sentence() -> None:
    broker = FakeBroker(lambda record, number: Away())
    with pytest.raises(BrokerError, match=r"did not confirm 2 records for t within 0.05 s"):
        await delivery(broker, away_s=0.05).confirm(records(2))


async def test_a_final_refusal_is_never_passed_over() -> None:
    broker = FakeBroker(lambda record, number: TooLarge("password=hunter2") if number == 2 else None)
    with pytest.raises(Undeliverable, match="refuses a record for t") as caught:
        await delivery(broker).confirm(records(2))
    assert "hunter2" not in str(caught.value)


def letters(number: int) -> list[Outgoing]:
    return [
        dead_letter(DeadLetter(Incoming(b"\xff", b"{", 2, 70 + i, 0), "not-json", "token=abc \x1b[0m"), 0) for i in range(number)
    ]


def test_a_dead_letter_keeps_key_and_bytes_and_says_why() -> None:
    (letter,) = letters(1)
    assert (letter.key, letter.value) == (b"\xff", b"{")
    assert dict(letter.headers) == {
        "reason": b"not-json",
        "error": b"token=*** \\x1b[0m",
        "source-topic": b"leadline.events",
        "source-partition": b"2",
        "source-offset": b"70",
        "time": b"1970-01-01T00:00:00.000Z",
    }


async def test_a_dead_letter_topic_that_fails_for_a_while() -> None:
    counts: Counter[str] = Counter()
    broker = FakeBroker(lambda record, number: Away() if number <= 2 else None)
    await delivery(broker, counts).bury(letters(2))
    assert counts == {"dead_letters": 2}


@pytest.mark.parametrize("error", [Away(), TooLarge()])
async def test_a_dead_letter_topic_that_stays_down_is_loud_and_counted(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """And it does not hold up the work; once it is back, letters arrive again."""
    counts: Counter[str] = Counter()
    broker = FakeBroker(lambda record, number: error)
    burying = delivery(broker, counts)
    with caplog.at_level(logging.ERROR):
        async with asyncio.timeout(2):
            await burying.bury(letters(2))
    assert counts["dead_letters_lost"] == 2
    assert len(caplog.records) == 2
    assert caplog.records[0].__dict__["leadline_fields"]["offset"] == "70"
    broker.refuse = lambda record, number: None
    await burying.bury(letters(1))
    assert counts["dead_letters"] == 1


async def test_a_dead_letter_that_hangs_does_not_hold_up_the_work() -> None:
    counts: Counter[str] = Counter()
    broker = FakeBroker()

    async def hang(record: Outgoing) -> Awaitable[Sent]:
        return asyncio.ensure_future(asyncio.sleep(60, Sent(0, 0)))

    burying = Delivery(one_by_one(hang), broker.reachable, 5, 0.1, counts)
    async with asyncio.timeout(2):
        await burying.bury(letters(1))
    assert counts["dead_letters_lost"] == 1


async def test_with_the_broker_away_dead_letters_wait_for_it() -> None:
    counts: Counter[str] = Counter()
    broker = FakeBroker(lambda record, number: None if broker.up else Away())
    broker.up = False
    task = asyncio.create_task(delivery(broker, counts, letters_s=0.05).bury(letters(1)))
    await asyncio.sleep(0.2)
    assert not task.done()
    broker.up = True
    async with asyncio.timeout(2):
        await task
    assert counts == {"dead_letters": 1}


async def test_where_nothing_else_is_confirmed_either_dead_letters_wait_too() -> None:
    """A broker that answers and takes nothing, as one that is just coming back: that is no trouble of the letters' topic."""
    counts: Counter[str] = Counter()
    taking = False
    broker = FakeBroker(lambda record, number: None if taking else Away())
    sending = delivery(broker, counts, letters_s=0.05)
    outputs = asyncio.create_task(sending.confirm(records(2)))
    burying = asyncio.create_task(sending.bury(letters(1)))
    await asyncio.sleep(0.3)
    assert not burying.done()
    taking = True
    async with asyncio.timeout(10):
        await asyncio.gather(outputs, burying)
    assert counts["dead_letters"] == 1
    assert counts["dead_letters_lost"] == 0
