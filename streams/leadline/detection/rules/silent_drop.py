"""``silent-drop``: something was lost at a summarizer call that reports success.

A summary that was cut off (stop reason ``length``, output at its cap, the same size again and again), that is empty or a mere
placeholder, or a fact that vanished undeclared while its class as a whole still holds its floor (below the floor it is the
matter of ``recall-floor``). Truncation-collapse document: "No level exceeded its budget. No level reported a drop."
"""

from __future__ import annotations

from typing import Final

from leadline.contracts.orders import Parameters
from leadline.detection.calls import stands_for
from leadline.detection.facts import lost_at, room_left, selected
from leadline.detection.rules import recall_floor
from leadline.detection.rules.base import CheckpointView, Decision, Evidence, Exit, Rule, always

__all__ = ["RULE"]

CUT_OFF = Decision(True, "stop-reason-length")
FAILED = Decision(True, "summarizer-failed")
AT_CAP = Decision(True, "output-at-cap")
SAME_SIZE = Decision(True, "same-output-size-repeated")
EMPTY = Decision(True, "empty-summary")
PLACEHOLDER = Decision(True, "placeholder-summary")
VANISHED = Decision(True, "fact-vanished-undeclared")
RERANKED = Decision(True, "facts-re-ranked")
CLEAN = Decision(False, "nothing-dropped")
NOT_REPORTED = Decision(False, "not-reported")

_CUT_OFF: Final = frozenset(
    {"length", "max_length", "max_tokens", "max_output_tokens", "model_length", "model_context_window_exceeded"}
)
"""How the model APIs name a stop at the output limit."""
_FAILED: Final = frozenset(
    {
        "blocklist",
        "content_filter",
        "content_filtered",
        "error",
        "guardrail_intervened",
        "malformed_function_call",
        "placeholder",
        "prohibited_content",
        "recitation",
        "refusal",
        "safety",
        "spii",
    }
)
_ENDED: Final = frozenset(
    {"complete", "completed", "end", "end_of_turn", "end_turn", "eos", "eos_token", "finished", "stop", "stop_sequence"}
)
"""How they name an end that the model chose. What is in none of the three lists says nothing of a cut."""


_WHOLE: Final = "Summarize this level again: a whole summary that ends of itself, with each named fact carried along."


def _facts(view: CheckpointView) -> tuple[str, ...]:
    """Facts first missed here, undeclared; those of a class with a floor of 0 may go."""
    standings = lost_at(view.checkpoint, view.facts).values()
    return tuple(fact for standing in standings if standing.floor != 0 for fact in standing.lost_here)


def _output(view: CheckpointView) -> Decision | None:
    """What the size and the end of the output say; ``None``: nothing."""
    checkpoint, policy = view.checkpoint, view.policy
    reason, tokens = (checkpoint.stop_reason or "").lower(), checkpoint.output_tokens
    if reason in _CUT_OFF:
        return CUT_OFF
    if reason in _FAILED:
        return FAILED
    if tokens is None:
        return None
    if tokens == 0:
        return EMPTY
    given = checkpoint.declared_input_tokens or 0
    if given >= policy.placeholder_input_tokens and tokens <= policy.placeholder_tokens:
        return PLACEHOLDER
    if reason in _ENDED:
        return None
    if checkpoint.output_cap and tokens >= checkpoint.output_cap:
        return AT_CAP
    return SAME_SIZE if view.same_size >= policy.same_size_calls and tokens >= policy.same_size_tokens else None


def judge(view: CheckpointView) -> Decision:
    found = _output(view)
    if found is not None:
        return found
    if _facts(view) and not recall_floor.judge(view).fired:
        return RERANKED if selected(view.checkpoint, view.facts, view.policy.rerank_spare) else VANISHED
    checkpoint = view.checkpoint
    reported = checkpoint.stop_reason is not None or checkpoint.output_tokens is not None or checkpoint.facts is not None
    return CLEAN if reported else NOT_REPORTED


def leave(view: CheckpointView, decision: Decision) -> Exit:
    """Over when the level is summarized again, whole."""
    return Exit.OVER if decision is CLEAN and stands_for(view) else Exit.STANDING


def message(view: CheckpointView) -> str:
    checkpoint = view.checkpoint
    level, tokens, names = checkpoint.level, checkpoint.output_tokens, ", ".join(_facts(view)[:8])
    what = {
        CUT_OFF.reason: f"the summary was cut off (stop reason {checkpoint.stop_reason!r})",
        FAILED.reason: f"the summarizer did not write a summary (stop reason {checkpoint.stop_reason!r})",
        AT_CAP.reason: f"the summary ends exactly at its cap of {checkpoint.output_cap} tokens",
        SAME_SIZE.reason: f"{view.same_size} summaries in a row have exactly {tokens} tokens: likely a cap",
        EMPTY.reason: "the summary is empty",
        PLACEHOLDER.reason: f"{tokens} tokens stand for {checkpoint.declared_input_tokens}: a placeholder, not a summary",
        VANISHED.reason: f"vanished without a word: {names}",
        RERANKED.reason: f"selected instead of abstracting, with {room_left(checkpoint)} tokens to spare; gone: {names}",
    }[judge(view).reason]
    return f"silent drop at level {level}: {what}; summarize the level again"


def threshold(view: CheckpointView) -> dict[str, float]:
    policy, cap = view.policy, view.checkpoint.output_cap
    values: dict[str, float] = {
        "placeholder_tokens": policy.placeholder_tokens,
        "placeholder_input_tokens": policy.placeholder_input_tokens,
        "same_size_calls": policy.same_size_calls,
        "same_size_tokens": policy.same_size_tokens,
    }
    return values | {"output_cap": cap} if cap else values


def evidence(view: CheckpointView) -> Evidence:
    checkpoint = view.checkpoint
    found: Evidence = {}
    if checkpoint.output_tokens is not None:
        found["output_tokens"] = checkpoint.output_tokens
    if checkpoint.stop_reason is not None:
        found["stop_reason"] = checkpoint.stop_reason
    if checkpoint.source_spans is not None:
        found["source_spans"] = checkpoint.source_spans
    if lost := _facts(view):
        found["lost_facts"] = list(lost)
    return found


def parameters(view: CheckpointView) -> Parameters:
    lost = _facts(view)
    return Parameters(
        level=view.checkpoint.level,
        facts=list(lost) or None,
        instruction=recall_floor.ABSTRACT if judge(view) is RERANKED else _WHOLE,
    )


RULE: Rule[CheckpointView] = Rule(
    name="silent-drop",
    severity="critical",
    action=always("retry-level"),
    judge=judge,
    exit=leave,
    message=message,
    threshold=threshold,
    evidence=evidence,
    parameters=parameters,
    facts=_facts,
)
