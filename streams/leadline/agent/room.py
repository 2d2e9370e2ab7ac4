"""Room for what a rehydration brings back: what can leave a working set, the dispensable first. Pure.

What goes without any loss goes first: copies, then raw spans that are archived and stay reachable through a retained summary,
then summaries whose leaves others lead to (or which have none), the deepest first.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from leadline.agent.ledger import Ledger
from leadline.agent.shares import Share

__all__ = ["Room"]

_COPY: Final = 0
_ARCHIVED: Final = 1
_SUMMARY: Final = 2


class Room:
    """Chooses; evicts nothing itself.

    ``archives``: raw spans that leave are kept where they can be produced. ``least_raw_ratio``: raw text does not leave where
    that would bring the raw ratio below this (or further below it).
    """

    def __init__(self, ledger: Ledger, *, archives: bool, least_raw_ratio: float) -> None:
        self._ledger = ledger
        self._archives = archives
        self._least_raw_ratio = least_raw_ratio

    def for_nothing(self, need: int, incoming: int, keep: Collection[str]) -> list[str] | None:
        """Ids of items whose leaving frees ``need`` tokens and loses no source span; ``None`` where there are none.

        ``incoming``: raw tokens that come in their place. ``keep``: ids that stay.
        """
        chosen: list[Share] = []
        while (still := need - sum(share.tokens for share in chosen)) > 0:
            shares = self._ledger.shares(self._archives, [share.id for share in chosen])
            free = [
                share
                for share in shares
                if not share.lost
                and not share.grounds
                and share.tokens
                and share.id not in keep
                and self._ratio_allows([*chosen, share], incoming)
            ]
            if not free:
                return None
            chosen.append(min(free, key=lambda share: _dispensable(share, still)))
        return [share.id for share in chosen]

    def for_gain(self, sizes: Sequence[int], free: float, allowance: float, keep: Collection[str]) -> tuple[Share, int] | None:
        """The item whose place is best taken by several raw spans of ``sizes`` tokens (ascending), and how many then fit.

        ``free``: tokens that are; ``allowance``: tokens that may come in, besides those of raw text that leaves. ``None``
        where no item makes room for more spans than are lost with it.
        """
        best: tuple[int, int, str] | None = None
        found: tuple[Share, int] | None = None
        for share in self._ledger.shares(self._archives):
            if share.id in keep or share.grounds:
                continue
            count, taken = 0, 0
            limit = min(free + share.tokens, allowance + (0 if share.depth else share.tokens))
            for size in sizes:
                if taken + size > limit:
                    break
                count, taken = count + 1, taken + size
            rank = (share.lost - count, share.tokens, share.id)
            if count > share.lost and self._ratio_allows([share], taken) and (best is None or rank < best):
                best, found = rank, (share, count)
        return found

    def summary(self, least_spans: int, keep: Collection[str]) -> str | None:
        """The summary that can best be spared to raise the raw ratio; at least ``least_spans`` source spans stay."""
        shares = self._ledger.shares(self._archives)
        if len(shares) < 2:
            return None
        spans = self._ledger.measure().distinct_source_spans
        spare = [
            share
            for share in shares
            if share.depth and share.tokens and share.id not in keep and (not share.lost or spans - share.lost >= least_spans)
        ]
        if not spare:
            return None
        return min(spare, key=lambda share: (share.lost / share.tokens, *_dispensable(share, 0))).id

    def _ratio_allows(self, leaving: list[Share], incoming: int) -> bool:
        """Whether the raw ratio stays where it is, or above what it must not fall below."""
        raw_leaving = sum(share.tokens for share in leaving if not share.depth)
        if raw_leaving <= incoming:
            return True
        now = self._ledger.measure()
        raw = now.raw_tokens - raw_leaving + incoming
        total = now.total_tokens - sum(share.tokens for share in leaving) + incoming
        return total > 0 and raw / total >= min(self._least_raw_ratio, now.raw_ratio or 0.0)


def _dispensable(share: Share, need: int) -> tuple[int, bool, int, bool, int, str]:
    """What may go first sorts first; among equals the smallest that is enough, or else the largest."""
    kind = _SUMMARY if share.depth else _COPY if share.copied else _ARCHIVED
    small = share.tokens < need
    return kind, bool(share.reachable), -share.depth, small, -share.tokens if small else share.tokens, share.id
