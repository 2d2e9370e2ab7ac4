"""The faults, one scenario a function: each lets its faults loose on an arena and returns when the last one is over.

A scenario starts and ends with the stream paused; what it leaves running is stopped after what came of it was compared.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from leadline.contracts import topics
from leadline.processors.faultpoints import POINTS
from tests.chaos.arena import PARTITIONS, SESSION_TIMEOUT_S, Arena
from tests.chaos.lives import POISON, Record, life
from tests.chaos.upgrade import rolling_upgrade
from tests.support.brokers import ApacheKafka

__all__ = ["SCENARIOS", "Scenario", "Times", "Unavailable"]

_BATCH: Final = 8
_WRITING: Final = ("after-fold", "after-outputs", "after-store", "after-changelog")
_SELDOM: Final = {"after-restore": 1, "after-tick": 3}
"""Points that are passed seldom: the last passage at which it is worth waiting for a kill."""


class Unavailable(Exception):
    """This machine can't do that fault; the message says why."""


@dataclass(frozen=True, slots=True)
class Times:
    """How often each fault is injected."""

    point: int
    """Kills at each fault point."""
    random: int
    """Kills at random moments."""
    membership: int
    """Workers that join and then leave or die."""
    each: int
    """Of the dearer ones: store deleted or stale, zombies, broker kills, full disks, clock steps."""
    away_s: float
    """How long the broker is gone."""


Run = Callable[[Arena, Times, ApacheKafka], None]


@dataclass(frozen=True, slots=True)
class Scenario:
    """``nodes``: brokers that its cluster has."""

    name: str
    run: Run
    nodes: int = 1


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
            _until(arena, lambda settled=settled: arena.readies("anchor") > settled, 60)  # type: ignore[misc]
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
            _until(arena, lambda one=one: _stopped(one.process.pid), 60)  # type: ignore[misc]
        else:
            time.sleep(arena.dice.uniform(0.2, 1.5))
            one.process.send_signal(signal.SIGSTOP)
        settled = arena.readies("two")
        _until(arena, lambda settled=settled: arena.readies("two") > settled, 90)  # type: ignore[misc]
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


def dead_letters_refused(arena: Arena, times: Times, _kafka: ApacheKafka) -> None:
    """The dead-letter topic takes nothing for a while: loud, and detection goes on; then letters arrive again."""
    arena.start("one", dead_letter_s=1)
    arena.ready("one")
    for _ in range(times.each):
        arena.say("dead letters are refused")
        arena.look()
        known = set(arena.oracle.dead)
        _configure(arena, "max.message.bytes", "10")
        arena.traffic.run()
        for number in range(5):
            arena.traffic.put(Record(f"refused-{number}".encode(), POISON[4]))
        time.sleep(4)
        arena.traffic.pause()
        _until(arena, lambda: "a dead letter could not be delivered" in arena.workers["one"].log, 30)
        arena.settle(letters=False)
        during = arena.oracle.dead - known
        arena.excused |= during
        arena.tally.faults["dead letter refused"] += len(during - arena.found.dead.keys())
        _configure(arena, "max.message.bytes", topics.DEAD_LETTERS.config["max.message.bytes"])
        time.sleep(1)
        arena.traffic.run()
        time.sleep(3)
        arena.traffic.pause()


def poison_everywhere(arena: Arena, times: Times, _kafka: ApacheKafka) -> None:
    """A backlog of batches of eight with poison at the first, second, ... last place, alone, in pairs and in all places."""
    arena.start("one", batch_max=_BATCH)
    arena.ready("one")
    arena.settle()
    arena.stop("one")
    places = [{n} for n in range(_BATCH)] + [{n, (n + 3) % _BATCH} for n in range(_BATCH)] + [set(range(_BATCH))]
    for turn in range(times.each):
        for number, poisoned in enumerate(places):
            records = life(f"poisoned-{turn}-{number}-{arena.dice.randrange(10**6)}", f"poisoned {turn} {number}")
            for place in range(_BATCH):
                record = next(records, None)
                if place in poisoned or record is None:
                    kind = POISON[arena.dice.randrange(len(POISON))]
                    record = Record(None if record is None else record.key, kind)
                    arena.tally.faults["poison record"] += 1
                arena.traffic.put(record, partition=number % PARTITIONS)
    arena.traffic.flush()
    arena.start("one", batch_max=_BATCH)
    arena.ready("one")


def broker_killed(arena: Arena, times: Times, kafka: ApacheKafka) -> None:
    """kill -9 of the only broker under load, and its restart; the workers wait and go on."""
    arena.start("one")
    arena.ready("one")
    for turn in range(times.each):
        arena.say(f"broker killed, {turn + 1} of {times.each}")
        arena.traffic.run()
        time.sleep(2)
        kafka.kill()
        arena.tally.faults["broker kill -9"] += 1
        time.sleep(arena.dice.uniform(0.5, 4))
        kafka.start()
        time.sleep(2)
    arena.traffic.pause()


def broker_away(arena: Arena, times: Times, kafka: ApacheKafka) -> None:
    """The broker is gone for long, and comes back."""
    arena.start("one")
    arena.ready("one")
    arena.traffic.run()
    time.sleep(2)
    kafka.kill()
    end = time.monotonic() + times.away_s
    while time.monotonic() < end:
        arena.say(f"the broker is away, {end - time.monotonic():.0f} s more")
        arena.supervise()
        time.sleep(1)
    kafka.start()
    arena.tally.faults[f"broker away {times.away_s:g} s"] += 1
    time.sleep(2)
    arena.traffic.pause()


def full_disk(arena: Arena, times: Times, _kafka: ApacheKafka) -> None:
    """The local store's file system is full; room is made later."""
    place = arena.folder / "small"
    place.mkdir(exist_ok=True)
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=96m", "tmpfs", str(place)], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise Unavailable(f"a small file system cannot be mounted here ({done.stderr.strip()[:120]})")
    ballast = place / "ballast"
    try:
        for turn in range(times.each):
            arena.say(f"disk full, {turn + 1} of {times.each}")
            arena.start("one", data_dir=place / "data")
            arena.ready("one")
            arena.traffic.run()
            time.sleep(1)
            _fill(ballast)
            time.sleep(arena.dice.uniform(4, 8))
            arena.tally.faults["disk full"] += 1
            ballast.unlink()
            time.sleep(1)
            arena.supervise()
            arena.traffic.pause()
            arena.settle()
            arena.stop("one")
    finally:
        if "one" in arena.workers:
            arena.kill("one", "kill at random")
        subprocess.run(["umount", "-l", str(place)], check=False)
    arena.start("one")
    arena.ready("one")


def clock_steps(arena: Arena, times: Times, _kafka: ApacheKafka) -> None:
    """The worker's clock jumps ahead and back by up to hours."""
    offset = arena.folder / "clock-offset-ms"
    offset.write_text("0")
    arena.start("one", command="stepping", test_clock=offset)
    arena.ready("one")
    arena.traffic.run()
    for step_s in (30, -30, 7200, -7200, 90, -600)[: 2 * times.each]:
        arena.say(f"the clock is {step_s:+d} s off")
        offset.write_text(str(1000 * step_s))
        arena.tally.faults["clock step"] += 1
        time.sleep(3)
    arena.kill("one", "kill at random")
    arena.start("one", command="stepping", test_clock=offset)
    arena.ready("one")
    time.sleep(1)
    offset.write_text("0")
    arena.traffic.pause()


def one_of_three_brokers(arena: Arena, times: Times, kafka: ApacheKafka) -> None:
    """A cluster of three loses each of its nodes in turn, under load, with two workers."""
    arena.start("one")
    arena.start("two")
    arena.ready("one")
    arena.ready("two")
    arena.traffic.run()
    for node in kafka.nodes[: max(1, times.each)]:
        arena.say(f"node {node.node_id} of {len(kafka.nodes)} is lost")
        time.sleep(2)
        node.kill()
        arena.tally.faults["one broker of three lost"] += 1
        time.sleep(6)
        arena.supervise()
        kafka.revive()
        time.sleep(3)
    arena.traffic.pause()


def _until(arena: Arena, check: Callable[[], bool], limit_s: float) -> None:
    """Wait for ``check``; past the limit it is noted, and what came of it is compared all the same."""
    deadline = time.monotonic() + limit_s
    while not check():
        if time.monotonic() > deadline:
            arena.tally.notes.append(f"waited {limit_s:g} s in vain: {arena.tally.name}")
            return
        time.sleep(0.05)


def _stopped(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "Tt"
    except FileNotFoundError:
        return True


def _configure(arena: Arena, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topics.DEAD_LETTERS.name, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": arena.bootstrap})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(10)


def _fill(ballast: Path) -> None:
    with ballast.open("wb") as file:
        try:
            while True:
                file.write(bytes(1 << 16))
                file.flush()
        except OSError:
            return


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
    Scenario("dead letters refused", dead_letters_refused),
    Scenario("poison in every place", poison_everywhere),
    Scenario("clock steps", clock_steps),
    Scenario("full disk", full_disk),
    Scenario("broker killed", broker_killed),
    Scenario("broker away", broker_away),
    Scenario("one of three brokers", one_of_three_brokers, nodes=3),
)
