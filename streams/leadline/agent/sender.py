"""The sending thread: what is queued goes to the client, and to disk where the client cannot get rid of it.

::

    inbox ──▶ outbox ──────────▶ client ──▶ delivered     while the broker is well
                │                  ▲
                └─▶ spool (disk) ──┘                      away, slow or refusing: in the order of the disk, until it is empty

In flight is what the client has and has not reported on. Once there is trouble, that is on disk too: whatever then happens to
this process, the next one sends it (twice perhaps: its event ids tell).
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque

from leadline.agent.backlog import Backlog
from leadline.agent.flight import NOTHING, Callback, Count, Flying, Hooks, Limits, Waiting, close, gap_of, session_of, size_of
from leadline.agent.losses import Losses
from leadline.agent.outbox import Entry, Outbox, rank_of
from leadline.agent.records import DropReason, Record
from leadline.agent.spool import Spool
from leadline.agent.transport import Blocked, Delivery, Producer, Transport
from leadline.contracts.text import plural
from leadline.contracts.topics import EVENTS
from leadline.errors import Malformed, Refused, Retryable

__all__ = ["Sender"]

_log = logging.getLogger("leadline.agent")

_POLL_SECONDS = 0.02
_IDLE_SECONDS = 1.0
_RETRY_SECONDS = 1.0
_BLOCKED_SECONDS = 30.0
"""Until the next attempt where somebody must change something first."""
_SPILL_SECONDS = 1.0
"""What the client has not got rid of for so long goes to disk."""
_SPILL_QUEUED = 2_000
"""And so does what waits for it, from this many events on."""
_CHUNK = 500
_JOIN_SECONDS = 2.0


class Sender:
    """One thread's work, and the little that others may ask of it. Ends when it is closed, and never for any other reason."""

    def __init__(
        self,
        transport: Transport,
        inbox: deque[Waiting],
        limits: Limits,
        hooks: Hooks,
        spool: Spool | None,
    ) -> None:
        self._transport = transport
        self._inbox = inbox
        self._hooks = hooks
        self._backlog = Backlog(spool)
        self.lock = threading.RLock()
        self._done = threading.Condition(self.lock)
        self._wake = threading.Lock()
        """Held until somebody has something to do. Unlike an event, a lock may be let go of by a signal handler that interrupts
        just that."""
        self._wake.acquire()
        self.asleep = False
        self.closing = False
        self.running = False
        self.count = Count()
        self.flying: dict[int, Flying] = {}
        """Oldest first, by a number of its own."""
        self._outbox = Outbox(*limits)
        self._moving = 0
        """Events that are on their way from the queue to the disk."""
        self.losses = Losses(self.lock, self.count)
        self._thread: threading.Thread | None = None
        self._producer: Producer | None = None
        self._handed = 0
        self._hurried = 0
        self._trouble: Delivery | None = None
        self._lost_at_end = 0

    # -- for any thread

    def start(self) -> None:
        """Run, if it does not yet, and unless the interpreter is ending: then :meth:`close` does what is left to do."""
        with self.lock, contextlib.suppress(RuntimeError):
            if not self.running and not self.closing:
                self._thread = threading.Thread(target=self._run, name="leadline-emitter", daemon=True)
                self._thread.start()
                self.running = True

    def rouse(self) -> None:
        """There is something to do."""
        with contextlib.suppress(RuntimeError):
            self._wake.release()

    def gather(self) -> None:
        """Move what agents appended into the bounded queue."""
        with self.lock:
            inbox, outbox = self._inbox, self._outbox
            while inbox:
                event, trace = inbox.popleft()
                self.count.emitted += 1
                if callable(event):
                    try:
                        event = event()
                    except Exception as error:
                        self.losses.drop(DropReason.INTERNAL, error=repr(error))
                        continue
                for one in outbox.push(Entry(event, trace, rank_of(event), size_of(event))):
                    self.losses.drop(DropReason.QUEUE_FULL)
                    self.losses.miss(session_of(one), 1 + gap_of(one))

    def queued(self) -> int:
        """Events in memory that the client does not have."""
        return len(self._inbox) + len(self._outbox) + self._moving

    @property
    def spooled(self) -> int:
        """Events on disk that were not delivered."""
        return self._backlog.waiting

    def flush(self, timeout: float) -> int:
        """See :meth:`leadline.agent.emitter.Emitter.flush`."""
        with self.lock:
            if self._left():
                self.start()
            self._hurried += 1
            self.rouse()
            self._done.wait_for(lambda: self._left() == 0, max(0.0, timeout))
            self._hurried -= 1
            return self._left()

    def close(self, timeout: float) -> int:
        """See :meth:`leadline.agent.emitter.Emitter.close`."""
        left = 0 if self.closing else self.flush(timeout)
        with self.lock:
            if self.closing:
                return 0
            self.closing = True
            self.losses.ending = True  # Then one line tells of all that is lost.
            self.rouse()
            thread = self._thread
        if thread is None or not thread.is_alive():
            self._let_go()
        elif thread is not threading.current_thread():
            thread.join(_JOIN_SECONDS)
            if thread.is_alive():
                return left
        return self._lost_at_end

    # -- the thread

    def _left(self) -> int:
        """Events that are not delivered. What is in flight and on disk counts once."""
        return self.queued() + self._backlog.waiting + sum(not one.place for one in self.flying.values())

    def _run(self) -> None:
        while not self.closing:
            try:
                self._step()
            except Exception as error:
                self._renew(error)
        self._let_go()

    def _step(self) -> None:
        if not self.flying:
            self._adopt()
        self.gather()
        if not self._left():
            self._sleep(_IDLE_SECONDS)
            self.gather()
        if self.closing or not self._left():
            return
        if self._producer is None:
            self._producer = self._transport.producer()
        if self._backlog.active or self._stuck():
            self._spill()
        went = self._feed_from_disk(self._producer) if self._backlog.active else self._feed(self._producer)
        if self.flying or not went:
            if self._hurried:
                self._producer.flush(_POLL_SECONDS)
            else:
                self._producer.poll(_POLL_SECONDS)
        self._settle()
        if self._trouble is not None:
            trouble, self._trouble = self._trouble, None
            raise (Blocked if trouble.blocked else Retryable)(trouble.error)

    def _sleep(self, seconds: float) -> None:
        """Until somebody has something to do, or closes, or the time is over."""
        self.asleep = True
        if not self._inbox and not self.closing:
            self._wake.acquire(timeout=seconds)
        self.asleep = False

    def _adopt(self) -> None:
        taken, gone = self._backlog.adopt()
        if taken:
            with self.lock:
                self.count.adopted += taken
                if gone:
                    self.losses.drop(DropReason.SPOOL_FULL, gone)

    def _stuck(self) -> bool:
        """Whether the client does not get rid of what it has, or not fast enough."""
        if len(self._outbox) >= _SPILL_QUEUED:
            return True
        oldest = next(iter(self.flying.values()), None)
        return oldest is not None and time.monotonic() - oldest.since > _SPILL_SECONDS

    def _spill(self) -> bool:
        """What is in memory goes to disk, first what the client has. ``False``: there is none, or it cannot be used now."""
        while self._backlog.usable:
            fresh = [one for one in self.flying.values() if not one.place]
            with self.lock:
                entries = [entry for _ in range(_CHUNK) if (entry := self._outbox.pop()) is not None]
                self._moving = len(entries)
            good: list[tuple[Entry, Record]] = []
            for entry in entries:
                told = self.losses.told(entry)
                with contextlib.suppress(Malformed):
                    good.append((told, self.losses.encoded(told)))
            if not fresh and not good:
                self._moving = 0
                return True
            stored = self._backlog.store([one.record for one in fresh], [record for _, record in good])
            with self.lock:
                self._moving = 0
                if stored is None:
                    for entry, _ in reversed(good):
                        self._outbox.push_back(entry)
                    return False
                for one, place in zip(fresh, stored[0], strict=True):
                    one.place = place
                if stored[1]:
                    self.losses.drop(DropReason.SPOOL_FULL, len(stored[1]))
        return False

    def _feed(self, producer: Producer) -> bool:
        """Hand over what is queued in memory. ``False``: the client is full."""
        for _ in range(2 * _CHUNK):
            with self.lock:
                entry = self._outbox.pop()
                if entry is None:
                    return True
                number = self._fly(Flying(NOTHING, entry=entry))
            if not self._hand_over(producer, number):
                return False
        return True

    def _feed_from_disk(self, producer: Producer) -> bool:
        while (stored := self._backlog.next()) is not None:
            with self.lock:
                number = self._fly(Flying(stored.record, stored.id))
            if not self._hand_over(producer, number):
                return False
            self._backlog.taken()
        return True

    def _fly(self, one: Flying) -> int:
        self._handed += 1
        self.flying[self._handed] = one
        return self._handed

    def _hand_over(self, producer: Producer, number: int) -> bool:
        """``False``: the client is full; the record stays where it was, first in the queue."""
        one = self.flying[number]
        try:
            if one.entry is not None:
                one.entry = self.losses.told(one.entry)
                one.record = self.losses.encoded(one.entry)
            producer.produce(EVENTS.name, one.record.key, one.record.value, one.record.headers, Callback(self.settled, number))
        except Malformed:
            with self.lock:
                del self.flying[number]
                self._tell()
        except Refused as error:
            self._give_up(number, str(error))
        except BaseException as error:
            with self.lock:
                del self.flying[number]
                if one.entry is not None:
                    self._outbox.push_back(one.entry)
            if isinstance(error, BufferError):
                return False
            raise
        return True

    def _give_up(self, number: int, error: str) -> None:
        """The broker never takes this record."""
        with self.lock:
            one = self.flying.pop(number)
            self.losses.drop(DropReason.UNDELIVERED, error=error)
            self.losses.miss(one.record.session_id, 1 + one.record.gap)
            if one.place:
                self._backlog.arrived(one.place)
            self._tell()

    def settled(self, delivery: Delivery, number: int) -> None:
        """A delivery report came. What a failing client gives back stays in flight, for the next one (:meth:`_renew`)."""
        with self.lock:
            one = self.flying.get(number)
            if one is None:
                return
            if delivery.error and delivery.again:
                self._trouble = self._trouble or delivery
                self.count.last_error = delivery.error[:500]
                return
            if delivery.error:
                self._give_up(number, delivery.error)
                return
            del self.flying[number]
            self.count.delivered += 1
            self.count.blocked = ""
            if one.place:
                self._backlog.arrived(one.place)
            self._tell()
        self._hooks.tell(one.record, delivery)

    def _settle(self) -> None:
        self._backlog.settle()
        with self.lock:
            self._tell()

    def _tell(self) -> None:
        if self._hurried and not self._left():
            self._done.notify_all()

    # -- trouble

    def _renew(self, error: Exception) -> None:
        """The client failed: get rid of it, and try again with a new one a little later. What it did not deliver comes first
        again, in order."""
        blocked = isinstance(error, Blocked)
        told = (str(error) if isinstance(error, Retryable) else repr(error))[:500]
        producer, self._producer = self._producer, None
        close(producer)
        self._trouble = None
        with self.lock:
            self._take_back()
            if self.count.last_error != told or (blocked and not self.count.blocked):
                level = logging.ERROR if blocked else logging.WARNING
                when = "until somebody changes what is wrong" if blocked else "now, trying again"
                _log.log(level, "events cannot be sent %s: %.200s", when, told)
            self.count.last_error = told
            self.count.blocked = told if blocked else ""
        self._settle()
        until = time.monotonic() + (_BLOCKED_SECONDS if blocked else _RETRY_SECONDS)
        while not self.closing and (left := until - time.monotonic()) > 0:
            self.gather()
            self._spill()
            self._sleep(min(left, _IDLE_SECONDS))

    def _take_back(self) -> None:
        """What is in flight is to be sent again: from the disk where it is there, else from the head of the queue."""
        self._backlog.rewind([one.place for one in self.flying.values() if one.place])
        while self.flying:
            _, one = self.flying.popitem()
            if not one.place and one.entry is not None:
                self._outbox.push_back(one.entry)

    # -- the end

    def _let_go(self) -> None:
        """What was not sent goes to disk, or is lost; one line in the log tells how many of each."""
        self.gather()
        dropped, before = self.count.dropped.total(), self.count.last_error
        if self._producer is not None:
            self.count.last_error = ""
        self._spill()
        close(self._producer)
        self._producer = None
        self._backlog.settle()
        path = self._backlog.path
        kept = self._backlog.close()
        with self.lock:
            unreported = sum(not one.place for one in self.flying.values())
            if unreported:
                self.losses.drop(DropReason.UNDELIVERED, unreported)
            self.flying.clear()
            left = 0
            while self._outbox.pop():
                left += 1
            if left:
                self.losses.drop(DropReason.CLOSED, left)
            lost = self._lost_at_end = self.count.dropped.total() - dropped
            why = self.count.last_error or "the client was closed before they were sent"
            self.count.last_error = self.count.last_error or before
            self._done.notify_all()
        if kept:
            _log.warning("%s in %s for the next process: %.200s", plural(kept, "event waits", "events wait"), path, why)
        if lost:
            _log.warning("%s not delivered: %.200s", plural(lost, "event was", "events were"), why)
