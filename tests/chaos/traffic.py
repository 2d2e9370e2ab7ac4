"""Load while faults are injected: sessions' lives interleaved, and the agents' answers to the commands that come."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from random import Random
from typing import Any

import orjson
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from leadline.contracts.topics import COMMANDS, EVENTS
from tests.chaos.lives import Record, duplicated_and_reordered, life, poison

__all__ = ["Traffic", "interleaved"]

_LIVE = 40
"""Sessions that are under way at once."""


class Traffic:
    """Writes ``rate`` records a second from a thread of its own until it is told to pause. Another one plays the agents: it
    reads the commands and answers most of them.

    ``poisoned``: the share of poison; ``disorder``: the share of records that come twice, and of those that come late.
    """

    def __init__(self, bootstrap: str, seed: int, rate: float, poisoned: float = 0.01, disorder: float = 0.02) -> None:
        self.rate = rate
        self.sent = 0
        self._bootstrap = bootstrap
        self._records = interleaved(seed, poisoned, disorder)
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "linger.ms": 5,
                "enable.idempotence": True,
                "message.timeout.ms": 300_000,
                "queue.buffering.max.messages": 1_000_000,
                "log_level": 2,
            }
        )
        self._running = threading.Event()
        self._paused = threading.Event()
        self._paused.set()
        self._end = False
        self._failure: BaseException | None = None
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,), daemon=True) for work in (self._write, self._answer)
        ]
        for thread in self._threads:
            thread.start()

    def run(self) -> None:
        """Begin, or go on, to write."""
        self._paused.clear()
        self._running.set()

    def pause(self) -> None:
        """Stop writing and answering; returns when the broker has confirmed all that was written."""
        self._running.clear()
        self._paused.wait(60)
        self.flush()

    def flush(self) -> None:
        """Raises ``TimeoutError`` when the broker does not confirm in time."""
        if self._failure is not None:
            raise self._failure
        if left := self._producer.flush(120):
            raise TimeoutError(f"{left} records were not confirmed")

    def put(self, record: Record, partition: int | None = None) -> None:
        """One record, beside the stream."""
        where = {} if partition is None else {"partition": partition}
        self._producer.produce(EVENTS.name, record.value, record.key, **where)
        self.sent += 1

    def close(self) -> None:
        self._end = True
        self._running.set()
        for thread in self._threads:
            thread.join(10)

    def _guarded(self, work: Any) -> None:
        try:
            work()
        except BaseException as error:
            self._failure = error
            self._paused.set()

    def _write(self) -> None:
        due = time.monotonic()
        while not self._end:
            if not self._running.is_set():
                self._paused.set()
                self._running.wait(0.2)
                due = time.monotonic()
                continue
            while due <= time.monotonic():
                self.put(next(self._records))
                due += 1 / self.rate
            self._producer.poll(0)
            time.sleep(0.01)

    def _answer(self) -> None:
        """The same command is always answered in the same way, whenever it comes: most are accepted, some refused or unheard."""
        consumer = Consumer(
            {"bootstrap.servers": self._bootstrap, "group.id": "agents", "enable.auto.commit": False, "log_level": 2}
        )
        assigned = False
        while not self._end:
            try:
                if not assigned:
                    partitions = consumer.list_topics(COMMANDS.name, timeout=5).topics[COMMANDS.name].partitions
                    consumer.assign([TopicPartition(COMMANDS.name, number) for number in partitions])
                    assigned = True
                for message in consumer.consume(200, 0.2):
                    if message.error() is None and self._running.is_set():
                        self._obey(orjson.loads(message.value()))
            except KafkaException:
                time.sleep(0.5)
        consumer.close()

    def _obey(self, command: dict[str, Any]) -> None:
        if "command_id" not in command:
            return  # A heartbeat.
        dice = Random(command["command_id"])
        outcome = dice.choice(("accepted", "accepted", "accepted", "done", "refused", ""))
        if not outcome:
            return
        ack = {
            "schema": "leadline.ack/1",
            "event_id": f"ack-{command['command_id']}",
            **{name: command[name] for name in ("session_id", "agent_id", "epoch", "command_id", "seq")},
            "fleet": command.get("fleet", ""),
            "ts": "",
            "outcome": outcome,
        }
        self.put(Record(command["session_id"].encode(), orjson.dumps(ack)))


def interleaved(seed: int, poisoned: float, disorder: float) -> Iterator[Record]:
    """Endless: sessions' lives, record by record, in turn by chance."""
    dice = Random(seed)
    born = 0
    live: list[tuple[str, Iterator[Record]]] = []
    while True:
        while len(live) < _LIVE:
            name = f"s{seed}-{born}"
            born += 1
            live.append((name, duplicated_and_reordered(life(name, name), Random(f"{name} disorder"), disorder)))
        index = dice.randrange(len(live))
        name, records = live[index]
        if dice.random() < poisoned:
            yield poison(name, dice)
            continue
        record = next(records, None)
        if record is None:
            live.pop(index)
        else:
            yield record
