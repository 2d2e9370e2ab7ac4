"""OTLP topics to ``leadline.events``: consume, map, produce, confirm, commit.

At least once: what was produced and not committed is produced again after a restart, under the same ids. Each process counts
rounds anew in an epoch of its own, so one process reads a topic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from leadline.contracts.codec import encode
from leadline.contracts.topics import EVENTS
from leadline.errors import BrokerError, Malformed
from leadline.ingest.mapping import compaction_of, rounds_of
from leadline.ingest.otlp import Kind, decode

__all__ = ["Ingest", "Ingested"]

_BATCH: Final = 500
_SESSIONS: Final = 100_000


@dataclass(slots=True)
class Ingested:
    """Counters: messages read, those that could not be read, signals in them, rounds delivered."""

    messages: int = 0
    malformed: int = 0
    signals: int = 0
    rounds: int = 0


@dataclass(slots=True)
class Ingest:
    """``consumer`` and ``producer``: confluent-kafka's, the consumer subscribed to the topics of ``kinds`` and not committing by
    itself. ``epoch``: ms since 1970, higher at each start."""

    consumer: Any
    producer: Any
    kinds: Mapping[str, Kind]
    epoch: int
    fleet: str = ""
    counted: Ingested = field(default_factory=Ingested)
    _counts: dict[tuple[str, str], int] = field(default_factory=dict)

    def run(self, stopping: Callable[[], bool], timeout: float = 0.5) -> None:
        """Until ``stopping``. Raises :class:`leadline.errors.BrokerError` where what was produced is not confirmed."""
        while not stopping():
            self.step(timeout)

    def step(self, timeout: float) -> int:
        """One batch; returns how many messages it had."""
        batch = [message for message in self.consumer.consume(_BATCH, timeout) if message.error() is None]
        if not batch:
            return 0
        found = []
        for message in batch:
            self.counted.messages += 1
            try:
                signals = decode(message.value() or b"{}", self.kinds[message.topic()])
            except Malformed:
                self.counted.malformed += 1  # Another's topic: what we can't read there is not ours to keep.
                continue
            self.counted.signals += len(signals)
            found += [one for one in map(compaction_of, signals) if one is not None]
        failures: list[str] = []

        def delivered(error: Any, _message: Any) -> None:
            if error is not None:
                failures.append(error.str())

        made = list(rounds_of(found, self._counts, epoch=self.epoch, fleet=self.fleet))
        for event, told in made:
            headers = [("schema", b"leadline.round/1"), ("content-type", b"application/json")]
            if told.traceparent:
                headers.append(("traceparent", told.traceparent.encode()))
            self.producer.produce(
                EVENTS.name, value=encode(event), key=event.session_id.encode(), headers=headers, on_delivery=delivered
            )
            self.producer.poll(0)
        if self.producer.flush(30) or failures:
            raise BrokerError(
                f"rounds were not confirmed: {failures[0] if failures else 'no answer within 30 s'}; nothing is committed"
            )
        for event, _ in made:
            self._counts[event.session_id, event.agent_id] = event.round
        while len(self._counts) > _SESSIONS:
            del self._counts[next(iter(self._counts))]
        self.counted.rounds += len(made)
        self.consumer.commit(asynchronous=False)
        return len(batch)
