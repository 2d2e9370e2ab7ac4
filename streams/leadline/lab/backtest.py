"""What a policy would have done on recorded events, and how two policies differ. No broker, no clock but the recording's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec.structs import replace

from leadline.contracts.ids import state_key
from leadline.contracts.orders import Command, Violation
from leadline.contracts.text import safe
from leadline.detection.policy import FleetPolicy, Policy
from leadline.detection.rules import UNHEEDED
from leadline.lab.lines import Line
from leadline.lab.replay import ReplayDriver, replay

__all__ = ["Backtest", "Change", "Verdicts", "backtest", "compare"]

HEEDED: Final = ("halt", "cap-depth", "retry-level", "stop-agent")
"""Commands that ask an agent for something; ``resume`` only takes back."""


@dataclass(slots=True)
class Verdicts:
    """One session under one policy: rules that opened an incident, commands by kind, each with how often."""

    session_id: str
    agent_id: str
    rules: Counter[str] = field(default_factory=Counter)
    commands: Counter[str] = field(default_factory=Counter)
    first_round: dict[str, int | None] = field(default_factory=dict)
    """By rule: the round of its first incident."""


@dataclass(slots=True)
class Backtest:
    """What ``policy`` would have done.

    The recorded agents never heard of these commands and cannot have answered them. So first attempts are counted, and neither
    repetitions nor ``unheeded``, which would only say so.
    """

    policy: Policy
    sessions: dict[str, Verdicts] = field(default_factory=dict)
    events: int = 0
    dead_letters: int = 0

    def report(self) -> dict[str, Any]:
        """As one JSON object; ``alarms`` are violations in a mode other than shadow."""
        rules: Counter[str] = Counter()
        commands: Counter[str] = Counter()
        for one in self.sessions.values():
            rules += one.rules
            commands += one.commands
        return {
            "policy": self.policy.version,
            "sessions": len(self.sessions),
            "events": self.events,
            "dead_letters": self.dead_letters,
            "sessions_with_an_incident": sum(bool(one.rules) for one in self.sessions.values()),
            "sessions_commanded": sum(any(one.commands[kind] for kind in HEEDED) for one in self.sessions.values()),
            "incidents": dict(sorted(rules.items())),
            "commands": dict(sorted(commands.items())),
            "incidents_per_1000_sessions": {rule: self._rate(count) for rule, count in sorted(rules.items())},
            "alarms_per_1000_sessions": self._rate(sum(rules.values())),
            "halts_per_1000_sessions": self._rate(commands["halt"]),
        }

    def _rate(self, count: int) -> float | None:
        return round(1000 * count / len(self.sessions), 3) if self.sessions else None


def backtest(lines: Iterable[Line], policy: Policy, settle_ms: int = 0) -> Backtest:
    """Judge every line under ``policy``; ``settle_ms``: time that passes after the last one."""
    driver = ReplayDriver(_without_escalation(policy))
    result = Backtest(policy)
    for _, step in replay(driver, lines):
        result.events += step.offset >= 0
        _take(result, step.outputs)
        # A driver keeps all that it sent, which a long recording need not.
        driver.violations.clear()
        driver.commands.clear()
    for step in driver.advance(settle_ms) if settle_ms else ():
        _take(result, step.outputs)
    result.dead_letters = len(driver.dead_letters)
    for key, state in driver.last_states.items():
        result.sessions.setdefault(key, Verdicts(state.session_id, state.agent_id))
    return result


def _without_escalation(policy: Policy) -> Policy:
    def quiet(fleet: FleetPolicy) -> FleetPolicy:
        return replace(fleet, modes=fleet.modes | {UNHEEDED: "off"})

    return replace(policy, default=quiet(policy.default), fleets={name: quiet(fleet) for name, fleet in policy.fleets.items()})


def _take(result: Backtest, outputs: Iterable[Violation | Command]) -> None:
    for output in outputs:
        key = state_key(output.session_id, output.agent_id)
        verdicts = result.sessions.setdefault(key, Verdicts(output.session_id, output.agent_id))
        if isinstance(output, Command):
            verdicts.commands[output.kind] += output.attempt == 1
        elif output.mode != "shadow":
            verdicts.rules[output.rule] += 1
            verdicts.first_round.setdefault(output.rule, output.round)


@dataclass(frozen=True, slots=True)
class Change:
    """A session on which two policies differ. ``appear``, ``vanish``: rules and commands (``inversion``, ``halt #``)."""

    session_id: str
    agent_id: str
    appear: tuple[str, ...]
    vanish: tuple[str, ...]
    moved: tuple[str, ...]
    """Rules whose first incident comes at another round: ``erosion 12 -> 9``."""

    def shown(self) -> dict[str, Any]:
        """Ids escaped for a page or a terminal."""
        return {
            "session_id": safe(self.session_id),
            "agent_id": safe(self.agent_id),
            "appear": list(self.appear),
            "vanish": list(self.vanish),
            "moved": list(self.moved),
        }


def compare(one: Backtest, other: Backtest) -> list[Change]:
    """The sessions on which ``other`` would have acted otherwise than ``one``, in the order of the recording."""
    changes = []
    for key, before in one.sessions.items():
        after = other.sessions.get(key, Verdicts(before.session_id, before.agent_id))
        appear = (*_more(after.rules, before.rules), *_more(after.commands, before.commands))
        vanish = (*_more(before.rules, after.rules), *_more(before.commands, after.commands))
        both = [rule for rule in before.first_round if rule in after.first_round]
        moved = tuple(
            f"{rule} {before.first_round[rule]} -> {after.first_round[rule]}"
            for rule in both
            if before.first_round[rule] != after.first_round[rule]
        )
        if appear or vanish or moved:
            changes.append(Change(before.session_id, before.agent_id, appear, vanish, moved))
    return changes


def _more(these: Counter[str], those: Counter[str]) -> tuple[str, ...]:
    more = these - those
    return tuple(f"{name} x{count}" if count > 1 else name for name, count in sorted(more.items()))
