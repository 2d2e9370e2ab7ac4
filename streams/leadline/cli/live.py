"""A live view of a fleet, fed with plain records: a table of sessions, what fires, and the totals.

On a terminal it redraws in place; anywhere else every event becomes one plain line, so that a log of it can be read.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, NamedTuple

from rich.console import Console, Group
from rich.layout import Layout
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from leadline.cli.screen import SEVERITY_STYLE, console, ending, ratio_style, safe, spark
from leadline.contracts.events import Ack, Round
from leadline.contracts.orders import Command, Violation
from leadline.contracts.text import plural
from leadline.detection.condition import CONDITIONS

__all__ = ["LiveView"]

_HISTORY: Final = 20
_SIDE_BY_SIDE: Final = 140
"""From this many columns on the events stand beside the sessions, otherwise below."""
_NUMBER: Final = 5
_CONDITION: Final = max(map(len, CONDITIONS))
_LONGEST_ID: Final = 36
_SHORTEST_ID: Final = 12
_SHORTEST_SPARK: Final = 4
_MOST_SESSIONS: Final = 500
_MOST_EVENTS: Final = 200
_CALM: Final = ("healthy", "unknown", "ended")
_STYLES: Final = {"halted": "bold red", "recovering": "cyan", "healthy": "green", "unknown": "dim", "ended": "dim"}
_COUNTED: Final = {"rounds": "round", "violations": "violation", "commands": "command", "acknowledged": "acknowledged"}
"""What is counted, and the word for one of it."""


@dataclass(slots=True)
class _Session:
    """What the view remembers of one session."""

    session_id: str
    kind: str = ""
    condition: str = "unknown"
    round: int = 0
    depth: int = 0
    ratios: deque[float | None] = field(default_factory=lambda: deque(maxlen=_HISTORY))
    spans: deque[float | None] = field(default_factory=lambda: deque(maxlen=_HISTORY))
    commands: dict[str, str] = field(default_factory=dict)
    """Kind by command id, of the last few commands."""


class LiveView:
    """``with LiveView("fleet") as view: view.on_round(...)``. Every method may be called from any thread; none blocks long.

    A session's condition is what :meth:`set_condition` was told last; nothing is guessed from the records. Bounded: the sessions
    and events that were heard of longest ago are forgotten first.
    """

    def __init__(self, title: str, target: Console | None = None) -> None:
        self.title = title
        self._console = target if target is not None else console()
        self._sessions: dict[tuple[str, str], _Session] = {}
        self._events: deque[Text] = deque(maxlen=_MOST_EVENTS)
        self._counts: Counter[str] = Counter()
        self._note = ""
        self._lock = threading.RLock()
        self._live: Live | None = None

    @property
    def interactive(self) -> bool:
        """Whether the view redraws in place."""
        return self._console.is_terminal

    def __enter__(self) -> LiveView:
        if self.interactive:
            self._live = Live(get_renderable=self.render, console=self._console, refresh_per_second=8, screen=False)
            self._live.start()
        else:
            self._console.print(self.title)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
        elif kind is None or self._counts:
            # Where it failed before anything was heard, there is nothing to sum up.
            self._console.print(self._totals())

    def set_kind(self, session_id: str, agent_id: str, kind: str) -> None:
        """A word of the caller's for what this session is (a scenario's name)."""
        with self._lock:
            self._session(session_id, agent_id).kind = kind

    def set_condition(self, session_id: str, agent_id: str, condition: str) -> None:
        """Show this condition: what :func:`leadline.detection.condition.condition` says of the monitor's record."""
        with self._lock:
            self._session(session_id, agent_id).condition = condition

    def note(self, text: str) -> None:
        """A sentence for the footer (plain: a line of its own)."""
        with self._lock:
            self._note = text
            self._say(Text("· ").append_text(safe(text)), quiet=True)

    def on_round(self, record: Round) -> None:
        """One compaction round of an agent."""
        with self._lock:
            session = self._session(record.session_id, record.agent_id)
            total = record.raw_tokens + record.summary_tokens
            ratio = record.raw_tokens / total if total else None
            session.round, session.depth = record.round, record.summary_depth_max
            session.ratios.append(ratio)
            session.spans.append(record.distinct_source_spans)
            self._counts["rounds"] += 1
            if self._live is None and not self.interactive:
                shown = "?" if ratio is None else f"{ratio:.2f}"
                line = Text("  ").append_text(safe(record.session_id, 40)).append(f"  round {record.round}  raw ratio {shown}")
                self._console.print(line.append(f"  spans {record.distinct_source_spans}  depth {record.summary_depth_max}"))

    def on_violation(self, record: Violation) -> None:
        """The monitor found something."""
        with self._lock:
            self._counts["violations"] += 1
            self._session(record.session_id, record.agent_id)
            line = Text("✗ ", SEVERITY_STYLE[record.severity]).append(record.rule, SEVERITY_STYLE[record.severity])
            self._say(line.append("  ").append_text(safe(record.session_id, 40)).append("  ").append_text(safe(record.message)))

    def on_command(self, record: Command) -> None:
        """The monitor orders something."""
        with self._lock:
            self._counts["commands"] += 1
            session = self._session(record.session_id, record.agent_id)
            session.commands[record.command_id] = record.kind
            while len(session.commands) > 8:
                del session.commands[next(iter(session.commands))]
            attempt = f" (attempt {record.attempt})" if record.attempt > 1 else ""
            line = Text(f"→ {record.kind}{attempt}", "bold").append("  ").append_text(safe(record.session_id, 40))
            self._say(line.append("  ").append_text(safe(record.reason)))

    def on_ack(self, record: Ack) -> None:
        """The agent answers a command."""
        with self._lock:
            self._counts["acknowledged"] += 1
            session = self._session(record.session_id, record.agent_id)
            kind = session.commands.get(record.command_id, "")
            line = Text(f"← {kind} {record.outcome}".replace("  ", " "), "cyan").append("  ")
            line.append_text(safe(record.session_id, 40))
            self._say(line.append("  ").append_text(safe(record.detail, 80)) if record.detail else line)

    def render(self) -> Layout:
        """The whole view as it is now."""
        with self._lock:
            width, height = self._console.size.width, max(6, self._console.size.height - 2)
            beside = width >= _SIDE_BY_SIDE
            rows = height - 3 if beside else min(len(self._sessions) + 1, max(3, height * 3 // 5 - 3))
            left = width * 3 // 5 if beside else width
            more = len(self._sessions) - rows
            panel = Panel(self._table(rows, left - 4), title="sessions", subtitle=f"… {more} more" if more > 0 else None)
            sessions = Layout(panel, size=left if beside else rows + 3)
            events = Layout(Panel(Group(*reversed(self._events)), title="violations and commands, newest first"))
            body = Layout()
            if beside:
                body.split_row(sessions, events)
            else:
                body.split_column(sessions, events)
            whole = Layout()
            footer = Text(self._totals()).append(f"   {self._note}" if self._note else "", "dim")
            whole.split_column(Layout(Text(self.title, "bold"), size=1), body, Layout(footer, size=1))
            return whole

    def _session(self, session_id: str, agent_id: str) -> _Session:
        key = session_id, agent_id
        session = self._sessions.pop(key, None) or _Session(session_id)
        self._sessions[key] = session
        while len(self._sessions) > _MOST_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        return session

    def _table(self, rows: int, width: int) -> Table:
        # Troubled ones first, then by name, so that lines do not jump about with every event.
        order = sorted(self._sessions.values(), key=lambda one: (one.condition in _CALM, one.session_id))
        shown = order[:rows]
        ids = {one.session_id: safe(one.session_id).plain for one in shown}
        widths = _widths(width, list(ids.values()), [one.kind for one in shown], [one.condition for one in shown])
        table = Table(box=None, pad_edge=False, padding=(0, 1), collapse_padding=True)
        spark_heading = "" if widths.spark else None
        for heading, size in (
            ("session", widths.name),
            ("kind" if widths.kind else None, widths.kind),
            ("condition", widths.condition),
            (spark_heading, widths.spark),
            ("ratio", _NUMBER),
            (spark_heading, widths.spark),
            ("spans", _NUMBER),
            ("depth", _NUMBER),
        ):
            if heading is not None:
                number = size == _NUMBER and heading in ("ratio", "spans", "depth")
                table.add_column(heading, width=size, no_wrap=True, overflow="ellipsis", justify="right" if number else "left")
        for one in shown:
            ratio = one.ratios[-1] if one.ratios else None
            spans = one.spans[-1] if one.spans else None
            cells = [
                Text(ending(ids[one.session_id], widths.name)),
                safe(one.kind) if widths.kind else None,
                Text(one.condition, _STYLES.get(one.condition, "yellow")),
                Text(spark(one.ratios, 0, 1)[-widths.spark :], ratio_style(ratio)) if widths.spark else None,
                Text("?" if ratio is None else f"{ratio:.2f}", ratio_style(ratio)),
                Text(spark(one.spans, 0)[-widths.spark :]) if widths.spark else None,
                Text("" if spans is None else str(int(spans))),
                Text(str(one.depth)),
            ]
            table.add_row(*(cell for cell in cells if cell is not None))
        return table

    def _totals(self) -> str:
        troubled = sum(one.condition not in _CALM for one in self._sessions.values())
        unknown = sum(one.condition == "unknown" for one in self._sessions.values())
        # What the caller does not feed is not counted either: nothing is said of it.
        counted = ", ".join(plural(self._counts[name], one, name) for name, one in _COUNTED.items() if name in self._counts)
        told = f"{plural(len(self._sessions), 'session')}, {troubled} in trouble" + (f", {unknown} unknown" if unknown else "")
        return told + (f"; {counted}" if counted else "")

    def _say(self, line: Text, quiet: bool = False) -> None:
        """An event: into the panel on a terminal, a line of its own elsewhere. ``quiet``: not into the panel."""
        if not quiet:
            self._events.append(line)
        if not self.interactive:
            self._console.print(line)


class _Widths(NamedTuple):
    """Cells of each column; 0: it is left out."""

    name: int
    kind: int
    condition: int
    spark: int


def _widths(width: int, ids: list[str], kinds: list[str], conditions: list[str]) -> _Widths:
    """Numbers keep their width; sparklines take what is left, then ids give way to them, and last they are left out."""
    kind = max(map(len, kinds), default=0)
    condition = max((*map(len, conditions), _CONDITION))
    name = min(_LONGEST_ID, max((*map(len, ids), len("session"))))
    columns = 7 + bool(kind)
    left = width - (columns - 1) - 3 * _NUMBER - kind - condition
    spark_width = min(_HISTORY, max((left - name) // 2, _SHORTEST_SPARK))
    if left - 2 * spark_width < min(name, _SHORTEST_ID):
        spark_width, left = 0, left + 2
    return _Widths(max(1, min(name, left - 2 * spark_width)), kind, condition, spark_width)
