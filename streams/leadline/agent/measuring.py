"""One measurement of a working set: what the ledger keeps, as the signals that a round reports. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from leadline.agent.items import Item
from leadline.agent.leaves import Leaves
from leadline.agent.signals import Signals
from leadline.contracts.events import Summary

__all__ = ["measure"]


def measure(
    summaries: Iterable[Item], mask_of: Callable[[Item], int], leaves: Leaves, raw_tokens: int, salience_mean: float | None
) -> Signals:
    """All signals of the retained ``summaries`` and of the raw spans beside them. ``mask_of``: the leaves below a summary.

    Cost: one pass. What is listed of a summary is kept on it and made anew only where it changed.
    """
    tokens = deepest = ungrounded = union = 0
    available = leaves.available
    listing: list[Summary] = []
    for item in summaries:
        tokens += item.tokens
        if item.depth > deepest:
            deepest = item.depth
        mask = mask_of(item) & available
        union |= mask
        reachable = mask.bit_count()
        if not reachable:
            ungrounded += 1
        listed = item.listed
        if listed is None or listed.reachable != reachable or listed.tokens != item.tokens:
            fan_out = len(item.sources or ())
            listed = Summary(id=item.id, depth=item.depth, tokens=item.tokens, fan_out=fan_out, reachable=reachable)
            item.listed = listed
        listing.append(listed)
    union |= leaves.verbatim  # Retained, so they can be produced.
    listing.sort(key=_most_telling)
    return Signals(raw_tokens, tokens, union.bit_count(), salience_mean, deepest, ungrounded, tuple(listing))


def _most_telling(summary: Summary) -> tuple[bool, int, int]:
    """Those without ground first, then lowest depth, then highest fan-out."""
    return bool(summary.reachable), summary.depth, -summary.fan_out
