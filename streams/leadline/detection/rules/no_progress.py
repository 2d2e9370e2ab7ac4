"""``no-progress``: compaction that frees nothing, grows the context, fails, or repeats at once: it can only spin.

Measured by what a round says of itself before and after the pass, against its budget and the round before. It halts past a
count, and without a rehydration plan: putting text back would feed the loop. A small step is no stall: continuous eviction frees
just what came in, and a pass within its budget had nothing more to free.
"""

from __future__ import annotations

from leadline.contracts.events import Round
from leadline.contracts.orders import Action
from leadline.contracts.session_state import Measurement
from leadline.detection.policy import FleetPolicy
from leadline.detection.rounds import is_pass
from leadline.detection.rules.base import Decision, Evidence, Exit, RoundView, Rule
from leadline.detection.signs import STALLED

__all__ = ["RULE", "may_stall", "ran", "stalled"]

GREW = Decision(True, "context-grew")
NO_HEADROOM = Decision(True, "no-headroom")
FREES_NOTHING = Decision(True, "frees-nothing")
REPEATS = Decision(True, "repeats-at-once")
FAILED = Decision(True, "compaction-failed")
NOT_REPORTED = Decision(False, "before-not-reported")
NO_PASS = Decision(False, "no-pass-ran")
PROGRESS = Decision(False, "progress")
NOT_YET = Decision(False, "stalled-within-allowance")


def _after(event: Round) -> int:
    return event.raw_tokens + event.summary_tokens


def _before(event: Round) -> int | None:
    return None if event.before is None else event.before.raw_tokens + event.before.summary_tokens


def ran(event: Round) -> bool:
    """Whether this was a pass that was meant to free something."""
    return is_pass(event.trigger, event.outcome)


def _trouble(event: Round, prev: Measurement | None, policy: FleetPolicy) -> Decision | None:
    """How a pass that ran got nowhere; ``None``: it did not, or nothing tells."""
    before, after, budget = _before(event), _after(event), event.token_budget
    least = 1 - policy.stall_freed_fraction
    over = budget > 0 and after > budget
    if before is None:
        return FREES_NOTHING if over and (prev is None or after >= prev.total_tokens * least) else None
    if 0 < before < after and (budget == 0 or over or (after >= 2 * before and 2 * after > budget)):
        return GREW
    if over and after >= before * least:
        return FREES_NOTHING
    assert event.before is not None
    nothing_came = (
        prev is not None
        and event.before.raw_tokens <= prev.raw_tokens
        and event.before.distinct_source_spans <= prev.distinct_source_spans
    )
    if prev is not None and nothing_came and before > after >= prev.total_tokens * least:
        return REPEATS
    return None


def may_stall(event: Round, prev: Measurement | None) -> bool:
    """A cheap necessary condition for :func:`stalled` to be true of a pass that did not fail."""
    after, budget, before = event.raw_tokens + event.summary_tokens, event.token_budget, event.before
    if after > budget:
        return True
    if before is None:
        return False
    if prev is not None and before.raw_tokens <= prev.raw_tokens and before.distinct_source_spans <= prev.distinct_source_spans:
        return True
    return after >= 2 * (before.raw_tokens + before.summary_tokens)


def stalled(event: Round, prev: Measurement | None, policy: FleetPolicy) -> bool | None:
    """Whether this pass got nowhere; ``None`` where no pass ran or nothing tells.

    Without a pass, a context that became clearly smaller by other means is progress too.
    """
    if event.outcome == "failed":
        return True
    if not ran(event):
        shrank = prev is not None and _after(event) < prev.total_tokens * (1 - policy.budget_tolerance)
        return False if shrank else None
    if _trouble(event, prev, policy) is not None:
        return True
    return None if event.before is None and event.token_budget == 0 else False


def judge(view: RoundView) -> Decision:
    event, policy = view.event, view.policy
    if event is None:
        return NOT_REPORTED
    if event.fixed_tokens is not None and 0 < event.token_budget <= event.fixed_tokens:
        return NO_HEADROOM
    if event.outcome == "failed":
        return FAILED if view.taken_back or view.stalled_rounds >= policy.stall_halt_rounds else NOT_YET
    if view.stalled is False:
        return PROGRESS
    if not ran(event):
        return NO_PASS
    found = _trouble(event, view.prev, policy)
    if found is None:
        return NOT_REPORTED
    return found if found is GREW or view.stalled_rounds >= policy.stall_rounds else NOT_YET


def leave(view: RoundView, decision: Decision) -> Exit:
    """Over with a pass that got somewhere; where nothing tells any more, after several rounds without trouble."""
    if decision is PROGRESS:
        return Exit.OVER
    return Exit.GOOD if decision is NOT_REPORTED else Exit.STANDING


def improved(view: RoundView, opening: Measurement | None) -> bool:
    """It no longer spins: a pass got somewhere, or none is run any more."""
    event = view.event
    return event is not None and (view.stalled is False or (event.outcome != "failed" and not ran(event)))


def message(view: RoundView) -> str:
    event, found = view.event, judge(view)
    assert event is not None
    if found is NO_HEADROOM:
        return (
            f"the budget cannot close: {event.fixed_tokens} fixed tokens leave nothing of a budget of {event.token_budget}; "
            "this is a matter of configuration, no compaction can help"
        )
    if found is FAILED:
        told = "was reported as done and then failed" if view.taken_back else f"failed {view.stalled_rounds} times in a row"
        return f"compaction {told}; the context is as it was before"
    before, after = _before(event), _after(event)
    size = f"{'?' if before is None else before} -> {after} tokens (budget {event.token_budget})"
    if found is GREW:
        return f"compaction grew the context: {size}"
    what = "frees nothing and stays over its budget" if found is FREES_NOTHING else "repeats at once although nothing new came"
    return f"compaction {what}: {size}, {view.stalled_rounds} times in a row"


def threshold(view: RoundView) -> dict[str, float]:
    policy = view.policy
    return {
        "stall_freed_fraction": policy.stall_freed_fraction,
        "stall_rounds": policy.stall_rounds,
        "stall_halt_rounds": policy.stall_halt_rounds,
        "budget_tolerance": policy.budget_tolerance,
    }


def evidence(view: RoundView) -> Evidence:
    event = view.event
    if event is None:
        return {}
    found: Evidence = {"stalled_rounds": view.stalled_rounds, "tokens_after": _after(event), "token_budget": event.token_budget}
    before = _before(event)
    if before is not None:
        found["tokens_before"] = before
        if view.prev is not None and before < view.prev.total_tokens:
            # Between two passes a context only grows: what the two rounds counted does not agree.
            found["counters_differ_by"] = view.prev.total_tokens - before
    return found


def action(view: RoundView) -> Action:
    """A halt only past a count, and only where stopping helps: the first few are told, a failure has other causes."""
    event, found = view.event, judge(view)
    if event is None or view.stalled_rounds < view.policy.stall_halt_rounds:
        return "none"
    if found is FREES_NOTHING:
        return "halt" if _after(event) > event.token_budget * (1 + view.policy.budget_tolerance) else "none"
    return "halt" if found in (GREW, REPEATS) else "none"


RULE: Rule[RoundView] = Rule(
    name="no-progress",
    severity="warning",
    action=action,
    judge=judge,
    needs=STALLED,
    exit=leave,
    improved=improved,
    message=message,
    threshold=threshold,
    evidence=evidence,
)
