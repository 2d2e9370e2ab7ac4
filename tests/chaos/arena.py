"""A cluster, its topics, a stream of records, workers under a supervisor, and the oracle: where faults are let loose."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

from confluent_kafka import KafkaException, Message

from leadline.contracts import topics
from leadline.detection.policy_file import parse_policy
from leadline.processors import topics as declared
from leadline.settings import Settings
from tests.chaos.nursery import Nursery, Worker
from tests.chaos.traffic import Traffic
from tests.support.oracle import Difference, Found, Log, Oracle, Place, compare, incoming

__all__ = ["PARTITIONS", "POLICY", "Arena", "Tally"]

PARTITIONS: Final = 4
POLICY: Final = """\
version = "chaos"
[default]
silence_ms = 6000
command_ttl_ms = 3000
effect_ttl_ms = 6000
ended_linger_ms = 4000
idle_ms = 90000
attempts = 2
"""
"""So short that each run sees silences, commands that expire, escalations and removals, all by the clock."""
SESSION_TIMEOUT_S: Final = 6
READY_S: Final = 120.0
SETTLE_S: Final = 60.0
"""How long nothing at all may happen before a difference counts."""
_QUIET_S: Final = 1.5
_arenas = itertools.count()
_READY_LINE: Final = re.compile(r": ready  partitions=")


@dataclass
class Tally:
    """What one scenario did and what came of it."""

    name: str
    faults: Counter[str] = field(default_factory=Counter)
    """How often each fault was injected, by its name in the table."""
    kills: int = 0
    rebalances: int = 0
    events: int = 0
    outputs: int = 0
    repeats: int = 0
    seconds: float = 0.0
    difference: Difference = field(default_factory=Difference)
    exits: Counter[int] = field(default_factory=Counter)
    """Workers that ended by themselves and were started again, by exit code."""
    notes: list[str] = field(default_factory=list)


class Arena:
    """Everything of one cluster. ``say``: where progress goes."""

    def __init__(
        self,
        nursery: Nursery,
        bootstrap: str,
        folder: Path,
        seed: int,
        rate: float,
        say: Callable[[str], None],
        replication: int = 1,
        settle_s: float = SETTLE_S,
        policy: str = POLICY,
    ) -> None:
        self._nursery = nursery
        self.bootstrap = bootstrap
        # Of this arena alone: a group remembers the offsets of topics that are gone.
        self.group = f"chaos-{os.getpid()}-{next(_arenas)}"
        self.folder = folder
        self.dice = Random(seed)
        self.say = say
        self.settle_s = settle_s
        folder.mkdir(parents=True, exist_ok=True)
        self.policy_file = folder / "policy.toml"
        self.policy_file.write_text(policy)
        declared.create(Settings(bootstrap=bootstrap, partitions=PARTITIONS, replication=replication))
        self.oracle = Oracle(parse_policy(policy))
        self.found = Found()
        self.excused: set[Place] = set()
        self.workers: dict[str, Worker] = {}
        self.tally = Tally("")
        self._logs = {topic.name: Log(bootstrap, topic.name) for topic in topics.TOPICS}
        self.traffic = Traffic(bootstrap, seed, rate)
        self._options: dict[str, dict[str, Any]] = {}

    # -- workers

    def start(self, name: str, *, command: str = "monitor", **options: Any) -> Worker:
        """Start a worker; it is not ready yet. Without ``instance_id`` it takes ``name``, and so its partitions, at once."""
        settings: dict[str, Any] = {
            "bootstrap": self.bootstrap,
            "app_id": self.group,
            "instance_id": name,
            "policy_file": self.policy_file,
            "session_timeout_s": SESSION_TIMEOUT_S,
            "drain_s": 15,
            "broker_away_s": 150,
            "dead_letter_s": 5,
            "heartbeat_s": 1,
            **options,
        }
        self._options[name] = {"command": command, **options}
        self.workers[name] = Worker(self._nursery, self.folder / name, command, settings)
        return self.workers[name]

    def ready(self, name: str, limit_s: float = READY_S) -> Worker:
        """Wait until the worker is ready; one that exits meanwhile is started again."""
        deadline = time.monotonic() + limit_s
        while not self.workers[name].ready_file.exists():
            self.supervise()
            if time.monotonic() > deadline:
                raise TimeoutError(f"worker {name} was not ready within {limit_s:g} s:\n{self.workers[name].log[-3000:]}")
            time.sleep(0.02)
        return self.workers[name]

    def supervise(self) -> None:
        """Start again what has ended by itself, as an init system would. What the test armed it with is not armed again."""
        for name, worker in list(self.workers.items()):
            code = worker.process.poll()
            if code is not None:
                self.tally.exits[code] += 1
                options = dict(self._options[name])
                options.pop("test_fault", None)
                self.start(name, **options)

    def kill(self, name: str, reason: str) -> None:
        """kill -9; it stays dead until it is started again."""
        self.workers.pop(name).kill()
        self.tally.kills += 1
        self.tally.faults[reason] += 1

    def death(self, name: str, limit_s: float) -> bool:
        """Wait for a worker that kills itself by SIGKILL; whether it did."""
        worker = self.workers[name]
        try:
            code = worker.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return False
        if code != -signal.SIGKILL:
            return False
        self.workers.pop(name).kill()
        self.tally.kills += 1
        return True

    def stop(self, name: str) -> int:
        """An orderly stop; returns the exit code."""
        worker = self.workers.pop(name)
        try:
            return worker.stop()
        except subprocess.TimeoutExpired:
            self.tally.notes.append(f"{name} did not stop and was killed")
            return -signal.SIGKILL

    def stop_all(self) -> None:
        for name in list(self.workers):
            self.stop(name)

    def readies(self, name: str) -> int:
        """How often this worker's partitions were settled so far, over all its processes."""
        return len(_READY_LINE.findall(self.workers[name].log))

    def data(self, name: str) -> Path:
        return self.folder / name / "data"

    def lose_store(self, name: str) -> None:
        """Remove the local store of a worker that is not running."""
        shutil.rmtree(self.data(name))

    # -- what came of it

    def look(self) -> None:
        """Read on: the log into the oracle, the rest into what was found."""
        read = {name: log.more() for name, log in self._logs.items()}
        self.oracle.feed(incoming(message) for message in read[topics.EVENTS.name])
        for topic in (topics.VIOLATIONS.name, topics.COMMANDS.name):
            for message in read[topic]:
                self.found.output(topic, _value(message))
        for message in read[topics.SESSIONS.name]:
            self.found.state(message.key(), message.value(), message.partition())
        for message in read[topics.DEAD_LETTERS.name]:
            self.found.dead_letter(message.headers() or ())

    def difference(self) -> Difference:
        return compare(self.oracle, self.found, frozenset(self.excused))

    def settle(self, letters: bool = True) -> Difference:
        """Wait until what stands on the topics is what the oracle says, and stays so although time goes on; past the limit,
        how it differs. Workers run, nothing else is written. Without ``letters`` dead letters may be missing."""
        begun = quiet = time.monotonic()
        deadline = begun + self.settle_s
        seen = progress = -1
        while True:
            self.supervise()
            try:
                self.look()
            except (KafkaException, TimeoutError):
                if time.monotonic() > deadline:
                    raise
                continue
            if (moved := self.oracle.events + self.found.records) != progress:
                # Slow is no difference: only who stands still is at the end.
                progress, deadline = moved, min(time.monotonic(), begun + 9 * self.settle_s) + self.settle_s
            difference = self.difference()
            if not letters:
                difference.letters.clear()
            if difference or self.oracle.events != seen:
                quiet, seen = time.monotonic(), self.oracle.events
            due = self.oracle.next_deadline()
            calm = due is None or due > time.time_ns() // 1_000_000 + 1000 * _QUIET_S
            if not difference and (calm or time.monotonic() - quiet > 2 * _QUIET_S) and time.monotonic() - quiet > _QUIET_S:
                return difference
            if time.monotonic() > deadline:
                return difference
            time.sleep(0.25)

    def close(self) -> None:
        self.traffic.close()
        for worker in self.workers.values():
            worker.kill()
        self.workers.clear()
        for log in self._logs.values():
            log.close()


def _value(message: Message) -> bytes:
    value = message.value()
    assert isinstance(value, bytes)
    return value
