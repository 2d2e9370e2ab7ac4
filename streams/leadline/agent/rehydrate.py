"""Rehydration: bring raw spans back under summaries until enough of the working set is raw again.

The order is the salience-inversion document's: the lowest-depth summary with the highest fan-out first. Where the budget is
full, what can be spared makes room (:mod:`leadline.agent.room`). Pure but for the callback that brings a span's text back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import inf

from leadline.agent.ledger import Ledger
from leadline.agent.room import Room
from leadline.agent.signals import Signals
from leadline.contracts.text import plural

__all__ = ["Bounds", "Rehydration", "Restore", "rehydrate"]

_log = logging.getLogger("leadline.agent")

Restore = Callable[[str], int | None]
"""Puts the text of a raw span back into the agent's working set; returns its tokens, or ``None`` when it cannot."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What to reach, and what not to exceed. Tokens throughout; ``None`` is no target, or no bound.

    ``max_restore_tokens`` does not count what raw text that made room had taken. ``least_spans``: no summary is given up for
    the sake of the raw ratio where that brings the distinct source spans below this; ``least_raw_ratio``: no raw text leaves
    to make room where that brings the raw ratio below this.
    """

    target_raw_ratio: float | None = None
    target_spans: int | None = None
    max_restore_tokens: int | None = None
    token_budget: int | None = None
    """For raw and summary tokens together, so without ``fixed_tokens``."""
    least_spans: int = 1
    least_raw_ratio: float = 0.0


@dataclass(frozen=True, slots=True)
class Rehydration:
    """What was done. The agent drops the texts of ``dropped`` from its context; those of ``restored`` spans are back already."""

    restored: tuple[str, ...]
    replaced: tuple[str, ...]
    """Summaries that gave their place to their own leaves, or had none and were to be dropped."""
    evicted: tuple[str, ...]
    """Whatever else left to make room, in that order: copies, archived raw spans, summaries that could be spared."""
    failed: tuple[str, ...]
    """Spans whose text could not be brought back."""
    raw_tokens_restored: int
    before: Signals
    after: Signals
    reached: bool
    """Whether the targets hold now."""

    @property
    def dropped(self) -> tuple[str, ...]:
        """Ids of all that left the working set."""
        return self.replaced + self.evicted

    @property
    def changed(self) -> bool:
        """Whether anything came back or left."""
        return bool(self.restored or self.dropped)

    @property
    def detail(self) -> str:
        """One sentence for the acknowledgement."""
        ratio = "unknown" if self.after.raw_ratio is None else f"{self.after.raw_ratio:.2f}"
        restored, replaced = plural(len(self.restored), "span"), plural(len(self.replaced), "summary", "summaries")
        text = f"{restored} restored, {replaced} replaced, raw ratio {ratio}"
        if self.evicted:
            text += f", {plural(len(self.evicted), 'item')} made room"
        if self.failed:
            text += f", {plural(len(self.failed), 'span')} could not be brought back"
        return text if self.reached else text + "; targets not reached"


def rehydrate(
    ledger: Ledger,
    restore: Restore,
    bounds: Bounds,
    *,
    plan: Iterable[str] = (),
    drop_ungrounded: bool = False,
    archives: bool = False,
) -> Rehydration:
    """Expand the summaries of ``plan`` in its order, then the ledger's own in the document's order, until the targets hold.

    A summary whose leaves all fit is replaced by them. Where they do not, as many as fit come back, and the summary gives
    its place to them only while the raw ratio is short of its target and the spans stay at ``least_spans`` or more. Where
    the targets still don't hold, room is made: first by what goes without losing a source span, then by summaries that
    bring the ratio down, and by items that hold more room than spans. What ``restore`` raises counts as "cannot".

    ``drop_ungrounded``: a retained summary without any reachable leaf gets one back, or goes; where all of them come back, it
    gives its place to them. ``archives``: the texts of raw
    spans that leave stay where ``restore`` finds them, so that summaries still lead to them; otherwise only copies of raw
    spans leave without loss.
    """
    return _Work(ledger, restore, bounds, drop_ungrounded, archives).run(plan)


class _Work:
    """One rehydration under way."""

    def __init__(self, ledger: Ledger, restore: Restore, bounds: Bounds, drop_ungrounded: bool, archives: bool) -> None:
        self._ledger = ledger
        self._restore = restore
        self._bounds = bounds
        self._drop_ungrounded = drop_ungrounded
        self._archives = archives
        self._room = Room(ledger, archives=archives, least_raw_ratio=max(bounds.least_raw_ratio, bounds.target_raw_ratio or 0.0))
        self._now = ledger.measure()
        self._restored: dict[str, int] = {}
        self._replaced: list[str] = []
        self._evicted: dict[str, int] = {}
        """Raw tokens of each item that made room."""
        self._failed: dict[str, None] = {}

    def run(self, plan: Iterable[str]) -> Rehydration:
        before = self._now
        own = sorted((s for s in before.summaries if s.depth > 0), key=lambda s: (s.depth, -s.fan_out, s.id))
        order = list(dict.fromkeys((*plan, *(summary.id for summary in own))))
        if self._drop_ungrounded:
            self._ground(order)
        self._expand_all(order)
        if not self._ratio_reached():
            self._give_up_summaries(order)
        if not self._spans_reached():
            self._bring_back_spans(order)
        return Rehydration(
            restored=tuple(self._restored),
            replaced=tuple(self._replaced),
            evicted=tuple(self._evicted),
            failed=tuple(self._failed),
            raw_tokens_restored=sum(self._restored.values()),
            before=before,
            after=self._now,
            reached=self._reached(),
        )

    # -- summaries without ground

    def _ground(self, order: list[str]) -> None:
        for summary_id in self._summaries(order):
            if self._ledger.grounded(summary_id):
                continue
            leaves = self._ledger.unreachable(summary_id)
            self._bring_back(leaves, self._free())
            for leaf in leaves:
                if self._ledger.grounded(summary_id) or self._squeeze_in(leaf, [summary_id]):
                    break
            # What nothing could check has nothing to say beside its whole input.
            if not self._ledger.grounded(summary_id) or not self._ledger.missing(summary_id):
                self._replace(summary_id)
        self._now = self._ledger.measure()

    # -- the raw ratio

    def _expand_all(self, order: list[str]) -> None:
        for summary_id in self._summaries(order):
            if self._reached():
                break
            self._expand(summary_id)
            self._now = self._ledger.measure()

    def _expand(self, summary_id: str) -> None:
        ledger = self._ledger
        if self._ratio_reached():
            # Enough is raw: only the ground is missing, and the summary can stay.
            self._bring_back(ledger.unreachable(summary_id), self._free(), self._spans_short())
            return
        missing = ledger.missing(summary_id)
        room = self._free() + ledger.tokens(summary_id)
        chosen = self._fitting(missing, room)
        whole = len(chosen) == len(missing)
        if not whole and ledger.spans_if([summary_id], chosen) < self._least_spans():
            self._bring_back(missing, self._free())
            return
        self._bring_back(chosen, room)
        if any(ledger.carried(leaf) for leaf in ledger.leaves(summary_id)):
            # Also where a span could not be brought back after all: the summary's room is taken.
            self._replace(summary_id)

    def _give_up_summaries(self, order: list[str]) -> None:
        """Nothing more fits: the summaries that matter least leave until enough is raw, and raw spans may take their room."""
        while not self._ratio_reached():
            spared = self._room.summary(self._least_spans(), self._restored)
            if spared is None:
                break
            self._evict([spared])
        self._expand_all(order)

    # -- the source spans

    def _bring_back_spans(self, order: list[str]) -> None:
        """Below summaries first; of what no retained summary leads to any more, the newest is the likeliest to be of use."""
        lost = dict.fromkeys(reversed(self._ledger.lost()))
        below = [leaf for summary_id in self._summaries(order) for leaf in self._ledger.unreachable(summary_id)]
        wanted = [leaf for leaf in dict.fromkeys((*below, *lost)) if leaf in lost]
        self._bring_back(wanted, self._free(), self._spans_short())
        for leaf in wanted:
            self._now = self._ledger.measure()
            if self._spans_reached():
                return
            self._squeeze_in(leaf, ())
        while not self._spans_reached() and self._exchange(wanted):
            pass

    def _squeeze_in(self, leaf: str, keep: Iterable[str]) -> bool:
        """Bring one span back in the place of what goes without loss. ``False``: it is not back."""
        tokens = self._ledger.tokens(leaf)
        if not self._wanted(leaf):
            return False
        leaving = self._room.for_nothing(tokens - int(min(self._free(), tokens)), tokens, {*keep, *self._restored})
        if leaving is None or tokens > self._allowance() + self._raw_tokens(leaving):
            return False
        if not self._fetch(leaf):
            return False
        # Not before: what left for a span that then could not be brought back would have left in vain.
        self._evict(leaving)
        return True

    def _exchange(self, wanted: list[str]) -> bool:
        """One large item for several small spans. ``False``: there is none that would be worth it."""
        leaves = sorted((leaf for leaf in wanted if self._wanted(leaf)), key=self._ledger.tokens)
        sizes = [self._ledger.tokens(leaf) for leaf in leaves]
        found = self._room.for_gain(sizes, self._free(), self._allowance(), self._restored)
        if found is None:
            return False
        share, fitting = found
        count = min(fitting, share.lost + self._spans_short())
        back = [leaf for leaf in leaves[:count] if self._fetch(leaf)]
        if len(back) > share.lost:
            self._evict([share.id])
        else:
            # Too many were not to be had: as it was, but for what restore now failed to bring.
            self._evict(back)
            for leaf in back:
                del self._restored[leaf]
                self._evicted[leaf] = 0
        return True

    # -- both

    def _summaries(self, order: list[str]) -> Iterator[str]:
        """Those that are retained when their turn comes."""
        for summary_id in order:
            if summary_id in self._ledger and self._ledger.retained(summary_id) and self._ledger.is_summary(summary_id):
                yield summary_id

    def _replace(self, summary_id: str) -> None:
        self._ledger.evict([summary_id])
        self._replaced.append(summary_id)

    def _evict(self, ids: list[str]) -> None:
        for item_id in ids:
            self._evicted[item_id] = self._raw_tokens([item_id])
        self._ledger.evict(ids, archived=self._archives)
        self._now = self._ledger.measure()

    def _raw_tokens(self, ids: list[str]) -> int:
        return sum(self._ledger.tokens(item_id) for item_id in ids if not self._ledger.is_summary(item_id))

    def _bring_back(self, leaves: Iterable[str], room: float, at_most: int | None = None) -> None:
        enough = None if at_most is None else len(self._restored) + at_most
        for leaf in self._fitting(leaves, room):
            if len(self._restored) == enough:
                return
            self._fetch(leaf)
        self._now = self._ledger.measure()

    def _fetch(self, leaf: str) -> bool:
        """Have the agent bring one span back."""
        try:
            tokens = self._restore(leaf)
            if tokens is not None:
                self._ledger.restore([leaf], {leaf: tokens})
                self._restored[leaf] = self._ledger.tokens(leaf)
                return True
            # Then the ledger must not count on it either.
            self._ledger.evict([leaf])
        except Exception as error:
            # The callback is the agent's: whatever goes wrong in it, this span is simply not back yet.
            _log.warning("a span could not be brought back: %.200r", error)
        self._failed[leaf] = None
        return False

    def _wanted(self, leaf: str) -> bool:
        """Whether it is worth asking for: not tried in vain, not back, not just sent away."""
        return leaf not in self._failed and leaf not in self._restored and leaf not in self._evicted

    def _fitting(self, leaves: Iterable[str], room: float) -> list[str]:
        """Those that fit, by the tokens they had, and that were not tried in vain before."""
        allowance = min(room, self._allowance())
        chosen: list[str] = []
        for leaf in leaves:
            tokens = self._ledger.tokens(leaf)
            if self._wanted(leaf) and tokens <= allowance:
                chosen.append(leaf)
                allowance -= tokens
        return chosen

    def _allowance(self) -> float:
        bound = self._bounds.max_restore_tokens
        return inf if bound is None else bound - sum(self._restored.values()) + sum(self._evicted.values())

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
