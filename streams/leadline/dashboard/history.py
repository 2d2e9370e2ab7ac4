"""What an opened session reported lately: rounds, summarizer calls and acknowledgements, from the events topic.

A session's record keeps the last 16 rounds; who opens it sees further back. Only partitions of sessions that somebody looks at
are read, some way back and then on, and what is kept is bounded.
"""

from __future__ import annotations

import queue
import threading
from collections import OrderedDict, deque
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, KafkaException, TopicPartition
from msgspec.structs import replace

from leadline.agent.kafka import take
from leadline.contracts.codec import Event, decode_event
from leadline.contracts.events import Checkpoint, Round
from leadline.contracts.orders import Tick
from leadline.contracts.topics import EVENTS
from leadline.dashboard.reader import consumer_config
from leadline.errors import Malformed
from leadline.settings import Settings

__all__ = ["History", "Past", "Seen"]

_BACK: Final = 50_000
"""Records of one partition that are looked through when a session is opened."""
_MOST_SESSIONS: Final = 32
_MOST_ROUNDS: Final = 2_000
_MOST_CALLS: Final = 500
_MOST_OTHERS: Final = 500
"""Acknowledgements, starts, ends: so few that an old one must not give way to a new round."""
_BATCH: Final = 2_000
_ASK_S: Final = 5.0


class Seen(NamedTuple):
    """One event, where it stands in its partition and when the broker had it (ms since 1970)."""

    offset: int
    at: int
    event: Event


class Past:
    """The events of one session, bounded by kind. ``version`` counts up with each; ``complete`` once the look back is done."""

    __slots__ = ("_lists", "_lock", "complete", "key", "last", "partition", "until", "version")

    def __init__(self, session_id: str, partition: int) -> None:
        self.key = session_id.encode("utf-8", "surrogatepass")
        self.partition = partition
        self._lists: dict[str, deque[Seen]] = {
            "round": deque(maxlen=_MOST_ROUNDS),
            "call": deque(maxlen=_MOST_CALLS),
            "other": deque(maxlen=_MOST_OTHERS),
        }
        self._lock = threading.Lock()
        self.last = -1
        self.until = -1
        self.version = 0
        self.complete = False

    def add(self, seen: Seen) -> None:
        """The next event. Of the summaries that rounds list only the newest are kept: they are long, and only they are shown."""
        event = seen.event
        kind = "round" if isinstance(event, Round) else "call" if isinstance(event, Checkpoint) else "other"
        with self._lock:
            into = self._lists[kind]
            if isinstance(event, Round) and event.summaries is not None:
                recent = range(len(into) - 1, max(-1, len(into) - 9), -1)
                before = next((number for number in recent if _lists_summaries(into[number], event)), None)
                if before is not None:
                    old = into[before]
                    assert isinstance(old.event, Round)
                    into[before] = old._replace(event=replace(old.event, summaries=None))
            into.append(seen)
            self.version += 1

    def of_agent(self, agent_id: str) -> list[Seen]:
        """Oldest first. Two agents may use one session id: only this one's."""
        with self._lock:
            every = [seen for into in self._lists.values() for seen in into]
        mine = (seen for seen in every if seen.event.agent_id == agent_id and not isinstance(seen.event, Tick))
        return sorted(mine, key=lambda seen: seen.offset)


def _lists_summaries(seen: Seen, after: Round) -> bool:
    event = seen.event
    return isinstance(event, Round) and event.agent_id == after.agent_id and event.summaries is not None


class History:
    """``open`` says that somebody looks at a session; the thread reads for as long as it is among the last ones opened."""

    def __init__(self, settings: Settings, back: int = _BACK) -> None:
        self._settings = settings
        self._back = back
        self._opened: OrderedDict[tuple[int, str], Past] = OrderedDict()
        self._asked: queue.SimpleQueue[Past] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.error = ""

    def open(self, session_id: str, partition: int) -> Past:
        """What is known of it so far; more is on its way."""
        place = partition, session_id
        with self._lock:
            past = self._opened.get(place)
            if past is None:
                past = self._opened[place] = Past(session_id, partition)
                self._asked.put(past)
                while len(self._opened) > _MOST_SESSIONS:
                    self._opened.popitem(last=False)
            self._opened.move_to_end(place)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="dashboard-history", daemon=True)
                self._thread.start()
        return past

    def close(self) -> None:
        """Stop reading. A second call does nothing."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(5.0)

    def _run(self) -> None:
        client: Any = Consumer(consumer_config(self._settings))
        followed: set[int] = set()
        try:
            while not self._stop.is_set():
                self._follow(client, followed)
                if not followed:
                    self._stop.wait(0.05)
                    continue
                for message in take(client, _BATCH, 0.1):
                    if message.error() is None:
                        self._take(message)
                    else:
                        self._reached(message.partition(), message.offset())
        except Exception as error:
            self.error = f"the events cannot be read: {type(error).__name__}"
            raise
        finally:
            client.close()

    def _follow(self, client: Any, followed: set[int]) -> None:
        """Go back for what was newly opened, and let go of partitions that nobody looks at any more."""
        while True:
            try:
                past = self._asked.get_nowait()
            except queue.Empty:
                break
            at = TopicPartition(EVENTS.name, past.partition)
            try:
                low, high = client.get_watermark_offsets(at, timeout=_ASK_S)
            except KafkaException as error:
                self.error = f"the events cannot be read: {error.args[0].str()}"
                past.complete = True
                continue
            self.error = ""
            past.until = high
            at.offset = max(low, high - self._back)
            if past.partition in followed:
                client.incremental_unassign([TopicPartition(EVENTS.name, past.partition)])
            client.incremental_assign([at])
            followed.add(past.partition)
            self._reached(past.partition, at.offset)
        with self._lock:
            wanted = {past.partition for past in self._opened.values()}
        for partition in followed - wanted:
            client.incremental_unassign([TopicPartition(EVENTS.name, partition)])
            followed.discard(partition)

    def _take(self, message: Any) -> None:
        key, partition, offset = message.key(), message.partition(), message.offset()
        for past in self._of(partition):
            if offset > past.last:
                past.last = offset
                if key == past.key:
                    self._add(past, message)
        self._reached(partition, offset + 1)

    def _reached(self, partition: int, offset: int) -> None:
        for past in self._of(partition):
            if not past.complete and 0 <= past.until <= offset:
                past.complete = True
                past.version += 1

    def _of(self, partition: int) -> list[Past]:
        with self._lock:
            return [past for past in self._opened.values() if past.partition == partition]

    def _add(self, past: Past, message: Any) -> None:
        try:
            decoded = decode_event(message.value())
        except Malformed:
            return
        past.add(Seen(message.offset(), message.timestamp()[1], decoded.event))
