"""What really happened in a simulated session: labels from the simulator's own books, never from Leadline's rules.

``inversion``, ``provenance-floor`` and ``depth-pin`` are the salience-inversion document's definitions on the exact measures of
the context (its conditions of validity included). ``ungrounded-summary``: a retained summary without a reachable leaf.
``budget-open``: a dropped tail. ``recall-floor``: a planted constraint that is gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from leadline.lab.simulator.checkpoints import Chain
from leadline.lab.simulator.loop import Answer, Pass
from leadline.lab.simulator.settings import LoopSettings

__all__ = ["Truth", "first_levels", "first_rounds"]

_RATIO, _SPANS, _PIN = 0.25, 0.20, 5
"""The document's constants (``RAW_RATIO_FLOOR``, ``SPAN_FLOOR_FRACTION``, ``MAX_DEPTH_PIN_ROUNDS``)."""


class Truth(NamedTuple):
    """``first``: by what went wrong, the first round (or level) it was so; what did not happen is not in it."""

    first: dict[str, int]
    answer: Answer


def first_rounds(passes: Sequence[Pass], settings: LoopSettings, start_spans: int) -> dict[str, int]:
    """When the context first inverted, lost its floor, or was pinned too long."""
    first: dict[str, int] = {}
    floor = max(1, int(start_spans * _SPANS))
    pinned = 0
    for index, one in enumerate(passes):
        now = one.after
        if now.ungrounded_summaries:
            first.setdefault("ungrounded-summary", one.round)
        pinned = pinned + 1 if now.summary_depth_max >= max(2, settings.max_depth) else 0
        if now.summary_depth_max < 2:
            continue
        if index and settings.depth_penalty == 0.0:
            before = passes[index - 1].after
            fell = now.distinct_source_spans < before.distinct_source_spans
            rose = now.query_cosine_retained > before.query_cosine_retained
            if (now.raw_ratio or 0.0) < _RATIO and fell and rose:
                first.setdefault("inversion", one.round)
        if now.distinct_source_spans < floor:
            first.setdefault("provenance-floor", one.round)
        if pinned > _PIN:
            first.setdefault("depth-pin", one.round)
    return first


def first_levels(chain: Chain) -> dict[str, int]:
    """At which level a tail was first dropped, and at which the planted statement was lost."""
    first: dict[str, int] = {}
    for level in chain.levels:
        if level.seen < level.source:
            first.setdefault("budget-open", level.level)
        if not level.holds_planted:
            first.setdefault("recall-floor", level.level)
    return first
