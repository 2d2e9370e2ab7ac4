"""Whether a worker may still write."""

from __future__ import annotations

import asyncio

import pytest

from leadline.errors import BrokerError
from leadline.processors.fencing import Ownership, suspended_clock


class World:
    generation = 4
    time = 100.0


def ownership(world: World) -> Ownership:
    return Ownership(lambda: world.generation, 10.0, lambda: world.time)


def test_it_holds_while_heartbeats_are_answered_and_the_generation_stands() -> None:
    world = World()
    own = ownership(world)
    own.heard(103.0)
    world.time = 110.9
    assert own.holds(4)
    world.time = 111.1
    assert not own.holds(4), "8 of 10 s after the last answered heartbeat was sent the partitions may be another's soon"
    own.heard(110.0)
    own.heard(105.0)
    assert own.holds(4), "answers may come out of order"
    world.generation = 5
    assert not own.holds(4)


async def test_who_wakes_up_waits_until_it_knows() -> None:
    """The generation is the old one still; what was begun is written only once the broker has confirmed the membership."""
    world = World()
    own = ownership(world)
    world.time = 160.0
    waiting = asyncio.create_task(own.sure(4, 5.0))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    own.heard(159.9)
    assert await asyncio.wait_for(waiting, 5)


async def test_who_wakes_up_and_has_lost_its_partitions_gives_up() -> None:
    world = World()
    own = ownership(world)
    world.time = 160.0
    waiting = asyncio.create_task(own.sure(4, 5.0))
    await asyncio.sleep(0.1)
    world.generation = 5
    assert not await asyncio.wait_for(waiting, 5)


async def test_a_broker_that_stays_away_ends_the_wait_with_a_sentence() -> None:
    world = World()
    own = ownership(world)
    world.time = 160.0
    with pytest.raises(BrokerError, match=r"not answered a heartbeat for 0\.1 s"):
        await own.sure(4, 0.1)


def test_the_clock_does_not_go_back() -> None:
    assert suspended_clock() <= suspended_clock()
