"""``no-progress``: compaction that frees nothing, grows the context, or repeats at once: it can only spin.

Measured by what the round says of itself before and after the pass. It halts past a count, and without a rehydration plan:
putting text back would feed the loop.
"""

from __future__ import annotations

from leadline.contracts.events import Round
from leadline.contracts.orders import Action, Parameters
from leadline.contracts.session_state import Measurement
from leadline.detection.policy import FleetPolicy
from leadline.detection.rules.base import Decision, Evidence, Exit, RoundView, Rule

__all__ = ["RULE", "stalled"]

GREW = Decision(True, "context-grew")
NO_HEADROOM = Decision(True, "no-headroom")
STALLED = Decision(True, "frees-nothing")
NOT_REPORTED = Decision(False, "before-not-reported")
PROGRESS = Decision(False, "progress")
NOT_YET = Decision(False, "stalled-within-allowance")


def _totals(event: Round) -> tuple[int, int] | None:
    """Tokens before and after the pass."""
    if event.before is None:
        return None
    return event.before.raw_tokens + event.before.summary_tokens, event.raw_tokens + event.summary_tokens


def stalled(event: Round, prev: Measurement | None, policy: FleetPolicy) -> bool | None:
    """Whether this pass got nowhere; ``None`` where the round does not say what was there before.

    It freed (next to) nothing; or it freed little although nothing raw had come since the round before: it only repeats.
    A pass that did not run (``skipped``) was not meant to free anything.
    """
    totals = _totals(event)
    if totals is None or event.outcome != "ok" or event.trigger == "rehydrate":
        return None
    before, after = totals
    if after >= before * (1 - policy.stall_freed_fraction):
        return True
    nothing_came = prev is not None and event.before is not None and event.before.raw_tokens <= prev.raw_tokens
    return nothing_came and after >= before * (1 - policy.stall_repeat_fraction)


def judge(view: RoundView) -> Decision:
    event = view.event
    if event is None:
        return NOT_REPORTED
    if event.fixed_tokens is not None and 0 < event.token_budget <= event.fixed_tokens:
        return NO_HEADROOM
    totals = _totals(event)
    if totals is None:
        return NOT_REPORTED
    if event.trigger != "rehydrate" and event.outcome == "ok" and totals[1] > totals[0]:
        return GREW
    if view.stalled_rounds == 0:
        return PROGRESS
    return STALLED if view.stalled_rounds >= view.policy.stall_rounds else NOT_YET


def leave(view: RoundView, decision: Decision) -> Exit:
    return Exit.OVER if decision is PROGRESS else Exit.STANDING


def improved(view: RoundView, opening: Measurement | None) -> bool:
    return view.stalled_rounds == 0


def message(view: RoundView) -> str:
    event = view.event
    assert event is not None
    if judge(view) is NO_HEADROOM:
        return (
            f"the budget cannot close: {event.fixed_tokens} fixed tokens leave nothing of a budget of {event.token_budget}; "
            "this is a matter of configuration, no compaction can help"
        )
    before, after = _totals(event) or (0, 0)
    if after > before:
        return f"compaction grew the context: {before} -> {after} tokens (budget {event.token_budget})"
    times = f"{view.stalled_rounds} times in a row"
    return f"compaction frees nothing: {before} -> {after} tokens, {times} (budget {event.token_budget})"


def threshold(view: RoundView) -> dict[str, float]:
    return {"stall_rounds": view.policy.stall_rounds, "stall_halt_rounds": view.policy.stall_halt_rounds}


def evidence(view: RoundView) -> Evidence:
    event = view.event
    found: Evidence = {"stalled_rounds": view.stalled_rounds}
    if event is not None and (totals := _totals(event)) is not None:
        found["tokens_before"], found["tokens_after"] = totals
    return found


def parameters(view: RoundView) -> Parameters:
    return Parameters()


def action(view: RoundView) -> Action:
    """A halt only past a count: the first few are told, not stopped."""
    return "halt" if view.stalled_rounds >= view.policy.stall_halt_rounds else "none"


RULE: Rule[RoundView] = Rule(
    name="no-progress",
    severity="warning",
    action=action,
    judge=judge,
    exit=leave,
    improved=improved,
    message=message,
    threshold=threshold,
    evidence=evidence,
    parameters=parameters,
)
