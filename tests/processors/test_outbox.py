"""Outputs on their way, without a broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from leadline.processors.outbox import Outbox
from leadline.processors.outputs import Outgoing, Sent


class Slow:
    """A delivery that is over when the test says so."""

    def __init__(self) -> None:
        self.calls: list[list[bytes | None]] = []
        self.go = asyncio.Semaphore(0)

    async def confirm(self, records: list[Outgoing]) -> list[Sent]:
        self.calls.append([record.value for record in records])
        await self.go.acquire()
        return [Sent(0, 0) for _ in records]

    async def bury(self, letters: list[Outgoing]) -> None:
        assert not letters


def out(*values: bytes) -> list[Outgoing]:
    return [Outgoing("t", 0, b"k", value) for value in values]


@pytest.fixture
async def slow() -> AsyncIterator[tuple[Slow, Outbox]]:
    delivery: Any = Slow()
    box = Outbox(delivery, most=2)
    task = asyncio.create_task(box.run())
    yield delivery, box
    task.cancel()


async def test_what_gathers_during_a_delivery_goes_in_the_next_in_order(slow: tuple[Slow, Outbox]) -> None:
    delivery, box = slow
    told: list[str] = []
    box.put(out(b"1"), [], lambda: told.append("a"))
    first = box.mark
    await asyncio.sleep(0)
    box.put(out(b"2"), [], lambda: told.append("b"))
    box.put([], [], lambda: told.append("c"))
    box.put(out(b"3"), [], lambda: told.append("d"))
    second = box.mark
    delivery.go.release()
    await asyncio.wait_for(box.confirmed(first), 5)
    assert told == ["a"]
    later = asyncio.create_task(box.confirmed(second))
    await asyncio.sleep(0.02)
    assert not later.done(), "a flush waits for the outputs of its own states"
    delivery.go.release()
    await asyncio.wait_for(later, 5)
    assert told == ["a", "b", "c", "d"]
    assert delivery.calls == [[b"1"], [b"2", b"3"]]


async def test_with_nothing_on_its_way_nothing_is_waited_for(slow: tuple[Slow, Outbox]) -> None:
    _, box = slow
    told: list[str] = []
    box.put([], [], lambda: told.append("a"))
    assert told == ["a"]
    await asyncio.wait_for(box.confirmed(box.mark), 5)


async def test_past_the_limit_it_holds_up_who_puts(slow: tuple[Slow, Outbox]) -> None:
    delivery, box = slow
    box.put(out(b"1", b"2", b"3"), [], lambda: None)
    room = asyncio.create_task(box.room())
    await asyncio.sleep(0.02)
    assert not room.done()
    delivery.go.release()
    await asyncio.wait_for(room, 5)
