"""The way in: commands from ``leadline.commands``, for all sessions of a process.

A command lies on the partition number on which its session's events arrive; the delivery reports tell which. One daemon thread
reads just those partitions, from a command's lifetime ago on: whatever is older has expired. No consumer group, no commits.
The thread only records: a session acts in the agent's own thread.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Protocol

from leadline.agent.forks import follow_forks
from leadline.agent.presence import Presence
from leadline.agent.transport import Blocked, Consumer, Received, Transport
from leadline.contracts.codec import decode_order
from leadline.contracts.orders import Command, Heartbeat
from leadline.contracts.topics import COMMANDS
from leadline.errors import Malformed

__all__ = ["COMMAND_TTL_MS", "CommandListener", "Heard", "Recipient"]

_log = logging.getLogger("leadline.agent")

COMMAND_TTL_MS: Final = 600_000
"""Ten times the default policy's ``command_ttl_ms``."""
_POLL_SECONDS = 0.2
_RETRY_SECONDS = 1.0
_BLOCKED_SECONDS = 30.0
"""Until the next attempt where somebody must change something first."""

Address = tuple[str, str]


class Recipient(Protocol):
    """What the listener needs of a session."""

    @property
    def session_id(self) -> str: ...

    @property
    def agent_id(self) -> str: ...

    def receive(self, command: Command) -> None:
        """Record a command, and acknowledge it. Called on the listener's thread; must not block."""


@dataclass(frozen=True, slots=True)
class Heard:
    """Counters: records routed to a session, for sessions not here, not readable; handlers that raised; client failures; and the
    monitor's heartbeats."""

    routed: int = 0
    unrouted: int = 0
    malformed: int = 0
    failed: int = 0
    retries: int = 0
    heartbeats: int = 0


class CommandListener:
    """Routes commands by session id and agent id. Thread safe; in a forked child it starts anew.

    ``lifetime_ms``: how far back it reads when it first hears of a partition; no less than the monitor's command TTL.
    """

    def __init__(self, transport: Transport, *, now: Callable[[], int] | None = None, lifetime_ms: int = COMMAND_TTL_MS) -> None:
        self._transport = transport
        self._now = now or (lambda: time.time_ns() // 1_000_000)
        self._lifetime_ms = lifetime_ms
        self._recipients: dict[Address, Recipient] = {}
        self._inherited: list[Consumer] = []
        self._consumer: Consumer | None = None
        self.presence = Presence()
        """What was heard of the monitor itself."""
        self._begin()
        follow_forks(self)

    # -- for sessions

    def register(self, recipient: Recipient) -> None:
        """Route commands to ``recipient`` from now on. A second session of the same ids takes the first one's place."""
        with self._lock:
            self._recipients[recipient.session_id, recipient.agent_id] = recipient
            self._run()

    def unregister(self, recipient: Recipient) -> None:
        """No more commands for it; partitions that no other session needs are no longer read."""
        with self._lock:
            address = (recipient.session_id, recipient.agent_id)
            if self._recipients.get(address) is recipient:
                del self._recipients[address]
            if not any(session_id == recipient.session_id for session_id, _ in self._recipients):
                self._where.pop(recipient.session_id, None)

    def learn(self, session_id: str, partition: int) -> None:
        """The session's events arrive on ``partition``. Cheap: called for every delivery."""
        if self._where.get(session_id) != partition:
            with self._lock:
                if any(session_id == known for known, _ in self._recipients):
                    self._where[session_id] = partition
                    self._run()

    def heard(self) -> Heard:
        """The counters as they are now."""
        return self._heard

    @property
    def positions(self) -> dict[int, int]:
        """Next offset to read of each partition that is being read."""
        return dict(self._positions)

    def close(self) -> None:
        """Stop reading; takes a poll's time at most. A second call does nothing."""
        self._closing = True
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(2.0)

    # -- inside

    def _begin(self) -> None:
        if self._consumer is not None:
            # As with the emitter: a parent's client can be neither used nor freed in a child.
            self._inherited.append(self._consumer)
        self._lock = threading.RLock()
        self._consumer = None
        self._thread: threading.Thread | None = None
        self._closing = False
        self._where: dict[str, int] = {}
        self._positions: dict[int, int] = {}
        self._heard = Heard()
        self._trouble = ""

    def before_fork(self) -> None:
        """Nothing to put aside."""

    def after_fork(self, child: bool) -> None:
        if child:
            self._begin()

    def _run(self) -> None:
        if self._where and not self._closing and (self._thread is None or not self._thread.is_alive()):
            self._thread = threading.Thread(target=self._listen, name="leadline-listener", daemon=True)
            self._thread.start()

    def _listen(self) -> None:
        """The reading thread. It ends with the listener, and never for any other reason."""
        while not self._closing:
            try:
                if self._consumer is None:
                    self._consumer = self._transport.consumer(COMMANDS.name)
                    self._consumer.assign(self._positions)
                self._follow(self._consumer)
                for record in self._consumer.poll(_POLL_SECONDS):
                    self._route(record)
            except Exception as error:
                self._complain(repr(error))
                self._heard = replace(self._heard, retries=self._heard.retries + 1)
                self._drop_client()
                self._pause(_BLOCKED_SECONDS if isinstance(error, Blocked) else _RETRY_SECONDS)
        self._drop_client()

    def _complain(self, error: str) -> None:
        """Once per kind of trouble, not once a second."""
        if error != self._trouble:
            _log.warning("commands cannot be read, trying again: %.200s", error)
        self._trouble = error

    def _pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._closing and time.monotonic() < until:
            time.sleep(0.05)

    def _drop_client(self) -> None:
        consumer, self._consumer = self._consumer, None
        try:
            if consumer is not None:
                consumer.close()
        except Exception as error:
            _log.warning("the client did not close: %.200r", error)

    def _follow(self, consumer: Consumer) -> None:
        """Read the partitions that are needed now; those that were read go on where they were."""
        with self._lock:
            wanted = set(self._where.values())
        if wanted == self._positions.keys():
            return
        positions = {partition: offset for partition, offset in self._positions.items() if partition in wanted}
        since = self._now() - self._lifetime_ms
        for partition in wanted - positions.keys():
            positions[partition] = consumer.start_offset(partition, since)
        consumer.assign(positions)
        self._positions = positions

    def _route(self, record: Received) -> None:
        self._positions[record.partition] = record.offset + 1
        heard = self._heard
        try:
            command = decode_order(record.value)
        except Malformed:
            self._heard = replace(heard, malformed=heard.malformed + 1)
            return
        if isinstance(command, Heartbeat):
            self.presence.heard(record.partition, command)
            self._heard = replace(heard, heartbeats=heard.heartbeats + 1)
            return
        with self._lock:
            recipient = self._recipients.get((command.session_id, command.agent_id))
        if recipient is None:
            self._heard = replace(heard, unrouted=heard.unrouted + 1)
            return
        try:
            recipient.receive(command)
            self.presence.stir()
            self._heard = replace(heard, routed=heard.routed + 1)
        except Exception as error:
            _log.warning("a command was not recorded: %.200r", error)
            self._heard = replace(heard, failed=heard.failed + 1)
