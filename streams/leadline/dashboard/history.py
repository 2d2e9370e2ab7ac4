"""What an opened session reported lately: rounds, summarizer calls and acknowledgements, from the events topic.

A session's record keeps the last 16 rounds; who opens it sees further back. Only partitions of sessions that somebody looks at
are read, some way back and then on, and what is kept is bounded. A session that is being looked at keeps its place: a further one
that finds none is shown without its past, because looking back anew for each would never end.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from msgspec.structs import replace

from leadline.agent.kafka import take
from leadline.contracts.codec import Event, decode_event
from leadline.contracts.events import Checkpoint, Round
from leadline.contracts.orders import Tick
from leadline.contracts.topics import EVENTS
from leadline.dashboard.reader import consumer_config
from leadline.errors import Malformed
from leadline.settings import Settings

__all__ = ["MOST_SESSIONS", "History", "Past", "Seen"]

_BACK: Final = 50_000
"""Records of one partition that are looked through when a session is opened."""
MOST_SESSIONS: Final = 64
"""Sessions whose past is kept at once."""
_HELD_S: Final = 30.0
"""A session that was asked for within so many seconds is being looked at: a page asks twice a second."""
_AGAIN_S: Final = 5.0
"""Until a reader that failed begins again."""
_MOST_ROUNDS: Final = 2_000
_MOST_CALLS: Final = 500
_MOST_OTHERS: Final = 500
"""Acknowledgements, starts, ends: so few that an old one must not give way to a new round."""
_BATCH: Final = 2_000
_LOOK_BACK: Final = {"max.partition.fetch.bytes": 4 * 1024 * 1024}
"""All that a session's page looks back at is of one partition."""
_ASK_S: Final = 5.0


class Seen(NamedTuple):
    """One event, where it stands in its partition and when the broker had it (ms since 1970)."""

    offset: int
    at: int
    event: Event


class Past:
    """The events of one session, bounded by kind. ``version`` counts up with each; ``complete`` once the look back is done."""

    __slots__ = ("_lists", "_lock", "complete", "key", "last", "looked_at", "partition", "until", "version")

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
        self.looked_at = 0.0
        """When somebody asked for it last, in seconds of the history's clock."""

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
    """``open`` says that somebody looks at a session; the thread reads for as long as nobody else needs its place.

    ``clock`` gives seconds that only grow. ``error``: why the past of sessions cannot be read now, or empty.
    """

    def __init__(self, settings: Settings, back: int = _BACK, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._back = back
        self._clock = clock
        self._opened: OrderedDict[tuple[int, str], Past] = OrderedDict()
        """The one that was looked at longest ago first."""
        self._asked: queue.SimpleQueue[Past] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.error = ""

    def open(self, session_id: str, partition: int) -> Past | None:
        """What is known of it so far; more is on its way. ``None``: as many as are kept are being looked at."""
        place, now = (partition, session_id), self._clock()
        with self._lock:
            past = self._opened.get(place)
            if past is None:
                if len(self._opened) >= MOST_SESSIONS:
                    oldest = next(iter(self._opened.values()))
                    if now - oldest.looked_at < _HELD_S:
                        return None
                    self._opened.popitem(last=False)
                past = self._opened[place] = Past(session_id, partition)
                self._asked.put(past)
            past.looked_at = now
            self._opened.move_to_end(place)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="dashboard-history", daemon=True)
                self._thread.start()
        return past

    def forget(self) -> None:
        """The events are others now: what is asked for again is looked up anew."""
        with self._lock:
            self._opened.clear()

    def close(self) -> None:
        """Stop reading. A second call does nothing."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(5.0)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._read()
            except Exception as error:
                self.error = f"the events cannot be read: {type(error).__name__}"
                self._stop.wait(_AGAIN_S)
                with self._lock:
                    opened = list(self._opened.values())
                for past in opened:
                    self._asked.put(past)

    def _read(self) -> None:
        """Until told to stop. Raises whatever goes wrong."""
        client: Any = Consumer(consumer_config(self._settings) | _LOOK_BACK)
        followed: set[int] = set()
        try:
            while not self._stop.is_set():
                self._follow(client, followed)
                if not followed:
                    self._stop.wait(0.05)
                    continue
                for message in take(client, _BATCH, 0.1):
                    error = message.error()
                    if error is None:
                        self.error = ""
                        self._take(message)
                    elif error.code() == KafkaError._PARTITION_EOF:
                        self._reached(message.partition(), message.offset())
                    else:
                        self.error = f"the events cannot be read: {error.str()}"
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
