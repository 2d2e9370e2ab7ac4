"""What a simulated session is made of, and why each value is what it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

__all__ = ["REASONS", "LoopSettings", "Pick"]

Pick = Literal["endangered", "oldest", "random", "gathered"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSettings:
    """One kind of session. Tokens and rounds throughout; what each value means and why it is so is in :data:`REASONS`."""

    token_budget: int = 180_000
    rounds: int = 40
    max_depth: int = 3
    trigger_fill: float = 0.73
    span_tokens: float = 560.0
    span_spread: float = 0.5
    reading_pace: int = 1
    arrivals: float = 0.65
    dimensions: int = 128
    topics: int = 13
    relevance_low: float = 0.2
    relevance_high: float = 0.63
    relevance_skew: float = 2.75
    topic_share_skew: float = 0.0
    noise: float = 3.1
    dilution: float = 0.9
    picks: tuple[Pick, ...] = ("endangered", "endangered", "gathered")
    group_sizes: tuple[int, ...] = (3, 6, 10)
    calls: tuple[int, ...] = (4, 1, 1)
    compression: float = 0.4
    output_caps: tuple[int, ...] = (2_500, 2_500, 2_500)
    decay_weight: float = 0.76
    decay_half_life: float = 34.0
    depth_penalty: float = 0.0
    answer_items: int = 20
    archived: bool = False
    grounding: bool = False
    span_floor: float = 0.2
    guard_pin_rounds: int = 5
    guard_depth: int = 2


REASONS: Final[dict[str, str]] = {
    "token_budget": "set-up: the document's budget",
    "rounds": "set-up: the document's session length",
    "max_depth": "set-up: the document's hierarchy",
    "trigger_fill": "calibrated: first compaction; what is read and its first summaries then just fill the budget",
    "span_tokens": "calibrated: a paragraph or a tool result; with the trigger it decides how many spans a session starts with",
    "span_spread": "calibrated: log-normal; spans of a third and of three times the mean occur",
    "reading_pace": "calibrated: one source a round before the first compaction, so that most of the raw text is old by then",
    "arrivals": "calibrated: reading slows down when synthesis begins; sets how much fresh raw text the plateau holds",
    "dimensions": "chosen: high enough that cosines by chance are small",
    "topics": "calibrated: unequally relevant; with fewer the onset without decay varies more",
    "relevance_low": "calibrated: cosine of the least relevant topic to the query; its summaries lose to raw text of better ones",
    "relevance_high": "calibrated: cosine of the most relevant topic; sets the mean salience of what survives",
    "relevance_skew": "calibrated: above 1, few topics are very relevant; their raw spans are the plateau",
    "topic_share_skew": "chosen: 0, every topic has as many spans as another",
    "noise": "calibrated: a raw span is mostly idiosyncratic; what it shares with its topic shows only when several are combined",
    "dilution": "calibrated: a longer span holds more that is beside its topic, so shorter ones survive",
    "picks": "the mechanism: a summary is made of what is about to be evicted: the least relevant; level 3 waits for a group",
    "group_sizes": "calibrated: few spans in a level-1 summary, so grounding needs many leaves; ten of level 2 to one of level 3",
    "calls": "calibrated: calls a round at each level; with their lengths they are the flow of summary tokens",
    "compression": "calibrated: a summary has two fifths of its children's tokens; sets the raw ratio after the first compaction",
    "output_caps": "calibrated: a summarizer's output limit; it binds at level 3",
    "decay_weight": "calibrated: the recency bonus of something new, of the size of the cosines it is added to",
    "decay_half_life": "calibrated: a summary keeps most of its bonus over the rounds in which old raw text is displaced",
    "depth_penalty": "set-up: 0, the scorer does not look at depth (the second condition of validity)",
    "answer_items": "calibrated: claims, one an item, the most salient first; with ten the median session has all supported",
    "archived": "set-up: evicted text is gone",
    "grounding": "set-up: off, but for the run that enforces it",
    "span_floor": "set-up: the document's floor, a fifth of the spans at session start",
    "guard_pin_rounds": "set-up: the document's guard allows five rounds at the depth limit",
    "guard_depth": "set-up: the document's cap for a pinned hierarchy",
}
