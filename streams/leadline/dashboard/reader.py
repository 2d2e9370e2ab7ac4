"""The topics into the view: one consumer without a group, on a thread of its own. Any number of replicas disturb nobody.

A topic that was deleted and made anew begins again at its first offset, which would be taken for old: the view then begins anew.
"""

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
from leadline.settings import Settings, client_configs, no_broker, suggested

__all__ = ["REACH_S", "Reader", "Reading", "consumer_config"]

REACH_S: Final = 10.0
"""How long a broker may take to answer at the start."""
_LEADERLESS: Final = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.UNKNOWN_TOPIC_OR_PART)
_PROBE_S: Final = 1.0
_GATHER_MS: Final = 100
"""Records are read in batches of what has come in this time."""
_BATCH: Final = 2_000
_RECENT: Final = 10_000
"""Violations that are read back at the start, over all partitions."""
_RECENT_MS: Final = 24 * 3_600_000
"""Commands are read back by time: most of what is on their topic are heartbeats, which would push them out of any number."""


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
    stopped: bool = False
    """Nothing is read any more: only a new process helps. ``error`` says why."""


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
        # A partition is asked again once what it gave has been taken, not at once: under load that would be a request for every
        # few records, and most of what this process costs.
        "queued.min.messages": 1,
        "fetch.queue.backoff.ms": _GATHER_MS,
        "queued.max.messages.kbytes": 8_192,
        "log_level": 0,
    }


class Reader:
    """Reads sessions from the beginning, violations and commands from their recent part on. ``lock`` guards ``view``.

    ``renewed`` is called when topics were made anew, and the view begins again.

    Raises :class:`leadline.errors.BrokerError` when no broker answers, :class:`Refused` when there are no topics.
    """

    def __init__(
        self,
        settings: Settings,
        view: FleetView,
        lock: threading.Lock,
        now: Callable[[], int],
        renewed: Callable[[], None] = lambda: None,
    ) -> None:
        self._settings = settings
        self._view = view
        self._lock = lock
        self._now = now
        self._renewed = renewed
        self._stop = threading.Event()
        self._anew = threading.Event()
        """A topic ends before what was read of it: it is another one."""
        self._error = ""
        """What is wrong for now."""
        self._fatal = ""
        """Why nothing is read any more; no answer of a broker takes it back."""
        self._as_of: int | None = None
        self._ends: tuple[int, dict[tuple[str, int], int]] | None = None
        self._client: Any = Consumer(consumer_config(settings) | {"error_cb": self._on_error})
        self._admin: Any = AdminClient({**client_configs(settings).confluent, "log_level": 0})
        try:
            self._begin_soon()
        except KafkaException as error:
            self._client.close()
            raise no_broker(settings, REACH_S, error.args[0].str()) from None
        except LeadlineError:
            self._client.close()
            raise
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
        done = sum(min(goal, self._positions.get(place, 0) - self._begun.get(place, 0)) for place, goal in self._target.items())
        stopped = not self._stop.is_set() and not all(thread.is_alive() for thread in self._threads)
        error = self._fatal or ("reading stopped" if stopped else self._error)
        return Reading(self._as_of, behind, 1.0 if total == 0 else done / total, error, stopped)

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

    def _begin_soon(self) -> None:
        """As :meth:`_begin`, once the partitions have their leaders: those of a topic that was just made are still without."""
        deadline = time.monotonic() + REACH_S
        while True:
            try:
                self._begin()
            except KafkaException as error:
                if error.args[0].code() not in _LEADERLESS or time.monotonic() > deadline or self._stop.wait(0.1):
                    raise
            else:
                return

    def _begin(self) -> None:
        """Read from the start. Raises what the constructor says."""
        starts = self._starts(self._settings)
        self._positions = {(each.topic, each.partition): each.offset for each in starts}
        self._begun = dict(self._positions)
        first = self._read_ends()
        self._target = {place: max(0, end - self._positions[place]) for place, end in first.items()}
        self._as_of = None
        self._ends = (self._now(), first)
        self._client.assign(starts)

    def _starts(self, settings: Settings) -> list[TopicPartition]:
        # All topics: asking for one by name may create it.
        listed = self._client.list_topics(timeout=REACH_S).topics
        starts = []
        for topic in (SESSIONS.name, VIOLATIONS.name, COMMANDS.name, SILENCES.name):
            if topic not in listed or not listed[topic].partitions:
                raise Refused(
                    f"topic {topic} does not exist at {settings.bootstrap}; run {suggested('topics create', settings)} first"
                )
            numbers = sorted(listed[topic].partitions)
            if topic == COMMANDS.name:
                starts.extend(self._since(topic, numbers, self._now() - _RECENT_MS))
                continue
            for number in numbers:
                at = TopicPartition(topic, number)
                low, high = self._client.get_watermark_offsets(at, timeout=REACH_S)
                recent = max(low, high - _RECENT // len(numbers)) if topic == VIOLATIONS.name else low
                starts.append(TopicPartition(topic, number, recent))
        return starts

    def _since(self, topic: str, numbers: list[int], moment: int) -> list[TopicPartition]:
        """From the first record that is not older than ``moment`` (ms since 1970); from the end, where there is none."""
        asked = [TopicPartition(topic, number, moment) for number in numbers]
        found = self._client.offsets_for_times(asked, timeout=REACH_S)
        for at in found:
            if at.error is not None:
                raise KafkaException(at.error)
            if at.offset < 0:
                at.offset = self._client.get_watermark_offsets(at, timeout=REACH_S)[1]
        return [TopicPartition(at.topic, at.partition, at.offset) for at in found]

    def _read_ends(self) -> dict[tuple[str, int], int]:
        asked = {TopicPartition(*place): OffsetSpec.latest() for place in self._positions}
        found = self._admin.list_offsets(asked, request_timeout=REACH_S)
        try:
            return {(at.topic, at.partition): future.result(REACH_S).offset for at, future in found.items()}
        except TimeoutError:
            # Nothing was heard at all, not even that the request had timed out: to all who ask this is the same.
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT)) from None

    def _on_error(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._error = "no broker answers"

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                if self._anew.is_set():
                    self._begin_anew()
                messages = take(self._client, _BATCH, 0.1)
                if messages:
                    self._apply(messages)
                ends = self._ends
                if ends is not None and all(self._positions.get(place, 0) >= end for place, end in ends[1].items()):
                    self._as_of = ends[0]
                if messages and len(messages) < _BATCH and self._as_of is not None:
                    self._stop.wait(_GATHER_MS / 1000)
        except Exception as error:
            # The page stays, says so, and shows how old it is.
            self._fatal = f"reading stopped: {type(error).__name__}"
            raise
        finally:
            self._client.close()

    def _begin_anew(self) -> None:
        try:
            self._begin()
        except (KafkaException, LeadlineError) as error:
            # They may not all be there yet. What was read before says how old it is.
            self._error = f"topics were made anew and cannot be read yet ({type(error).__name__})"
            self._stop.wait(_PROBE_S)
            return
        with self._lock:
            self._view.clear()
        self._renewed()
        self._anew.clear()

    def _apply(self, messages: list[Any]) -> None:
        with self._lock:
            for message in messages:
                error = message.error()
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    self._error = error.str()
                    continue
                place = message.topic(), message.partition()
                if message.offset() < self._positions.get(place, 0):
                    self._anew.set()
                    return
                if error is None:
                    self._take(message)
                # At the end of a partition this is the place after whatever was compacted or expired.
                self._positions[place] = message.offset() + (error is None)

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
            read = dict(self._positions)
            try:
                ends = self._read_ends()
                if any(end < read[place] for place, end in ends.items() if place in read):
                    self._anew.set()
                self._ends = (asked_at, ends)
                self._error = ""
            except Exception as error:
                self._error = f"no broker answers ({type(error).__name__})"
