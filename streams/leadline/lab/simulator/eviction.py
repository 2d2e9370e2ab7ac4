"""The eviction pass: what leaves the context when it is over budget."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from leadline.lab.simulator.corpus import Floats, Ints
from leadline.lab.simulator.workingset import WorkingSet

__all__ = ["Evicted", "evict_grounded", "evict_least_salient"]


class Evicted(NamedTuple):
    """``rows`` that left; ``held_tokens``: those of spans that stay beyond the budget, for the sake of grounding alone."""

    rows: Ints
    held_tokens: int = 0


def evict_least_salient(context: WorkingSet, salience: Floats, budget: int) -> Evicted:
    """The lowest salience first, until the budget holds. Nothing else is looked at."""
    kept = context.kept()
    over = int(context.tokens[kept].sum()) - budget
    if over <= 0:
        return Evicted(np.zeros(0, np.int64))
    order = kept[np.argsort(salience[kept], kind="stable")]
    gone = order[: int(np.searchsorted(np.cumsum(context.tokens[order]), over)) + 1]
    context.retained[gone] = False
    return Evicted(gone)


def evict_grounded(context: WorkingSet, salience: Floats, budget: int, least_spans: int) -> Evicted:
    """The same order, subject to grounding: every retained summary keeps at least one reachable leaf, and at least
    ``least_spans`` spans stay.

    What salience alone would keep within the budget is kept. Spans that it would drop and grounding must hold stay on top of
    the budget: they are the price, in tokens.
    """
    kept = context.kept()
    left = int(context.tokens[kept].sum())
    if left <= budget:
        return Evicted(np.zeros(0, np.int64))
    summaries = kept[context.depth[kept] > 0]
    below = context.leaves[summaries][:, : len(context.spans)]
    column = {int(row): index for index, row in enumerate(context.spans)}
    reach = context.reach(summaries)
    stands = np.ones(len(summaries), np.bool_)
    place = {int(row): index for index, row in enumerate(summaries)}
    spans = int((context.depth[kept] == 0).sum())
    gone: list[int] = []
    held: list[int] = []
    for row in kept[np.argsort(salience[kept], kind="stable")].tolist():
        if left <= budget:
            break
        left -= int(context.tokens[row])
        if context.depth[row] == 0:
            above = below[:, column[row]]
            if spans <= least_spans or bool((reach[above & stands] == 1).any()):
                held.append(row)
                continue
            reach -= above
            spans -= 1
        else:
            stands[place[row]] = False
        gone.append(row)
    rows = np.asarray(gone, np.int64)
    context.retained[rows] = False
    context.held[:] = False
    context.held[held] = True
    return Evicted(rows, int(context.tokens[held].sum()))
