"""Signs: what can be told of a round by comparing raw numbers. Each rule names those without which it cannot fire.

Nearly every round of a healthy fleet shows none, or none that together a rule needs, and then no rule is asked. A sign says no
more than its line here; whether a rule fires is decided in the rule's own file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from leadline.contracts.events import Round
from leadline.contracts.session_state import Measurement
from leadline.detection.policy import FleetPolicy

__all__ = ["ALL", "DEEP", "LISTED", "OUTWEIGHED", "PINNED", "POOR", "SCARCE", "SHRUNK", "STALLED", "signs"]

DEEP: Final = 1
"""A summary of summaries: depth 2 or more."""
OUTWEIGHED: Final = 2
"""The raw ratio is below ``erosion_ratio``."""
POOR: Final = 4
"""The raw ratio is below ``raw_ratio_floor``."""
SCARCE: Final = 8
"""Source spans below ``span_floor_fraction`` of those at session start, or none."""
PINNED: Final = 16
"""More than ``pin_rounds`` rounds in a row at the depth limit."""
LISTED: Final = 32
"""The round lists summaries, or counts some as ungrounded."""
STALLED: Final = 64
"""Passes have been getting nowhere, or what is fixed fills the budget."""
SHRUNK: Final = 128
"""Of the last two rounds one has fewer source spans than one of the window's first two."""

ALL: Final = 255


def signs(
    window: Sequence[Measurement],
    event: Round,
    ratio: float,
    baseline_spans: int,
    pinned_rounds: int,
    stalled_rounds: int,
    policy: FleetPolicy,
) -> int:
    """The signs that a measured round shows, as bits. ``window``: with the round already in it; ``ratio``: its raw ratio."""
    spans = event.distinct_source_spans
    found = DEEP if event.summary_depth_max >= 2 else 0
    if ratio < policy.erosion_ratio:
        found |= OUTWEIGHED
    if ratio < policy.raw_ratio_floor:
        found |= POOR
    if spans < baseline_spans * policy.span_floor_fraction or not spans:
        found |= SCARCE
    if pinned_rounds > policy.pin_rounds:
        found |= PINNED
    if event.ungrounded_summaries or event.summaries:
        found |= LISTED
    if stalled_rounds or (event.fixed_tokens and event.fixed_tokens >= event.token_budget):
        found |= STALLED
    if len(window) > 2:
        first, second, before = window[0].distinct_source_spans, window[1].distinct_source_spans, window[-2].distinct_source_spans
        if spans < first or spans < second or before < first or before < second:
            found |= SHRUNK
    return found
