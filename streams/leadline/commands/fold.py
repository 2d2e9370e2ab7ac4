"""The whole monitor as one pure function: records of one partition and the states they touch go in; new states, violations,
commands and dead letters come out.

The stream processor, the offline replay, the lab and the tests all call :func:`fold`; nothing else decides anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from leadline.contracts.orders import Command, Violation
from leadline.contracts.session_state import SessionState
from leadline.detection.policy import Policy

__all__ = ["DeadLetter", "Folded", "Incoming", "fold"]


class Incoming(NamedTuple):
    """One record of ``leadline.events`` as the broker delivered it. ``timestamp``: ms since 1970, negative when absent."""

    key: bytes | None
    value: bytes | None
    partition: int
    offset: int
    timestamp: int
    headers: Sequence[tuple[str, bytes | None]] = ()


class DeadLetter(NamedTuple):
    """A record that could not be read, with the named reason and a sentence."""

    source: Incoming
    reason: str
    error: str


@dataclass(slots=True)
class Folded:
    """What a batch led to, in order. ``states``: every session touched, by state key; ``None`` is to be removed.

    A session whose events had been applied before is listed too: its record must be written again, since the first time
    may not have reached the changelog.
    """

    states: dict[str, SessionState | None] = field(default_factory=dict)
    outputs: list[Violation | Command] = field(default_factory=list)
    dead_letters: list[DeadLetter] = field(default_factory=list)
    ignored: dict[str, int] = field(default_factory=dict)
    """Records that led to nothing, by why: ``tombstone``, ``replayed``, ``unknown-session``."""


def fold(batch: Sequence[Incoming], load: Callable[[str], SessionState | None], policy: Policy, now: int) -> Folded:
    """Apply ``batch`` (one partition, ascending offsets) at time ``now`` (ms since 1970).

    ``load`` gives the state stored under a state key; it is asked once for each session in the batch. Never raises for
    anything that an agent can send.
    """
    raise NotImplementedError
