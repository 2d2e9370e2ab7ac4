"""Robust trends over a session's window: is a series falling or rising, how fast, and when does it reach a level.

Mann-Kendall tells whether there is a monotone trend at all, Theil-Sen how steep it is; neither is moved by a single outlier, and
neither assumes anything of the noise (Mann 1945, Kendall 1975, Sen 1968). The window holds at most 16 rounds, so that all pairs
are looked at: at most 120.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from math import ceil, isfinite, sqrt
from typing import Final, NamedTuple

__all__ = ["MIN_ROUNDS", "Forecast", "Trend", "ends", "falling", "forecast", "middle", "rising", "trend"]

MIN_ROUNDS: Final = 5
"""Fewer rounds than this make no trend: with 4, even a perfect order has a chance of 1 in 24."""

MAX_AHEAD: Final = 10_000
"""Rounds that a forecast looks ahead; what lies beyond is "maybe never"."""

_Z_90: Final = 1.645
"""Two-sided 90 % interval."""
_Z_TEST: Final = 2.326
"""One-sided 1 % test. The window is looked at anew every round, so that 5 % would cry wolf in every other noisy session."""


class Trend(NamedTuple):
    """``slope`` per round, with its 90 % interval. ``level``: where the line is at the last round, which one odd value does not
    move. ``z``: Mann-Kendall's statistic, negative when falling.
    """

    slope: float
    low: float
    high: float
    z: float
    level: float

    @property
    def falling(self) -> bool:
        """Significantly, at 1 % one-sided: 5 rounds never are, 6 in perfect order are."""
        return self.z <= -_Z_TEST

    @property
    def rising(self) -> bool:
        """Significantly, at 1 % one-sided."""
        return self.z >= _Z_TEST


class Forecast(NamedTuple):
    """Rounds left until a level is reached: the middle estimate, and the ends of its 90 % interval (``None``: maybe never)."""

    rounds: int
    earliest: int
    latest: int | None


def trend(points: Sequence[tuple[int, float]]) -> Trend | None:
    """The trend of ``(round, value)`` pairs, rounds ascending and distinct; ``None`` with fewer than :data:`MIN_ROUNDS`."""
    n = len(points)
    if n < MIN_ROUNDS:
        return None
    slopes = [
        (high - low) / (later - earlier) for index, (earlier, low) in enumerate(points) for later, high in points[index + 1 :]
    ]
    slopes.sort()
    values = [value for _, value in points]
    score, tied = _score(values)
    spread = _spread(values, tied)
    pairs = len(slopes)
    reach = _Z_90 * spread
    low_rank = max(0, round((pairs - reach) / 2) - 1)
    high_rank = min(pairs - 1, round((pairs + reach) / 2))
    slope = _middle(slopes)
    last = points[-1][0]
    level = _middle(sorted(value + slope * (last - at) for at, value in points))
    return Trend(slope, slopes[low_rank], slopes[high_rank], _z(score, spread), level)


def falling(values: Sequence[float]) -> bool:
    """Whether the trend of at least :data:`MIN_ROUNDS` values is :attr:`Trend.falling`, without asking how steep it is."""
    score, tied = _score(values)
    return score < 0 and _z(score, _spread(values, tied)) <= -_Z_TEST


def rising(values: Sequence[float]) -> bool:
    """As :func:`falling`."""
    score, tied = _score(values)
    return score > 0 and _z(score, _spread(values, tied)) >= _Z_TEST


def _score(values: Sequence[float]) -> tuple[int, bool]:
    """Mann-Kendall's score, which is the number of pairs that rise less those that fall, and whether any are the same."""
    lower = same = 0
    ordered: list[float] = []
    size = len(values)
    tied = len(set(values)) < size
    for value in values:
        place = bisect_left(ordered, value)
        lower += place
        if tied:
            same += bisect_right(ordered, value, place) - place
        ordered.insert(place, value)
    return 2 * lower + same - size * (size - 1) // 2, tied


def _z(score: int, spread: float) -> float:
    """The test statistic. The continuity correction keeps a small sample from looking surer than it is."""
    return 0.0 if spread == 0 or score == 0 else (score - (1 if score > 0 else -1)) / spread


def _middle(ordered: Sequence[float]) -> float:
    """The median of values in order."""
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def _spread(values: Sequence[float], tied: bool) -> float:
    """The standard deviation of Mann-Kendall's score under no trend, corrected for ties."""
    n = len(values)
    total = n * (n - 1) * (2 * n + 5)
    if not tied:
        return sqrt(total / 18)
    counts: dict[float, int] = {}
    for value in values:
        counts[value] = counts.get(value, 0) + 1
    ties = sum(count * (count - 1) * (2 * count + 5) for count in counts.values())
    return sqrt((total - ties) / 18)


def middle(one: float, other: float, third: float) -> float:
    """The median of three."""
    if one > other:
        one, other = other, one
    if third > other:
        return other
    return one if third < one else third


def ends(values: Sequence[float]) -> tuple[float, float]:
    """The median of the first three values and that of the last three: cheap, and not moved by one outlier."""
    return _middle(sorted(values[:3])), _middle(sorted(values[-3:]))


def forecast(now: float, level: float, falling: Trend) -> Forecast | None:
    """Rounds until a falling value reaches ``level``, at least 1; ``None`` where it is there already, is not falling, or is
    further off than :data:`MAX_AHEAD`.

    Counted from where the line is now, so that a single odd round does not move it.
    """
    if now <= level or falling.slope >= 0:
        return None
    gap = falling.level - level
    earliest = _rounds(gap, falling.low)
    latest = _rounds(gap, falling.high)
    middle = _rounds(gap, falling.slope)
    if earliest is None or middle is None:
        return None
    return Forecast(middle, earliest, latest)


def _rounds(gap: float, slope: float) -> int | None:
    if slope >= 0:
        return None
    rounds = gap / -slope
    # What is exact but for the last bit of a float is not a round more.
    return max(1, ceil(rounds - 1e-9)) if isfinite(rounds) and rounds <= MAX_AHEAD else None
