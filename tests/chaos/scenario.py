"""What a scenario is, how often it injects its faults, and how it waits."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from tests.chaos.arena import Arena
from tests.support.brokers import ApacheKafka

__all__ = ["Scenario", "Times", "Unavailable", "until"]


class Unavailable(Exception):
    """This machine can't do that fault; the message says why."""


@dataclass(frozen=True, slots=True)
class Times:
    """How often each fault is injected."""

    point: int
    """Kills at each fault point."""
    random: int
    """Kills at random moments."""
    membership: int
    """Workers that join and then leave or die."""
    each: int
    """Of the dearer ones: store deleted or stale, zombies, broker kills, full disks, clock steps."""
    away_s: float
    """How long the broker is gone."""


Run = Callable[[Arena, Times, ApacheKafka], None]


@dataclass(frozen=True, slots=True)
class Scenario:
    """``nodes``: brokers that its cluster has."""

    name: str
    run: Run
    nodes: int = 1


def until(arena: Arena, check: Callable[[], bool], limit_s: float) -> None:
    """Wait for ``check``; past the limit it is noted, and what came of it is compared all the same."""
    deadline = time.monotonic() + limit_s
    while not check():
        if time.monotonic() > deadline:
            arena.tally.notes.append(f"waited {limit_s:g} s in vain: {arena.tally.name}")
            return
        time.sleep(0.05)
