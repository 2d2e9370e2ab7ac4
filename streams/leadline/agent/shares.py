"""What a working set owes to each of its items: what would be lost with it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import NamedTuple

from leadline.agent.items import Item, mask_of
from leadline.agent.leaves import Leaves

__all__ = ["Share", "shares"]


class Share(NamedTuple):
    """What the working set owes to one retained item.

    ``depth`` 0 is verbatim source. ``lost``: distinct source spans that would be lost with it; ``reachable``: those at or
    below it. ``copied``: another retained item carries the same text verbatim. ``grounds``: without it some retained
    summary would have no leaf whose text can be produced.
    """

    id: str
    tokens: int
    depth: int
    lost: int
    reachable: int
    copied: bool = False
    grounds: bool = False


def shares(raw: Collection[Item], summaries: Collection[tuple[Item, int]], leaves: Leaves, archives: bool) -> dict[str, Share]:
    """By id. ``raw``: the working set's raw items; ``summaries``: its summaries, each with the mask of the leaves it reaches.

    ``archives``: raw spans that leave are archived, so that a retained summary still leads to them. Cost: one pass.
    """
    carriers = Counter(item.bit for item in raw)
    once, twice, only = mask_of(carriers), mask_of(bit for bit, count in carriers.items() if count > 1), 0
    for _, mask in summaries:
        twice |= once & mask
        once |= mask
        if mask & (mask - 1) == 0:
            only |= mask
    alone = once & ~twice
    found = {
        item.id: Share(item.id, item.tokens, item.depth, (mask & alone).bit_count(), mask.bit_count()) for item, mask in summaries
    }
    # Asked bit by bit, a mask of many leaves would be copied each time.
    size = len(leaves) // 8 + 1
    elsewhere, grounding = twice.to_bytes(size, "little"), only.to_bytes(size, "little")
    for item in raw:
        at, place = item.bit >> 3, 1 << (item.bit & 7)
        others = [other for other in leaves.carriers(item.bit) if other is not item]
        copied = carriers[item.bit] > 1
        stays = archives or copied or any(other.archived for other in others)
        lost = 0 if stays and elsewhere[at] & place else 1
        grounds = not stays and bool(grounding[at] & place)
        found[item.id] = Share(item.id, item.tokens, 0, lost, 1, copied, grounds)
    return found
