"""What one simulated session says about each published figure, and medians and bands over many."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from leadline.lab.simulator.loop import Answer, Pass, onset, run
from leadline.lab.simulator.settings import LoopSettings

__all__ = ["Band", "Curves", "Experiment", "experiment"]

Progress = Callable[[int, int], None]

_CURVES = ("raw_ratio", "distinct_source_spans", "query_cosine_retained", "summary_depth_max")
_LATE_FROM = 20
"""The price of grounding is averaged from here to the end: before it there is little that grounding must hold."""


class Band(NamedTuple):
    """Median and 90 % band (5th to 95th percentile) over the seeds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: list[float]) -> Band:
        low, median, high = np.percentile(np.asarray(values), [5, 50, 95]).tolist()
        return cls(median, low, high)


class Curves(NamedTuple):
    """A signal by round: 5th, 50th and 95th percentile, each with one value a round."""

    low: list[float]
    median: list[float]
    high: list[float]


class Experiment(NamedTuple):
    """``values``: by the name of a published figure. ``curves``: ``plain``, ``no-decay`` and ``grounded``, then by signal."""

    values: dict[str, Band]
    curves: dict[str, dict[str, Curves]]
    seeds: int
    token_budget: int


def experiment(settings: LoopSettings, seeds: int, progress: Progress | None = None, first_seed: int = 0) -> Experiment:
    """Three sessions a seed: as the document's, without the decay, and with grounding enforced. Same material in all three."""
    values: dict[str, list[float]] = {}
    kinds = {
        "plain": settings,
        "no-decay": replace(settings, decay_weight=0.0),
        "grounded": replace(settings, grounding=True),
    }
    sessions: dict[str, list[list[Pass]]] = {kind: [] for kind in kinds}
    for count, seed in enumerate(range(first_seed, first_seed + seeds), 1):
        done = {kind: run(one, seed) for kind, one in kinds.items()}
        for kind, (passes, _) in done.items():
            sessions[kind].append(passes)
        for name, value in _figures(settings, done):
            values.setdefault(name, []).append(value)
        if progress is not None:
            progress(count, seeds)
    return Experiment(
        {name: Band.of(found) for name, found in values.items()},
        {kind: {signal: _curve(found, signal) for signal in _CURVES} for kind, found in sessions.items()},
        seeds,
        settings.token_budget,
    )


def _figures(settings: LoopSettings, done: dict[str, tuple[list[Pass], Answer]]) -> Iterator[tuple[str, float]]:
    passes, answer = done["plain"]
    after = [one.after for one in passes]
    never = settings.rounds + 1.0
    deep = [one.round for one in passes if one.after.summary_depth_max >= settings.max_depth]
    yield "raw_ratio.start", after[0].raw_ratio or 0.0
    yield "raw_ratio.round_28", after[27].raw_ratio or 0.0
    yield "raw_ratio.end", after[-1].raw_ratio or 0.0
    yield "depth.reached", deep[0] if deep else never
    yield "depth.pinned", min(one.summary_depth_max for one in after[11:])
    yield "spans.start", after[0].distinct_source_spans
    yield "spans.round_30", after[29].distinct_source_spans
    yield "tokens.off_budget", max(abs(one.total_tokens / settings.token_budget - 1.0) for one in after)
    yield "salience.start", after[0].query_cosine_retained
    yield "salience.end", after[-1].query_cosine_retained
    yield "onset.with_decay", onset(passes) or never
    yield "onset.without_decay", onset(done["no-decay"][0]) or never
    yield "claims.unsupported", answer.unsupported
    held, grounded = done["grounded"]
    yield "grounded.unsupported", grounded.unsupported
    yield "grounded.pressure", float(np.mean([one.after.total_tokens / settings.token_budget - 1.0 for one in held[_LATE_FROM:]]))
    yield "grounded.depth", held[-1].after.summary_depth_max


def _curve(sessions: list[list[Pass]], signal: str) -> Curves:
    table = np.array([[getattr(one.after, signal) or 0.0 for one in passes] for passes in sessions], dtype=np.float64)
    low, median, high = np.percentile(table, [5, 50, 95], axis=0).tolist()
    return Curves(low, median, high)
