"""The explicit list of rules: one file each, in the order in which they are asked."""

from __future__ import annotations

from typing import Final

from leadline.detection.rules import budget_open, depth_pin, drift, inversion, provenance_floor, recall_floor
from leadline.detection.rules.base import CheckpointView, RoundView, Rule

__all__ = ["CHECKPOINT_RULES", "ROUND_RULES", "RULE_NAMES", "UNHEEDED"]

ROUND_RULES: Final[tuple[Rule[RoundView], ...]] = (
    inversion.RULE,
    provenance_floor.RULE,
    depth_pin.RULE,
    drift.RULE,
)
CHECKPOINT_RULES: Final[tuple[Rule[CheckpointView], ...]] = (budget_open.RULE, recall_floor.RULE)

UNHEEDED: Final = "unheeded"
"""Made by the commands' lifecycle, not by a measurement: a command had no acknowledgement, or no effect, after its attempts."""

RULE_NAMES: Final[tuple[str, ...]] = (
    *(rule.name for rule in ROUND_RULES),
    *(rule.name for rule in CHECKPOINT_RULES),
    UNHEEDED,
)
