"""The demo's verdict, from what the topics and the agents themselves say, and how it is shown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from rich.console import Console
from rich.table import Table

from leadline.contracts.text import plural
from leadline.demo.fleet import AgentPlan, AgentResult
from leadline.demo.kinds import KINDS, Kind, kind_named
from leadline.demo.observer import Observed

__all__ = ["Report", "Row", "judge", "percentile"]

_HALTING = ("halt", "stop-agent")
_TAKEN = {"accepted", "done"}


@dataclass(frozen=True, slots=True)
class Row:
    """One session: what was planted in it, and what came of it."""

    session_id: str
    kind: Kind
    rules: tuple[str, ...]
    """Rules found, in the order in which they were."""
    commands: tuple[str, ...]
    """Kinds of command sent, in the order of ``seq``."""
    halted: bool
    released: bool
    """Every order was followed by a ``resume``, sent on measurements and taken by the agent, which may compact at its end."""
    rounds: int

    @property
    def found(self) -> bool:
        """The rule fired, and what was to be ordered was."""
        return self.kind.planted and self.kind.rule in self.rules and self.kind.command in ("", *self.commands)

    @property
    def false_halt(self) -> bool:
        return self.halted and not self.kind.command

    @property
    def orders(self) -> tuple[str, ...]:
        return tuple(kind for kind in self.commands if kind != "resume")


@dataclass(frozen=True, slots=True)
class Report:
    """The whole run. Latencies in milliseconds, from an event's emission to the command's receipt, by the agent's clock."""

    rows: tuple[Row, ...]
    commands: int
    acknowledged: int
    latencies: tuple[float, ...]
    dropped_events: int
    seconds: float
    broker: str

    @property
    def missed(self) -> int:
        return sum(row.kind.planted and not row.found for row in self.rows)

    @property
    def false_halts(self) -> int:
        return sum(row.false_halt for row in self.rows)

    @property
    def halted(self) -> int:
        return sum(row.halted for row in self.rows)

    @property
    def recovered(self) -> int:
        return sum(row.halted and row.released for row in self.rows)

    @property
    def unreleased(self) -> list[str]:
        """Sessions with an order that nothing released."""
        return [row.session_id for row in self.rows if not row.released]

    @property
    def ok(self) -> bool:
        """Nothing planted was missed, nothing healthy was halted, whatever was ordered was obeyed and released, and no event that
        it all rests on was lost."""
        return not (self.missed or self.false_halts or self.unreleased or self.dropped_events)

    def as_json(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "agents": len(self.rows),
            "planted": sum(row.kind.planted for row in self.rows),
            "found": sum(row.found for row in self.rows),
            "missed": self.missed,
            "false_halts": self.false_halts,
            "commands": self.commands,
            "acknowledged": self.acknowledged,
            "halted": self.halted,
            "recovered": self.recovered,
            "unreleased": self.unreleased,
            "p50_ms": percentile(self.latencies, 0.50),
            "p99_ms": percentile(self.latencies, 0.99),
            "latencies": len(self.latencies),
            "rounds": sum(row.rounds for row in self.rows),
            "dropped_events": self.dropped_events,
            "seconds": round(self.seconds, 1),
            "broker": self.broker,
            "per_kind": {kind.name: _of_kind(rows) for kind, rows in self._by_kind()},
        }

    def show(self, out: Console) -> None:
        """What was planted, what came of it by session and by kind, and the sentence that they add up to.

        80 columns are enough for the tables of a usual run.
        """
        for table in (self._legend(), self._sessions(), self._kinds()):
            out.print(table)
            out.print()
        out.print(self.sentence(), style="green" if self.ok else "red", soft_wrap=not out.is_terminal)

    def _legend(self) -> Table:
        table = _table("kind", "what it does")
        for kind, _ in self._by_kind():
            table.add_row(kind.name, kind.says)
        return table

    def _sessions(self) -> Table:
        """Those of which there is anything to say."""
        table = _table("session", "kind", "found", "commanded", "recovered")
        told = [row for row in self.rows if row.kind.planted or row.rules or row.commands or not row.released]
        for row in told:
            planted_first = sorted(row.rules, key=lambda rule: rule != row.kind.rule)
            table.add_row(
                row.session_id,
                row.kind.name,
                ", ".join(planted_first) or "-",
                ", ".join(dict.fromkeys(row.orders)) or "-",
                ("yes" if row.released else "no") if row.orders or not row.released else "-",
                style="red" if row.false_halt or not row.released or (row.kind.planted and not row.found) else None,
            )
        if len(told) < len(self.rows):
            table.add_row(f"{len(self.rows) - len(told)} more", "", "-", "-", "-", style="dim")
        return table

    def _kinds(self) -> Table:
        table = _table("kind", "sessions", "planted", "found", "commanded", "recovered")
        for kind, rows in self._by_kind():
            said = _of_kind(rows)
            table.add_row(
                kind.name,
                str(len(rows)),
                kind.rule or "-",
                f"{said['found']}/{len(rows)}" if kind.planted else "-",
                _counted(row.orders for row in rows),
                f"{said['recovered']}/{said['commanded']}" if said["commanded"] else "-",
            )
        return table

    def sentence(self) -> str:
        p50, p99 = percentile(self.latencies, 0.50), percentile(self.latencies, 0.99)
        speed = f"from an event to its command {p50:g} ms (p50), {p99:g} ms (p99)" if p50 is not None else "no command to time"
        lost = f"{plural(self.dropped_events, 'event')} lost; " if self.dropped_events else ""
        return (
            f"{sum(row.found for row in self.rows)} of {sum(row.kind.planted for row in self.rows)} planted found, "
            f"{self.false_halts} healthy halted, {self.recovered} of {self.halted} halted recovered, "
            f"{self.acknowledged} of {self.commands} commands acknowledged; {speed}; "
            f"{lost}{self.seconds:.0f} s"
        )

    def _by_kind(self) -> list[tuple[Kind, list[Row]]]:
        groups = [(kind, [row for row in self.rows if row.kind.name == kind.name]) for kind in KINDS]
        return [(kind, rows) for kind, rows in groups if rows]


def judge(plans: Sequence[AgentPlan], results: Sequence[AgentResult], seen: Observed, *, seconds: float, broker: str) -> Report:
    """Put together what the topics (``seen``) and the agents (``results``) say. A session without a result is not released."""
    own = {result.session_id: result for result in results}
    rows = [_row(plan, own.get(plan.session_id), seen) for plan in plans]
    return Report(
        rows=tuple(rows),
        commands=len(seen.commands),
        acknowledged=sum(bool(seen.acks.get(command_id, set()) & _TAKEN) for command_id in seen.commands),
        latencies=tuple(h.latency_ms for result in results for h in result.heard if h.latency_ms is not None),
        dropped_events=sum(result.dropped_events for result in results),
        seconds=seconds,
        broker=broker,
    )


def _row(plan: AgentPlan, result: AgentResult | None, seen: Observed) -> Row:
    violations = [one for one in seen.violations.values() if one.session_id == plan.session_id]
    commands = sorted((one for one in seen.commands.values() if one.session_id == plan.session_id), key=lambda one: one.seq)
    ordered = {one.incident_id for one in commands if one.kind != "resume"}
    resumed = {one.incident_id for one in commands if one.kind == "resume" and seen.acks.get(one.command_id, set()) & _TAKEN}
    own = result is not None and not result.unreleased and result.state in ("running", "capped")
    return Row(
        session_id=plan.session_id,
        kind=kind_named(plan.kind),
        rules=tuple(dict.fromkeys(one.rule for one in violations)),
        commands=tuple(one.kind for one in commands),
        halted=any(one.kind in _HALTING for one in commands),
        released=own and ordered <= resumed,
        rounds=0 if result is None else result.rounds,
    )


def _of_kind(rows: list[Row]) -> dict[str, int]:
    return {
        "sessions": len(rows),
        "found": sum(row.found for row in rows),
        "commanded": sum(bool(row.orders) for row in rows),
        "halted": sum(row.halted for row in rows),
        "recovered": sum(bool(row.orders) and row.released for row in rows),
    }


def _table(*headings: str) -> Table:
    """Lists of rules and commands may wrap; names and ids are of no use in pieces."""
    table = Table(box=None, pad_edge=False)
    for heading in headings:
        table.add_column(heading, no_wrap=heading in ("session", "kind", "sessions", "planted", "recovered"))
    return table


def _counted(orders: Iterable[tuple[str, ...]]) -> str:
    counts = Counter(kind for one in orders for kind in one)
    return ", ".join(f"{count} {kind}" for kind, count in counts.items()) or "-"


def percentile(values: Iterable[float], share: float) -> float | None:
    """Nearest rank, rounded to 0.1; ``None`` without values."""
    ordered = sorted(values)
    return round(ordered[max(0, ceil(share * len(ordered)) - 1)], 1) if ordered else None
