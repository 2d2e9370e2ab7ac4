"""The context as columns: one row for every raw span and summary ever made, retained or not.

Provenance is a bit mask a row: which raw spans it was made from, through however many summaries.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from leadline.lab.simulator.corpus import Floats, Ints, Spans

__all__ = ["Bools", "Measure", "WorkingSet"]

Bools = NDArray[np.bool_]


class Measure(NamedTuple):
    """The signals of the contract (:mod:`leadline.contracts.events`), from ground truth."""

    raw_tokens: int
    summary_tokens: int
    distinct_source_spans: int
    query_cosine_retained: float
    summary_depth_max: int
    ungrounded_summaries: int

    @property
    def total_tokens(self) -> int:
        return self.raw_tokens + self.summary_tokens

    @property
    def raw_ratio(self) -> float | None:
        return self.raw_tokens / self.total_tokens if self.total_tokens else None


class WorkingSet:
    """Rows are numbered from 0 in the order they were made; raw spans have depth 0.

    ``archived``: evicted text can still be produced (a transcript that the provenance pointers lead to).
    """

    def __init__(self, dimensions: int, archived: bool = False) -> None:
        self.archived = archived
        self.count = 0
        self.vectors: Floats = np.zeros((0, dimensions))
        self.tokens: Ints = np.zeros(0, np.int64)
        self.depth: Ints = np.zeros(0, np.int64)
        self.born: Ints = np.zeros(0, np.int64)
        self.topic: Ints = np.zeros(0, np.int64)
        self.retained: Bools = np.zeros(0, np.bool_)
        self.merged: Bools = np.zeros(0, np.bool_)
        """Was part of a summary."""
        self.leaves: Bools = np.zeros((0, 0), np.bool_)
        """Row by row, the leaves below it, a column for each raw span; a raw span is below itself."""
        self.spans: Ints = np.zeros(0, np.int64)
        """The row of each leaf."""
        self.held: Bools = np.zeros(0, np.bool_)
        """Stayed in the last pass for the sake of grounding alone."""
        self.children: dict[int, tuple[int, ...]] = {}

    def add_spans(self, spans: Spans, born: Ints) -> Ints:
        """Raw spans come in; returns their rows."""
        rows = self._grow(len(spans.tokens))
        self.vectors[rows], self.tokens[rows], self.topic[rows], self.born[rows] = spans.vectors, spans.tokens, spans.topics, born
        columns = self._more_leaves(rows)
        self.leaves[rows, columns] = True
        return rows

    def add_summary(self, children: Ints, tokens: int, born: int) -> int:
        """A summary of ``children``, which stay. Its vector is theirs combined by tokens, its topic the first one's."""
        row = int(self._grow(1)[0])
        combined = (self.tokens[children][:, None] * self.vectors[children]).sum(axis=0)
        self.vectors[row] = combined / np.linalg.norm(combined)
        self.tokens[row], self.born[row] = tokens, born
        self.depth[row] = 1 + self.depth[children].max()
        self.topic[row] = self.topic[children[0]]
        self.leaves[row] = self.leaves[children].any(axis=0)
        self.merged[children] = True
        self.children[row] = tuple(children.tolist())
        return row

    def kept(self) -> Ints:
        """Rows in the context."""
        return np.flatnonzero(self.retained[: self.count])

    def producible(self) -> Bools:
        """By leaf: whether its text can be produced."""
        return np.ones(len(self.spans), np.bool_) if self.archived else self.retained[self.spans]

    def reach(self, rows: Ints) -> Ints:
        """How many producible leaves each row has."""
        counted: Ints = np.count_nonzero(self.leaves[rows][:, : len(self.spans)] & self.producible(), axis=1)
        return counted

    def measure(self, salience: Floats) -> Measure:
        """``salience`` by row, under the session's own scorer."""
        kept = self.kept()
        raw = self.depth[kept] == 0
        summaries = kept[~raw]
        # A leaf that is retained is reachable anyway, and without an archive no other one is.
        below = self.retained[self.spans]
        if self.archived:
            below = below | self.leaves[summaries][:, : len(self.spans)].any(axis=0)
        return Measure(
            raw_tokens=int(self.tokens[kept[raw]].sum()),
            summary_tokens=int(self.tokens[summaries].sum()),
            distinct_source_spans=int(below.sum()),
            query_cosine_retained=float(salience[kept].mean()) if len(kept) else 0.0,
            summary_depth_max=int(self.depth[kept].max()) if len(kept) else 0,
            ungrounded_summaries=int((self.reach(summaries) == 0).sum()),
        )

    def _grow(self, more: int) -> Ints:
        start, self.count = self.count, self.count + more
        room = len(self.tokens)
        if self.count > room:
            extra = max(1024, self.count - room)
            self.vectors = np.concatenate([self.vectors, np.zeros((extra, self.vectors.shape[1]))])
            for name in ("tokens", "depth", "born", "topic", "retained", "merged", "held"):
                column = getattr(self, name)
                setattr(self, name, np.concatenate([column, np.zeros(extra, column.dtype)]))
            self.leaves = np.concatenate([self.leaves, np.zeros((extra, self.leaves.shape[1]), np.bool_)])
        rows = np.arange(start, self.count)
        self.retained[rows] = True
        return rows

    def _more_leaves(self, rows: Ints) -> Ints:
        start = len(self.spans)
        self.spans = np.concatenate([self.spans, rows])
        lacking = len(self.spans) - self.leaves.shape[1]
        if lacking > 0:
            self.leaves = np.concatenate([self.leaves, np.zeros((len(self.leaves), max(128, lacking)), np.bool_)], axis=1)
        return np.arange(start, len(self.spans))
