"""bytewax as its documentation shows it: a Kafka source, a stateful map by key, Kafka sinks; state in memory, recovery off."""

from __future__ import annotations

from typing import Any

import bytewax.operators as op
from bytewax.connectors.kafka import KafkaSinkMessage
from bytewax.connectors.kafka import operators as kop
from bytewax.dataflow import Dataflow
from bytewax.testing import run_main

from benchmarks.engines.job import INPUT, Job, Meter, destination, fold_one, job
from leadline.commands.fold import Incoming
from leadline.contracts.topics import COMMANDS, VIOLATIONS

Output = tuple[str, bytes, bytes]


def decide(stored: bytes | None, message: Any) -> tuple[bytes | None, list[Output]]:
    stamp = -1 if message.timestamp is None else message.timestamp[1]
    record = Incoming(message.key, message.value, message.partition or 0, message.offset or 0, stamp, message.headers or ())
    folded, after = fold_one(record, stored)
    return after, [destination(output) for output in folded.outputs]


def dataflow(given: Job) -> Dataflow:
    flow = Dataflow("leadline")
    messages = kop.input("events", flow, brokers=[given.bootstrap], topics=[INPUT], tail=False).oks
    by_session = op.key_on("by-session", messages, lambda message: (message.key or b"").decode("utf-8", "replace"))
    outputs = op.key_rm("unkeyed", op.stateful_flat_map("decide", by_session, decide))
    parted = op.branch("which", outputs, lambda output: output[0] == VIOLATIONS.name)
    for name, topic, mine in (("violations", VIOLATIONS, parted.trues), ("commands", COMMANDS, parted.falses)):
        records = op.map(f"{name}-record", mine, lambda output: KafkaSinkMessage(output[1], output[2]))
        kop.output(f"{name}-out", records, brokers=[given.bootstrap], topic=topic.name)
    return flow


def main() -> None:
    flow = dataflow(job())
    meter = Meter()
    run_main(flow)
    meter.report()


if __name__ == "__main__":
    main()
