"""How often a token may be guessed: a few different wrong ones from one place, then none for a while."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from math import ceil
from typing import Final

__all__ = ["MOST", "WITHIN_S", "Tries", "too_many"]

MOST: Final = 5
"""Wrong tokens from one place within the time."""
WITHIN_S: Final = 60.0
_PLACES: Final = 10_000
"""Places that are remembered; the one that has tried longest ago is forgotten first."""


class Tries:
    """Counts by place: an address, or the person that a proxy names. ``clock``: seconds, it may begin anywhere.

    The same wrong token again is no further guess: a program with an old token locks nobody out who comes from where it does.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._wrong: OrderedDict[str, dict[int, float]] = OrderedDict()

    def wait_s(self, place: str) -> int:
        """Whole seconds until this place may try again; 0: now."""
        made = self._wrong.get(place, {})
        now = self._clock()
        for token in [token for token, at in made.items() if now - at >= WITHIN_S]:
            del made[token]
        if not made:
            self._wrong.pop(place, None)
        return 0 if len(made) < MOST else max(1, ceil(min(made.values()) + WITHIN_S - now))

    def wrong(self, place: str, token: str) -> None:
        """It was tried, and is not the one."""
        made = self._wrong.setdefault(place, {})
        self._wrong.move_to_end(place)
        made.setdefault(hash(token), self._clock())
        while len(self._wrong) > _PLACES:
            self._wrong.popitem(last=False)


def too_many(wait_s: int) -> str:
    """The sentence for who has to wait."""
    return f"too many wrong tokens came from here: try again in {wait_s} seconds"
