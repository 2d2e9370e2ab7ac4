"""The way out: events to ``leadline.events``, without ever blocking or raising into the agent.

``emit`` only appends to a queue that needs no lock; one daemon thread (:mod:`leadline.agent.sender`) encodes, keeps what cannot
be sent on disk, hands records to the transport's producer and runs its delivery callbacks. What is dropped is counted by a named
reason, and told by the next event of its session.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from leadline.agent.flight import Hooks, Limits, Make, OnPlaced, Waiting
from leadline.agent.forks import follow_forks
from leadline.agent.records import DropReason
from leadline.agent.sender import Sender
from leadline.agent.spool import Spool
from leadline.agent.trace import active_trace
from leadline.agent.transport import Transport
from leadline.contracts.events import AgentEvent
from leadline.contracts.trace import NO_TRACE, TraceContext

__all__ = ["DropReason", "Emitted", "Emitter"]


@dataclass(slots=True)
class Emitted:
    """Counters since this process began to emit.

    ``cut``: rounds sent without their list of summaries, as it was too long. ``queued``: in memory; ``in_flight``: with the
    client, no report yet; ``spooled``: on disk now, in flight or not; ``adopted``: taken over from the spools of earlier
    processes. ``blocked``: why nothing can be sent before somebody changes something, else empty.
    """

    emitted: int = 0
    delivered: int = 0
    cut: int = 0
    queued: int = 0
    in_flight: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    last_error: str = ""
    spooled: int = 0
    adopted: int = 0
    blocked: str = ""


class Emitter:
    """Sends events keyed by session id; thread safe.

    ``on_delivered(session_id, partition)`` is told, on the sending thread, where each event went; ``on_placed`` also which one,
    and its offset. At most ``max_queued`` events and ``max_bytes`` bytes wait in memory; with a ``spool``, what cannot be sent
    soon goes to disk instead, and is sent by a later process if need be. The client is made on first use, and anew in a forked
    child (events that were queued at the fork belong to the parent).
    """

    def __init__(
        self,
        transport: Transport,
        *,
        max_queued: int = 10_000,
        max_bytes: int = 32 * 1024 * 1024,
        on_delivered: Callable[[str, int], None] | None = None,
        on_placed: OnPlaced | None = None,
        spool: Spool | None = None,
    ) -> None:
        self._transport = transport
        self._limits = Limits(max_queued, max_bytes)
        self._hooks = Hooks(on_delivered, on_placed)
        self._spool = spool
        self._inherited: list[object] = []
        self._begin()
        follow_forks(self)

    # -- for the agent

    def emit(self, event: AgentEvent, *, trace: TraceContext = NO_TRACE) -> bool:
        """Queue an event. Never blocks, never raises. ``False``: it was dropped at once, and counted.

        The span that is active in the calling thread goes along in the headers; without one, ``trace`` does. What cannot be
        encoded, or would be refused by the monitor, is found out later and only counted.
        """
        return self._queue(event, trace)

    def emit_later(self, make: Make, *, trace: TraceContext = NO_TRACE) -> bool:
        """The same of an event that ``make`` returns; called once, on the sending thread, it must not read what changes."""
        return self._queue(make, trace)

    def flush(self, timeout: float) -> int:
        """Wait until everything is delivered or dropped, for at most ``timeout`` seconds; returns how many events are left."""
        return self._sender.flush(timeout)

    def close(self, timeout: float = 3.0) -> int:
        """Flush, keep the rest on disk if there is a spool, and let the client go; returns how many events were lost, which is
        logged too. Takes ``timeout`` seconds and a little more.

        A second call does nothing.
        """
        return self._sender.close(timeout)

    def counters(self) -> Emitted:
        """A copy of the counters."""
        sender = self._sender
        with sender.lock:
            sender.gather()
            count = sender.count
            return Emitted(
                emitted=count.emitted,
                delivered=count.delivered,
                cut=count.cut,
                queued=sender.queued(),
                in_flight=len(sender.flying),
                dropped=Counter(count.dropped),
                last_error=count.last_error,
                spooled=sender.spooled,
                adopted=count.adopted,
                blocked=count.blocked,
            )

    # -- forks

    def before_fork(self) -> None:
        """Nothing of it is worth waiting for: the child begins with nothing."""

    def after_fork(self, child: bool) -> None:
        """Locks, threads and clients of the parent are not to be touched in the child."""
        if child:
            # Kept, not closed: the client's threads live in the parent, and to free it here would wait for them for ever.
            self._inherited.append(self._sender)
            self._begin()

    def _queue(self, event: AgentEvent | Make, trace: TraceContext) -> bool:
        sender = self._sender
        try:
            if sender.closing:
                sender.losses.drop(DropReason.CLOSED)
                return False
            active = active_trace()
            inbox = self._inbox
            inbox.append((event, active if active.traceparent else trace))
            if len(inbox) > self._limits.records:
                # The sending thread does not get its turn: help it to keep the bound.
                sender.gather()
            if sender.asleep:
                sender.rouse()
            elif not sender.running:
                sender.start()
            return True
        except Exception as error:
            sender.losses.drop(DropReason.INTERNAL, error=repr(error))
            return False

    def _begin(self) -> None:
        self._inbox: deque[Waiting] = deque()
        self._sender = Sender(self._transport, self._inbox, self._limits, self._hooks, self._spool)
