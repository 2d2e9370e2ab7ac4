"""The human view of a replay: each session round by round, what fired, and the verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec
from rich.console import Console
from rich.text import Text

from leadline.cli.screen import SEVERITY_STYLE, bar, console, ratio_style, safe, spark
from leadline.contracts.events import Ack, Checkpoint, Round, SessionEnd, SessionStart
from leadline.contracts.ids import state_key
from leadline.contracts.orders import Command, Tick, Violation
from leadline.contracts.session_state import SessionState
from leadline.contracts.text import plural
from leadline.contracts.times import format_ms
from leadline.detection.condition import condition
from leadline.lab import ReplayDriver, Step

__all__ = ["Timelines", "show"]

_KEPT: Final = 1000
"""Sessions whose rows are kept; what is found in later ones is still listed."""
_SHOWN: Final = 40
"""Timelines printed, those with violations first; `--session` shows any."""
_LETTERS: Final = 20
_CALM: Final = frozenset({"healthy", "ended", "unknown"})
_HEADINGS: Final = "  round  raw ratio              spans  cosine  depth"


class Timelines:
    """Collects the steps of a replay by session."""

    def __init__(self, wanted: Callable[[str, str], bool]) -> None:
        self.wanted = wanted
        self.records = 0
        self.by_session: dict[str, list[Step]] = {}

    def add(self, step: Step) -> None:
        """Take one step in the order of the replay."""
        event = step.event
        if not isinstance(event, Tick):
            self.records += 1
        if event is None or not self.wanted(event.session_id, event.agent_id):
            return
        key = state_key(event.session_id, event.agent_id)
        if key in self.by_session or len(self.by_session) < _KEPT:
            self.by_session.setdefault(key, []).append(step)


def show(timelines: Timelines, driver: ReplayDriver, letters: list[dict[str, Any]], several_files: bool) -> None:
    """Print the timelines, their verdicts, the dead letters and the totals."""
    out = console()
    violations = [one for one in driver.violations if timelines.wanted(one.session_id, one.agent_id)]
    commands = [one for one in driver.commands if timelines.wanted(one.session_id, one.agent_id)]
    troubled = {state_key(one.session_id, one.agent_id) for one in violations}
    order = sorted(timelines.by_session, key=lambda key: key not in troubled)
    for key in order[:_SHOWN]:
        _timeline(out, timelines.by_session[key], driver.last_states.get(key))
    states = {key: one for key, one in driver.last_states.items() if timelines.wanted(one.session_id, one.agent_id)}
    if len(states) > len(order[:_SHOWN]):
        out.print(f"… and {plural(len(states) - len(order[:_SHOWN]), 'more session')}; `--session ID` shows one\n", style="dim")
    _verdicts(out, violations)
    _dead_letters(out, letters, several_files)
    out.print(_totals(timelines.records, states.values(), violations, commands, letters))


def _timeline(out: Console, steps: list[Step], state: SessionState | None) -> None:
    event = next(step.event for step in steps if step.event is not None)
    rounds = [step.event for step in steps if isinstance(step.event, Round)]
    head = Text("session ", "bold").append_text(safe(event.session_id)).append("  agent ").append_text(safe(event.agent_id))
    if state is not None:
        if state.fleet:
            head.append("  fleet ").append_text(safe(state.fleet))
        word = condition(state)
        head.append("  ").append(word, "bold green" if word in _CALM else "bold red")
    if rounds:
        head.append(f"  ratio {spark(map(ratio_of, rounds[-24:]), 0, 1)}")
        head.append(f"  spans {spark([one.distinct_source_spans for one in rounds[-24:]], 0)}")
    out.print(head)
    if rounds:
        out.print(_HEADINGS, style="dim")
    for step in steps:
        row = _row(step)
        if row is not None:
            out.print(row)
    if state is not None:
        noted = {name: count for name, count in msgspec.structs.asdict(state.counts).items() if count}
        if noted:
            out.print("  counted: " + ", ".join(f"{name} {count}" for name, count in noted.items()), style="dim")
    out.print()


def ratio_of(record: Round) -> float | None:
    """``raw / (raw + summary)``; ``None`` when both are 0."""
    total = record.raw_tokens + record.summary_tokens
    return record.raw_tokens / total if total else None


def _row(step: Step) -> Text | None:
    event = step.event
    if isinstance(event, Round):
        row = _round(event)
    elif isinstance(event, Tick):
        if not step.outputs:
            return None
        row = Text(f"  time   {format_ms(step.now)}, a deadline passed".ljust(len(_HEADINGS)), "dim")
    else:
        row = Text("  ").append_text(_other(event))
        row.pad_right(max(0, len(_HEADINGS) - row.cell_len))
    for why in step.ignored:
        row.append(f"  ignored: {why}", "dim")
    for letter in step.dead_letters:
        row.append(f"  refused: {letter.reason}", "yellow")
    for output in step.outputs:
        row.append("  ").append_text(_fired(output))
    row.rstrip()
    return row


def _round(event: Round) -> Text:
    ratio = ratio_of(event)
    row = Text(f"  {event.round:>5}  ")
    row.append("   ?" if ratio is None else f"{ratio:.2f}", ratio_style(ratio)).append(" ")
    row.append(bar(ratio), ratio_style(ratio))
    cosine = "-" if event.query_cosine_retained is None else f"{event.query_cosine_retained:.2f}"
    row.append(f"  {event.distinct_source_spans:>5}  {cosine:>6}  {event.summary_depth_max:>5}")
    if event.outcome != "ok":
        row.append(f"  pass {event.outcome}", "yellow")
    return row


def _other(event: Any) -> Text:
    if isinstance(event, SessionStart):
        spans = "no baseline" if event.session_start_spans is None else plural(event.session_start_spans, "span")
        return Text(f"start  {spans}, {plural(len(event.facts), 'fact')} declared", "dim")
    if isinstance(event, Checkpoint):
        return _checkpoint(event)
    if isinstance(event, Ack):
        said = Text(f"ack    seq {event.seq} {event.outcome} ", "dim")
        return said.append_text(safe(event.detail, 80)) if event.detail else said
    return Text("end" if isinstance(event, SessionEnd) else "event", "dim")


def _checkpoint(event: Checkpoint) -> Text:
    parts = [f"level  {event.level}"]
    if event.declared_input_tokens is not None and event.consumed_input_tokens is not None:
        parts.append(f"consumed {event.consumed_input_tokens} of {event.declared_input_tokens}")
    if event.source_spans is not None and event.seen_spans is not None:
        parts.append(f"seen {event.seen_spans} of {event.source_spans} spans")
    if event.facts is not None:
        kept = sum(fact.status in ("verbatim", "abstracted") for fact in event.facts)
        parts.append(f"facts {kept} of {len(event.facts)}")
    return Text(", ".join(parts))


def _fired(output: Violation | Command) -> Text:
    if isinstance(output, Violation):
        mode = "" if output.mode == "enforce" else f" [{output.mode}]"
        return Text(f"✗ {output.rule}: {output.reason}{mode}", SEVERITY_STYLE[output.severity])
    attempt = f" (attempt {output.attempt})" if output.attempt > 1 else ""
    return Text(f"→ {output.kind}{attempt}", "bold")


def _verdicts(out: Console, violations: list[Violation]) -> None:
    if violations:
        out.print("verdicts", style="bold")
    for one in violations:
        where = f" round {one.round}" if one.round is not None else f" level {one.level}" if one.level is not None else ""
        line = Text("  ✗ ", SEVERITY_STYLE[one.severity]).append(f"{one.severity} {one.rule}", SEVERITY_STYLE[one.severity])
        line.append("  ").append_text(safe(one.session_id, 64)).append(f"{where}: ").append_text(safe(one.message, 1000))
        line.append(f"  (action: {one.action})", "dim")
        out.print(line)
    if violations:
        out.print()


def _dead_letters(out: Console, letters: list[dict[str, Any]], several_files: bool) -> None:
    if letters:
        out.print("dead letters", style="bold")
    for letter in letters[:_LETTERS]:
        where = safe(letter["file"]).append(":") if several_files else Text("line ")
        where.append(f"{letter['line']}  ").append(letter["reason"], "yellow").append("  ").append_text(safe(letter["detail"]))
        out.print(Text("  ").append_text(where))
    if len(letters) > _LETTERS:
        out.print(f"  … and {len(letters) - _LETTERS} more; --json lists all", style="dim")
    if letters:
        out.print()


def _totals(
    records: int, states: Iterable[SessionState], violations: list[Violation], commands: list[Command], letters: list[Any]
) -> str:
    words = Counter(map(condition, states))
    fleet = ", ".join(f"{count} {word}" for word, count in words.most_common())
    parts = [plural(records, "record"), plural(words.total(), "session") + (f" ({fleet})" if fleet else "")]
    parts += [plural(len(violations), "violation"), plural(len(commands), "command"), plural(len(letters), "dead letter")]
    return "; ".join(parts)
