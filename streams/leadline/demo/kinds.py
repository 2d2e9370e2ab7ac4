"""The kinds of agents in the demo: one table. What is planted is a mechanism; which rule finds it is the monitor's to say."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

__all__ = ["KINDS", "Kind", "Mechanism", "kind_named"]


@dataclass(frozen=True, slots=True)
class Mechanism:
    """How one agent compacts. Tokens throughout."""

    token_budget: int = 4_000
    max_depth: int = 4
    """The hierarchy's limit, as the agent states it."""
    merge_depth: int = 2
    """How deep it really nests."""
    fan_in: int = 6
    """Raw spans in one summary."""
    merge_fan_in: int = 4
    """Summaries in one summary of summaries."""
    merge_replaces: bool = True
    """A merged summary gives its place to the one that was made from it; otherwise they compete."""
    compression: float = 0.35
    """Tokens of a summary, as a share of its input's."""
    summary_cap: int = 800
    """The longest summary that the summarizer is asked for."""
    start_spans: int = 40
    start_tokens: tuple[int, int] = (50, 110)
    arrivals: tuple[int, int] = (1, 3)
    """Spans that come in each round: least, most."""
    arrival_tokens: tuple[int, int] = (80, 220)
    raw_floor: float = 0.40
    """Eviction takes no raw span that would leave less than this raw ratio; 0: it looks at salience alone."""
    span_floor: float = 0.45
    """Eviction takes nothing that would leave less than this share of the start's spans reachable; 0: it does not look."""
    archive_tokens: int | None = None
    """How much evicted text the archive holds before the oldest is purged; ``None``: all that summaries stand on."""
    citations: int | None = None
    """How many of its sources a summary points at; ``None``: all of them."""
    keep_summaries: bool = False
    """Eviction takes only raw spans that a summary points at: provenance stays, raw tokens go."""
    input_cap: int | None = None
    """The summarizer reads this many tokens of its input; the tail is dropped without a word."""
    note_slots: tuple[tuple[int, int], ...] = ()
    """(level, facts): how many facts the summarizer carries along at that level; the rest vanish."""
    decay: float = 0.15
    """Weight of recency in the salience score."""
    scorer_noise: float = 0.0
    burst: float = 0.0
    """How often a round brings three times as much."""
    failure: float = 0.0
    """How often the compaction pass fails and leaves the working set as it was."""


@dataclass(frozen=True, slots=True)
class Kind:
    """``rule``: what the monitor is expected to find, empty where nothing is planted; ``command``: its first order, if any."""

    name: str
    says: str
    rule: str = ""
    command: str = ""
    mechanism: Mechanism = field(default_factory=Mechanism)

    @property
    def planted(self) -> bool:
        return bool(self.rule)


KINDS: Final[tuple[Kind, ...]] = (
    Kind("healthy", "evicts the least salient, subject to grounding"),
    Kind(
        "healthy-noisy",
        "the same with bursts, a jittery scorer and failing passes",
        mechanism=Mechanism(scorer_noise=0.05, burst=0.08, failure=0.06, arrivals=(0, 3), arrival_tokens=(40, 320)),
    ),
    Kind(
        "drifting",
        "evicts raw text first and keeps every pointer",
        "drift",
        mechanism=Mechanism(
            raw_floor=0.0,
            span_floor=0.0,
            keep_summaries=True,
            token_budget=3_500,
            merge_depth=4,
            max_depth=6,
            compression=0.6,
            summary_cap=500,
            arrivals=(2, 3),
            arrival_tokens=(50, 110),
            fan_in=5,
            merge_fan_in=5,
        ),
    ),
    Kind(
        "inverting",
        "evicts by salience alone, nests deep, cites two sources each",
        "inversion",
        "halt",
        Mechanism(
            raw_floor=0.0,
            span_floor=0.0,
            citations=2,
            merge_depth=4,
            max_depth=6,
            compression=0.5,
            decay=0.3,
            fan_in=5,
            merge_fan_in=3,
            merge_replaces=False,
            arrivals=(2, 3),
        ),
    ),
    Kind(
        "depth-pinned",
        "nests to its limit and stays there",
        "depth-pin",
        "cap-depth",
        Mechanism(merge_depth=3, max_depth=3, fan_in=4, merge_fan_in=3),
    ),
    Kind(
        "floor-breaching",
        "cites one source a summary; large results crowd out the rest",
        "provenance-floor",
        "halt",
        Mechanism(
            raw_floor=0.27,
            span_floor=0.0,
            citations=1,
            compression=0.5,
            summary_cap=1_200,
            start_spans=40,
            arrivals=(2, 2),
            arrival_tokens=(300, 430),
        ),
    ),
    Kind(
        "truncating",
        "its summarizer reads the head of its input, not the tail",
        "budget-open",
        "retry-level",
        Mechanism(input_cap=1_000, fan_in=8, arrival_tokens=(120, 260), compression=0.2),
    ),
    Kind(
        "constraint-losing",
        "its summaries of summaries have room for one fact",
        "recall-floor",
        "retry-level",
        Mechanism(note_slots=((2, 1), (3, 1), (4, 1))),
    ),
)


def kind_named(name: str) -> Kind:
    return next(kind for kind in KINDS if kind.name == name)
