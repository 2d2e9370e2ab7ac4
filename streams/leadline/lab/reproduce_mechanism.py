"""What moves the onset: the same sessions with one part of the mechanism taken out at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from leadline.lab.simulator.loop import onset, run
from leadline.lab.simulator.settings import LoopSettings

__all__ = ["Variation", "variations"]


class Variation(NamedTuple):
    """Median onset with and without the recency decay; ``delay``: how many rounds the decay brings it forward."""

    what: str
    with_decay: float
    without_decay: float
    delay: float


def variations(settings: LoopSettings, seeds: int, first_seed: int = 0) -> list[Variation]:
    """The loop as calibrated, then what becomes of the gap between the two onsets when a part of it is missing."""
    middle = (settings.relevance_low + settings.relevance_high) / 2
    rest = settings.picks[1:]
    kinds = {
        "as calibrated": settings,
        "summaries of random spans instead of the endangered": replace(settings, picks=("random", *rest)),
        "summaries of the oldest spans instead of the endangered": replace(settings, picks=("oldest", *rest)),
        "all topics equally relevant": replace(settings, relevance_low=middle, relevance_high=middle),
        "random spans, topics equally relevant": replace(
            settings, picks=("random", *rest), relevance_low=middle, relevance_high=middle
        ),
    }
    return [_vary(what, one, range(first_seed, first_seed + seeds)) for what, one in kinds.items()]


def _vary(what: str, settings: LoopSettings, seeds: range) -> Variation:
    both = [
        [float(onset(run(one, seed)[0]) or settings.rounds + 1) for seed in seeds]
        for one in (settings, replace(settings, decay_weight=0.0))
    ]
    with_decay, without = (float(np.median(found)) for found in both)
    return Variation(what, with_decay, without, without - with_decay)
