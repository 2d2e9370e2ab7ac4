"""Salience: what the eviction pass ranks by."""

from __future__ import annotations

import numpy as np

from leadline.lab.simulator.corpus import Floats
from leadline.lab.simulator.settings import LoopSettings
from leadline.lab.simulator.workingset import WorkingSet

__all__ = ["salience"]


def salience(context: WorkingSet, now: int, settings: LoopSettings) -> Floats:
    """By row: cosine to the task query, plus a recency bonus that halves every ``decay_half_life`` rounds.

    ``depth_penalty`` is taken off for each level of summary: the scorer that condition 2 of the salience-inversion document
    exempts.
    """
    score: Floats = context.vectors[: context.count, 0].copy()
    if settings.decay_weight:
        age = now - context.born[: context.count]
        score += settings.decay_weight * np.power(0.5, age / settings.decay_half_life)
    if settings.depth_penalty:
        score -= settings.depth_penalty * context.depth[: context.count]
    return score
