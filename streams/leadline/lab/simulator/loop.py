"""The loop itself: read, summarize, evict, round after round, from one seed."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from leadline.lab.simulator.corpus import Floats, draw_spans, draw_tokens, first_corpus, topic_directions
from leadline.lab.simulator.eviction import Evicted, evict_grounded, evict_least_salient
from leadline.lab.simulator.scorer import salience
from leadline.lab.simulator.settings import LoopSettings
from leadline.lab.simulator.summarizer import first_pass, write_summaries
from leadline.lab.simulator.workingset import Measure, WorkingSet

__all__ = ["Answer", "Loop", "Pass", "onset", "run"]


class Pass(NamedTuple):
    """One compaction round. ``held_tokens``: spans kept beyond the budget for the sake of grounding alone."""

    round: int
    before: Measure
    after: Measure
    dropped_spans: int
    held_tokens: int = 0


class Answer(NamedTuple):
    """The session's final answer: one claim for each of its most salient items.

    A claim is ``unsupported`` when it rests on a summary of which no leaf can be produced any more. This is the simulator's
    ground truth: no rule of Leadline has a part in it.
    """

    claims: int
    unsupported: int


class Loop:
    """One session. Deterministic: the same settings and seed make the same rounds."""

    def __init__(self, settings: LoopSettings, seed: int) -> None:
        self.settings = settings
        self.context = WorkingSet(settings.dimensions, settings.archived)
        self.round = 0
        self.depth_limit = settings.max_depth
        self._rng = np.random.default_rng(seed)
        self._directions = topic_directions(self._rng, settings)
        spans, ages = first_corpus(self._rng, settings, self._directions)
        self.context.add_spans(spans, -ages)
        self.start_spans = len(spans.tokens)
        self._pinned = 0

    def salience(self) -> Floats:
        """By row, now."""
        return salience(self.context, self.round, self.settings)

    def measure(self) -> Measure:
        return self.context.measure(self.salience())

    def step(self) -> Pass:
        """The next round: what is read, the summarizer's calls, the eviction pass."""
        self.round += 1
        self.read()
        if self.round == 1:
            first_pass(self.context, self.round, self.settings)
        else:
            write_summaries(self.context, self.salience(), self.round, self.depth_limit, self._rng, self.settings)
        before = self.measure()
        evicted = self._evict()
        after = self.measure()
        self._guard(after)
        dropped = int((self.context.depth[evicted.rows] == 0).sum())
        return Pass(self.round, before, after, dropped, evicted.held_tokens)

    def read(self) -> None:
        """What the session reads in this round, after its first compaction."""
        count = int(self._rng.poisson(self.settings.arrivals)) if self.round > 1 and self.settings.arrivals else 0
        if count:
            spans = draw_spans(self._rng, self.settings, self._directions, draw_tokens(self._rng, self.settings, count))
            self.context.add_spans(spans, np.full(count, self.round))

    def answer(self) -> Answer:
        """Answer from the most salient items of the context as it stands."""
        kept = self.context.kept()
        best = kept[np.argsort(-self.salience()[kept], kind="stable")][: self.settings.answer_items]
        summaries = best[self.context.depth[best] > 0]
        return Answer(len(best), int((self.context.reach(summaries) == 0).sum()))

    def _evict(self) -> Evicted:
        settings = self.settings
        if not settings.grounding:
            return evict_least_salient(self.context, self.salience(), settings.token_budget)
        # The hierarchy is no deeper than the guard allows.
        deep = self.context.depth[: self.context.count] > self.depth_limit
        self.context.retained[: self.context.count][deep] = False
        least = max(1, int(settings.span_floor * self.start_spans))
        return evict_grounded(self.context, self.salience(), settings.token_budget, least)

    def _guard(self, after: Measure) -> None:
        """With grounding enforced: a hierarchy pinned at its limit is capped (salience-inversion document, Decision Boundary)."""
        if not self.settings.grounding:
            return
        self._pinned = self._pinned + 1 if after.summary_depth_max >= max(2, self.settings.max_depth) else 0
        if self._pinned > self.settings.guard_pin_rounds:
            self.depth_limit = min(self.depth_limit, self.settings.guard_depth)


def run(settings: LoopSettings, seed: int) -> tuple[list[Pass], Answer]:
    """A whole session."""
    loop = Loop(settings, seed)
    passes = [loop.step() for _ in range(settings.rounds)]
    return passes, loop.answer()


def onset(passes: list[Pass]) -> int | None:
    """The first round at which summary tokens exceed raw tokens while source spans fall; ``None`` if there is none."""
    for earlier, later in pairwise(passes):
        now = later.after
        if now.summary_tokens > now.raw_tokens and now.distinct_source_spans < earlier.after.distinct_source_spans:
            return later.round
    return None
