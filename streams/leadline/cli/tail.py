"""``leadline tail``: violations, commands and dead letters as they come. Joins no group, commits nothing, disturbs nobody."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable
from typing import Any, Final

import click
import orjson
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaError, TopicPartition
from rich.text import Text

from leadline.cli import exits
from leadline.cli.kafka import bootstrap_option, consumer, partitions_of, settings_for
from leadline.cli.screen import SEVERITY_STYLE, console, emit_json, safe
from leadline.contracts.codec import decode_command, decode_violation
from leadline.contracts.orders import Heartbeat
from leadline.contracts.topics import COMMANDS, DEAD_LETTERS, VIOLATIONS
from leadline.errors import BrokerError, Malformed

__all__ = ["tail"]

_TOPICS: Final = {"violations": VIOLATIONS.name, "commands": COMMANDS.name, "dead-letters": DEAD_LETTERS.name}
_HEARTBEAT: Final = str(Heartbeat.__struct_config__.tag).encode()
"""Of use to agents only."""


@click.command("tail", epilog=exits.EPILOG)
@click.argument("what", metavar="WHAT", type=click.Choice(list(_TOPICS)))
@bootstrap_option
@click.option("--from-beginning", is_flag=True, help="Start with the oldest record that is kept.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a record, on one line.")
@click.option("--max", "most", type=click.IntRange(1), metavar="N", help="Stop after N records.")
@click.option("--timeout", type=click.FloatRange(min=0), metavar="S", help="Stop after S seconds without a record.")
def tail(what: str, bootstrap: str | None, from_beginning: bool, as_json: bool, most: int | None, timeout: float | None) -> int:
    """Follow WHAT (violations, commands or dead-letters) until interrupted.

    With --json violations and commands are printed as they are on the wire, dead letters as an object of key, value,
    headers, partition, offset and timestamp (bytes that are no UTF-8 text as {"base64": ...}).
    """
    settings = settings_for(bootstrap)
    client = consumer(settings)
    try:
        topic = _TOPICS[what]
        start = OFFSET_BEGINNING if from_beginning else OFFSET_END
        client.assign([TopicPartition(topic, number, start) for number in partitions_of(client, topic, settings)])
        show = _json if as_json else _SHOW[what]
        seen, last = 0, time.monotonic()
        while most is None or seen < most:
            message = client.poll(0.2)
            if message is None:
                if timeout is not None and time.monotonic() - last >= timeout:
                    break
                continue
            error = message.error()
            if error is not None:
                _raise(error, topic)
                continue
            if ("schema", _HEARTBEAT) in (message.headers() or ()):
                continue
            show(message)
            seen, last = seen + 1, time.monotonic()
    finally:
        client.close()
    return exits.OK


def _raise(error: KafkaError, topic: str) -> None:
    """Errors that pass by themselves are waited out: the client connects again."""
    passing = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._PARTITION_EOF)
    # The client asks after its group, which it never joins, and which is nobody's to give rights on.
    if error.retriable() or error.code() in (*passing, KafkaError.GROUP_AUTHORIZATION_FAILED):
        return
    raise BrokerError(f"topic {topic} cannot be read: {error.str()}; check the topic and this client's rights")


def _json(message: Any) -> None:
    if message.topic() != DEAD_LETTERS.name:
        try:
            emit_json(orjson.loads(message.value() or b""))
        except orjson.JSONDecodeError as error:
            click.echo(f"leadline: {_place(message)} is no JSON and was left out: {error}", err=True)
        return
    emit_json(
        {
            "key": _bytes(message.key()),
            "value": _bytes(message.value()),
            "headers": {name: _bytes(value) for name, value in message.headers() or ()},
            "partition": message.partition(),
            "offset": message.offset(),
            "timestamp": message.timestamp()[1],
        }
    )


def _bytes(value: bytes | str | None) -> Any:
    if value is None or isinstance(value, str):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def _violation(message: Any) -> None:
    try:
        one = decode_violation(message.value())
    except Malformed as error:
        return _unreadable(message, error)
    line = Text(f"{one.detected_at}  ", "dim").append(f"{one.severity} {one.rule}", SEVERITY_STYLE[one.severity])
    line.append("  ").append_text(safe(one.session_id, 64)).append("  ").append_text(safe(one.message, 1000))
    line.append(f"  (action: {one.action}{'' if one.mode == 'enforce' else ', ' + one.mode})", "dim")
    return console().print(line)


def _command(message: Any) -> None:
    try:
        one = decode_command(message.value())
    except Malformed as error:
        return _unreadable(message, error)
    line = Text(f"{one.issued_at}  ", "dim").append(f"{one.kind}", "bold").append(f" attempt {one.attempt} seq {one.seq}  ")
    line.append_text(safe(one.session_id, 64)).append("  ").append_text(safe(one.reason, 1000))
    return console().print(line)


def _dead_letter(message: Any) -> None:
    headers = {name: value for name, value in message.headers() or () if isinstance(value, bytes)}

    def said(name: str) -> Text:
        return safe(headers.get(name, b"?").decode("utf-8", "replace"), 300)

    line = said("time").append("  ").append_text(said("reason")).append("  ")
    line.append_text(said("source-topic")).append("[").append_text(said("source-partition")).append("]@")
    line.append_text(said("source-offset")).append("  ").append_text(said("error")).append("  ")
    console().print(line.append_text(safe((message.value() or b"").decode("utf-8", "replace"), 120)))


def _unreadable(message: Any, error: Malformed) -> None:
    click.echo(f"leadline: {_place(message)} was left out: {safe(str(error))}", err=True)


def _place(message: Any) -> str:
    return f"{message.topic()}[{message.partition()}]@{message.offset()}"


_SHOW: Final[dict[str, Callable[[Any], None]]] = {
    "violations": _violation,
    "commands": _command,
    "dead-letters": _dead_letter,
}
