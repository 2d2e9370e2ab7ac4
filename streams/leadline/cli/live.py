"""A live view of a fleet, fed with plain records: a table of sessions, what fires, and the totals.

On a terminal it redraws in place; anywhere else every event becomes one plain line, so that a log of it can be read.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final

from rich.console import Console, Group
from rich.layout import Layout
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from leadline.cli.screen import SEVERITY_STYLE, console, ratio_style, safe, spark
from leadline.contracts.events import Ack, Round
from leadline.contracts.orders import Command, Violation

__all__ = ["LiveView"]

_HISTORY: Final = 20
_MOST_SESSIONS: Final = 500
_MOST_EVENTS: Final = 200
_STYLES: Final = {"halted": "bold red", "halt sent": "red", "stopped": "bold red", "recovering": "cyan", "healthy": "green"}
_SENT: Final = {
    "halt": "halt sent",
    "stop-agent": "stop sent",
    "cap-depth": "cap sent",
    "retry-level": "retry sent",
    "resume": "recovering",
}
_OBEYED: Final = {"halt": "halted", "stop-agent": "stopped"}


@dataclass(slots=True)
class _Session:
    """What the view remembers of one session."""

    session_id: str
    kind: str = ""
    condition: str = "healthy"
    round: int = 0
    depth: int = 0
    ratios: deque[float | None] = field(default_factory=lambda: deque(maxlen=_HISTORY))
    spans: deque[float | None] = field(default_factory=lambda: deque(maxlen=_HISTORY))
    commands: dict[str, str] = field(default_factory=dict)
    """Kind by command id, of the last few commands."""


class LiveView:
    """``with LiveView("fleet") as view: view.on_round(...)``. Every method may be called from any thread; none blocks long.

    What is shown of a session is what its own records and the monitor's say: a violation shows its rule, a command that it
    was sent, an acknowledgement that it is obeyed, a ``resume`` that it recovers. Bounded: the sessions and events that
    were heard of longest ago are forgotten first.
    """

    def __init__(self, title: str, target: Console | None = None) -> None:
        self.title = title
        self._console = target if target is not None else console()
        self._sessions: dict[tuple[str, str], _Session] = {}
        self._events: deque[Text] = deque(maxlen=_MOST_EVENTS)
        self._counts = {"rounds": 0, "violations": 0, "commands": 0, "acknowledged": 0}
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
        else:
            self._console.print(self._totals())

    def set_kind(self, session_id: str, agent_id: str, kind: str) -> None:
        """A word of the caller's for what this session is (a scenario's name)."""
        with self._lock:
            self._session(session_id, agent_id).kind = kind

    def set_condition(self, session_id: str, agent_id: str, condition: str) -> None:
        """Show this condition, as :func:`leadline.detection.condition.condition` tells it, rather than the view's own guess."""
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
            session = self._session(record.session_id, record.agent_id)
            if session.condition not in _OBEYED.values():
                session.condition = record.rule
            line = Text("✗ ", SEVERITY_STYLE[record.severity]).append(record.rule, SEVERITY_STYLE[record.severity])
            self._say(line.append("  ").append_text(safe(record.session_id, 40)).append("  ").append_text(safe(record.message)))

    def on_command(self, record: Command) -> None:
        """The monitor orders something."""
        with self._lock:
            self._counts["commands"] += 1
            session = self._session(record.session_id, record.agent_id)
            session.condition = _SENT[record.kind]
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
            if record.outcome in ("accepted", "done"):
                session.condition = _OBEYED.get(kind, "healthy" if kind == "resume" else session.condition)
            line = Text(f"← {kind} {record.outcome}".replace("  ", " "), "cyan").append("  ")
            line.append_text(safe(record.session_id, 40))
            self._say(line.append("  ").append_text(safe(record.detail, 80)) if record.detail else line)

    def render(self) -> Layout:
        """The whole view as it is now."""
        with self._lock:
            height = max(6, self._console.size.height - 4)
            body = Layout()
            body.split_row(
                Layout(Panel(self._table(height - 4), title="sessions"), ratio=3),
                Layout(Panel(Group(*reversed(self._events)), title="violations and commands, newest first"), ratio=2),
            )
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

    def _table(self, rows: int) -> Table:
        table = Table(expand=True, box=None, pad_edge=False)
        for heading in ("session", "condition", "raw ratio", "", "spans", "", "depth"):
            table.add_column(heading, no_wrap=True, overflow="ellipsis")
        # Troubled ones first, then by name, so that lines do not jump about with every event.
        order = sorted(self._sessions.values(), key=lambda one: (one.condition == "healthy", one.session_id))
        for one in order[:rows]:
            ratio = one.ratios[-1] if one.ratios else None
            name = safe(one.session_id, 24).append(f" {one.kind}" if one.kind else "", "dim")
            table.add_row(
                name,
                Text(one.condition, _STYLES.get(one.condition, "yellow")),
                Text(spark(one.ratios, 0, 1), ratio_style(ratio)),
                Text("?" if ratio is None else f"{ratio:.2f}", ratio_style(ratio)),
                Text(spark(one.spans, 0)),
                Text(str(int(one.spans[-1] or 0)) if one.spans else ""),
                Text(str(one.depth)),
            )
        if len(order) > rows:
            table.add_row(Text(f"… {len(order) - rows} more", "dim"))
        return table

    def _totals(self) -> str:
        troubled = sum(one.condition != "healthy" for one in self._sessions.values())
        counted = ", ".join(f"{count} {name}" for name, count in self._counts.items())
        return f"{len(self._sessions)} sessions, {troubled} in trouble; {counted}"

    def _say(self, line: Text, quiet: bool = False) -> None:
        """An event: into the panel on a terminal, a line of its own elsewhere. ``quiet``: not into the panel."""
        if not quiet:
            self._events.append(line)
        if not self.interactive:
            self._console.print(line)
