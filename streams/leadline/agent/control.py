"""What the monitor's commands add up to for one session. Pure, and the same whatever order they arrive in.

::

    RUNNING ──cap-depth──▶ CAPPED            depth cap: stays, also after a resume; HELD stands for either, while it must wait
       │ ▲                   │ ▲
     halt │ resume         halt │ resume     halted while any incident's halt has no later resume
       ▼ │                   ▼ │
        HALTED ─────stop-agent────▶ STOPPED

A command acts once by its id; of two of one kind for one incident the higher ``seq`` counts; a resume releases what came
before it in ``seq``, whichever arrived first.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Final, NamedTuple, TypeVar

from leadline.contracts.events import AckOutcome
from leadline.contracts.orders import Command, CommandKind
from leadline.contracts.times import parse_ms
from leadline.detection.policy import FleetPolicy

__all__ = ["Answer", "Control", "State"]

_HALTING: Final = ("halt", "stop-agent")
_REMEMBERED: Final = 1_024
"""Command ids, and incidents with a resume, that are kept to recognize duplicates and latecomers."""

K = TypeVar("K")
V = TypeVar("V")


class State(StrEnum):
    """What the session may do."""

    RUNNING = "running"
    CAPPED = "capped"
    """It may compact, to a limited depth."""
    HELD = "held"
    """It must not compact now, though nobody has said so: the monitor is not heard, and the session was told to fail closed."""
    HALTED = "halted"
    """It must not compact."""
    STOPPED = "stopped"
    """It must not compact, and should end."""


class Answer(NamedTuple):
    """How a command was answered last."""

    outcome: AckOutcome
    detail: str = ""
    raw_tokens_restored: int | None = None


class Control:
    """The commands in force for one session of one epoch. Not thread safe."""

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch
        self._orders: dict[tuple[str, CommandKind], Command] = {}
        """The latest of each kind for each incident that is not released."""
        self._resumed: dict[str, int] = {}
        self._released: dict[str, int] = {}
        self._answers: dict[str, Answer] = {}
        self._pending: dict[str, Command] = {}
        self._cap: Command | None = None

    # -- what happens

    def receive(self, command: Command, now: int) -> Answer:
        """Take in a command at ``now`` (ms since 1970) and say how to acknowledge it. A duplicate gets its last answer again."""
        known = self._answers.get(command.command_id)
        if known is None:
            known = self._judge(command, now)
            self._answer(command.command_id, known)
        return known

    def knows(self, command_id: str) -> bool:
        """Whether it was received before."""
        return command_id in self._answers

    def settle(self, command_id: str, answer: Answer) -> bool:
        """A pending command was acted on, or refused. ``False``: it was not pending (any more)."""
        if self._pending.pop(command_id, None) is None:
            return False
        self._answer(command_id, answer)
        return True

    # -- how things stand

    @property
    def state(self) -> State:
        halting = {command.kind for command in self.halts}
        if "stop-agent" in halting:
            return State.STOPPED
        if halting:
            return State.HALTED
        return State.RUNNING if self._cap is None else State.CAPPED

    @property
    def halts(self) -> tuple[Command, ...]:
        """The halts and stops in force, in the order of ``seq``."""
        return _in_order(command for command in self._orders.values() if command.kind in _HALTING)

    @property
    def pending(self) -> tuple[Command, ...]:
        """Accepted and neither acted on, nor refused, nor overtaken; in the order of ``seq``."""
        return _in_order(self._pending.values())

    @property
    def depth_cap(self) -> int | None:
        """The commanded limit of summary depth, if any. Safe from any thread."""
        cap = self._cap
        if cap is None:
            return None
        asked = cap.parameters.max_depth
        return FleetPolicy().depth_cap if asked is None else asked

    # -- inside

    def _judge(self, command: Command, now: int) -> Answer:
        expires = parse_ms(command.expires_at)
        if expires is None:
            return Answer("refused", "expires_at is no RFC 3339 time with a zone")
        if now >= expires:
            return Answer("expired", f"expired {now - expires} ms ago")
        if command.epoch != self._epoch:
            return Answer("refused", f"for epoch {command.epoch}; the session is in epoch {self._epoch}")
        by = self._resume(command) if command.kind == "resume" else self._order(command)
        if by is not None:
            return Answer("refused", f"overtaken by seq {by}")
        self._pending[command.command_id] = command
        return Answer("accepted")

    def _order(self, command: Command) -> int | None:
        """Take an order in; returns the ``seq`` that overtook it, if any did."""
        if command.kind == "cap-depth" and (self._cap is None or self._cap.seq < command.seq):
            self._cap = command
        resumed = max(self._resumed.get(command.incident_id, -1), self._released.get(command.command_id, -1))
        if resumed > command.seq:
            return resumed
        key = (command.incident_id, command.kind)
        other = self._orders.get(key)
        if other is not None:
            if other.seq > command.seq:
                return other.seq
            self._pending.pop(other.command_id, None)
        self._orders[key] = command
        return None

    def _resume(self, command: Command) -> int | None:
        before = self._resumed.get(command.incident_id, -1)
        if before > command.seq:
            return before
        _keep(self._resumed, command.incident_id, command.seq)
        released = command.parameters.releases
        if released is not None:
            _keep(self._released, released, command.seq)
        for key, order in list(self._orders.items()):
            if order.seq < command.seq and (order.incident_id == command.incident_id or order.command_id == released):
                del self._orders[key]
                self._pending.pop(order.command_id, None)
        for other in list(self._pending.values()):
            if other.kind == "resume" and other.incident_id == command.incident_id:
                del self._pending[other.command_id]
        return None

    def _answer(self, command_id: str, answer: Answer) -> None:
        _keep(self._answers, command_id, answer)


def _keep(memory: dict[K, V], key: K, value: V) -> None:
    memory[key] = value
    if len(memory) > _REMEMBERED:
        del memory[next(iter(memory))]


def _in_order(commands: Iterable[Command]) -> tuple[Command, ...]:
    return tuple(sorted(commands, key=lambda command: command.seq))
