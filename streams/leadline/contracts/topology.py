"""The stages of the monitor as data: what each reads and writes. ``leadline topology`` prints it; needs no stream engine.

A test holds what :func:`leadline.processors.topology.wire` wires to it, and it to the table of topics.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from leadline.contracts.topics import COMMANDS, DEAD_LETTERS, EVENTS, SESSIONS, SILENCES, VIOLATIONS

__all__ = ["STAGES", "Stage"]


class Stage(NamedTuple):
    """A stage of the flow. ``reads`` is a topic, or in plain words what it lives on."""

    name: str
    reads: str
    writes: tuple[str, ...]
    does: str


STAGES: Final = (
    Stage(
        "watch",
        EVENTS.name,
        (VIOLATIONS.name, COMMANDS.name, DEAD_LETTERS.name, SESSIONS.name),
        "decodes, judges and remembers; outputs are confirmed before the state is written and the offset committed",
    ),
    Stage("restore", SESSIONS.name, (), "brings back a partition's sessions after a restart or rebalance"),
    Stage("silences", SILENCES.name, (), "what people have silenced for a time: the policy that is judged by"),
    Stage("heartbeat", "time", (COMMANDS.name,), "tells the agents of each partition that somebody judges it, and how far"),
    Stage("clock", "deadlines", (EVENTS.name,), "sends a tick into a session's own partition when its deadline comes"),
)
"""In the order of the flow."""
