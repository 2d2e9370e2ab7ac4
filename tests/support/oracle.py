"""What an undisturbed monitor makes of the very log that is on the topics, and how what stands there differs from it.

The oracle is the pure core, fed with the records as they are read back: the monitor's own ticks among them, with the broker's
receive times. It follows the log, so that a long run is folded once.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Consumer, Message, TopicPartition

from leadline.commands.fold import Incoming, fold
from leadline.contracts import topics
from leadline.contracts.codec import encode
from leadline.contracts.orders import Violation
from leadline.contracts.session_state import SessionState, encode_state
from leadline.detection.policy import DEFAULT_POLICY, Policy

__all__ = ["Difference", "Found", "Log", "Oracle", "compare", "explain", "incoming"]

_OF_THE_SENDING: Final = ("detected_at", "issued_at", "expires_at", "traceparent", "tracestate")
"""Fields that tell when and under which span a record was sent: a replay sends the same record at another time."""
_READ_S: Final = 60.0

Place = tuple[int, int]
"""Partition and offset of an event."""


class Log:
    """One topic, read on from where the last look ended."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.topic = topic
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "test-oracle",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 50,
                "log_level": 2,
            }
        )
        self._next: dict[int, int] = {}

    def more(self, limit_s: float = _READ_S) -> list[Message]:
        """Everything that was appended up to now. Raises ``TimeoutError`` when the broker does not give it in time."""
        listed = self._consumer.list_topics(self.topic, timeout=limit_s).topics[self.topic].partitions
        ends = {}
        for number in listed:
            _, end = self._consumer.get_watermark_offsets(TopicPartition(self.topic, number), timeout=limit_s)
            if end > self._next.get(number, 0):
                ends[number] = end
        found: list[Message] = []
        if not ends:
            return found
        self._consumer.assign([TopicPartition(self.topic, number, self._next.get(number, 0)) for number in ends])
        deadline = time.monotonic() + limit_s
        while ends:
            for message in self._consumer.consume(10_000, 0.1):
                number = message.partition()
                if message.error() is None and number in ends:
                    found.append(message)
            for position in self._consumer.position([TopicPartition(self.topic, number) for number in ends]):
                if position.offset >= ends[position.partition]:
                    self._next[position.partition] = position.offset
                    del ends[position.partition]
            if ends and time.monotonic() > deadline:
                raise TimeoutError(f"{self.topic} could not be read to its end within {limit_s:g} s")
        self._consumer.unassign()
        return found

    def close(self) -> None:
        self._consumer.close()


def essence(record: dict[str, Any]) -> str:
    """A violation or command without what depends on the moment of sending, in a form that compares."""
    return json.dumps({name: value for name, value in record.items() if name not in _OF_THE_SENDING}, sort_keys=True)


class Oracle:
    """The pure core over a log. ``violations`` and ``commands``: essence by id. ``now``: ms since 1970, for sending only."""

    def __init__(self, policy: Policy = DEFAULT_POLICY, now: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        self.policy = policy
        self.violations: dict[str, str] = {}
        self.commands: dict[str, str] = {}
        self.states: dict[str, SessionState] = {}
        self.dead: set[Place] = set()
        self.events = 0
        self.ticks = 0
        self._now = now

    def feed(self, records: Iterable[Incoming]) -> None:
        """Fold what was appended, in the order of each partition."""
        by_partition: dict[int, list[Incoming]] = {}
        for record in records:
            by_partition.setdefault(record.partition, []).append(record)
            self.events += 1
            self.ticks += any(name == "schema" and value == b"leadline.tick/1" for name, value in record.headers)
        for batch in by_partition.values():
            folded = fold(batch, self._load, self.policy, self._now())
            for output in folded.outputs:
                known = json.loads(encode(output))
                if isinstance(output, Violation):
                    self.violations[output.violation_id] = essence(known)
                else:
                    self.commands[output.command_id] = essence(known)
            self.dead |= {(letter.source.partition, letter.source.offset) for letter in folded.dead_letters}
            for key, state in folded.states.items():
                if state is None:
                    self.states.pop(key, None)
                else:
                    self.states[key] = state

    def next_deadline(self) -> int | None:
        """When time itself will change a state next, ms since 1970."""
        return min((state.deadline for state in self.states.values() if state.deadline is not None), default=None)

    def _load(self, key: str) -> SessionState | None:
        return self.states.get(key)


@dataclass
class Found:
    """What stands on the topics. ``violations`` and ``commands``: each different essence seen under an id."""

    violations: dict[str, set[str]] = field(default_factory=dict)
    commands: dict[str, set[str]] = field(default_factory=dict)
    states: dict[str, bytes] = field(default_factory=dict)
    """The last changelog record of each session: what a compaction keeps and a new worker restores."""
    partitions: dict[str, int] = field(default_factory=dict)
    """Where each session's records are, by state key."""
    dead: Counter[Place] = field(default_factory=Counter)
    records: int = 0
    """How many were looked at so far."""
    repeats: int = 0
    """Records that were sent again with the same id and the same content: at-least-once delivery, without effect."""

    def output(self, topic: str, value: bytes) -> None:
        body = json.loads(value)
        if body["schema"] == "leadline.heartbeat/1":
            return  # Says that a monitor is there, and is no effect.
        self.records += 1
        known, name = (self.violations, "violation_id") if topic == topics.VIOLATIONS.name else (self.commands, "command_id")
        seen = known.setdefault(body[name], set())
        content = essence(body)
        self.repeats += content in seen
        seen.add(content)

    def state(self, key: bytes, value: bytes | None, partition: int) -> None:
        self.records += 1
        name = key.decode("utf-8", "surrogatepass")
        self.partitions[name] = partition
        if value is None:
            self.states.pop(name, None)
        else:
            self.states[name] = value

    def dead_letter(self, headers: Iterable[tuple[str, bytes | None]]) -> None:
        self.records += 1
        named = {name: value or b"" for name, value in headers}
        self.dead[int(named["source-partition"]), int(named["source-offset"])] += 1


@dataclass
class Difference:
    """Ids and keys, by what is wrong with them; empty when what was found is what the oracle says."""

    lost: list[str] = field(default_factory=list)
    """Violations and commands that the log leads to and that were never sent."""
    doubled: list[str] = field(default_factory=list)
    """One id with two contents, a content that is not the oracle's, or an id that the log does not lead to."""
    states: list[str] = field(default_factory=list)
    """Sessions whose last record is missing, too many, or differs."""
    letters: list[Place] = field(default_factory=list)
    """Poison that has no dead letter, or a dead letter of what is no poison."""

    def __bool__(self) -> bool:
        return bool(self.lost or self.doubled or self.states or self.letters)

    def __str__(self) -> str:
        letters = [f"{partition}/{offset}" for partition, offset in self.letters]
        named = {"lost": self.lost, "doubled": self.doubled, "states": self.states, "dead letters": letters}
        told = [f"{len(items)} {name} (first: {', '.join(items[:3])})" for name, items in named.items() if items]
        return "; ".join(told) or "none"


def compare(oracle: Oracle, found: Found, excused: frozenset[Place] = frozenset()) -> Difference:
    """``excused``: places whose dead letters may be missing, as their topic was refused."""
    result = Difference()
    for want, got in ((oracle.violations, found.violations), (oracle.commands, found.commands)):
        result.lost += sorted(want.keys() - got.keys())
        result.doubled += sorted(id_ for id_, contents in got.items() if contents != {want.get(id_)})
    result.doubled = [id_ for id_ in result.doubled if id_ not in result.lost]
    states = {key: encode_state(state) for key, state in oracle.states.items()}
    keys = states.keys() | found.states.keys()
    result.states = sorted(key for key in keys if states.get(key) != found.states.get(key))
    result.letters = sorted((oracle.dead - found.dead.keys() - excused) | (found.dead.keys() - oracle.dead))
    return result


def explain(oracle: Oracle, found: Found, difference: Difference, most: int = 3) -> str:
    """The first few of each kind of difference with what is wanted and what was found, for whoever looks for the cause."""
    lines = []
    for id_ in (*difference.lost[:most], *difference.doubled[:most]):
        wanted = oracle.violations.get(id_) or oracle.commands.get(id_)
        got = found.violations.get(id_, set()) | found.commands.get(id_, set())
        lines += [id_, f"  wanted {wanted}", *(f"  found  {content}" for content in sorted(got))]
    for key in difference.states[:most]:
        state = oracle.states.get(key)
        lines += [key, f"  wanted {None if state is None else encode_state(state)!r}", f"  found  {found.states.get(key)!r}"]
    for place in difference.letters[:most]:
        lines.append(f"dead letter of {place}: {found.dead[place]} found, {'one' if place in oracle.dead else 'none'} wanted")
    return "\n".join(lines)


def incoming(message: Message) -> Incoming:
    """As a worker takes it: only the broker's own stamp is a receive time."""
    kind, stamp = message.timestamp()
    return Incoming(
        message.key(),
        message.value(),
        message.partition(),
        message.offset(),
        stamp if kind == TIMESTAMP_LOG_APPEND_TIME else -1,
        message.headers() or (),
    )
