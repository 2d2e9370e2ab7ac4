"""``leadline ingest``: other telemetry on Kafka, as rounds."""

from __future__ import annotations

import signal
import threading
import time

import click

from leadline.cli import exits
from leadline.cli.kafka import KafkaConsumer, bootstrap_option, partitions_of, producer, settings_for
from leadline.cli.screen import console, emit_json
from leadline.contracts.text import plural
from leadline.contracts.topics import EVENTS
from leadline.ingest.consumer import Ingest
from leadline.ingest.otlp import Kind
from leadline.settings import client_configs

__all__ = ["ingest"]


@click.group("ingest", epilog=exits.EPILOG)
def ingest() -> None:
    """Other telemetry on Kafka, as rounds."""


@ingest.command("otlp", epilog=exits.EPILOG, short_help="Read OTLP from a collector's topics, and write rounds.")
@bootstrap_option
@click.option("--traces", metavar="TOPIC", default="otlp_spans", show_default=True, help="Spans, as the collector writes them.")
@click.option("--logs", metavar="TOPIC", default="otlp_logs", show_default=True, help="Log records, likewise.")
@click.option("--group", metavar="NAME", default="leadline-otlp", show_default=True, help="The consumer group.")
@click.option("--fleet", metavar="NAME", default="", help="The fleet that the sessions belong to.")
@click.option("--for", "seconds", type=click.FloatRange(min=0), metavar="S", help="Stop after so long.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object at the end.")
def otlp(bootstrap: str | None, traces: str, logs: str, group: str, fleet: str, seconds: float | None, as_json: bool) -> int:
    """Read OTLP (JSON or protobuf) from the topics of an OpenTelemetry collector's Kafka exporter, and write a round for each
    compaction that is told there.

    Such telemetry says that a compaction ran and whether it failed, not what was lost: all else is reported as unknown. Run one.
    """
    settings = settings_for(bootstrap)
    writing = producer(settings, 30.0)
    partitions_of(writing, EVENTS.name, settings)
    reading = KafkaConsumer(
        {
            **client_configs(settings).confluent,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "topic.metadata.refresh.interval.ms": 5_000,
        }
    )
    kinds: dict[str, Kind] = {traces: "traces", logs: "logs"}
    stop = threading.Event()
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, lambda *_: stop.set())
    until = None if seconds is None else time.monotonic() + seconds
    reading.subscribe(list(kinds))
    work = Ingest(reading, writing, kinds, time.time_ns() // 1_000_000, fleet)
    try:
        work.run(lambda: stop.is_set() or (until is not None and time.monotonic() >= until))
    finally:
        reading.close()
    done = work.counted
    if as_json:
        emit_json({"messages": done.messages, "malformed": done.malformed, "signals": done.signals, "rounds": done.rounds})
    else:
        read = f"{plural(done.rounds, 'round')} from {plural(done.messages, 'message')}"
        console().print(f"{read} ({done.malformed} could not be read)")
    return exits.OK
