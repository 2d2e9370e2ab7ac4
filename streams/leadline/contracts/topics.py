"""THE table of topics: what is on each, by which key, who writes and who reads it."""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = [
    "COMMANDS",
    "DEAD_LETTERS",
    "DEAD_LETTER_BYTES",
    "DEFAULT_PARTITIONS",
    "EVENTS",
    "SESSIONS",
    "SILENCES",
    "TOPICS",
    "VIOLATIONS",
    "Topic",
]

DEFAULT_PARTITIONS: Final = 8
"""Partitions can't be added later without breaking the sessions table: provision for the largest fleet to come."""

DEAD_LETTER_BYTES: Final = 2 * 1024 * 1024
"""Largest dead letter: the largest event that a broker takes by default (1 MiB), untouched, and the headers on top of it."""


class Topic(NamedTuple):
    """One topic. ``partitioned_as_events``: has exactly the partition count of ``leadline.events``."""

    name: str
    key: str
    records: tuple[str, ...]
    writers: tuple[str, ...]
    readers: tuple[str, ...]
    partitioned_as_events: bool
    config: dict[str, str]


_DAY_MS = 24 * 3600 * 1000

EVENTS: Final = Topic(
    "leadline.events",
    "session id",
    (
        "leadline.session-start/1",
        "leadline.round/1",
        "leadline.checkpoint/1",
        "leadline.ack/1",
        "leadline.session-end/1",
        "leadline.tick/1",
        "leadline.manual/1",
    ),
    ("agents", "monitor", "dashboard"),
    ("monitor", "dashboard"),
    True,
    # The broker's clock stamps the events: an agent whose clock is wrong can't move a deadline.
    {"cleanup.policy": "delete", "retention.ms": str(7 * _DAY_MS), "message.timestamp.type": "LogAppendTime"},
)
VIOLATIONS: Final = Topic(
    "leadline.violations",
    "session id",
    ("leadline.violation/1",),
    ("monitor",),
    ("anyone",),
    True,
    {"cleanup.policy": "delete", "retention.ms": str(30 * _DAY_MS)},
)
COMMANDS: Final = Topic(
    "leadline.commands",
    "session id",
    ("leadline.command/1", "leadline.heartbeat/1"),
    ("monitor",),
    ("agents", "dashboard"),
    True,
    {"cleanup.policy": "delete", "retention.ms": str(_DAY_MS)},
)
DEAD_LETTERS: Final = Topic(
    "leadline.dead-letters",
    "as received",
    ("any bytes, untouched",),
    ("monitor",),
    ("operators",),
    False,
    {"cleanup.policy": "delete", "retention.ms": str(14 * _DAY_MS), "max.message.bytes": str(DEAD_LETTER_BYTES)},
)
SESSIONS: Final = Topic(
    "leadline.sessions",
    "session id and agent id",
    ("leadline.session/1",),
    ("monitor",),
    ("monitor", "dashboard"),
    True,
    {"cleanup.policy": "compact"},
)
SILENCES: Final = Topic(
    "leadline.silences",
    "silence id",
    ("leadline.silence/1",),
    ("dashboard",),
    ("monitor", "dashboard"),
    False,
    {"cleanup.policy": "delete", "retention.ms": str(90 * _DAY_MS)},
)
TOPICS: Final = (EVENTS, VIOLATIONS, COMMANDS, DEAD_LETTERS, SESSIONS, SILENCES)
