"""Who triggers a summary, and of what.

The first compaction summarizes everything that was read, topic by topic. After it, every round brings a fixed number of calls a
level. A call is given the items of its level that stand nearest to eviction: the least salient one and its nearest in rank of
the same topic (``pick="endangered"``; the runtime saves what it is about to lose). A summary of level 3 is written once enough
level-2 summaries have gathered. Children are not replaced: they compete with their summary for the budget.
"""

from __future__ import annotations

import numpy as np

from leadline.lab.simulator.corpus import Floats, Generator, Ints
from leadline.lab.simulator.settings import LoopSettings, Pick
from leadline.lab.simulator.workingset import Bools, WorkingSet

__all__ = ["first_pass", "write_summaries"]


def first_pass(context: WorkingSet, now: int, settings: LoopSettings) -> None:
    """All raw spans into level-1 summaries, topic by topic in the order of reading."""
    kept = context.kept()
    for topic in range(settings.topics):
        rows = kept[context.topic[kept] == topic]
        size = settings.group_sizes[0]
        for start in range(0, len(rows), size):
            _write(context, rows[start : start + size], now, settings)


def write_summaries(
    context: WorkingSet, salience: Floats, now: int, depth_limit: int, rng: Generator, settings: LoopSettings
) -> None:
    """One round's calls. ``salience`` by row, before anything was written in this round."""
    fresh_from = context.count
    used = np.zeros(fresh_from, np.bool_)
    for level, calls in enumerate(settings.calls[: max(0, depth_limit)]):
        pick = settings.picks[min(level, len(settings.picks) - 1)]
        for _ in range(calls):
            group = _group(context, salience, level, pick, fresh_from, used, rng, settings)
            if group is None:
                break
            used[group[group < fresh_from]] = True
            _write(context, group, now, settings)


def _group(
    context: WorkingSet,
    salience: Floats,
    level: int,
    pick: Pick,
    fresh_from: int,
    used: Bools,
    rng: Generator,
    settings: LoopSettings,
) -> Ints | None:
    """The items for one call at ``level``, or ``None`` where there is nothing to summarize."""
    size = settings.group_sizes[level]
    rows = np.arange(context.count)[context.retained[: context.count]]
    rows = rows[context.depth[rows] == level]
    if pick == "gathered":
        # A new group of items that no summary holds yet; it may span topics.
        rows = rows[~context.merged[rows]]
        return rows[:size] if len(rows) >= size else None
    rows = rows[rows < fresh_from]
    rows = rows[~used[rows]]
    if not len(rows):
        return None
    if pick == "endangered":
        # What grounding holds is in no danger.
        free = rows[~context.held[rows]]
        rows = free if len(free) else rows
        rows = rows[np.argsort(salience[rows], kind="stable")]
    elif pick == "oldest":
        rows = rows[np.argsort(context.born[rows], kind="stable")]
    else:
        rows = rng.permutation(rows)
    same: Ints = rows[context.topic[rows] == context.topic[rows[0]]][:size]
    return same


def _write(context: WorkingSet, group: Ints, now: int, settings: LoopSettings) -> None:
    level = int(context.depth[group].max())
    cap = settings.output_caps[level]
    context.add_summary(group, max(1, min(cap, int(context.tokens[group].sum() * settings.compression))), now)
