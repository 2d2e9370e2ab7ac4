"""The figures of the two founding documents. The only place where they are written down; the simulator does not import it.

Salience-inversion document, "What Was Observed" and "Operational Effect"; truncation-collapse document, "What was observed".
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

__all__ = ["PUBLISHED", "TRUNCATION", "Figure"]

Within = Literal["share", "rounds", "at-most", "at-least", "exact", "range"]


class Figure(NamedTuple):
    """One published figure. ``value``: as published; ``upper``: the other end where a range is published.

    ``within``: how a measured median is held to it: ``share`` (``tolerance`` is a share of the value), ``rounds``
    (``tolerance`` is rounds), ``at-most``, ``at-least``, ``exact``, or inside the published ``range``.
    """

    name: str
    says: str
    value: float
    within: Within = "share"
    tolerance: float = 0.10
    upper: float | None = None


PUBLISHED: Final = (
    Figure("raw_ratio.start", "raw ratio in round 1", 0.71),
    Figure("raw_ratio.round_28", "raw ratio in round 28", 0.09),
    Figure("raw_ratio.end", "raw ratio in round 40: flat since round 28", 0.09),
    Figure("depth.reached", "round in which depth 3 is reached: by round 12", 12, "at-most"),
    Figure("depth.pinned", "least depth from round 12 on: pinned at 3", 3, "exact"),
    Figure("spans.start", "distinct source spans in round 1", 214),
    Figure("spans.round_30", "distinct source spans in round 30", 37),
    Figure("tokens.off_budget", "largest distance of retained tokens from the budget", 0.04, "at-most"),
    Figure("salience.start", "mean salience of retained items in round 1", 0.41),
    Figure("salience.end", "mean salience of retained items in round 40", 0.68),
    Figure("onset.with_decay", "inversion onset", 12, "rounds", 2),
    Figure("onset.without_decay", "inversion onset without the recency decay", 19, "rounds", 2),
    Figure("claims.unsupported", "unsupported claims in the final answer: at least one", 1, "at-least"),
    Figure("grounded.unsupported", "unsupported claims with grounding enforced", 0, "exact"),
    Figure("grounded.pressure", "token pressure added by enforcing it", 0.18, "range", 0.10, 0.24),
    Figure("grounded.depth", "depth at the end with grounding enforced", 2, "exact"),
)

TRUNCATION: Final = (
    Figure("truncation.over_budget", "levels over their budget (8k, 2k, 512, 128)", 0, "exact"),
    Figure("truncation.reported", "drops that the levels report", 0, "exact"),
    Figure("truncation.last_verbatim", "last level at which the constraint stands verbatim", 1, "exact"),
    Figure("truncation.last_label", "last level at which a trace of it is left (a label)", 2, "exact"),
    Figure("truncation.absent", "first level at which nothing of it is left", 3, "exact"),
)
