"""Faults of the workers, one scenario a function, and the list of all scenarios.

Each lets its faults loose on an arena and returns when the last one is over. It starts and ends with the stream paused; what it
leaves running is stopped after what came of it was compared.
"""

from __future__ import annotations

import shutil
import signal
import time
from pathlib import Path
from typing import Final

from confluent_kafka import Producer

from leadline.contracts import topics
from leadline.processors.faultpoints import POINTS
from tests.chaos import surroundings
from tests.chaos.arena import SESSION_TIMEOUT_S, Arena
from tests.chaos.scenario import Scenario, Times, until
from tests.chaos.upgrade import rolling_upgrade
from tests.support.brokers import ApacheKafka

__all__ = ["SCENARIOS"]

_WRITING: Final = ("after-fold", "after-outputs", "after-store", "after-removal", "after-changelog", "after-tombstone")
_SELDOM: Final = {"after-restore": 1, "after-tick": 3, "after-removal": 3, "after-tombstone": 3}
"""Points that are passed seldom: the last passage at which it is worth waiting for a kill."""


def kills_in_a_batch(arena: Arena, times: Times, _kafka: ApacheKafka) -> None:
    """kill -9 from inside, at every named step from the fold to the changelog."""
    _kills_at(arena, times, [point for point in POINTS if point in _WRITING])


def kills_around_a_batch(arena: Arena, times: Times, _kafka: ApacheKafka) -> None:
    """kill -9 from inside, at every other named step: acknowledged, committed, ticked, restored."""
    _kills_at(arena, times, [point for point in POINTS if point not in _WRITING])


def _kills_at(arena: Arena, times: Times, points: list[str]) -> None:
    arena.traffic.run()
    for turn in range(times.point):
        for point in points:
            arena.say(f"kill at {point}, {turn + 1} of {times.point}")
            # A passage that is too far off would be waited for in vain.
            passage = 1 + arena.dice.randrange(min(1 + turn, _SELDOM.get(point, 12)))
            arena.start("one", test_fault=f"{point}:{passage}")
            if arena.death("one", 60):
                arena.tally.faults[f"kill at {point}"] += 1
            else:
                arena.tally.notes.append(f"{point}:{passage} was not reached within 60 s")
                arena.kill("one", "kill at random")
            if arena.dice.random() < 0.15:
                arena.lose_store("one")
                arena.tally.faults["store deleted"] += 1
    arena.start("one")
    arena.ready("one")
    arena.traffic.pause()


def kills_at_random(arena: Arena, times: Times, _kafka: ApacheKafka) -> None:
    """kill -9 from outside at random moments, starts and restores among them."""
    arena.traffic.run()
    for turn in range(times.random):
        arena.say(f"kill at random, {turn + 1} of {times.random}")
        arena.start("one")
        if arena.dice.random() < 0.8:
            arena.ready("one")
            time.sleep(arena.dice.uniform(0, 1.0))
        else:
            time.sleep(arena.dice.uniform(0.5, 2.5))
        arena.kill("one", "kill at random")
    arena.start("one")
    arena.ready("one")
    arena.traffic.pause()


def rebalances(arena: Arena, times: Times, _kafka: ApacheKafka) -> None:
    """Two and three workers under load, without static membership: they join, leave in order, and die."""
    arena.start("anchor", instance_id="")
    arena.ready("anchor")
    before = arena.readies("anchor")
    arena.traffic.run()
    for turn in range(times.membership):
        names = ["two", "three"] if turn % 3 == 2 else ["two"]
        arena.say(f"{len(names) + 1} workers, {turn + 1} of {times.membership}; {arena.readies('anchor') - before} rebalances")
        for name in names:
            arena.start(name, instance_id="")
        for name in names:
            arena.ready(name)
        arena.tally.faults[f"rebalance, {len(names) + 1} workers"] += 1
        time.sleep(arena.dice.uniform(0.2, 1.0))
        for name in names:
            settled = arena.readies("anchor")
            if arena.dice.random() < 0.3:
                arena.kill(name, "kill among several")
            else:
                arena.stop(name)
            until(arena, lambda settled=settled: arena.readies("anchor") > settled, 60)  # type: ignore[misc]
    arena.traffic.pause()
    arena.tally.rebalances += arena.readies("anchor") - before


def zombies(arena: Arena, times: Times, _kafka: ApacheKafka) -> None:
    """SIGSTOP past the session timeout, at random and in the middle of a batch; another takes over; the zombie comes back."""
    points = ("", "after-outputs", "after-store", "after-fold")
    arena.start("two", instance_id="")
    arena.ready("two")
    before = arena.readies("two")
    for turn in range(times.each):
        point = points[turn % len(points)]
        arena.say(f"zombie {point or 'at random'}, {turn + 1} of {times.each}")
        arena.traffic.run()
        options = {"test_fault": f"{point}:{1 + arena.dice.randrange(10)}:stop"} if point else {}
        one = arena.start("one", instance_id="", **options)
        arena.ready("one")
        if point:
            until(arena, lambda one=one: _stopped(one.process.pid), 60)  # type: ignore[misc]
        else:
            time.sleep(arena.dice.uniform(0.2, 1.5))
            one.process.send_signal(signal.SIGSTOP)
        settled = arena.readies("two")
        until(arena, lambda settled=settled: arena.readies("two") > settled, 90)  # type: ignore[misc]
        time.sleep(1.5)  # The new owner goes past what the sleeper had in its hands.
        one.process.send_signal(signal.SIGCONT)
        arena.tally.faults[f"zombie {point or 'at random'}"] += 1
        time.sleep(SESSION_TIMEOUT_S / 2)
        arena.traffic.pause()
        if arena.workers["one"].process.poll() is None:
            arena.stop("one")
        else:
            arena.tally.exits[arena.workers.pop("one").process.wait(1)] += 1
    arena.tally.rebalances += arena.readies("two") - before


def stores(arena: Arena, times: Times, _kafka: ApacheKafka) -> None:
    """The local store deleted, or put back from an old copy, while the worker was down."""
    arena.start("one")
    arena.ready("one")
    arena.traffic.run()
    for turn in range(times.each):
        arena.say(f"store deleted, store stale, {turn + 1} of {times.each}")
        time.sleep(1)
        arena.kill("one", "kill at random")
        old = arena.folder / "old-copy"
        shutil.copytree(arena.data("one"), old)
        arena.start("one")
        arena.ready("one")
        time.sleep(2)
        arena.kill("one", "kill at random")
        arena.lose_store("one")
        old.rename(arena.data("one"))
        arena.tally.faults["store stale"] += 1
        arena.start("one")
        arena.ready("one")
        time.sleep(1)
        arena.kill("one", "kill at random")
        arena.lose_store("one")
        arena.tally.faults["store deleted"] += 1
        arena.start("one")
        arena.ready("one")
    arena.traffic.pause()


def interrupted_restores(arena: Arena, times: Times, _kafka: ApacheKafka) -> None:
    """The local store is lost, and the worker loses its membership at a random moment of its start or restore; it joins again."""
    arena.start("one", instance_id="")
    arena.ready("one")
    arena.traffic.run()
    time.sleep(4)
    for turn in range(2 * times.each):
        arena.say(f"restore interrupted, {turn + 1} of {2 * times.each}")
        arena.kill("one", "kill at random")
        arena.lose_store("one")
        arena.tally.faults["store deleted"] += 1
        one = arena.start("one", instance_id="")
        # The group waits for the dead member first; where it is frozen is chance, before, in or after its restore.
        time.sleep(SESSION_TIMEOUT_S + arena.dice.uniform(0, 3))
        one.process.send_signal(signal.SIGSTOP)
        time.sleep(1.5 * SESSION_TIMEOUT_S)
        one.process.send_signal(signal.SIGCONT)
        arena.tally.faults["restore interrupted by a rejoin"] += 1
        arena.ready("one")
        time.sleep(1)
    arena.traffic.pause()


def corrupted_changelog(arena: Arena, times: Times, _kafka: ApacheKafka) -> None:
    """Garbage as the last changelog record of some sessions, the local store lost: the last record that can be read counts."""
    for _ in range(times.each):
        arena.say("some changelog records are corrupted")
        arena.start("one")
        arena.ready("one")
        arena.traffic.run()
        time.sleep(4)
        arena.traffic.pause()
        arena.settle()
        arena.stop("one")
        arena.look()
        if arena.difference():
            arena.tally.notes.append("a tick came between the last look and the stop: nothing was corrupted this time")
            continue
        # Who has not ended goes on to report.
        victims = sorted(key for key, state in arena.oracle.states.items() if state.ended_at is None)[:12]
        producer = Producer({"bootstrap.servers": arena.bootstrap, "log_level": 2})
        for number, key in enumerate(victims):
            garbage = (b"\x00\xff", b"{", b'{"schema": "leadline.session/9"}', b"[]")[number % 4]
            producer.produce(topics.SESSIONS.name, garbage, key.encode(), partition=arena.found.partitions[key])
        producer.flush(20)
        arena.tally.faults["changelog record corrupted"] += len(victims)
        good = dict(arena.found.states)
        arena.look()
        for key in victims:
            arena.found.states[key] = good[key]  # Should nobody report to it again, then nobody writes it again.
        arena.lose_store("one")
    arena.start("one")
    arena.ready("one")
    arena.traffic.run()
    time.sleep(5)
    arena.traffic.pause()


def _stopped(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "Tt"
    except FileNotFoundError:
        return True


SCENARIOS: Final = (
    Scenario("kill -9 in a batch", kills_in_a_batch),
    Scenario("kill -9 around a batch", kills_around_a_batch),
    Scenario("kill -9 at random", kills_at_random),
    Scenario("rebalances under load", rebalances),
    Scenario("rolling upgrade", rolling_upgrade),
    Scenario("zombies", zombies),
    Scenario("local store lost or stale", stores),
    Scenario("restore interrupted", interrupted_restores),
    Scenario("changelog corrupted", corrupted_changelog),
    Scenario("dead letters refused", surroundings.dead_letters_refused),
    Scenario("poison in every place", surroundings.poison_everywhere),
    Scenario("clock steps", surroundings.clock_steps),
    Scenario("full disk", surroundings.full_disk),
    Scenario("broker killed", surroundings.broker_killed),
    Scenario("broker away", surroundings.broker_away),
    Scenario("one of three brokers", surroundings.one_of_three_brokers, nodes=3),
)
