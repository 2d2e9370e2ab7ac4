"""Bounds of what is accepted and of what is kept. Every one is documented in ``docs/wire.md``."""

from __future__ import annotations

from typing import Final

__all__ = [
    "MAX_COUNT",
    "MAX_DETAIL",
    "MAX_EPOCH",
    "MAX_FACTS",
    "MAX_FUTURE_MS",
    "MAX_ID",
    "MAX_NESTING",
    "MAX_RECORD_BYTES",
    "MAX_SUMMARIES",
    "WINDOW_ROUNDS",
]

MAX_RECORD_BYTES: Final = 256 * 1024
"""Largest value of one event, in bytes."""
MAX_NESTING: Final = 32
"""Deepest nesting of objects and arrays in one event."""
MAX_COUNT: Final = 2**53 - 1
"""Largest token or span count: every JSON reader keeps it exact."""
MAX_EPOCH: Final = MAX_COUNT
"""An epoch may be a time in milliseconds."""
MAX_ID: Final = 256
"""Longest id, in characters."""
MAX_DETAIL: Final = 1024
"""Longest free text (an acknowledgement's detail, a drop's reason), in characters."""
MAX_FACTS: Final = 512
"""Facts in one record. State keeps at most :data:`MAX_KEPT_FACTS`."""
MAX_KEPT_FACTS: Final = 256
"""Facts that the state of one session follows; later ones are counted, not followed."""
MAX_KEPT_FACT_BYTES: Final = 64 * 1024
"""Ids and classes of those facts together, in bytes of JSON: a broker takes a record of 1 MB unless told otherwise."""
MAX_NAMED_FACTS: Final = 64
"""Facts that one incident, command or violation names."""
MAX_NAMED_BYTES: Final = 2048
"""Their ids together, in bytes of UTF-8."""
MAX_SUMMARIES: Final = 256
"""Summaries listed in one round."""
MAX_OPEN_INCIDENTS: Final = 32
"""Incidents of one session that rules can open at once; a further one is counted, not opened. Escalations come on top."""
MAX_LEVEL_INCIDENTS: Final = 20
"""Those among them that are about a checkpoint level."""
WINDOW_ROUNDS: Final = 16
"""Rounds whose measurements a session's state keeps."""
RECENT_EVENTS: Final = 16
"""Event ids of checkpoints that a session's state keeps to tell duplicates; and as many of what people did by hand."""
MAX_BY_HAND_MS: Final = 5 * 60 * 1000
"""How far ``ts`` of what a person did by hand, where that must be signed, may lie from the receive time, in milliseconds."""
MAX_FUTURE_MS: Final = 24 * 3600 * 1000
"""How far ``ts`` may lie ahead of the receive time, in milliseconds."""
