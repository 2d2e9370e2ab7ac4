"""Faults around the workers: the brokers, the disk, the clock, the dead-letter topic, and what the agents send.

A scenario starts and ends with the stream paused; what it leaves running is stopped after what came of it was compared.
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Final

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from leadline.contracts import topics
from tests.chaos.arena import PARTITIONS, Arena
from tests.chaos.lives import POISON, Record, life
from tests.chaos.scenario import Times, Unavailable, until
from tests.support.brokers import ApacheKafka

__all__ = [
    "broker_away",
    "broker_killed",
    "clock_steps",
    "dead_letters_refused",
    "full_disk",
    "one_of_three_brokers",
    "poison_everywhere",
]

_BATCH: Final = 8


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
        until(arena, lambda: "a dead letter could not be delivered" in arena.workers["one"].log, 30)
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
