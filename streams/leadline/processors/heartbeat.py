"""Telling agents that somebody judges their sessions: a small record for each partition, now and then, whoever listens."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

from leadline.contracts.codec import encode
from leadline.contracts.orders import Heartbeat
from leadline.contracts.times import format_ms
from leadline.contracts.topics import COMMANDS
from leadline.errors import LeadlineError
from leadline.processors.logs import with_fields
from leadline.processors.outputs import Outgoing, Sent

__all__ = ["heartbeat", "run_heartbeat"]

log = logging.getLogger(__name__)

_HEADERS = (("schema", str(Heartbeat.__struct_config__.tag).encode()), ("content-type", b"application/json"))


def heartbeat(record: Heartbeat) -> Outgoing:
    """Onto its partition of the commands, behind the commands of what it says was judged. Without a key: it is no session's."""
    return Outgoing(COMMANDS.name, record.partition, None, encode(record), _HEADERS)


async def run_heartbeat(
    judged: Callable[[], Mapping[int, int]],
    confirm: Callable[[Sequence[Outgoing]], Awaitable[list[Sent]]],
    ready: Callable[[], bool],
    now: Callable[[], int],
    every_s: float,
) -> None:
    """One record a partition every ``every_s`` seconds, until cancelled; none at all where that is 0.

    ``judged``: the partitions that this worker owns, and up to which offset each one's events have been judged, or -1.
    ``ready``: false while partitions change hands.
    """
    while every_s:
        await asyncio.sleep(every_s)
        if not ready():
            continue
        at, every_ms = format_ms(now()), round(every_s * 1000)
        records = [Heartbeat(partition=one, at=at, every_ms=every_ms, through=end) for one, end in sorted(judged().items())]
        try:
            await confirm([heartbeat(record) for record in records])
        except LeadlineError as error:
            log.warning("the agents were not told that the monitor is there", extra=with_fields(error=error))
