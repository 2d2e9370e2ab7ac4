"""How many spans may be made: a bucket that fills at a rate, so that no flood of verdicts slows the worker."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Budget"]


class Budget:
    """``most`` at once, ``rate`` a second after that. ``clock``: seconds that never go back."""

    def __init__(self, rate: float, most: int, clock: Callable[[], float]) -> None:
        self._rate = rate
        self._most = most
        self._clock = clock
        self._left = float(most)
        self._seen = clock()

    def take(self, number: int = 1) -> bool:
        """Whether ``number`` more may be made; takes them if so."""
        now = self._clock()
        self._left = min(self._most, self._left + (now - self._seen) * self._rate)
        self._seen = now
        if self._left < number:
            return False
        self._left -= number
        return True
