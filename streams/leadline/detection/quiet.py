"""The round that nothing follows from: simply its session's next, and no rule can have anything to say about it. Pure.

Nearly every round of a healthy fleet is one. What becomes of the state is what :func:`leadline.detection.observe.apply` would
make of it, at a fraction of its cost; a property test and the fuzzer hold the two to each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from leadline.contracts import limits
from leadline.contracts.events import Round
from leadline.contracts.session_state import Measurement, SessionState, copy_of
from leadline.detection.asking import Finding, failed
from leadline.detection.policy import FleetPolicy
from leadline.detection.rounds import SEEN
from leadline.detection.rules import MAY_FIRE, no_progress
from leadline.detection.rules.base import RoundView, Rule, Window
from leadline.detection.signs import signs

__all__ = ["SHORT_EPOCHS_IN_A_ROW", "quiet", "worth_asking"]

SHORT_EPOCHS_IN_A_ROW: Final = 3
"""So many epochs of so few rounds are a counter that counts the wrong thing: no rule that compares rounds can judge them."""

_FULL: Final = limits.WINDOW_ROUNDS


def quiet(state: SessionState, event: Round, now: int, policy: FleetPolicy, ours: bool = False) -> SessionState | None:
    """``state`` with ``event``, received at ``now`` (ms since 1970), applied to all but its offset and its deadline: a copy, or
    where it is ``ours`` to change, itself. ``None``: it is no such round, or may be none, and ``state`` is as it was."""
    number, raw, summary, depth, limit = (
        event.round,
        event.raw_tokens,
        event.summary_tokens,
        event.summary_depth_max,
        event.max_depth,
    )
    window = state.window
    if (
        state.incidents
        or number - 1 != (state.last_round or 0)
        or event.epoch != state.epoch
        or not summary
        or not depth
        or (depth >= 2 and depth >= limit)  # It may be pinned at its limit.
        or event.summaries
        or event.outcome != "ok"
        or state.stalled_rounds
        or state.ended_at is not None
        or state.short_epochs >= SHORT_EPOCHS_IN_A_ROW
    ):
        return None
    spans, prev = event.distinct_source_spans, window[-1] if window else None
    if (
        not spans
        or (prev is not None and prev.round >= number)
        or (no_progress.may_stall(event, prev) and no_progress.stalled(event, prev, policy))
    ):
        return None
    measurement = Measurement(number, raw, summary, spans, event.query_cosine_retained, depth)
    window = (window if len(window) < _FULL else window[1:]) + (measurement,)
    baseline, ratio = state.baseline_spans or event.session_start_spans, raw / (raw + summary)
    try:
        for rule in MAY_FIRE[signs(window, event, ratio, baseline, 0, 0, policy)]:
            if rule.may_fire is None or rule.may_fire(window, event, ratio, policy):
                return None
    except Exception:
        return None  # The longer way tells of the rule that raises.
    after = state if ours else copy_of(state)
    after.window = window
    after.last_round = number
    # To compare is half as dear as to set.
    seen = state.seen_mask
    if seen != SEEN:
        after.seen_mask = (seen << 1 | 1) & SEEN
    if now > state.last_seen:
        after.last_seen = now
    if event.fleet != state.fleet and event.fleet:
        after.fleet = event.fleet
    if baseline != state.baseline_spans:
        after.baseline_spans = baseline
    if event.token_budget != state.token_budget:
        after.token_budget = event.token_budget
    if limit != state.max_depth:
        after.max_depth = limit
    if event.fixed_tokens != state.fixed_tokens:
        after.fixed_tokens = event.fixed_tokens or 0
    if state.pinned_rounds:
        after.pinned_rounds = 0
    return after


def worth_asking(
    window: Window,
    event: Round,
    ratio: float,
    baseline_spans: int,
    pinned: int,
    stalled: int,
    policy: FleetPolicy,
    findings: list[Finding],
) -> Sequence[Rule[RoundView]]:
    """The rules that a measured round could make fire, in their order. ``window``: with the round already in it. One whose
    ``may_fire`` raises has a defect, which is added to ``findings``, and is to be asked."""
    possible = MAY_FIRE[signs(window, event, ratio, baseline_spans, pinned, stalled, policy)]
    if not possible:
        return possible
    rules = []
    for rule in possible:
        try:
            if rule.may_fire is None or rule.may_fire(window, event, ratio, policy):
                rules.append(rule)
        except Exception:
            findings.append(failed(rule))
            rules.append(rule)
    return rules
