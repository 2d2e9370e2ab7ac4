"""A worker ends when no broker answers, and only then: whatever a broker answers counts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from leadline.broker.embedded import EmbeddedBroker
from leadline.errors import BrokerError
from leadline.processors import worker
from leadline.processors.contact import Contact, watch_brokers
from tests.processors.running import RunningWorker, Topics, round_event, until

DEAF = ("tests.processors.deaf_worker",)


class World:
    """Time passes only where somebody sleeps. ``meanwhile`` is called at the end of each sleep."""

    def __init__(self, meanwhile: Callable[[World], None] = lambda world: None) -> None:
        self.time = 100.0
        self.meanwhile = meanwhile
        self.contact = Contact(lambda: self.time)
        self.asked = 0

    async def sleep(self, seconds: float) -> None:
        self.time += seconds
        self.meanwhile(self)
        await asyncio.sleep(0)

    async def nobody(self) -> bool:
        self.asked += 1
        return False

    async def watch(self, limit_s: float) -> None:
        await watch_brokers(self.contact, self.nobody, "here:1", limit_s, self.sleep)


class Enough(Exception):
    """The test has seen what it wanted to see."""


async def test_nobody_answers() -> None:
    """Looks at 5, 10, ... s: the first past 20 s ends it."""
    world = World()
    with pytest.raises(BrokerError, match=r"no broker has answered at here:1 for 20 s; .* Check the brokers"):
        await world.watch(20.0)
    assert world.time == 125.0
    assert world.asked == 5


async def test_whatever_was_heard_since_the_last_look_is_an_answer() -> None:
    """The probe starves on a busy machine, and records are confirmed: ten times the limit passes, and nobody is asked."""

    def confirm(world: World) -> None:
        world.contact.heard()
        if world.time > 300.0:
            raise Enough

    world = World(confirm)
    with pytest.raises(Enough):
        await world.watch(20.0)
    assert world.asked == 0


async def test_what_is_heard_while_a_probe_starves_is_an_answer_too() -> None:
    world = World()

    async def starved() -> bool:
        world.time += 3.0
        world.contact.heard()
        if world.time > 300.0:
            raise Enough
        return False

    with pytest.raises(Enough):
        await watch_brokers(world.contact, starved, "here:1", 20.0, world.sleep)


async def test_an_answer_long_ago_counts_no_more() -> None:
    """Heard at 110 s, then no more: the looks at 115, 120, 125, 130 and 135 s have heard nothing."""
    world = World(lambda world: world.contact.heard() if world.time == 110.0 else None)
    with pytest.raises(BrokerError):
        await world.watch(20.0)
    assert world.time == 135.0


async def test_who_was_frozen_has_not_listened() -> None:
    """An hour in which the process did not run counts as the 8 s that one look may take: three more end it, not the first."""

    def freeze(world: World) -> None:
        if world.time == 105.0:
            world.time += 3600.0

    world = World(freeze)
    with pytest.raises(BrokerError):
        await world.watch(20.0)
    assert world.asked == 4
    assert world.time == 3720.0


def test_a_worker_whose_probes_starve_goes_on_while_records_are_confirmed(tmp_path: Path) -> None:
    """Eight heartbeats to the agents at 0.5 s each take longer than the limit of 3 s; when the broker goes, the worker ends."""
    with EmbeddedBroker() as broker:
        running = RunningWorker(broker.address, tmp_path, DEAF, test_deaf="probe", broker_away_s=3, heartbeat_s=0.5, drain_s=3)
        topics = Topics(broker.address)
        try:
            running.ready()
            until("heartbeats", lambda: len(topics.read("leadline.commands")) >= 8 * topics.partitions("leadline.commands"))
            assert running.process.poll() is None, running.log
            broker.stop()
            assert running.exit_code(30) == worker.BROKER_AWAY, running.log
        finally:
            running.stop()
            topics.close()


def test_the_exit_code_says_that_the_broker_is_away_also_where_a_commit_is_under_way(tmp_path: Path) -> None:
    """What then fails, because the clients are closed, hides neither the code nor the sentence."""
    with EmbeddedBroker() as broker:
        running = RunningWorker(broker.address, tmp_path, DEAF, test_deaf="all", broker_away_s=1, commit_interval_s=0.01)
        topics = Topics(broker.address)
        number = 0
        try:
            until("a ready worker", running.ready_file.exists)
            while running.process.poll() is None:
                number += 1
                topics.send(f"s{number % 40}", round_event(f"s{number % 40}", number))
                topics.flush()
            assert running.exit_code(1) == worker.BROKER_AWAY, running.log
            assert "no broker has answered at" in running.log
        finally:
            running.stop()
            topics.close()
