"""``depth-pin``: the hierarchy stays at its depth limit; the next inversion is only a matter of rounds.

Fires when the deepest summary has been at ``max_depth`` (and at depth >= 2) for more than 5 consecutive rounds
(salience-inversion document, ``check_inversion``). A round in which no pass ran (skipped, held back, a rehydration) makes the
hierarchy no deeper and does not count. A round at or below a cap that the monitor itself commanded is not pinned:
it is what was asked for.
"""

from __future__ import annotations

from leadline.contracts.orders import Action, Parameters
from leadline.contracts.session_state import Measurement
from leadline.contracts.text import plural
from leadline.detection.rules.base import Decision, Evidence, Exit, RoundView, Rule
from leadline.detection.signs import DEEP, PINNED

__all__ = ["RULE", "at_limit"]

_DEPTH = 2

FIRED = Decision(True, "pinned-at-depth-limit")
UNKNOWN = Decision(False, "no-tokens")
SHALLOW = Decision(False, "depth-below-2")
NOT_PINNED = Decision(False, "below-depth-limit")
NOT_YET = Decision(False, "pinned-within-allowance")


def at_limit(depth: int, max_depth: int, depth_cap: int | None) -> bool:
    """Whether a round of this depth counts as pinned. A ``max_depth`` of 0 is no limit."""
    if depth < _DEPTH or max_depth == 0 or depth < max_depth:
        return False
    return depth_cap is None or depth > depth_cap


def judge(view: RoundView) -> Decision:
    now = view.now
    if now.raw_tokens + now.summary_tokens == 0:
        return UNKNOWN
    if now.summary_depth_max < _DEPTH:
        return SHALLOW
    if view.pinned_rounds == 0:
        return NOT_PINNED
    return FIRED if view.pinned_rounds > view.policy.pin_rounds else NOT_YET


def leave(view: RoundView, decision: Decision) -> Exit:
    """Over as soon as a round is below the limit, or at or below the commanded cap."""
    return Exit.OVER if view.pinned_rounds == 0 and decision is not UNKNOWN else Exit.STANDING


def improved(view: RoundView, opening: Measurement | None) -> bool:
    return opening is not None and view.now.summary_depth_max < opening.summary_depth_max


def message(view: RoundView) -> str:
    return (
        f"hierarchy pinned at depth {view.now.summary_depth_max} for {plural(view.pinned_rounds, 'round')}; "
        f"cap depth at {view.policy.depth_cap} and accept the token cost"
    )


def threshold(view: RoundView) -> dict[str, float]:
    return {"pin_rounds": view.policy.pin_rounds}


def evidence(view: RoundView) -> Evidence:
    return {"pinned_rounds": view.pinned_rounds, "max_depth": view.max_depth}


def parameters(view: RoundView) -> Parameters:
    return Parameters(max_depth=view.policy.depth_cap)


def action(view: RoundView) -> Action:
    """Where the agent's own limit is already the cap there is nothing left to ask for: it is reported, not commanded."""
    return "cap-depth" if view.now.summary_depth_max > view.policy.depth_cap else "none"


RULE: Rule[RoundView] = Rule(
    name="depth-pin",
    severity="warning",
    action=action,
    judge=judge,
    needs=DEEP | PINNED,
    exit=leave,
    improved=improved,
    message=message,
    threshold=threshold,
    evidence=evidence,
    parameters=parameters,
)
