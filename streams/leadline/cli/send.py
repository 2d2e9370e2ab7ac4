"""``leadline send``: recorded events to Kafka, each line as it is."""

from __future__ import annotations

from collections import Counter
from typing import Any

import click
from confluent_kafka import KafkaException

from leadline.cli import exits
from leadline.cli.kafka import Producer, bootstrap_option, partitions_of, producer, settings_for
from leadline.cli.screen import console, emit_json, open_input
from leadline.contracts.text import plural
from leadline.contracts.topics import EVENTS
from leadline.errors import BrokerError
from leadline.lab.lines import read_lines
from leadline.lab.replay import key_of

__all__ = ["send"]

_EVERY = 1000
_LONGEST = 64 * 1024 * 1024
"""Bytes of a line; the broker refuses it long before."""
_MOST_REASONS = 20


@click.command("send", epilog=exits.EPILOG)
@click.argument("file", metavar="FILE", type=click.Path(allow_dash=True))
@bootstrap_option
@click.option(
    "--timeout", type=click.FloatRange(min=0.1), default=30.0, show_default=True, metavar="S", help="Wait for delivery."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object at the end.")
def send(file: str, bootstrap: str | None, timeout: float, as_json: bool) -> int:
    """Send FILE (one event a line; `-` is standard input) to leadline.events.

    The key is the line's session_id; a line without one, or one that is no JSON object, is sent without a key. Every line's
    bytes are sent untouched, so that bad ones reach the monitor's dead letters. Exits 1 when a line was not delivered.
    """
    stream = open_input(file)
    settings = settings_for(bootstrap)
    client = producer(settings, timeout)
    partitions_of(client, EVENTS.name, settings)
    sending = _Sending(client)
    with console(stderr=True).status("sending") as status:
        for line in read_lines(stream, file, _LONGEST):
            sending.put(line.number, line.value)
            if sending.given % _EVERY == 0:
                status.update(f"sending: {sending.sent} of {sending.given} confirmed")
        left = client.flush(timeout)
    if left and not sending.sent:
        raise BrokerError(
            f"{settings.bootstrap} confirmed none of {plural(sending.given, 'record')} within {timeout:g} s; check the broker"
        )
    result: dict[str, Any] = {"sent": sending.sent, "failed": sending.given - sending.sent, "errors": dict(sending.errors)}
    if left:
        result["errors"]["not confirmed in time"] = left
    if as_json:
        emit_json(result)
    else:
        out = console()
        out.print(f"{result['sent']} sent, {result['failed']} failed")
        for why, count in result["errors"].items():
            out.print(f"  {count} x {why}", style="red")
    return exits.FAILED if result["failed"] else exits.OK


class _Sending:
    """Hands lines to the producer and counts what became of them."""

    def __init__(self, client: Producer) -> None:
        self._client = client
        self.given = self.sent = 0
        self.errors: Counter[str] = Counter()

    def put(self, number: int, value: bytes) -> None:
        self.given += 1
        while True:
            try:
                self._client.produce(EVENTS.name, value=value, key=key_of(value), on_delivery=self._done)
            except BufferError:
                self._client.poll(0.2)
                continue
            except KafkaException as error:
                self._fail(f"line {number}: {error.args[0].str()}")
            break
        self._client.poll(0)

    def _done(self, error: Any, _message: Any) -> None:
        if error is None:
            self.sent += 1
        else:
            self._fail(error.str())

    def _fail(self, why: str) -> None:
        self.errors[why if why in self.errors or len(self.errors) < _MOST_REASONS else "other reasons"] += 1
