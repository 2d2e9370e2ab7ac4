"""``leadline topology``: the stages of the monitor and the topics between them."""

from __future__ import annotations

from typing import Any

import click

from leadline.cli import exits
from leadline.cli.screen import console, emit_json
from leadline.contracts.topics import DEFAULT_PARTITIONS, TOPICS, Topic
from leadline.contracts.topology import STAGES

__all__ = ["topology"]


@click.command("topology", epilog=exits.EPILOG)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def topology(as_json: bool) -> int:
    """Show what reads and writes which topic: the stages of the monitor, then every topic. Asks no broker."""
    if as_json:
        emit_json({"stages": [stage._asdict() for stage in STAGES], "topics": [_topic(topic) for topic in TOPICS]})
        return exits.OK
    out = console()
    out.print("stages", style="bold")
    for stage in STAGES:
        targets = f" ─▶ {', '.join(stage.writes)}" if stage.writes else ""
        out.print(f"  {stage.reads:<18} ─▶ {stage.name:<8}{targets}".rstrip())
        out.print(f"  {'':<21} {stage.does}", style="dim")
    out.print("\ntopics", style="bold")
    for topic in TOPICS:
        partitions = f"as {TOPICS[0].name}" if topic.partitioned_as_events and topic is not TOPICS[0] else "any number"
        if topic is TOPICS[0]:
            partitions = f"{DEFAULT_PARTITIONS} unless told otherwise, never changed"
        out.print(f"  {topic.name:<22} {', '.join(topic.writers)} ─▶ {', '.join(topic.readers)}")
        out.print(f"  {'':<22} key: {topic.key}; partitions: {partitions}", style="dim")
        out.print(f"  {'':<22} {', '.join(topic.records)}", style="dim")
    return exits.OK


def _topic(topic: Topic) -> dict[str, Any]:
    return topic._asdict()
