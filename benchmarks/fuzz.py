"""Generated event sequences through the monitor's fold, with the invariants checked after each event.

::

    python -m benchmarks.fuzz --sequences 1000000 --seed 1 --workers 2 --json

A sequence is one session's life, made by a seeded dice: rounds, summarizer calls, answers to the commands that it got, restarts,
silence, garbage. The same seed makes the same sequences. Exits with 1 at the first broken invariant, naming the sequence's seed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from random import Random
from typing import Any, NamedTuple

from leadline.commands.fold import Incoming, fold
from leadline.contracts import limits
from leadline.contracts.codec import encode
from leadline.contracts.events import (
    Ack,
    Checkpoint,
    DeclaredDrop,
    Fact,
    FactStatus,
    Measures,
    Policy,
    Round,
    Scorer,
    SessionEnd,
    SessionStart,
    Summary,
)
from leadline.contracts.orders import Command, Tick, Violation
from leadline.contracts.session_state import SessionState, decode_state, encode_state
from leadline.contracts.times import format_ms
from leadline.detection.policy import FleetPolicy
from leadline.detection.policy import Policy as Rules

__all__ = ["Broken", "Tally", "run", "sequence"]

MAX_STATE_BYTES = 900_000
MAX_OUTPUT_BYTES = 200_000
LENGTHS = (4, 8, 16, 40)
_SELDOM = 5
"""The costliest checks are made on every fifth event."""
_START = 1_800_000_000_000
_KEY = b"s"
_GARBAGE = (b"", b"null", b"[]", b"{}", b"\xff", b'{"schema":"leadline.round/9"}', b"[" * 999)
_POLICIES = (
    Rules(),
    Rules(
        version="strict",
        default=FleetPolicy(
            pin_rounds=1, attempts=1, effect_rounds=1, good_rounds=1, stall_rounds=1, stall_halt_rounds=1, silence_ms=30_000
        ),
    ),
    Rules(version="quiet", default=FleetPolicy(modes={"inversion": "shadow", "budget-open": "warn", "unobserved": "off"})),
)
_NAMES = tuple(f"C{n}" for n in range(6))


class Broken(AssertionError):
    """An invariant does not hold."""


class Tally(NamedTuple):
    """What was seen: events, violations by rule, commands by kind, the largest state in bytes."""

    sequences: int
    events: int
    rules: Counter[str]
    commands: Counter[str]
    largest_state: int

    def plus(self, other: Tally) -> Tally:
        return Tally(
            self.sequences + other.sequences,
            self.events + other.events,
            self.rules + other.rules,
            self.commands + other.commands,
            max(self.largest_state, other.largest_state),
        )


def _held(condition: bool, what: str) -> None:
    if not condition:
        raise Broken(what)


class _Life:
    """One session: what it sends, what it is told, and what must hold."""

    def __init__(self, dice: Random) -> None:
        self.dice = dice
        self.policies = [dice.choice(_POLICIES), dice.choice(_POLICIES)]
        self.now = _START
        self.offset = 0
        self.epoch = 0
        self.round = 0
        self.raw, self.summary, self.spans, self.salience = dice.randint(0, 90_000), dice.randint(0, 90_000), 214, 0.4
        self.trend = dice.choice((0.9, 0.97, 1.0, 1.03))
        self.told: list[Command] = []
        self.state: SessionState | None = None
        self.lives = 0
        self.violations: set[str] = set()
        self.incidents: set[str] = set()
        self.commands: set[str] = set()
        self.seq = 0
        self.rules: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()
        self.largest = 0

    def live(self, events: int) -> None:
        for _ in range(events):
            value = self.make()
            repeats = 2 if self.dice.random() < 0.03 else 1
            for _ in range(repeats):
                self.read(value)

    def make(self) -> bytes | None:
        dice, roll = self.dice, self.dice.random()
        self.now += dice.choice((0, 200, 5_000, 20_000, 20_000, 70_000))
        if roll < 0.55:
            return encode(self.compaction())
        if roll < 0.75:
            return encode(self.call())
        if roll < 0.85 and self.told:
            return encode(self.answer())
        if roll < 0.93:
            self.now += dice.choice((0, 60_000, 400_000, 2_000_000, 800_000_000))
            due = format_ms(self.now)
            return encode(Tick(session_id="s", agent_id="a", due_at=due))
        if roll < 0.96:
            return encode(self.begin())
        if roll < 0.97:
            return encode(SessionEnd(session_id="s", agent_id="a", epoch=self.epoch))
        return dice.choice((None, *_GARBAGE))

    def begin(self) -> SessionStart:
        dice = self.dice
        if dice.random() < 0.4:
            self.epoch = max(0, self.epoch + dice.choice((1, 1, 1, -1)))
            self.round = 0
        facts = [
            Fact(
                fact_id=name,
                fact_class=dice.choice(("", "task", "constraint")),
                recall_floor=dice.choice((None, 0.0, 0.5, 1.0)),
                supersedes=dice.choice(("", "", "C1")),
            )
            for name in dice.sample(_NAMES, dice.randint(0, 6))
        ]
        policy = Policy(
            scorer=Scorer(penalizes_depth=dice.choice((None, True, False))),
            eviction=dice.choice((None, "continuous", "overflow")),
        )
        return SessionStart(
            session_id="s",
            agent_id="a",
            epoch=dice.choice((None, self.epoch)),
            policy=policy,
            session_start_spans=dice.choice((None, 0, 214)),
            facts=facts,
        )

    def compaction(self) -> Round:
        dice = self.dice
        step = dice.random()
        if step < 0.85:
            self.round += 1
        elif step < 0.92:
            self.round += dice.randint(2, 80)
        number = self.round if step < 0.96 else max(0, self.round - dice.randint(0, 70))
        before = Measures(
            raw_tokens=self.raw,
            summary_tokens=self.summary,
            distinct_source_spans=self.spans,
            query_cosine_retained=self.salience,
        )
        shake = dice.uniform(0.9, 1.1) if dice.random() < 0.7 else dice.choice((0.0, 1.0, 3.0))
        self.raw = min(10**12, int(self.raw * self.trend * shake) + dice.choice((0, 0, 1, 500)))
        self.summary = min(10**12, int(self.summary * dice.uniform(0.95, 1.1)) + dice.choice((0, 0, 400)))
        self.spans = min(10**9, max(0, int(self.spans * self.trend) + dice.randint(-3, 3)))
        self.salience = self.salience + dice.uniform(-0.01, 0.03)
        depth = dice.choice((0, 1, 2, 2, 3, 3, 3, 9))
        listed = [
            Summary(
                id=f"n{n}", depth=dice.randint(0, 4), tokens=9, fan_out=dice.randint(0, 9), reachable=dice.choice((None, 0, 3))
            )
            for n in range(dice.choice((0, 0, 3, 40)))
        ]
        return Round(
            session_id="s",
            agent_id="a",
            event_id=f"r{number}",
            fleet="f",
            epoch=self.epoch,
            ts=dice.choice(("", format_ms(self.now), "1700000000", "yesterday")),
            round=number,
            trigger=dice.choice(("budget", "budget", "rehydrate", "hold")),
            raw_tokens=self.raw,
            summary_tokens=self.summary,
            distinct_source_spans=self.spans,
            query_cosine_retained=dice.choice((self.salience, self.salience, self.salience, None)),
            summary_depth_max=depth,
            max_depth=dice.choice((0, 3, 3, 3)),
            session_start_spans=214,
            token_budget=dice.choice((0, 90_000, 180_000)),
            fixed_tokens=dice.choice((None, 0, 20_000, 200_000)),
            before=dice.choice((None, before)),
            dropped_spans=dice.choice((None, 0, 5)),
            ungrounded_summaries=dice.choice((None, 0, 0, 1)),
            outcome=dice.choice(("ok", "ok", "ok", "ok", "failed", "skipped")),
            summaries=listed or None,
        )

    def call(self) -> Checkpoint:
        dice = self.dice
        declared = dice.choice((None, 0, 8_000, 1_751_400))
        facts = [
            FactStatus(fact_id=name, status=dice.choice(("verbatim", "abstracted", "absent", "unknown")), fact_class="task")
            for name in dice.sample(_NAMES, dice.randint(0, 6))
        ]
        retry = [command.command_id for command in self.told[-3:] if command.kind == "retry-level"]
        return Checkpoint(
            session_id="s",
            agent_id="a",
            epoch=dice.choice((None, self.epoch)),
            event_id=dice.choice(("", f"c{dice.randint(0, 30)}")),
            level=dice.choice((0, 1, 1, 2, 2, 3, dice.randint(0, 1000))),
            round=dice.choice((None, self.round)),
            budget_tokens=dice.choice((None, 512, 4_096)),
            declared_input_tokens=declared,
            consumed_input_tokens=dice.choice((None, declared, declared, 7_000)),
            source_spans=dice.choice((None, 40)),
            seen_spans=dice.choice((None, 40, 40, 39, 41)),
            unseen_span_ids=dice.choice((None, None, [], ["m1", "m2"])),
            output_tokens=dice.choice((None, 0, 5, 512, 512, dice.randint(1, 5_000))),
            output_cap=dice.choice((None, 512)),
            stop_reason=dice.choice((None, None, "stop", "length", "error")),
            declared_drops=[DeclaredDrop(fact_id=name) for name in dice.sample(_NAMES, dice.choice((0, 0, 1)))],
            facts=dice.choice((None, facts, facts)),
            input_facts=dice.choice((None, None, list(_NAMES[:3]))),
            summary_visible=dice.random() < 0.9,
            retry_of=dice.choice(retry or [""]),
        )

    def answer(self) -> Ack:
        command = self.dice.choice(self.told[-6:])
        return Ack(
            session_id="s",
            agent_id="a",
            epoch=self.dice.choice((None, self.epoch)),
            command_id=self.dice.choice((command.command_id, command.command_id, command.command_id, "nobody's")),
            seq=command.seq,
            outcome=self.dice.choice(("accepted", "done", "done", "refused", "expired")),
        )

    def read(self, value: bytes | None) -> None:
        """Fold one record on the state as it is stored, and check what must hold."""
        self.offset += 1
        stored = self.state
        policy = self.policies[self.offset % 61 > 30]
        record = Incoming(_KEY, value, 0, self.offset, self.now)
        kept = None if stored is None or self.offset % _SELDOM else encode_state(stored)
        folded = fold([record], lambda _key: stored, policy, self.now)
        _held(
            kept is None or stored is None or encode_state(stored) == kept, "a state that was handed out for reading is changed"
        )
        asked = fold([record], lambda _key: stored, policy, self.now, explain=True)
        _held(folded.outputs == asked.outputs, "with every rule asked something else is sent")
        _held(not folded.failures and not asked.failures, f"a rule raised: {folded.failures or asked.failures}")
        _held(folded == asked, "with every rule asked something else is remembered")
        for output in folded.outputs:
            self.check_output(output, policy.version)
        for state in folded.states.values():
            if state is None:
                # Forgotten: should it come back, its ids may too.
                self.state, self.seq = None, 0
                self.violations, self.incidents, self.commands, self.told = set(), set(), set(), []
            else:
                self.state = state if self.offset % _SELDOM else self.check_bytes(state)
                self.check_state(state)
        if self.offset % _SELDOM == 0:
            again = fold([record], self.load, policy, self.now)
            _held(not again.outputs, "a record applied twice sends something")

    def load(self, _key: str) -> SessionState | None:
        return SessionState("s", "a", offset=self.offset) if self.state is None else self.state

    def check_output(self, output: Violation | Command, version: str) -> None:
        _held(len(encode(output)) <= MAX_OUTPUT_BYTES, "an output outgrows its bound")
        _held(output.policy == version, "an output does not name its policy")
        if isinstance(output, Violation):
            self.rules[output.rule] += 1
            _held(output.violation_id not in self.violations, f"{output.rule}: two violations of one id")
            _held(output.incident_id not in self.incidents, f"{output.rule}: two violations of one incident")
            self.violations.add(output.violation_id)
            self.incidents.add(output.incident_id)
            return
        self.kinds[output.kind] += 1
        _held(output.command_id not in self.commands, f"{output.rule}: {output.kind} twice under one id")
        _held(output.seq == self.seq + 1, f"seq {output.seq} after {self.seq}")
        _held(output.incident_id in self.incidents or output.rule == "unheeded", "a command without a violation")
        _held(output.kind != "resume" or output.parameters.releases in self.commands, "a resume of nothing")
        self.commands.add(output.command_id)
        self.seq = output.seq
        self.told.append(output)

    def check_bytes(self, state: SessionState) -> SessionState:
        """The state as it is read back after a restart."""
        value = encode_state(state)
        self.largest = max(self.largest, len(value))
        _held(len(value) <= MAX_STATE_BYTES, "a state outgrows its bound")
        again = decode_state(value)
        _held(again == state, "a state is not read back as it was written")
        return again

    def check_state(self, state: SessionState) -> None:
        _held(len(state.window) <= limits.WINDOW_ROUNDS, "the window outgrows its bound")
        rounds = [entry.round for entry in state.window]
        _held(rounds == sorted(set(rounds)), "the window is out of order")
        _held(len(state.facts) <= limits.MAX_KEPT_FACTS, "the facts outgrow their bound")
        opened = [item for item in state.incidents if item.rule != "unheeded"]
        _held(len(opened) <= limits.MAX_OPEN_INCIDENTS, "the incidents outgrow their bound")
        standing = [(item.rule, item.subject) for item in state.incidents if not item.releasing]
        _held(len(standing) == len(set(standing)), "two incidents of one trouble stand at once")
        _held(state.next_seq == self.seq + 1, "the state and the commands count differently")
        _held(state.deadline is not None, "a session without a deadline")


def sequence(seed: str, lengths: Sequence[int] = LENGTHS) -> Tally:
    """One generated sequence, of one of ``lengths`` events. Raises :class:`Broken` with what did not hold, or what was raised."""
    dice = Random(seed)
    life = _Life(dice)
    try:
        life.live(dice.choice(lengths))
        if life.state is not None:
            life.check_bytes(life.state)
    except Exception as error:
        raise Broken(f"sequence {seed!r}, event {life.offset}: {type(error).__name__}: {error}") from error
    return Tally(1, life.offset, life.rules, life.kinds, life.largest)


def run(first: int, count: int, seed: int, lengths: Sequence[int] = LENGTHS) -> Tally:
    total = Tally(0, 0, Counter(), Counter(), 0)
    for number in range(first, first + count):
        total = total.plus(sequence(f"{seed}/{number}", lengths))
    return total


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fuzz", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sequences", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lengths", type=int, nargs="+", default=list(LENGTHS), help="events in a sequence, one of these")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    begun = time.perf_counter()
    share = min(1_000, max(1, given.sequences // max(1, given.workers)))
    parts = [(first, min(share, given.sequences - first)) for first in range(0, given.sequences, share)]
    total = Tally(0, 0, Counter(), Counter(), 0)
    try:
        with ProcessPoolExecutor(given.workers) as pool:
            for done in pool.map(run, *zip(*((first, count, given.seed, given.lengths) for first, count in parts), strict=True)):
                total = total.plus(done)
    except Broken as error:
        sys.stderr.write(f"broken: {error}\n")
        return 1
    shown: dict[str, Any] = {
        "sequences": total.sequences,
        "events": total.events,
        "seed": given.seed,
        "lengths": given.lengths,
        "seconds": round(time.perf_counter() - begun, 1),
        "largest_state_bytes": total.largest_state,
        "violations": dict(sorted(total.rules.items())),
        "commands": dict(sorted(total.commands.items())),
        "broken": 0,
    }
    if given.json:
        sys.stdout.write(json.dumps(shown, indent=2) + "\n")
    else:
        sys.stdout.write("\n".join(f"{name}: {value}" for name, value in shown.items()) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
