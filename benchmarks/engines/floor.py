"""The floor: librdkafka consumes in batches, the core's typed decoder reads each record; nothing is decided, nothing kept."""

from __future__ import annotations

from confluent_kafka import Consumer

from benchmarks.engines.job import INPUT, Meter, job
from leadline.contracts.codec import decode_event


def main() -> None:
    given = job()
    consumer = Consumer(
        {
            "bootstrap.servers": given.bootstrap,
            "group.id": given.group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([INPUT])
    meter = Meter()
    seen = 0
    while seen < given.events:
        for message in consumer.consume(10_000, 0.05):
            decode_event(message.value())
            seen += 1
    consumer.commit(asynchronous=False)
    meter.report()
    consumer.close()


if __name__ == "__main__":
    main()
