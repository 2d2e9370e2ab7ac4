"""``leadline story SESSION``: what happened to one session and why, from the topics alone. Joins no group, commits nothing."""

from __future__ import annotations

import time
from typing import Any, Final

import click
from confluent_kafka import KafkaException, TopicPartition
from rich.text import Text

from leadline.cli import exits
from leadline.cli.kafka import bootstrap_option, consumer, partitions_of, settings_for
from leadline.cli.screen import SEVERITY_STYLE, console, emit_json, safe
from leadline.contracts.codec import decode_command, decode_event, decode_violation
from leadline.contracts.text import plural
from leadline.contracts.topics import COMMANDS, EVENTS, VIOLATIONS
from leadline.contracts.trace import read_trace
from leadline.errors import BrokerError, Malformed, Refused
from leadline.settings import Settings, no_broker
from leadline.telemetry.story import Kept, Story, tell

__all__ = ["story"]

_TOPICS: Final = (EVENTS.name, VIOLATIONS.name, COMMANDS.name)
_AT_ONCE: Final = 5_000


@click.command("story", epilog=exits.EPILOG)
@click.argument("session", metavar="SESSION")
@bootstrap_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--timeout", type=click.FloatRange(min=1), default=60.0, show_default=True, metavar="S", help="Read for S seconds.")
def story(session: str, bootstrap: str | None, as_json: bool, timeout: float) -> int:
    """Tell what happened to SESSION and why: for each incident the event that opened it with its measurements, rule and reason,
    the commands, the agent's answers, and what was measured after them. With trace ids, from leadline.events,
    leadline.violations and leadline.commands as far back as they are kept."""
    settings = settings_for(bootstrap)
    kept, unread = _read(settings, session, timeout)
    if not kept:
        if unread:
            raise BrokerError(
                f"nothing of session {safe(session, 80).plain!r} within {timeout:g} s, and "
                f"{plural(unread, 'record is', 'records are', ',')} still unread: run again with a longer --timeout"
            )
        raise Refused(
            f"there is no record of session {safe(session, 80).plain!r} at {settings.bootstrap}: check the id, and whether it is "
            f"older than {EVENTS.name} keeps its records"
        )
    told = tell(session, kept)
    if as_json:
        emit_json({**told.as_json(), "unread_records": unread})
    else:
        _show(told)
    if unread:
        left = plural(unread, "record was", "records were", ",")
        click.echo(f"leadline: {left} not read within {timeout:g} s; the story may have holes", err=True)
    return exits.OK


def _read(settings: Settings, session: str, timeout_s: float) -> tuple[list[Kept], int]:
    """The session's records on all three topics up to their ends of now, and how many records were not looked at."""
    client = consumer(settings)
    deadline = time.monotonic() + timeout_s
    key = session.encode("utf-8", "surrogatepass")
    kept: list[Kept] = []
    try:
        ends: dict[tuple[str, int], int] = {}
        begins: dict[tuple[str, int], int] = {}
        for topic in _TOPICS:
            for number in partitions_of(client, topic, settings):
                try:
                    low, high = client.get_watermark_offsets(TopicPartition(topic, number), timeout=10)
                except KafkaException as error:
                    raise no_broker(settings, 10, error.args[0].str()) from None
                if high > low:
                    begins[topic, number], ends[topic, number] = low, high
        client.assign([TopicPartition(*place, offset) for place, offset in begins.items()])
        reached = dict(begins)
        while time.monotonic() < deadline and any(reached[place] < end for place, end in ends.items()):
            for message in client.consume(_AT_ONCE, 0.2):
                if message.error() is not None:
                    continue
                reached[message.topic(), message.partition()] = message.offset() + 1
                if message.key() == key:
                    kept += _kept(message)
    finally:
        client.close()
    return kept, sum(max(0, end - reached[place]) for place, end in ends.items())


_DECODERS: Final = {
    EVENTS.name: lambda value: decode_event(value).event,
    VIOLATIONS.name: decode_violation,
    COMMANDS.name: decode_command,
}


def _kept(message: Any) -> list[Kept]:
    """The record, or nothing where it cannot be read: it is on the dead letters."""
    try:
        record = _DECODERS[message.topic()](message.value())
    except Malformed:
        return []
    trace = read_trace(message.headers())
    return [Kept(message.topic(), message.partition(), message.offset(), message.timestamp()[1], record, trace)]


def _show(told: Story) -> None:
    out = console()
    agents = ", ".join(safe(agent, 64).plain for agent in told.agents) or "unknown"
    fleet = f", fleet {safe(told.fleet, 64).plain}" if told.fleet else ""
    counted = f"{plural(told.rounds, 'round')}, {plural(len(told.incidents), 'incident')}{', ended' if told.ended else ''}"
    out.print(Text("session ").append_text(safe(told.session_id, 80)).append(f"  (agent {agents}{fleet}): {counted}"))
    for incident in told.incidents:
        line = Text("\n").append(f"{incident['severity']} {incident['rule']}", SEVERITY_STYLE[incident["severity"]])
        line.append(f"  {incident['reason']} ({incident['mode']}): ").append(incident["status"], "bold")
        if incident["recovered_after_ms"] is not None:
            line.append(f" after {incident['recovered_after_ms'] / 1000:.1f} s")
        out.print(line.append(f"\n  trace {incident['trace_id']}  incident {incident['incident_id']}", "dim"))
        for step in incident["steps"]:
            out.print(_line(step))


def _line(step: dict[str, Any]) -> Text:
    line = Text(f"  {step['at']}  ", "dim").append(f"{step['what']:<8} ")
    line.append_text(_SAID[step["what"]](step))
    place = f"  {step['topic']}[{step['partition']}]@{step['offset']}"
    return line.append(place + (f" span {step['span_id']}" if "span_id" in step else ""), "dim")


def _measures(step: dict[str, Any]) -> Text:
    if "round" not in step:
        return Text(step["record"])
    ratio = "unknown" if step["raw_ratio"] is None else f"{step['raw_ratio']:.2f}"
    spans, depth = step["distinct_source_spans"], step["summary_depth_max"]
    return Text(f"round {step['round']}: raw ratio {ratio}, {plural(spans, 'source span')}, depth {depth}")


def _order(step: dict[str, Any]) -> Text:
    again = f" (attempt {step['attempt']})" if step["attempt"] > 1 else ""
    return Text(f"{step['kind']}{again}: ").append_text(safe(step["reason"], 500))


def _answer(step: dict[str, Any]) -> Text:
    line = Text(step["outcome"])
    if step["raw_tokens_restored"]:
        line.append(f", {step['raw_tokens_restored']:,} raw tokens restored")
    return line.append(": ").append_text(safe(step["detail"], 200)) if step["detail"] else line


_SAID: Final = {
    "event": _measures,
    "verdict": lambda step: safe(step["message"], 1_000),
    "command": _order,
    "ack": _answer,
    "effect": _measures,
}
