"""Generated fleets for benchmarks: the records of ``leadline.events`` as a broker would deliver them, the same for the same seed.

``quiet``       young sessions, mostly raw text, nothing wrong
``full``        long sessions whose windows are full, half of their text summaries, their sources still there: nothing wrong, yet
                every rule has something to look at
``violations``  the same, and of a hundred rounds six cross the boundary of inversion; each is halted, answers, recovers in its
                next round, is released, answers again
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Final, Literal, NamedTuple, get_args

import msgspec

from leadline.commands.fold import Incoming
from leadline.contracts import ids
from leadline.contracts.codec import encode
from leadline.contracts.events import Ack, Measures, Policy, Round, Scorer, SessionStart
from leadline.contracts.times import format_ms

__all__ = ["KINDS", "START", "Fleet", "Kind", "fleet"]

Kind = Literal["quiet", "full", "violations"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

START: Final = 1_794_472_200_000
_ROUND_MS: Final = 20_000
_WARM_ROUNDS: Final = 17
"""Rounds after which a window is full."""
_VIOLATING: Final = 0.06
_BASELINE: Final = 214
_BUDGET: Final = 180_000
_TRACED: Final = 10
"""One session in so many sends a trace context."""


class Fleet(NamedTuple):
    """``warm``: what came before; ``records``: what is measured; ``rounds``: how many of those are rounds."""

    warm: list[Incoming]
    records: list[Incoming]
    rounds: int
    violating: int


class _Session:
    """One session of one agent: what it measures, round after round."""

    def __init__(self, kind: Kind, number: int, dice: Random) -> None:
        self.kind = kind
        self.dice = dice
        self.session_id = f"session-{number:07d}"
        self.agent_id = f"agent-{number % 97}"
        self.key = self.session_id.encode()
        self.headers: list[tuple[str, bytes | None]] = [("schema", b"leadline.round/1"), ("content-type", b"application/json")]
        if number % _TRACED == 0:
            self.headers.append(("traceparent", f"00-{number + 1:032x}-{number + 1:016x}-01".encode()))
        self.round = 0
        self.ratio = dice.uniform(0.60, 0.95) if kind == "quiet" else dice.uniform(0.34, 0.48)
        self.spans = _BASELINE
        self.salience = dice.uniform(0.3, 0.5)
        self.sunk = False

    def start(self) -> SessionStart:
        return SessionStart(
            session_id=self.session_id,
            agent_id=self.agent_id,
            fleet="research",
            epoch=0,
            ts=format_ms(START),
            policy=Policy(token_budget=_BUDGET, max_depth=4, scorer=Scorer(kind="bm25"), eviction="continuous"),
            session_start_spans=_BASELINE,
        )

    def rounds(self, violate: bool, ts: str) -> Iterator[msgspec.Struct]:
        """The next round, and where it violates or recovers the agent's answer to the command that follows."""
        dice = self.dice
        self.round += 1
        before = self.spans
        total = dice.randint(150_000, 170_000)
        if violate:
            ratio, depth, spans, salience = 0.20, 3, before - 40, self.salience + 0.2
        else:
            ratio = self.ratio + dice.uniform(-0.03, 0.03)
            depth = 1 if self.kind == "quiet" else 2
            spans = self.spans + dice.randint(-2, 2) if self.kind != "quiet" else self.spans + 1
            self.spans = min(max(spans, 190), 240)
            salience = self.salience + dice.uniform(-0.02, 0.02)
        raw = int(total * ratio)
        came = dice.randint(4_000, 9_000)
        yield Round(
            session_id=self.session_id,
            agent_id=self.agent_id,
            event_id=f"{self.session_id}/0/{self.round}",
            fleet="research",
            epoch=0,
            ts=ts,
            round=self.round,
            trigger="budget",
            raw_tokens=raw,
            summary_tokens=total - raw,
            distinct_source_spans=spans,
            query_cosine_retained=round(salience, 5),
            summary_depth_max=depth,
            max_depth=4,
            session_start_spans=_BASELINE,
            token_budget=_BUDGET,
            fixed_tokens=8_000,
            before=Measures(raw_tokens=raw + came, summary_tokens=total - raw, distinct_source_spans=spans + 1),
            ungrounded_summaries=0,
        )
        if violate:
            self.opened = ids.incident_id(self.session_id, self.agent_id, 0, "inversion", "", f"r{self.round}")
            yield self._answer("halt")
        elif self.sunk:
            yield self._answer("resume")
        self.sunk = violate

    def _answer(self, kind: str) -> Ack:
        command = ids.command_id(self.opened, kind, 1)
        return Ack(session_id=self.session_id, agent_id=self.agent_id, epoch=0, command_id=command, seq=1, outcome="accepted")


def fleet(kind: Kind, sessions: int, rounds: int, seed: int = 1) -> Fleet:
    """``rounds`` of each of ``sessions``, in turn; violating rounds are spread over sessions and time."""
    dice = Random(f"{seed}/{kind}")
    lives = [_Session(kind, number, dice) for number in range(sessions)]
    warm: list[Incoming] = []
    measured: list[Incoming] = []
    found = violating = offset = 0
    for step in range(-_WARM_ROUNDS if kind != "quiet" else -1, rounds):
        now = START + (step + _WARM_ROUNDS + 1) * _ROUND_MS
        into = warm if step < 0 else measured
        for life in lives:
            events: list[msgspec.Struct] = [life.start()] if life.round == 0 and step < 0 else []
            if kind != "quiet" or step >= 0:
                violate = kind == "violations" and step >= 0 and not life.sunk and dice.random() < _VIOLATING
                violating += violate
                found += step >= 0
                events += life.rounds(violate, format_ms(now + dice.randint(-900, 0)))
            for event in events:
                into.append(Incoming(life.key, encode(event), 0, offset, now, life.headers))
                offset += 1
    return Fleet(warm, measured, found, violating)
