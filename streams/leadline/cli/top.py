"""``leadline top``: the dashboard's overview in the terminal."""

from __future__ import annotations

import threading
import time
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
from leadline.cli.screen import bar, console, emit_json, ending, is_terminal, ratio_style, safe
from leadline.contracts.limits import MAX_ID
from leadline.contracts.text import plural
from leadline.dashboard.reader import REACH_S, Reader, Reading
from leadline.dashboard.rows import IN_FLIGHT
from leadline.dashboard.view import FleetView, Session
from leadline.detection.condition import CONDITIONS

__all__ = ["top"]

_RESTORE_S: Final = 60.0
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
    """``least``, ``most``: cells that it has where it is shown at all."""

    heading: str
    least: int
    most: int
    number: bool = False


_LONGEST_STATE: Final = max(map(len, CONDITIONS))
_COLUMNS: Final = {
    "session": _Column("session", 12, 36),
    "fleet": _Column("fleet", 6, 24),
    "state": _Column("state", _LONGEST_STATE, _LONGEST_STATE),
    "ratio": _Column("ratio", 5, 5, number=True),
    "bar": _Column("", 10, 10),
    "spans": _Column("spans", 5, 5, number=True),
    "depth": _Column("depth", 5, 5, number=True),
    "round": _Column("round", 5, 5, number=True),
    "open": _Column("open", 16, 30),
    "command": _Column("command", 18, 26),
}
"""From left to right."""
_FIRST: Final = ("session", "state", "open", "command", "ratio", "spans")
"""Shown as long as there is room, the first the longest. 80 columns have room for all of them."""
_GROW: Final = ("command", "session", "open")
"""Which of them then grow to what is in them, an id to a quarter of the room at most: it may be of any length."""
_THEN: Final = ("fleet", "depth", "round", "bar")
"""Shown where there is room left after that."""
_GAP: Final = 2
_FRAME: Final = 4


def _widths(room: int, longest: dict[str, int]) -> dict[str, int]:
    """Cells of each column that is shown, by what is in it."""
    left = room + _GAP
    widths: dict[str, int] = {}
    for name in _FIRST:
        if left < _COLUMNS[name].least + _GAP:
            break
        widths[name] = _COLUMNS[name].least
        left -= widths[name] + _GAP
    for name in _GROW:
        if name in widths:
            most = min(_COLUMNS[name].most, room // 4) if name == "session" else _COLUMNS[name].most
            more = min(left, max(0, min(longest[name], most) - widths[name]))
            widths[name] += more
            left -= more
    for name in _THEN:
        if left >= _COLUMNS[name].least + _GAP and len(widths) >= len(_FIRST):
            widths[name] = min(left - _GAP, max(_COLUMNS[name].least, min(longest[name], _COLUMNS[name].most)))
            left -= widths[name] + _GAP
    return widths


def _sessions(sessions: list[Session], width: int) -> Table:
    rows = [_cells(one, _now()) for one in sessions]
    longest = {name: max((row[name].cell_len for row in rows), default=0) for name in _COLUMNS}
    widths = _widths(width - _FRAME, longest)
    table = Table(box=None, pad_edge=False)
    shown = [name for name in _COLUMNS if name in widths]
    for name in shown:
        column = _COLUMNS[name]
        side: Literal["left", "right"] = "right" if column.number else "left"
        table.add_column(column.heading, justify=side, no_wrap=True, overflow="ellipsis", width=widths[name])
    for row in rows:
        row["session"] = Text(ending(row["session"].plain, widths.get("session", 1)))
        table.add_row(*(row[name] for name in shown))
    return table


def _cells(one: Session, now: int) -> dict[str, Text]:
    who, row = one.who, one.row
    word = CONDITIONS[row.condition]
    command = next((each for each in row.open if each.stage in IN_FLIGHT), None)
    underway = "" if command is None else f"{command.kind} {command.stage} {max(0, now - command.issued_at) / 1000:.0f} s"
    return {
        "session": safe(who.session_id, MAX_ID),
        "fleet": safe(who.fleet, 24),
        "state": Text(word, _STYLES.get(word, "yellow")),
        "ratio": Text("?" if row.raw_ratio is None else f"{row.raw_ratio:.2f}", ratio_style(row.raw_ratio)),
        "bar": Text(bar(row.raw_ratio, 10), ratio_style(row.raw_ratio)),
        "spans": Text("" if row.spans is None else str(row.spans)),
        "depth": Text("" if row.depth is None else str(row.depth)),
        "round": Text("" if row.round is None else str(row.round)),
        "open": safe(", ".join(dict.fromkeys(each.rule for each in row.open)), 60),
        "command": Text(underway),
    }


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
