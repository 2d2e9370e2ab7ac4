"""A session as a timeline: what the agent sends and when, and what the monitor is wanted to send.

::

    Timeline(
        At(20).round(1, 0.5),
        At(40).round(2, 0.2, summary_depth_max=2, ...),
        Want("inversion", at=2, command="halt"),
        At(41).ack("halt"),
    ).play()

Seconds count from the start of the scenario. Deadlines pass by themselves: between two entries the clock stops at each one. Every
violation and command that goes out must be wanted, and in that order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from leadline.contracts.events import AckOutcome
from leadline.contracts.orders import Command, Violation
from leadline.detection.policy import DEFAULT_POLICY, Policy
from tests.support import core
from tests.support.core import START, Monitor

__all__ = ["At", "Entry", "Timeline", "Want"]


class Entry(NamedTuple):
    """One thing the agent does. ``answers``: the kind of command that it acknowledges."""

    seconds: float
    event: msgspec.Struct | bytes | None
    answers: str = ""
    outcome: AckOutcome = "accepted"


class At:
    """A moment, in seconds; its methods are what an agent can do then."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def start(self, *args: Any, **changes: Any) -> Entry:
        return Entry(self.seconds, core.start(*args, **changes))

    def round(self, number: int, ratio: float | None = None, **changes: Any) -> Entry:
        return Entry(self.seconds, core.round_(number, ratio, **changes))

    def checkpoint(self, *args: Any, **changes: Any) -> Entry:
        return Entry(self.seconds, core.checkpoint(*args, **changes))

    def ack(self, kind: str, outcome: AckOutcome = "accepted") -> Entry:
        """The answer to the newest command of ``kind``."""
        return Entry(self.seconds, None, kind, outcome)

    def end(self) -> Entry:
        return Entry(self.seconds, core.end())

    def silence(self) -> Entry:
        """Nothing happens; deadlines up to here pass."""
        return Entry(self.seconds, None)


class Want(NamedTuple):
    """A violation of ``rule``, a command of ``command``'s kind, or both, before the next entry. ``at``: the violation's round."""

    rule: str = ""
    at: int | None = None
    command: str = ""
    attempt: int = 1

    def said(self) -> Iterator[str]:
        if self.rule:
            yield f"{self.rule}!" + (f"@{self.at}" if self.at is not None else "")
        if self.command:
            yield f"{self.command}#{self.attempt}"


class Timeline:
    """Entries and wants, in the order in which they happen."""

    def __init__(self, *steps: Entry | Want, policy: Policy = DEFAULT_POLICY) -> None:
        self.steps = steps
        self.monitor = Monitor(policy)

    def play(self) -> Monitor:
        """Let it happen; returns the monitor as it is afterwards."""
        story: list[str] = []
        wanted: list[str] = []
        for step in self.steps:
            if isinstance(step, Want):
                wanted += step.said()
                continue
            story += self._pass(START + round(step.seconds * 1000))
            assert story == wanted, f"by {step.seconds} s"
            story += self._do(step)
        assert story == wanted, "at the end"
        return self.monitor

    def _do(self, entry: Entry) -> list[str]:
        event = entry.event
        if entry.answers:
            command = next(item for item in reversed(self.monitor.commands) if item.kind == entry.answers)
            event = core.ack(command, entry.outcome)
        return [] if event is None else list(map(_said, self.monitor.send(event)))

    def _pass(self, until: int) -> list[str]:
        """Move the clock, stopping at each deadline on the way."""
        story: list[str] = []
        while self.monitor.stored and (due := self.monitor.state().deadline) is not None and due <= until:
            story += map(_said, self.monitor.tick(max(0, due - self.monitor.now)))
        self.monitor.now = until
        return story


def _said(item: Violation | Command) -> str:
    if isinstance(item, Violation):
        return f"{item.rule}!" + (f"@{item.round}" if item.round is not None else "")
    return f"{item.kind}#{item.attempt}"
