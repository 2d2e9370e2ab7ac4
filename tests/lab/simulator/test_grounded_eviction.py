"""The SDK's eviction planner in the simulated loop: what the founding document's session loses without it, it keeps."""

from __future__ import annotations

import numpy as np
import pytest

from leadline.agent import GroundedEviction, Ledger
from leadline.lab.simulator.eviction import Evicted
from leadline.lab.simulator.loop import Loop, run
from leadline.lab.simulator.settings import LoopSettings


class Planned(Loop):
    """Its eviction pass is planned by the SDK on a ledger that holds what the context holds."""

    held_tokens = 0

    def _evict(self) -> Evicted:
        context, salience = self.context, self.salience()
        ledger = Ledger()
        for row in range(context.count):
            tokens, score = int(context.tokens[row]), float(salience[row])
            if context.depth[row] == 0:
                ledger.add_raw(f"r{row}", tokens, score)
            else:
                ledger.summarize(f"r{row}", [f"r{child}" for child in context.children[row]], tokens, score)
        ledger.evict([f"r{row}" for row in np.flatnonzero(~context.retained[: context.count])])
        assert ledger.measure().distinct_source_spans == self.measure().distinct_source_spans
        plan = GroundedEviction().plan(ledger, self.settings.token_budget, self.start_spans)
        assert plan.fits
        rows = np.array([int(name[1:]) for name in plan.evict], np.int64)
        context.retained[rows] = False
        self.held_tokens += plan.held_tokens
        return Evicted(rows, plan.held_tokens)


@pytest.mark.parametrize("seed", [1, 2])
def test_no_claim_is_unsupported_and_the_budget_and_the_floor_hold_in_every_round(seed: int) -> None:
    """The document's session of 40 rounds: by salience alone claims rest on nothing at the end; planned, none does, for a price
    in tokens that is told."""
    settings = LoopSettings()
    _, plain = run(settings, seed)
    assert plain.unsupported > 0
    loop = Planned(settings, seed)
    floor = int(0.2 * loop.start_spans)
    for _ in range(settings.rounds):
        after = loop.step().after
        assert after.ungrounded_summaries == 0
        assert after.total_tokens <= settings.token_budget
        assert after.distinct_source_spans >= floor
    assert loop.answer().unsupported == 0
    assert loop.held_tokens > 0
