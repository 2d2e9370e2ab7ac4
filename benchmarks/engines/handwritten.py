"""A loop written by hand over confluent-kafka: the practical limit of what an engine around the same core can cost.

Records come in batches; each partition's go through the fold at once, over states in memory; outputs are handed over at once.
Every ``write_back_s`` seconds all outputs are confirmed, then the changed states are stored (one RocksDB write a partition),
then the changelog is confirmed, then offsets are committed: the order that Leadline keeps.
"""

from __future__ import annotations

import time
from collections import defaultdict
from pathlib import Path

import rocksdict
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from benchmarks.engines.job import INPUT, POLICY, Job, Meter, destination, job, now
from leadline.commands.fold import Incoming, fold
from leadline.contracts.session_state import SessionState, decode_state, encode_state
from leadline.contracts.topics import SESSIONS


class Loop:
    def __init__(self, given: Job) -> None:
        self.given = given
        self.consumer = Consumer(
            {
                "bootstrap.servers": given.bootstrap,
                "group.id": given.group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        self.producer = Producer(
            {"bootstrap.servers": given.bootstrap, "linger.ms": 5, "queue.buffering.max.messages": 1_000_000, "acks": "all"}
        )
        self.states: dict[int, dict[str, SessionState]] = defaultdict(dict)
        self.changed: dict[int, dict[str, SessionState | None]] = defaultdict(dict)
        self.reached: dict[int, int] = {}
        self.stores: dict[int, rocksdict.Rdict] = {}
        self.failed = 0

    def run(self) -> None:
        self.consumer.subscribe([INPUT])
        seen = 0
        flushed = time.monotonic()
        while seen < self.given.events:
            messages = self.consumer.consume(10_000, 0.05)
            by_partition: dict[int, list[Incoming]] = defaultdict(list)
            for message in messages:
                by_partition[message.partition()].append(_incoming(message))
            for partition, batch in by_partition.items():
                self.apply(partition, batch)
            seen += len(messages)
            self.producer.poll(0)
            if time.monotonic() - flushed >= self.given.write_back_s:
                self.write_back()
                flushed = time.monotonic()
        self.write_back()

    def apply(self, partition: int, batch: list[Incoming]) -> None:
        states = self.states[partition]

        def load(key: str) -> SessionState | None:
            state = states.get(key)
            if state is None:
                value = self.store(partition).get(key.encode())
                state = None if value is None else decode_state(value)
            return state

        folded = fold(batch, load, POLICY, now())
        for output in folded.outputs:
            topic, key, value = destination(output)
            self.producer.produce(topic, value, key, partition=partition, on_delivery=self.delivered)
        for name, state in folded.states.items():
            if state is None:
                states.pop(name, None)
            else:
                states[name] = state
        self.changed[partition].update(folded.states)
        self.reached[partition] = batch[-1].offset + 1

    def write_back(self) -> None:
        if not self.reached:
            return
        self.confirm()
        for partition, changed in self.changed.items():
            batch = rocksdict.WriteBatch(raw_mode=True)
            for name, state in changed.items():
                key = name.encode()
                value = None if state is None else encode_state(state)
                if value is None:
                    batch.delete(key)
                else:
                    batch.put(key, value)
                self.producer.produce(SESSIONS.name, value, key, partition=partition, on_delivery=self.delivered)
            self.store(partition).write(batch)
        self.confirm()
        self.changed.clear()
        self.consumer.commit(offsets=[TopicPartition(INPUT, *each) for each in self.reached.items()], asynchronous=False)
        self.reached.clear()

    def store(self, partition: int) -> rocksdict.Rdict:
        if partition not in self.stores:
            self.stores[partition] = rocksdict.Rdict(f"{self.given.folder}/{partition}", rocksdict.Options(raw_mode=True))
        return self.stores[partition]

    def confirm(self) -> None:
        if self.producer.flush(60) or self.failed:
            raise RuntimeError("the broker did not confirm what was sent")

    def delivered(self, error: object, _message: Message) -> None:
        self.failed += error is not None


def _incoming(message: Message) -> Incoming:
    return Incoming(
        message.key(),
        message.value(),
        message.partition(),
        message.offset(),
        message.timestamp()[1],
        message.headers() or (),
    )


def main() -> None:
    given = job()
    Path(given.folder).mkdir(parents=True, exist_ok=True)
    loop = Loop(given)
    meter = Meter()
    loop.run()
    meter.report()
    loop.consumer.close()


if __name__ == "__main__":
    main()
