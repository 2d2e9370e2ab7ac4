"""Rehydration: bring raw spans back under summaries until enough of the working set is raw again.

The order is the salience-inversion document's: the lowest-depth summary with the highest fan-out first. Pure but for the
callback that brings a span's text back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import inf

from leadline.agent.ledger import Ledger
from leadline.agent.signals import Signals

__all__ = ["Bounds", "Rehydration", "Restore", "rehydrate"]

_log = logging.getLogger("leadline.agent")

Restore = Callable[[str], int | None]
"""Puts the text of a raw span back into the agent's working set; returns its tokens, or ``None`` when it cannot."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What to reach, and what not to exceed. Tokens throughout; ``None`` is no target, or no bound.

    ``least_spans``: replacing a summary by a part of its leaves must not bring the distinct source spans below this.
    """

    target_raw_ratio: float | None = None
    target_spans: int | None = None
    max_restore_tokens: int | None = None
    token_budget: int | None = None
    """For raw and summary tokens together, so without ``fixed_tokens``."""
    least_spans: int = 1


@dataclass(frozen=True, slots=True)
class Rehydration:
    """What was done. The agent drops the texts of the ``replaced`` summaries; those of ``restored`` spans are back already."""

    restored: tuple[str, ...]
    replaced: tuple[str, ...]
    failed: tuple[str, ...]
    """Spans whose text could not be brought back."""
    raw_tokens_restored: int
    before: Signals
    after: Signals
    reached: bool
    """Whether the targets hold now."""

    @property
    def detail(self) -> str:
        """One sentence for the acknowledgement."""
        ratio = "unknown" if self.after.raw_ratio is None else f"{self.after.raw_ratio:.2f}"
        text = f"{len(self.restored)} spans restored, {len(self.replaced)} summaries replaced, raw ratio {ratio}"
        if self.failed:
            text += f", {len(self.failed)} spans could not be brought back"
        return text if self.reached else text + "; targets not reached"


def rehydrate(
    ledger: Ledger, restore: Restore, bounds: Bounds, *, plan: Iterable[str] = (), drop_ungrounded: bool = False
) -> Rehydration:
    """Expand the summaries of ``plan`` in its order, then the ledger's own in the document's order, until the targets hold.

    A summary whose leaves all fit is replaced by them. Where they do not, as many as fit come back, and the summary gives
    its place to them only while the raw ratio is short of its target and the spans stay at ``least_spans`` or more. What
    ``restore`` raises counts as "cannot". ``drop_ungrounded`` evicts a summary below which nothing can be brought back.
    """
    return _Work(ledger, restore, bounds, drop_ungrounded).run(plan)


class _Work:
    """One rehydration under way."""

    def __init__(self, ledger: Ledger, restore: Restore, bounds: Bounds, drop_ungrounded: bool) -> None:
        self._ledger = ledger
        self._restore = restore
        self._bounds = bounds
        self._drop_ungrounded = drop_ungrounded
        self._now = ledger.measure()
        self._restored: dict[str, int] = {}
        self._replaced: list[str] = []
        self._failed: dict[str, None] = {}

    def run(self, plan: Iterable[str]) -> Rehydration:
        before = self._now
        own = sorted((s for s in before.summaries if s.depth > 0), key=lambda s: (s.depth, -s.fan_out, s.id))
        for summary_id in dict.fromkeys((*plan, *(summary.id for summary in own))):
            if self._reached() and not self._drop_ungrounded:
                break
            if summary_id in self._ledger and self._ledger.retained(summary_id) and self._ledger.is_summary(summary_id):
                self._expand(summary_id)
                self._now = self._ledger.measure()
        if not self._spans_reached():
            # What is missing hangs below no retained summary any more; the newest is the likeliest to be of use.
            self._bring_back(reversed(self._ledger.lost()), self._free(), self._spans_short())
            self._now = self._ledger.measure()
        return Rehydration(
            restored=tuple(self._restored),
            replaced=tuple(self._replaced),
            failed=tuple(self._failed),
            raw_tokens_restored=sum(self._restored.values()),
            before=before,
            after=self._now,
            reached=self._reached(),
        )

    def _expand(self, summary_id: str) -> None:
        ledger, tokens = self._ledger, self._ledger.tokens(summary_id)
        if self._ratio_reached():
            # Enough is raw: only the ground is missing, and the summary can stay.
            self._bring_back(ledger.unreachable(summary_id), self._free(), self._spans_short())
        else:
            missing = ledger.missing(summary_id)
            room = self._free() + tokens
            chosen = self._fitting(missing, room)
            whole = len(chosen) == len(missing)
            if not whole and ledger.spans_if([summary_id], chosen) < self._least_spans():
                self._bring_back(missing, self._free())
                return
            self._bring_back(chosen, room)
            if any(ledger.carried(leaf) for leaf in ledger.leaves(summary_id)):
                # Also where a span could not be brought back after all: the summary's room is taken.
                self._replace(summary_id)
                return
        if self._drop_ungrounded and not ledger.grounded(summary_id):
            self._replace(summary_id)

    def _replace(self, summary_id: str) -> None:
        self._ledger.evict([summary_id])
        self._replaced.append(summary_id)

    def _bring_back(self, leaves: Iterable[str], room: float, at_most: int | None = None) -> None:
        enough = None if at_most is None else len(self._restored) + at_most
        for leaf in self._fitting(leaves, room):
            if len(self._restored) == enough:
                return
            try:
                tokens = self._restore(leaf)
                if tokens is None:
                    # Then the ledger must not count on it either.
                    self._ledger.evict([leaf])
                else:
                    self._ledger.restore([leaf], {leaf: tokens})
                    self._restored[leaf] = self._ledger.tokens(leaf)
                    continue
            except Exception as error:
                # The callback is the agent's: whatever goes wrong in it, this span is simply not back yet.
                _log.warning("a span could not be brought back: %.200r", error)
            self._failed[leaf] = None

    def _fitting(self, leaves: Iterable[str], room: float) -> list[str]:
        """Those that fit, by the tokens they had, and that were not tried in vain before."""
        allowance = min(room, self._allowance())
        chosen: list[str] = []
        for leaf in leaves:
            tokens = self._ledger.tokens(leaf)
            if leaf not in self._failed and tokens <= allowance:
                chosen.append(leaf)
                allowance -= tokens
        return chosen

    def _allowance(self) -> float:
        bound = self._bounds.max_restore_tokens
        return inf if bound is None else bound - sum(self._restored.values())

    def _free(self) -> float:
        budget = self._bounds.token_budget
        return inf if budget is None else max(0, budget - self._ledger.measure().total_tokens)

    def _least_spans(self) -> int:
        return max(self._bounds.least_spans, self._bounds.target_spans or 0)

    def _ratio_reached(self) -> bool:
        target, ratio = self._bounds.target_raw_ratio, self._now.raw_ratio
        return target is None or ratio is None or ratio >= target

    def _spans_reached(self) -> bool:
        return self._bounds.target_spans is None or self._now.distinct_source_spans >= self._bounds.target_spans

    def _spans_short(self) -> int:
        return max(0, (self._bounds.target_spans or 0) - self._now.distinct_source_spans)

    def _reached(self) -> bool:
        return self._ratio_reached() and self._spans_reached()
