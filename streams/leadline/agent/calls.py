"""What is told of one summarizer call. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypedDict

from leadline.agent.coverage import is_placeholder
from leadline.agent.facts import Fact, assess
from leadline.contracts import limits
from leadline.contracts.events import FactState

__all__ = ["CallCounts", "assessed", "counted"]


class CallCounts(TypedDict, total=False):
    """What one summarizer call counted; units and meaning as in :class:`leadline.contracts.events.Checkpoint`."""

    budget_tokens: int
    declared_input_tokens: int
    consumed_input_tokens: int
    source_spans: int
    seen_spans: int
    unseen_span_ids: list[str]
    output_tokens: int
    output_cap: int
    stop_reason: str


def counted(counts: CallCounts, text: str | None) -> CallCounts:
    """``counts`` with what the summary's visible ``text`` gives away, and no longer than a record may be."""
    counts = counts.copy()
    if text is not None and is_placeholder(text):
        counts["stop_reason"] = "placeholder"
    if text is not None and not text.strip():
        counts.setdefault("output_tokens", 0)
    if "unseen_span_ids" in counts:
        counts["unseen_span_ids"] = counts["unseen_span_ids"][: limits.MAX_SUMMARIES]
    return counts


def assessed(facts: Mapping[str, Fact], given: Iterable[str] | None, text: str | None, visible: bool) -> dict[str, FactState]:
    """What became of ``facts`` in a summary's text: of those ``given`` to the call, or of all."""
    if text is None and visible:
        return {}
    asked = facts.values() if given is None else [facts[fact_id] for fact_id in given if fact_id in facts]
    return {fact.fact_id: assess(fact, text if visible else None) for fact in asked}
