"""quixstreams as its documentation shows it: a dataframe with a stateful function, state in RocksDB with a changelog."""

from __future__ import annotations

import os
from typing import Any

from quixstreams import Application, State, message_context

from benchmarks.engines.job import INPUT, Meter, destination, fold_one, job
from leadline.commands.fold import Incoming
from leadline.contracts.topics import COMMANDS, VIOLATIONS

Output = tuple[str, bytes, bytes]


def main() -> None:
    given = job()
    app = Application(
        broker_address=given.bootstrap,
        consumer_group=given.group,
        auto_offset_reset="earliest",
        state_dir=given.folder,
        loglevel="WARNING",
    )
    topic = app.topic(INPUT, key_deserializer="bytes", value_deserializer="bytes")
    raw = {"key_serializer": "bytes", "value_serializer": "bytes"}
    violations, commands = app.topic(VIOLATIONS.name, **raw), app.topic(COMMANDS.name, **raw)

    seen = 0

    def decide(value: bytes, key: bytes, timestamp: int, headers: Any, state: State) -> list[Output]:
        nonlocal seen
        seen += 1
        if seen == given.events:
            app.stop()  # Once this record is through; what is pending is committed first.
        place = message_context()
        record = Incoming(key, value, place.partition, place.offset, timestamp, headers or ())
        folded, after = fold_one(record, state.get_bytes("session"))
        if after is not None:
            state.set_bytes("session", after)
        return [destination(output) for output in folded.outputs]

    stream = app.dataframe(topic).apply(decide, stateful=True, metadata=True, expand=True)
    for out in (violations, commands):
        mine = stream.filter(lambda output, name=out.name: output[0] == name)
        mine.apply(lambda output: output[2]).to_topic(out)
    meter = Meter()
    app.run()
    meter.report()
    # What its own clean-up would still do was done when the run returned.
    os._exit(0)


if __name__ == "__main__":
    main()
