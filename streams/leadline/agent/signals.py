"""One measurement of a working set: the signals of the contract, computed by the ledger."""

from __future__ import annotations

from msgspec import Struct

from leadline.contracts import limits
from leadline.contracts.events import Measures, Summary

__all__ = ["Signals"]


class Signals(Struct, frozen=True, gc=False):
    """Measurements of the working set at one moment; definitions in :mod:`leadline.contracts.events`.

    Token counts are integers; ``query_cosine_retained`` is ``None`` where no retained item has a salience. ``summaries``
    lists every retained summary, those without ground first, then lowest depth, then highest fan-out.
    """

    raw_tokens: int
    summary_tokens: int
    distinct_source_spans: int
    query_cosine_retained: float | None
    summary_depth_max: int
    ungrounded_summaries: int = 0
    summaries: tuple[Summary, ...] = ()

    @property
    def total_tokens(self) -> int:
        return self.raw_tokens + self.summary_tokens

    @property
    def raw_ratio(self) -> float | None:
        """``raw / (raw + summary)``; ``None`` (unknown) when both are 0."""
        return self.raw_tokens / self.total_tokens if self.total_tokens else None

    def measures(self) -> Measures:
        """The four measurements that a round carries as ``before``."""
        return Measures(
            raw_tokens=self.raw_tokens,
            summary_tokens=self.summary_tokens,
            distinct_source_spans=self.distinct_source_spans,
            query_cosine_retained=self.query_cosine_retained,
        )

    def listed(self) -> list[Summary]:
        """The summaries as a round lists them: at most :data:`leadline.contracts.limits.MAX_SUMMARIES`, most telling first."""
        return list(self.summaries[: limits.MAX_SUMMARIES])
