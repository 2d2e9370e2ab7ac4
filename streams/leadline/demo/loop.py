"""A compaction loop: spans come in, old ones are summarized, summaries are summarized again, the least salient leave.

Pure and seeded: no clock, no I/O. What it reports is measured by the SDK's :class:`~leadline.agent.ledger.Ledger`; what makes
one agent's numbers worse than another's is its :class:`~leadline.demo.kinds.Mechanism` and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final, NamedTuple

from leadline.agent.facts import assess
from leadline.agent.ledger import Ledger
from leadline.agent.signals import Signals
from leadline.contracts.events import FactState, RoundOutcome
from leadline.demo.kinds import Mechanism
from leadline.demo.material import FACTS, PARAPHRASES, Item, World, combine, cosine

__all__ = ["Call", "CompactionLoop", "Guards", "Pass"]

_REMEMBERED_CALLS: Final = 64
_SETTLED_AFTER: Final = 2
"""Rounds after which a raw span is old enough to be summarized."""
_HALF_LIFE: Final = 8.0
"""Rounds in which recency halves."""
_LEAST_SUMMARY: Final = 40
_LOW_WATER: Final = 0.92
"""How much of the budget a pass leaves filled."""


@dataclass(slots=True)
class Call:
    """One summarizer call: its input, how much of it was read, and the summary."""

    level: int
    inputs: tuple[Item, ...]
    output: Item
    declared_tokens: int
    consumed_tokens: int
    source_spans: int
    seen_spans: int
    facts: dict[str, FactState]
    """Of the facts that stand in the input: what became of each in the summary's text."""

    @property
    def whole(self) -> bool:
        return self.consumed_tokens == self.declared_tokens

    @property
    def lost(self) -> set[str]:
        """Facts that stood in the input and not in the summary."""
        return {fact_id for fact_id, status in self.facts.items() if status == "absent"}


class Pass(NamedTuple):
    """One round's work. ``before``: measured once everything had come in, before anything was compacted."""

    outcome: RoundOutcome
    before: Signals
    calls: tuple[Call, ...] = ()


@dataclass(slots=True)
class Guards:
    """What the eviction pass and the summarizer must respect now: at first the mechanism's own, later also what was commanded."""

    raw_floor: float
    span_floor: int
    merge_depth: int
    citations: int | None
    archive_tokens: int | None
    whole_levels: frozenset[int] = frozenset()
    """Levels at which an input that does not fit one call is split."""
    pinned_facts: frozenset[str] = frozenset()
    """Facts that every summary of a text that states them must state."""


class CompactionLoop:
    """One agent's context. ``ledger`` may be the one of an SDK session."""

    def __init__(self, mechanism: Mechanism, seed: int, ledger: Ledger | None = None) -> None:
        self.mechanism = mechanism
        self.ledger = Ledger() if ledger is None else ledger
        self.random = Random(seed)
        self.world = World(self.random)
        self.round = 0
        self.guards = Guards(
            mechanism.raw_floor,
            int(mechanism.span_floor * mechanism.start_spans),
            mechanism.merge_depth,
            mechanism.citations,
            mechanism.archive_tokens,
        )
        self.items: dict[str, Item] = {}
        """The working set."""
        self.archive: dict[str, Item] = {}
        """Raw spans that left it and whose text can still be produced, oldest first."""
        self.calls: list[Call] = []
        self._summaries = 0
        for number in range(mechanism.start_spans):
            notes = ((FACTS[number].fact_id, FACTS[number].text),) if number < len(FACTS) else ()
            self._enter(self.world.span(mechanism.start_tokens, 0, notes))

    # -- a round

    def step(self) -> Pass:
        """Take in what came; when it is more than the budget, summarize and evict down to the low water mark."""
        self.round += 1
        self._arrive()
        self._score()
        before = self.ledger.measure()
        if self.total_tokens <= self.mechanism.token_budget:
            return Pass("skipped", before)
        if self.random.random() < self.mechanism.failure:
            return Pass("failed", before)
        calls = self._summarize()
        self._evict()
        while self.total_tokens > self._low_water and (more := self._summarize(urgent=True)):
            calls += more
            self._evict()
        self._purge()
        return Pass("ok", before, tuple(calls))

    def hold(self) -> Pass:
        """A round without compaction. Nothing comes in: the task waits."""
        self.round += 1
        self._score()
        return Pass("skipped", self.ledger.measure())

    @property
    def total_tokens(self) -> int:
        return sum(item.tokens for item in self.items.values())

    @property
    def _raw_tokens(self) -> int:
        return sum(item.tokens for item in self.items.values() if item.depth == 0)

    def _arrive(self) -> None:
        count = self.random.randint(*self.mechanism.arrivals)
        if self.random.random() < self.mechanism.burst:
            count *= 3
        for _ in range(count):
            self._enter(self.world.span(self.mechanism.arrival_tokens, self.round))

    def _enter(self, item: Item) -> None:
        self.items[item.id] = item
        self.ledger.add_raw(item.id, item.tokens, self.salience(item))

    def salience(self, item: Item) -> float:
        """Cosine to the task query, and recency."""
        recency: float = 0.5 ** ((self.round - item.born) / _HALF_LIFE)
        return item.cosine + self.mechanism.decay * recency

    def _score(self) -> None:
        noise = self.mechanism.scorer_noise
        self.ledger.rescore(
            {item.id: self.salience(item) + (self.random.gauss(0.0, noise) if noise else 0.0) for item in self.items.values()}
        )

    # -- summarizing

    def _summarize(self, urgent: bool = False) -> list[Call]:
        """At most one summary of each depth. ``urgent``: nothing may leave, so also from less than there usually is."""
        calls: list[Call] = []
        for depth in range(self.guards.merge_depth):
            wanted = self.mechanism.fan_in if depth == 0 else self.mechanism.merge_fan_in
            found = self._uncovered(depth, 0 if depth or urgent else _SETTLED_AFTER)[:wanted]
            if len(found) == wanted or (urgent and len(found) > 1 and not calls):
                calls += self.summarize(depth + 1, found)
                if depth and self.mechanism.merge_replaces:
                    self.remove(found)
        return calls

    def _uncovered(self, depth: int, age: int) -> list[Item]:
        latest = self.round - age
        return [item for item in self.items.values() if item.depth == depth and not item.covered and item.born <= latest]

    def summarize(self, level: int, inputs: list[Item]) -> list[Call]:
        """One summarizer call, or several where the input does not fit one and must be read whole."""
        cap = self.mechanism.input_cap
        if cap is None or level not in self.guards.whole_levels:
            return [self._call(level, inputs)]
        calls: list[Call] = []
        part: list[Item] = []
        for item in inputs:
            if part and sum(each.tokens for each in part) + item.tokens > cap:
                calls.append(self._call(level, part))
                part = []
            part.append(item)
        return [*calls, self._call(level, part)]

    def _call(self, level: int, inputs: list[Item]) -> Call:
        """The summarizer itself: it reads its input from the head, as far as its cap goes."""
        cap = self.mechanism.input_cap
        seen, consumed = list(inputs), sum(item.tokens for item in inputs)
        declared = consumed
        while cap is not None and consumed > cap and len(seen) > 1:
            consumed -= seen.pop().tokens
        notes = self._notes(level, seen)
        vector = combine(item.vector for item in seen)
        self._summaries += 1
        output = Item(
            f"m{self._summaries}",
            max(_LEAST_SUMMARY, min(self.mechanism.summary_cap, int(consumed * self.mechanism.compression))),
            vector,
            cosine(vector, self.world.query),
            self.round,
            depth=1 + max(item.depth for item in seen),
            notes=notes,
        )
        self.items[output.id] = output
        self.ledger.summarize(output.id, [item.id for item in self._cited(seen)], output.tokens, self.salience(output))
        for item in inputs:
            item.covered = True
        stated = dict(note for item in inputs for note in item.notes)
        facts = {fact.fact_id: assess(fact, output.text) for fact in FACTS if fact.fact_id in stated}
        call = Call(level, tuple(inputs), output, declared, consumed, self._leaves(inputs), self._leaves(seen), facts)
        self.calls = [*self.calls, call][-_REMEMBERED_CALLS:]
        return call

    def _notes(self, level: int, seen: list[Item]) -> tuple[tuple[str, str], ...]:
        """The facts that the summary states: word for word at level 1, in other words above."""
        stated = dict(note for item in seen for note in item.notes)
        pinned = self.guards.pinned_facts
        slots = dict(self.mechanism.note_slots).get(level, len(stated))
        chosen = [name for name in stated if name not in pinned][:slots]
        kept = [name for name in stated if name in pinned or name in chosen]
        return tuple((name, stated[name] if level == 1 else PARAPHRASES[name]) for name in kept)

    def _cited(self, seen: list[Item]) -> list[Item]:
        if self.guards.citations is None:
            return seen
        return sorted(seen, key=lambda item: -item.cosine)[: self.guards.citations]

    def _leaves(self, items: list[Item]) -> int:
        """Distinct spans at or below these."""
        found: set[str] = set()
        for item in items:
            found.update((item.id,) if item.depth == 0 else self.ledger.leaves(item.id))
        return len(found)

    # -- evicting

    @property
    def _low_water(self) -> int:
        return int(self.mechanism.token_budget * _LOW_WATER)

    def _evict(self) -> None:
        """Remove the least salient until the low water mark, and summaries until enough is raw."""
        while (full := self.total_tokens > self._low_water) or self._raw_tokens < self.guards.raw_floor * self.total_tokens:
            ranked = sorted(self.items.values(), key=lambda item: (self.salience(item), item.id))
            chosen = next((item for item in ranked if (full or item.depth) and self._may_leave(item)), None)
            if chosen is None:
                return
            self.remove([chosen])

    def _may_leave(self, item: Item) -> bool:
        guards = self.guards
        if self.mechanism.keep_summaries and (item.depth or not item.covered):
            return False
        if item.depth == 0 and guards.raw_floor:
            rest = self.total_tokens - item.tokens
            if self._raw_tokens - item.tokens < guards.raw_floor * rest:
                return False
        if guards.span_floor:
            # A raw span that leaves goes to the archive: it stays reachable where a retained summary points at it.
            return self.ledger.spans_if([item.id], ()) >= guards.span_floor
        return True

    def remove(self, items: list[Item]) -> None:
        """Out of the working set; raw text goes to the archive."""
        for item in items:
            self.drop(item.id)
            self.ledger.evict([item.id], archived=True)

    def drop(self, item_id: str) -> None:
        """As :meth:`remove`, where the ledger knows already."""
        item = self.items.pop(item_id)
        if item.depth == 0:
            self.archive[item.id] = item

    def _purge(self) -> None:
        """Drop the oldest text from an archive that is over its size."""
        limit = self.guards.archive_tokens
        if limit is None:
            return
        held = sum(item.tokens for item in self.archive.values())
        while held > limit:
            oldest = next(iter(self.archive.values()))
            del self.archive[oldest.id]
            held -= oldest.tokens
            self.ledger.evict([oldest.id], archived=False)
