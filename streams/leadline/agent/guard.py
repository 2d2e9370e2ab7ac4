"""The local guard at the compaction boundary: the monitor's own rules, asked inside the agent, without any broker.

It decides by the very rules of :mod:`leadline.detection.rules`; no threshold is known here.
"""

from __future__ import annotations

from typing import Final

from leadline.agent.signals import Signals
from leadline.contracts.events import Checkpoint
from leadline.contracts.session_state import FactRecord, Measurement
from leadline.detection.policy import FleetPolicy
from leadline.detection.rules import depth_pin, inversion, provenance_floor, recall_floor
from leadline.detection.rules.base import CheckpointView, RoundView
from leadline.detection.signs import DEEP, PINNED, POOR, SCARCE
from leadline.errors import RecallFloorViolation, SalienceInversionError

__all__ = ["check_inversion", "check_recall"]

_RULES: Final = (inversion.RULE, provenance_floor.RULE, depth_pin.RULE)
"""In the order in which the reference function asks."""
_DEFAULT: Final = FleetPolicy()


def check_inversion(
    prev: Signals | None,
    curr: Signals,
    session_start_spans: int,
    pinned_rounds: int = 0,
    *,
    policy: FleetPolicy = _DEFAULT,
    penalizes_depth: bool | None = None,
    eviction: str | None = None,
) -> None:
    """Guard the compaction boundary. Call after every eviction pass.

    ``prev``: the measurement after the previous pass (``None`` for the first), ``curr``: after this one;
    ``pinned_rounds``: consecutive rounds at the depth limit, this one included. Raises :class:`SalienceInversionError`
    exactly where ``check_inversion`` of the salience-inversion document does, save that a working set without any
    tokens is unknown, never a violation.
    """
    shown = _signs(curr, session_start_spans, pinned_rounds, policy)
    asked = [rule for rule in _RULES if not rule.needs & ~shown]
    if not asked:
        return
    view = RoundView(
        prev=None if prev is None else _measurement(prev),
        now=_measurement(curr),
        pinned_rounds=pinned_rounds,
        baseline_spans=session_start_spans,
        max_depth=curr.summary_depth_max,
        penalizes_depth=penalizes_depth,
        eviction=eviction,
        policy=policy,
    )
    for rule in asked:
        if rule.judge(view).fired:
            raise SalienceInversionError(f"{rule.name}: {rule.message(view)}")


def check_recall(checkpoint: Checkpoint, facts: dict[str, FactRecord], *, policy: FleetPolicy = _DEFAULT) -> None:
    """Guard one summarizer call. ``facts``: the session's, with this checkpoint already applied
    (:func:`leadline.detection.facts.follow`).

    Raises :class:`RecallFloorViolation`, naming the facts, the class, the level and the floor.
    """
    view = CheckpointView(checkpoint, facts, policy)
    if recall_floor.RULE.judge(view).fired:
        raise RecallFloorViolation(f"{recall_floor.RULE.name}: {recall_floor.RULE.message(view)}")


def _measurement(signals: Signals) -> Measurement:
    return Measurement(
        0,
        signals.raw_tokens,
        signals.summary_tokens,
        signals.distinct_source_spans,
        signals.query_cosine_retained,
        signals.summary_depth_max,
    )


def _signs(curr: Signals, baseline_spans: int, pinned_rounds: int, policy: FleetPolicy) -> int:
    """The signs (:mod:`leadline.detection.signs`) that these rules need: mostly none, and then no rule has to be asked."""
    ratio, spans = curr.raw_ratio, curr.distinct_source_spans
    found = DEEP if curr.summary_depth_max >= 2 else 0
    if ratio is not None and ratio < policy.raw_ratio_floor:
        found |= POOR
    if spans < baseline_spans * policy.span_floor_fraction or not spans:
        found |= SCARCE
    if pinned_rounds > policy.pin_rounds:
        found |= PINNED
    return found
