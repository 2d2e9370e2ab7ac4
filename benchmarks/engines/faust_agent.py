"""Faust as its documentation shows it: an agent that iterates over events, a table that is read and written for each."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import faust

from benchmarks.engines.job import INPUT, Meter, destination, fold_one, job
from leadline.commands.fold import Incoming
from leadline.contracts.topics import COMMANDS, VIOLATIONS


def main() -> None:
    given = job()
    Path(given.folder).mkdir(parents=True, exist_ok=True)
    app = faust.App(
        given.group,
        broker=f"kafka://{given.bootstrap}",
        store="rocksdb://",
        datadir=given.folder,
        web_enabled=False,
        consumer_auto_offset_reset="earliest",
        topic_partitions=4,
        stream_wait_empty=False,
        worker_redirect_stdouts=False,
    )
    raw: dict[str, Any] = {"key_type": bytes, "value_type": bytes, "key_serializer": "raw", "value_serializer": "raw"}
    events = app.topic(INPUT, **raw)
    out = {topic.name: app.topic(topic.name, **raw) for topic in (VIOLATIONS, COMMANDS)}
    sessions = app.Table("sessions", schema=faust.Schema(**raw), key_type=bytes, value_type=bytes)
    meter: list[Meter] = []
    seen = 0

    @app.agent(events)  # type: ignore[untyped-decorator]
    async def decide(stream: Any) -> None:
        nonlocal seen
        meter.append(Meter())
        async for event in stream.events():
            message = event.message
            stamp = round((message.timestamp or 0) * 1000)
            record = Incoming(message.key, message.value, message.partition, message.offset, stamp, message.headers or ())
            folded, after = fold_one(record, sessions.get(message.key))
            if after is not None:
                sessions[message.key] = after
            for output in folded.outputs:
                topic, key, value = destination(output)
                await out[topic].send(key=key, value=value)
            seen += 1
            if seen == given.events:
                done.set()

    done = asyncio.Event()

    @app.task  # type: ignore[untyped-decorator]
    async def finish() -> None:
        await done.wait()
        await app.producer.flush()
        await app.consumer.commit()
        meter[0].report()
        os._exit(0)

    app.worker_init()
    faust.Worker(app, loglevel="ERROR", blocking_timeout=0.0, quiet=True).execute_from_commandline()


if __name__ == "__main__":
    main()
