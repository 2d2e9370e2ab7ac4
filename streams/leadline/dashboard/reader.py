"""The topics into the view: one consumer without a group, on a thread of its own. Any number of replicas disturb nobody."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from leadline.agent.kafka import take
from leadline.contracts.topics import COMMANDS, SESSIONS, SILENCES, VIOLATIONS
from leadline.dashboard.view import FleetView
from leadline.errors import LeadlineError, Refused
from leadline.settings import Settings, client_configs, no_broker

__all__ = ["Reader", "Reading", "consumer_config"]

_REACH_S: Final = 10.0
_PROBE_S: Final = 1.0
_BATCH: Final = 2_000
_RECENT: Final = 10_000
"""Violations, and commands, that are read back at the start, over all partitions."""


class Reading(NamedTuple):
    """How current the view is. Times in ms since 1970.

    ``as_of``: at that time everything that was on the topics had been read; ``None`` while it is still being rebuilt.
    """

    as_of: int | None
    behind: int
    """Records that are on the topics and not in the view."""
    restored: float
    """Of what was there at the start, the share that has been read."""
    error: str = ""


def consumer_config(settings: Settings) -> dict[str, Any]:
    """For a consumer that joins no group and commits nothing."""
    return {
        **client_configs(settings).confluent,
        "group.id": f"leadline-dashboard-{uuid.uuid4().hex}",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",
        "fetch.wait.max.ms": 100,
        "queued.max.messages.kbytes": 8_192,
        "log_level": 0,
    }


class Reader:
    """Reads sessions from the beginning, violations and commands from their recent part on. ``lock`` guards ``view``.

    Raises :class:`leadline.errors.BrokerError` when no broker answers, :class:`Refused` when there are no topics.
    """

    def __init__(self, settings: Settings, view: FleetView, lock: threading.Lock, now: Callable[[], int]) -> None:
        self._view = view
        self._lock = lock
        self._now = now
        self._stop = threading.Event()
        self._error = ""
        self._as_of: int | None = None
        self._ends: tuple[int, dict[tuple[str, int], int]] | None = None
        self._client: Any = Consumer(consumer_config(settings) | {"error_cb": self._on_error})
        self._admin: Any = AdminClient({**client_configs(settings).confluent, "log_level": 0})
        try:
            starts = self._starts(settings)
            self._positions = {(each.topic, each.partition): each.offset for each in starts}
            first = self._read_ends()
            self._target = {place: max(0, end - self._positions[place]) for place, end in first.items()}
            self._ends = (self._now(), first)
            self._client.assign(starts)
        except KafkaException as error:
            self._client.close()
            raise no_broker(settings, _REACH_S, error.args[0].str()) from None
        except LeadlineError:
            self._client.close()
            raise
        self._begun = dict(self._positions)
        self._threads = [
            threading.Thread(target=self._run, name="dashboard-reader", daemon=True),
            threading.Thread(target=self._probe, name="dashboard-probe", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def reading(self) -> Reading:
        """May be called from any thread."""
        _, ends = self._ends or (0, {})
        behind = sum(max(0, end - self._positions.get(place, 0)) for place, end in ends.items())
        total = sum(self._target.values())
        done = sum(min(goal, self._positions[place] - self._begun[place]) for place, goal in self._target.items())
        return Reading(self._as_of, behind, 1.0 if total == 0 else done / total, self._error)

    def wait_restored(self, seconds: float) -> bool:
        """Whether everything that was there at the start has been read within ``seconds``."""
        deadline = time.monotonic() + seconds
        while self._as_of is None:
            if time.monotonic() > deadline or self._stop.wait(0.02):
                return False
        return True

    def close(self) -> None:
        """Stop reading. A second call does nothing."""
        self._stop.set()
        for thread in self._threads:
            thread.join(5.0)

    def _starts(self, settings: Settings) -> list[TopicPartition]:
        # All topics: asking for one by name may create it.
        listed = self._client.list_topics(timeout=_REACH_S).topics
        starts = []
        for topic in (SESSIONS.name, VIOLATIONS.name, COMMANDS.name, SILENCES.name):
            if topic not in listed or not listed[topic].partitions:
                raise Refused(f"topic {topic} does not exist at {settings.bootstrap}; run `leadline topics create` first")
            numbers = sorted(listed[topic].partitions)
            for number in numbers:
                at = TopicPartition(topic, number)
                low, high = self._client.get_watermark_offsets(at, timeout=_REACH_S)
                recent = low if topic in (SESSIONS.name, SILENCES.name) else max(low, high - _RECENT // len(numbers))
                starts.append(TopicPartition(topic, number, recent))
        return starts

    def _read_ends(self) -> dict[tuple[str, int], int]:
        asked = {TopicPartition(*place): OffsetSpec.latest() for place in self._positions}
        found = self._admin.list_offsets(asked, request_timeout=_REACH_S)
        return {(at.topic, at.partition): future.result(_REACH_S).offset for at, future in found.items()}

    def _on_error(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._error = "no broker answers"

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                messages = take(self._client, _BATCH, 0.1)
                if messages:
                    self._apply(messages)
                ends = self._ends
                if ends is not None and all(self._positions.get(place, 0) >= end for place, end in ends[1].items()):
                    self._as_of = ends[0]
        except Exception as error:
            # The page stays, says so, and shows how old it is.
            self._error = f"reading stopped: {type(error).__name__}"
            raise
        finally:
            self._client.close()

    def _apply(self, messages: list[Any]) -> None:
        with self._lock:
            for message in messages:
                error = message.error()
                if error is None:
                    self._take(message)
                elif error.code() != KafkaError._PARTITION_EOF:
                    self._error = error.str()
                    continue
                # At the end of a partition this is the place after whatever was compacted or expired.
                offset = message.offset() + (error is None)
                place = message.topic(), message.partition()
                self._positions[place] = max(offset, self._positions.get(place, 0))

    def _take(self, message: Any) -> None:
        topic = message.topic()
        if topic == SESSIONS.name:
            self._view.apply_state(message.partition(), message.key(), message.value())
        elif topic == VIOLATIONS.name:
            self._view.apply_violation(message.value())
        elif topic == SILENCES.name:
            self._view.apply_silence(message.value())
        else:
            self._view.apply_command(message.value())

    def _probe(self) -> None:
        """Ask for the ends of the topics: only what a broker has just said tells that nothing is missing."""
        while not self._stop.wait(_PROBE_S):
            asked_at = self._now()
            try:
                self._ends = (asked_at, self._read_ends())
                self._error = ""
            except Exception as error:
                self._error = f"no broker answers ({type(error).__name__})"
