"""Between two threads: the listener records commands, the agent acts on them when it comes by."""

from __future__ import annotations

import threading
from collections.abc import Callable

from leadline.agent.control import Answer, Control, State
from leadline.agent.forks import follow_forks
from leadline.contracts.orders import Command, CommandKind

__all__ = ["Inbox"]


class Inbox:
    """A session's :class:`~leadline.agent.control.Control` behind a lock, and the commands the agent has not looked at yet.

    ``acknowledge(command, answer)`` is called for every answer, with the lock held, so that answers stay in order; it must
    not block. ``clock``: ms since 1970.
    """

    def __init__(self, epoch: int, acknowledge: Callable[[Command, Answer], None], clock: Callable[[], int]) -> None:
        self._control = Control(epoch)
        self._acknowledge = acknowledge
        self._clock = clock
        self._lock = threading.RLock()
        self._fresh: list[Command] = []
        self._unseen: set[str] = set()
        follow_forks(self)

    def before_fork(self) -> None:
        """Nothing to put aside."""

    def after_fork(self, child: bool) -> None:
        if child:
            self._lock = threading.RLock()

    def receive(self, command: Command) -> None:
        """Record and acknowledge; on the listener's thread."""
        with self._lock:
            known = self._control.knows(command.command_id)
            answer = self._control.receive(command, self._clock())
            if not known and answer.outcome == "accepted":
                self._fresh.append(command)
                self._unseen.add(command.command_id)
            self._acknowledge(command, answer)

    @property
    def waiting(self) -> bool:
        """Whether anything came since the last :meth:`take`."""
        return bool(self._fresh)

    def take(self) -> list[Command]:
        """What came since the last time and still counts, in the order of ``seq``."""
        if not self._fresh:
            return []
        with self._lock:
            fresh, self._fresh = self._fresh, []
            self._unseen.clear()
            pending = {command.command_id for command in self._control.pending}
        return sorted((command for command in fresh if command.command_id in pending), key=lambda command: command.seq)

    def settle(self, command: Command, answer: Answer) -> None:
        """A pending command was acted on, or refused; tells the monitor once."""
        with self._lock:
            if self._control.settle(command.command_id, answer):
                self._acknowledge(command, answer)

    def look(self) -> tuple[Command, ...]:
        """The agent looks at what is pending."""
        with self._lock:
            self._unseen.clear()
            return self._control.pending

    def pending(self, kind: CommandKind | None = None) -> tuple[Command, ...]:
        with self._lock:
            return tuple(command for command in self._control.pending if kind in (None, command.kind))

    def seen(self) -> tuple[Command, ...]:
        """Pending commands that the agent has looked at: only these can be what it is acting on."""
        with self._lock:
            return tuple(command for command in self._control.pending if command.command_id not in self._unseen)

    @property
    def state(self) -> State:
        with self._lock:
            return self._control.state

    @property
    def halts(self) -> tuple[Command, ...]:
        with self._lock:
            return self._control.halts

    @property
    def depth_cap(self) -> int | None:
        # One attribute is read, once: no lock is needed for that.
        return self._control.depth_cap
