"""``leadline hook``: what an agent's program calls at its hooks."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from leadline.cli import exits

if TYPE_CHECKING:
    from leadline.agent import Client

__all__ = ["hook"]

_LONGEST = 16 * 1024 * 1024
"""Bytes of a hook's input."""


@click.group("hook", epilog=exits.EPILOG)
def hook() -> None:
    """What an agent's program calls at its hooks."""


@hook.command("claude-code", epilog=exits.EPILOG, short_help="Answer a hook of Claude Code.")
@click.option("--bootstrap", metavar="HOST:PORT,...", help="Brokers to ask first. [env: LEADLINE_BOOTSTRAP]")
@click.option("--fleet", default="", metavar="NAME", help="The fleet that the sessions belong to.")
@click.option("--facts", metavar="FILE", type=click.Path(), help="Facts that summaries must carry along (a JSON list).")
@click.option("--state", metavar="DIR", type=click.Path(), help="Where hooks leave word for each other.")
@click.option("--blocks", type=click.IntRange(min=0), default=3, show_default=True, metavar="N", help="Most blocks in a row.")
@click.option(
    "--block-s", type=click.FloatRange(min=0), default=900.0, show_default=True, metavar="S", help="Longest time to block."
)
@click.option(
    "--restore-tokens", type=click.IntRange(min=0), default=2000, show_default=True, metavar="N", help="Most to put back."
)
@click.option(
    "--wait", type=click.FloatRange(min=0), default=1.5, show_default=True, metavar="S", help="Wait for the monitor's commands."
)
@click.option("--json", "as_json", is_flag=True, help="Changes nothing: the answer is JSON.")
def claude_code(
    bootstrap: str | None,
    fleet: str,
    facts: str | None,
    state: str | None,
    blocks: int,
    block_s: float,
    restore_tokens: int,
    wait: float,
    as_json: bool,
) -> int:
    """Answer a hook of Claude Code: its input on standard input, its answer on standard output.

    For PreCompact, PostCompact, SessionStart, UserPromptSubmit and SessionEnd. Reports what the transcript tells of compactions,
    blocks an automatic one while the monitor's halt stands (never one that you ask for), and puts back what was lost. Whatever
    goes wrong is one sentence on standard error: it exits 0 then too, and Claude Code goes on.
    """
    try:
        answer = _answer(sys.stdin.buffer.read(_LONGEST), bootstrap, fleet, facts, state, blocks, block_s, restore_tokens, wait)
    except Exception as error:
        click.echo(f"leadline hook claude-code: {exits.sentence(error)}", err=True)
        return exits.OK
    if answer is not None:
        click.echo(json.dumps(answer))
    return exits.OK


def _answer(
    raw: bytes,
    bootstrap: str | None,
    fleet: str,
    facts: str | None,
    state: str | None,
    blocks: int,
    block_s: float,
    restore_tokens: int,
    wait: float,
) -> dict[str, Any] | None:
    given = json.loads(raw)
    if not isinstance(given, dict):
        raise click.UsageError("the hook's input must be a JSON object")
    directory = Path(state) if state is not None else _state_home() / "leadline" / "claude-code"
    memory = directory / f"{hashlib.sha256(str(given.get('session_id')).encode(errors='replace')).hexdigest()[:32]}.json"
    if given.get("hook_event_name") == "UserPromptSubmit" and not _due(memory):
        return None  # Asked at each prompt: nothing but what is to be put back is worth a wait.
    # Only now: a hook that has nothing to do is over before any of it is loaded.
    from leadline.agent.adapters.claude_code_hook import ClaudeCodeHook, Limits, read_facts

    known = []
    if facts is not None:
        try:
            known = read_facts(Path(facts).read_bytes())
        except ValueError as error:
            raise click.UsageError(f"{facts} {error}") from None

    def connected() -> Client:
        from leadline.agent import connect
        from leadline.security import Security

        address = bootstrap or os.environ.get("LEADLINE_BOOTSTRAP", "127.0.0.1:9092")
        return connect(address, fleet=fleet, security=Security.load(os.environ), spool=directory / "spool")

    limits = Limits(block_ms=round(block_s * 1000), blocks=blocks, restore_tokens=restore_tokens, wait_s=wait)
    return ClaudeCodeHook(connected, memory, facts=known, fleet=fleet, limits=limits).run(given)


def _state_home() -> Path:
    given = os.environ.get("XDG_STATE_HOME")
    return Path(given) if given else Path.home() / ".local" / "state"


def _due(memory: Path) -> bool:
    """Whether a halt wants something put back into the context."""
    try:
        halts = json.loads(memory.read_bytes())["halts"]
        return any(halt["rehydrate"] for halt in halts.values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False
