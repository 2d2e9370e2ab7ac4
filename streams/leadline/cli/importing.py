"""``leadline import``: histories that other programs keep, as events."""

from __future__ import annotations

from typing import BinaryIO

import click

from leadline.agent.adapters.claude_code import Transcript, events_of
from leadline.cli import exits
from leadline.cli.screen import open_input
from leadline.contracts.codec import encode
from leadline.contracts.text import plural
from leadline.lab.lines import read_lines

__all__ = ["import_verb"]

_LONGEST = 64 * 1024 * 1024
"""Bytes of a line: tool results can be long."""


@click.group("import", epilog=exits.EPILOG)
def import_verb() -> None:
    """Histories that other programs keep, as events: for `leadline replay`, `backtest` and `send`."""


@import_verb.command("claude-code", epilog=exits.EPILOG, short_help="Turn a transcript of Claude Code into events.")
@click.argument("file", metavar="FILE", type=click.Path(allow_dash=True))
@click.option("--fleet", default="", metavar="NAME", help="The fleet that the session is to belong to.")
@click.option("--token-budget", type=click.IntRange(min=0), default=0, metavar="N", help="The context window, where you know it.")
@click.option("--out", metavar="FILE", type=click.File("wb", lazy=False), default="-", help="Where to write. [default: stdout]")
@click.option("--json", "as_json", is_flag=True, help="Changes nothing: events are JSON.")
def claude_code(file: str, fleet: str, token_budget: int, out: BinaryIO, as_json: bool) -> int:
    """Write what a transcript of Claude Code (FILE.jsonl; `-` is standard input) tells of its compactions, an event a line.

    Tokens are estimated from the texts, four characters each. The same transcript gives the same events each time.
    """
    transcript = Transcript(fleet=fleet, token_budget=token_budget)
    stream = open_input(file)
    for event in events_of((line.value for line in read_lines(stream, file, _LONGEST)), transcript):
        out.write(encode(event) + b"\n")
    out.flush()
    if transcript.skipped:
        click.echo(f"leadline import: {plural(transcript.skipped, 'line')} of {file} left out: no JSON object", err=True)
    if transcript.conversation is None:
        raise click.ClickException(f"{file} holds no message of Claude Code; its transcripts are below ~/.claude/projects")
    return exits.OK
