"""The core without a broker: records made by hand, a partition that they lie on, and a clock that only moves when told to."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from leadline.commands.fold import DeadLetter, Folded, Incoming, fold
from leadline.contracts.codec import encode
from leadline.contracts.events import (
    Ack,
    AckOutcome,
    Checkpoint,
    DeclaredDrop,
    Fact,
    FactState,
    FactStatus,
    Round,
    SessionEnd,
    SessionStart,
)
from leadline.contracts.ids import state_key
from leadline.contracts.orders import Command, Tick, Violation
from leadline.contracts.session_state import Incident, SessionState, decode_state, encode_state
from leadline.contracts.times import format_ms
from leadline.detection.policy import DEFAULT_POLICY, FleetPolicy, Policy

__all__ = ["START", "Monitor", "ack", "checkpoint", "declared", "end", "policy", "round_", "start", "status", "tick"]

START = 1_800_000_000_000
"""When every test begins, milliseconds since 1970."""
WHO: dict[str, Any] = {"session_id": "s1", "agent_id": "a1", "fleet": "f1"}


def round_(number: int, ratio: float | None = None, **changes: Any) -> Round:
    """A healthy round: 60,000 of 100,000 tokens raw, 200 of 214 source spans, one layer of summaries, nothing falling or rising.

    ``ratio`` sets the raw share of the 100,000 tokens.
    """
    raw = 60_000 if ratio is None else round(ratio * 100_000)
    return Round(
        **WHO
        | {
            "event_id": f"r{number}",
            "epoch": 0,
            "ts": "",
            "round": number,
            "trigger": "budget",
            "raw_tokens": raw,
            "summary_tokens": 100_000 - raw,
            "distinct_source_spans": 200,
            "query_cosine_retained": 0.5,
            "summary_depth_max": 1,
            "max_depth": 4,
            "session_start_spans": 214,
            "token_budget": 180_000,
        }
        | changes
    )


def checkpoint(level: int, facts: dict[str, FactState] | None = None, drops: Iterable[str] = (), **changes: Any) -> Checkpoint:
    """A summarizer call whose budget closes. ``facts``: what became of each; absent means not reported."""
    return Checkpoint(
        **WHO
        | {
            "level": level,
            "declared_input_tokens": 8000,
            "consumed_input_tokens": 8000,
            "source_spans": 40,
            "seen_spans": 40,
            "facts": None if facts is None else [FactStatus(fact_id=name, status=state) for name, state in facts.items()],
            "declared_drops": [DeclaredDrop(fact_id=name, reason="done") for name in drops],
        }
        | changes
    )


def start(facts: Iterable[Fact] = (), **changes: Any) -> SessionStart:
    return SessionStart(**WHO | {"session_start_spans": 214, "facts": list(facts)} | changes)


def declared(*names: str, fact_class: str = "constraint", floor: float | None = None, **changes: Any) -> list[Fact]:
    """Facts of one class."""
    return [Fact(fact_id=name, fact_class=fact_class, recall_floor=floor, **changes) for name in names]


def status(name: str, state: FactState, **changes: Any) -> FactStatus:
    return FactStatus(fact_id=name, status=state, **changes)


def ack(command: Command, outcome: AckOutcome = "accepted", **changes: Any) -> Ack:
    """The agent's answer to ``command``."""
    said: dict[str, Any] = {
        "session_id": command.session_id,
        "agent_id": command.agent_id,
        "fleet": command.fleet,
        "command_id": command.command_id,
        "seq": command.seq,
        "outcome": outcome,
    }
    return Ack(**said | changes)


def end(**changes: Any) -> SessionEnd:
    return SessionEnd(**WHO | changes)


def tick(due_at: int = START, **changes: Any) -> Tick:
    whose: dict[str, Any] = {"session_id": "s1", "agent_id": "a1", "due_at": format_ms(due_at)}
    return Tick(**whose | changes)


def policy(**changes: Any) -> Policy:
    """The default policy with ``changes`` for every fleet."""
    return Policy(default=FleetPolicy(**changes))


class Monitor:
    """One partition and the monitor that reads it. States are kept as the changelog keeps them: encoded.

    ``sent`` records what went out, ``dead`` what was refused; each :meth:`send` is a batch of its own.
    """

    def __init__(self, policy: Policy = DEFAULT_POLICY, now: int = START) -> None:
        self.policy = policy
        self.now = now
        self.log: list[Incoming] = []
        self.stored: dict[str, bytes] = {}
        self.sent: list[Violation | Command] = []
        self.dead: list[DeadLetter] = []
        self.ignored: dict[str, int] = {}
        self.tolerated: dict[str, int] = {}

    def send(self, *events: msgspec.Struct | dict[str, Any] | bytes | None, **wire: Any) -> list[Violation | Command]:
        """Append ``events`` to the partition and let the monitor read them; returns what it sends."""
        return self.read([self.append(event, **wire) for event in events])

    def append(self, event: msgspec.Struct | dict[str, Any] | bytes | None, **wire: Any) -> Incoming:
        """Put one record on the partition without reading it. The key is the record's session id unless given."""
        if isinstance(event, msgspec.Struct):
            value: bytes | None = encode(event)
        else:
            value = json.dumps(event).encode() if isinstance(event, dict) else event
        if "key" not in wire:
            wire["key"] = str(json.loads(value or b"")["session_id"]).encode()
        given: dict[str, Any] = {"value": value, "partition": 3, "offset": len(self.log), "timestamp": self.now}
        record = Incoming(**given | wire)
        self.log.append(record)
        return record

    def read(self, batch: list[Incoming]) -> list[Violation | Command]:
        """One batch: outputs are delivered first, then the states are written."""
        folded = self.fold(batch)
        self.sent += folded.outputs
        self.dead += folded.dead_letters
        for mine, theirs in ((self.ignored, folded.ignored), (self.tolerated, folded.tolerated)):
            for why, count in theirs.items():
                mine[why] = mine.get(why, 0) + count
        self.keep(folded)
        return folded.outputs

    def keep(self, folded: Folded) -> None:
        """Write the states that a batch led to."""
        for key, state in folded.states.items():
            if state is None:
                self.stored.pop(key, None)
            else:
                self.stored[key] = encode_state(state)

    def fold(self, batch: list[Incoming]) -> Folded:
        """What the batch would lead to; nothing is written."""
        return fold(batch, self.load, self.policy, self.now)

    def load(self, key: str) -> SessionState | None:
        value = self.stored.get(key)
        return None if value is None else decode_state(value)

    def tick(self, after_ms: int = 0, **changes: Any) -> list[Violation | Command]:
        """Move the clock by ``after_ms`` and let the session's deadline be looked at."""
        self.now += after_ms
        return self.send(tick(self.now, **changes))

    def state(self, session_id: str = "s1", agent_id: str = "a1") -> SessionState:
        found = self.load(state_key(session_id, agent_id))
        assert found is not None, f"no state of {session_id}/{agent_id}"
        return found

    def incident(self, rule: str, subject: str | None = None) -> Incident:
        """The one incident of ``rule`` that is open."""
        (found,) = [item for item in self.state().incidents if item.rule == rule and (subject is None or item.subject == subject)]
        return found

    @property
    def violations(self) -> list[Violation]:
        return [item for item in self.sent if isinstance(item, Violation)]

    @property
    def commands(self) -> list[Command]:
        return [item for item in self.sent if isinstance(item, Command)]

    def told(self) -> list[str]:
        """What went out, in short: ``inversion!`` is a violation, ``halt#1`` a command with its attempt."""
        return list(short(self.sent))


def short(outputs: Iterable[Violation | Command]) -> Iterator[str]:
    """See :meth:`Monitor.told`."""
    for item in outputs:
        yield f"{item.rule}!" if isinstance(item, Violation) else f"{item.kind}#{item.attempt}"
