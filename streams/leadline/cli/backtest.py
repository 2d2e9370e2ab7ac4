"""``leadline backtest``: what a policy would have done on recorded events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import click

from leadline.cli import exits
from leadline.cli.policy import policy_option, read_policy
from leadline.cli.screen import emit_json, open_input
from leadline.contracts.text import plural
from leadline.lab.backtest import Backtest, Change, compare
from leadline.lab.backtest import backtest as judge
from leadline.lab.lines import Line, read_lines

__all__ = ["backtest"]

_SHOWN: Final = 20


@click.command("backtest", epilog=exits.EPILOG)
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path())
@policy_option
@click.option("--against", metavar="FILE", help="A second policy: tell on which sessions it would have acted otherwise.")
@click.option(
    "--settle", type=click.FloatRange(0, 10**9), default=0.0, metavar="SECONDS", help="Let time pass after the last line."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def backtest(files: tuple[str, ...], policy_file: str | None, against: str | None, settle: float, as_json: bool) -> int:
    """Tell what a policy would have done: incidents by rule, commands by kind, alarms per 1,000 sessions.

    FILE holds one event a line, as for `leadline replay`; several files are one recording. The recorded agents did not hear of
    the commands that are counted here: first attempts are, further ones and `unheeded` are not. Rules in shadow mode raise no
    alarm.

    With --against, also the sessions on which the second policy differs, and how.
    """
    policies = [read_policy(policy_file), *([read_policy(against)] if against is not None else [])]
    if len(policies) > 1 and "-" in files:
        raise click.UsageError("with --against the recording is read twice: give a file, not standard input")
    results = [judge(_lines(files), policy, round(settle * 1000)) for policy in policies]
    changes = compare(*results) if len(results) > 1 else []
    if as_json:
        shown: dict[str, Any] = results[0].report()
        if len(results) > 1:
            shown |= {"against": results[1].report(), "changes": [change.shown() for change in changes]}
        emit_json(shown)
    else:
        _show(results, changes)
    return exits.OK


def _show(results: list[Backtest], changes: list[Change]) -> None:
    reports = [result.report() for result in results]
    first = reports[0]
    read = f"{plural(first['sessions'], 'session')}, {plural(first['events'], 'record')}"
    click.echo(f"{read}, {first['dead_letters']} of them unreadable")
    click.echo(_row("policy", [report["policy"] for report in reports]))
    for table, title in (("incidents", "incidents"), ("commands", "commands")):
        click.echo(f"{title}:")
        for name in sorted({name for report in reports for name in report[table]}):
            click.echo(_row(f"  {name}", [report[table].get(name, 0) for report in reports]))
    for name in ("alarms_per_1000_sessions", "halts_per_1000_sessions"):
        click.echo(_row(name.replace("_", " ").replace("1000", "1,000"), [report[name] for report in reports]))
    if len(results) == 1:
        return
    click.echo(f"{plural(len(changes), 'session differs', 'sessions differ')}")
    for change in changes[:_SHOWN]:
        shown = change.shown()
        told = [*(f"+{name}" for name in change.appear), *(f"-{name}" for name in change.vanish), *change.moved]
        click.echo(f"  {shown['session_id']}/{shown['agent_id']}: {', '.join(told)}")
    if len(changes) > _SHOWN:
        click.echo(f"  ... and {len(changes) - _SHOWN} more; --json lists them all")


def _row(name: str, values: list[Any]) -> str:
    return f"{name:<28}" + "".join(f"{'-' if value is None else value!s:>14}" for value in values)


def _lines(files: tuple[str, ...]) -> Iterator[Line]:
    # Every file is opened before the first is read: a mistyped name costs no half-finished run.
    streams = [(name, open_input(name)) for name in files]
    for name, stream in streams:
        yield from read_lines(stream, name)
        if name != "-":
            stream.close()
