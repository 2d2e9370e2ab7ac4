"""Somebody else's records in the changelog of a partition that is this worker's: found, looked at, and set right.

A worker that was frozen past its session timeout may still finish a write when it wakes up (or what it had handed to the kernel
is sent then). This worker's own records are confirmed with their offsets; whatever lies between them is not its own. Where such a
record set a session back, the session is written again, as compaction keeps the last record of each.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from leadline.contracts.topics import SESSIONS
from leadline.processors.logs import with_fields
from leadline.processors.table import Change, SessionsTable, change
from leadline.settings import Settings, client_configs

__all__ = ["read_changelog", "run_guard"]

log = logging.getLogger(__name__)

_LIMIT_S: Final = 20.0


async def run_guard(
    table: SessionsTable,
    ends: Callable[[], Awaitable[Mapping[int, int]]],
    quiet: Callable[[], bool],
    generation: Callable[[], int],
    again: Callable[[int, Iterable[bytes]], None],
    read: Callable[[int, int, int], list[Change]],
    every_s: float,
) -> None:
    """Look every ``every_s`` seconds, until cancelled.

    ``ends``: the end offsets of the changelog's partitions that are owned; ``quiet``: no write of ours is on its way and no
    partition changes hands; ``generation`` changes whenever one may have; ``again``: write these sessions again; ``read`` may
    block.
    """
    while True:
        await asyncio.sleep(every_s)
        if not quiet():
            continue
        before = generation()
        try:
            found = await ends()
        except Exception as error:
            log.info("the ends of the changelog could not be asked for", extra=with_fields(error=error))
            continue
        if not quiet():
            continue
        for partition, end in found.items():
            gap = table.gap(partition, end)
            if gap is None:
                continue
            try:
                changes = await asyncio.to_thread(read, partition, *gap)
            except KafkaException as error:
                log.warning("the changelog could not be read", extra=with_fields(partition=partition, error=error))
                continue
            if generation() != before:
                break
            behind = table.inspect(partition, changes, gap[1])
            if changes:
                log.warning(
                    "another worker wrote to a partition that is ours; what it set back is written again",
                    extra=with_fields(partition=partition, records=len(changes), set_back=len(behind)),
                )
            again(partition, behind)


def read_changelog(settings: Settings, partition: int, start: int, end: int) -> list[Change]:
    """The records from offset ``start`` to before ``end``; fewer where the log has been compacted. Blocks.

    Raises ``KafkaException`` when they cannot be read in time.
    """
    config: dict[str, Any] = {
        **client_configs(settings).confluent,
        "group.id": f"{settings.app_id}-guard-{uuid.uuid4().hex}",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_uncommitted",
        "enable.partition.eof": True,
        "log_level": 0,
    }
    consumer = Consumer(config)
    found: list[Change] = []
    limit = time.monotonic() + _LIMIT_S
    try:
        consumer.assign([TopicPartition(SESSIONS.name, partition, start)])
        while True:
            for message in consumer.consume(1000, 0.2):
                error = message.error()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    return found
                if error is not None:
                    continue
                if message.offset() >= end:
                    return found
                found.append(change(message.offset(), message.key(), message.value(), message.headers()))
                if message.offset() == end - 1:
                    return found
            if time.monotonic() > limit:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
    finally:
        consumer.close()
