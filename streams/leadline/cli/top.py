"""``leadline top``: the dashboard's overview in the terminal."""

from __future__ import annotations

import threading
import time
from itertools import compress
from typing import Any, Final, Literal, NamedTuple

import click
from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from leadline.cli import exits
from leadline.cli.kafka import bootstrap_option, settings_for, waiting
from leadline.cli.screen import bar, console, emit_json, is_terminal, ratio_style, safe
from leadline.contracts.text import plural
from leadline.dashboard.reader import REACH_S, Reader, Reading
from leadline.dashboard.rows import IN_FLIGHT
from leadline.dashboard.view import FleetView, Session
from leadline.detection.condition import CONDITIONS

__all__ = ["top"]

_RESTORE_S: Final = 60.0
_WIDE: Final = 110
"""Columns from which on there is room for everything."""
_STYLES: Final = {"halted": "bold red", "recovering": "cyan", "healthy": "green", "unknown": "dim", "ended": "dim"}
_CALM: Final = ("healthy", "ended", "unknown")


@click.command("top", epilog=exits.EPILOG)
@bootstrap_option
@click.option("--fleet", default="", help="Only sessions of this fleet.")
@click.option("--once", is_flag=True, help="Show it once and stop; without a terminal this is the default.")
@click.option("--interval", type=click.FloatRange(0.2, 60.0), default=1.0, show_default=True, help="Seconds between two looks.")
@click.option("--json", "as_json", is_flag=True, help="Print the overview once, as one JSON object.")
def top(bootstrap: str | None, fleet: str, once: bool, interval: float, as_json: bool) -> int:
    """Show the fleet: sessions by state, the troubled ones first, incidents and commands in flight.

    Reads what the monitor writes, joins no group and changes nothing. Ctrl-C ends it.
    """
    view, lock = FleetView(changes=False), threading.Lock()
    settings = settings_for(bootstrap)
    with waiting(settings, REACH_S):
        reader = Reader(settings, view, lock, _now)
    try:
        if as_json or once or not is_terminal():
            reader.wait_restored(_RESTORE_S)
            with lock:
                overview, monitor = view.overview(fleet), view.monitor(_now())
                shown = _screen(view, reader.reading(), fleet, console().width, 40)
            if as_json:
                emit_json({**overview, "monitor": monitor, "reading": {**reader.reading()._asdict(), "now": _now()}})
            else:
                console().print(shown)
            return exits.OK
        screen = console()
        with Live(console=screen, screen=True, auto_refresh=False) as live:
            while True:
                with lock:
                    shown = _screen(view, reader.reading(), fleet, screen.width, screen.size.height)
                live.update(shown, refresh=True)
                time.sleep(interval)
    finally:
        reader.close()


def _now() -> int:
    return time.time_ns() // 1_000_000


def _screen(view: FleetView, reading: Reading, fleet: str, width: int, height: int) -> RenderableType:
    overview = view.overview(fleet)
    sessions = [one for one in view.sessions() if not fleet or one.who.fleet == fleet]
    sessions.sort(key=lambda one: (CONDITIONS[one.row.condition] in _CALM, one.row.condition, one.who.session_id))
    rows = max(5, height - 12)
    table = _sessions(sessions[:rows], width)
    more = len(sessions) - rows
    title = f"sessions{f' of {fleet}' if fleet else ''}"
    return Group(
        *_watched(view.monitor(_now())),
        _states(overview),
        Columns(
            [_counted("incidents open", overview["incidents"]), _counted("commands in flight", overview["commands_in_flight"])]
        ),
        Panel(table, title=safe(title), subtitle=f"… {more} more" if more > 0 else None),
        _foot(overview, reading),
    )


def _watched(monitor: dict[str, int | None]) -> list[Text]:
    """Where nobody judges, everything looks as it did: that is said before anything else."""
    silent, partitions, since = monitor["silent"], monitor["partitions"], monitor["since"]
    if not silent or since is None:
        return []
    where = "this fleet" if silent == partitions else f"{silent} of {partitions} partitions"
    ago = max(0, _now() - since) / 1000
    told = f"No monitor watches {where}: the last sign of life came {ago:,.0f} s ago. What you see is how it was then."
    return [Text(told, "bold red")]


def _states(overview: dict[str, Any]) -> Text:
    line = Text(f"{plural(overview['sessions'], 'session')}  ", "bold")
    for word, count in overview["conditions"].items():
        if count:
            line.append(f"{count} {word}  ", _STYLES.get(word, "yellow"))
    return line


def _counted(what: str, counts: dict[str, int]) -> Text:
    told = ", ".join(f"{count} {name}" for name, count in counts.items()) or "none"
    return Text(f"{what}: ", "dim").append_text(safe(told)).append("   ")


class _Column(NamedTuple):
    heading: str
    least: int
    """Cells that it keeps."""
    wide: bool = False
    """Left out where there is little room."""
    number: bool = False


_COLUMNS: Final = (
    _Column("session", 12),
    _Column("fleet", 6, wide=True),
    _Column("state", 10),
    _Column("ratio", 5, number=True),
    _Column("", 10, wide=True),
    _Column("spans", 5, number=True),
    _Column("depth", 5, wide=True, number=True),
    _Column("round", 5, wide=True, number=True),
    _Column("open", 10),
    _Column("command", 18),
)


def _sessions(sessions: list[Session], width: int) -> Table:
    table = Table(box=None, pad_edge=False, expand=True)
    kept = [not column.wide or width >= _WIDE for column in _COLUMNS]
    for column in compress(_COLUMNS, kept):
        side: Literal["left", "right"] = "right" if column.number else "left"
        # An id may be of any length: it must not push out what is wrong with the session.
        most = max(column.least, width // 4) if column.heading == "session" else None
        table.add_column(column.heading, justify=side, no_wrap=True, overflow="ellipsis", min_width=column.least, max_width=most)
    now = _now()
    for one in sessions:
        who, row = one.who, one.row
        word = CONDITIONS[row.condition]
        command = next((each for each in row.open if each.stage in IN_FLIGHT), None)
        underway = "" if command is None else f"{command.kind} {command.stage} {max(0, now - command.issued_at) / 1000:.0f} s"
        cells: tuple[Text | str, ...] = (
            safe(who.session_id, 60),
            safe(who.fleet, 24),
            Text(word, _STYLES.get(word, "yellow")),
            Text("?" if row.raw_ratio is None else f"{row.raw_ratio:.2f}", ratio_style(row.raw_ratio)),
            Text(bar(row.raw_ratio, 10), ratio_style(row.raw_ratio)),
            "" if row.spans is None else str(row.spans),
            "" if row.depth is None else str(row.depth),
            "" if row.round is None else str(row.round),
            safe(", ".join(dict.fromkeys(each.rule for each in row.open)), 60),
            underway,
        )
        table.add_row(*compress(cells, kept))
    return table


def _foot(overview: dict[str, Any], reading: Reading) -> Text:
    verdict, release = overview["time_to_verdict_ms"], overview["time_to_release_ms"]
    line = Text()
    if verdict["of"]:
        line.append(f"time to verdict {verdict['p50']} ms (p50), {verdict['p99']} ms (p99)   ", "dim")
    if release["of"]:
        line.append(f"to release {release['p50'] / 1000:.1f} s (p50)   ", "dim")
    if reading.as_of is None:
        return line.append(f"reading the state: {reading.restored:.0%}", "yellow")
    age = max(0, _now() - reading.as_of) / 1000
    late = age > 5 or reading.error
    line.append(f"data is {age:.0f} s old", "bold red" if late else "dim")
    return line.append(f"; {reading.error}", "bold red") if reading.error else line
