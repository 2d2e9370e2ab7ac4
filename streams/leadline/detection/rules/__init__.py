"""The explicit list of rules: one file each, in the order in which they are asked."""

from __future__ import annotations

from typing import Final

from leadline.detection.rules import (
    budget_open,
    depth_pin,
    drift,
    erosion,
    inversion,
    masked,
    no_progress,
    provenance_floor,
    recall_floor,
    silent_drop,
    ungrounded_summary,
    unobserved,
)
from leadline.detection.rules.base import CheckpointView, PresenceView, RoundView, Rule
from leadline.detection.signs import ALL

__all__ = ["CHECKPOINT_RULES", "MAY_FIRE", "PRESENCE_RULES", "ROUND_RULES", "RULE_NAMES", "UNHEEDED"]

ROUND_RULES: Final[tuple[Rule[RoundView], ...]] = (
    inversion.RULE,
    provenance_floor.RULE,
    depth_pin.RULE,
    ungrounded_summary.RULE,
    drift.RULE,
    erosion.RULE,
    masked.RULE,
    no_progress.RULE,
)
MAY_FIRE: Final[tuple[tuple[Rule[RoundView], ...], ...]] = tuple(
    tuple(rule for rule in ROUND_RULES if rule.needs & shown == rule.needs) for shown in range(ALL + 1)
)
"""By the signs that a round shows: the rules that it could make fire."""
CHECKPOINT_RULES: Final[tuple[Rule[CheckpointView], ...]] = (budget_open.RULE, recall_floor.RULE, silent_drop.RULE)
PRESENCE_RULES: Final[tuple[Rule[PresenceView], ...]] = (unobserved.RULE,)

UNHEEDED: Final = "unheeded"
"""Made by the commands' lifecycle, not by a measurement: a command had no acknowledgement, or no effect, after its attempts."""

RULE_NAMES: Final[tuple[str, ...]] = (
    *(rule.name for rule in ROUND_RULES),
    *(rule.name for rule in CHECKPOINT_RULES),
    *(rule.name for rule in PRESENCE_RULES),
    UNHEEDED,
)
