"""Whether a worker gets on: what it has still to do, and since when nothing of it was done. Pure; time is given."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["Progress"]


class Progress:
    """Fed now and then with the ends and the committed offsets of the partitions that are owned. Times are seconds of one clock
    that never goes back."""

    def __init__(self, now: float) -> None:
        self._committed: dict[int, int] = {}
        self._since = now
        self.lag: dict[int, int] = {}
        """By partition: records in the log that are not committed."""

    def saw(self, ends: Mapping[int, int], committed: Mapping[int, int | None], now: float) -> None:
        """``ends`` and ``committed`` by partition; a partition without a committed offset has committed nothing."""
        done = {partition: committed.get(partition) or 0 for partition in ends}
        self.lag = {partition: max(0, end - done[partition]) for partition, end in ends.items()}
        if done != self._committed or not any(self.lag.values()):
            self._since = now
        self._committed = done

    def paused(self, now: float) -> None:
        """Nothing can be expected at the moment: partitions change hands, or no broker answers."""
        self._since = now

    def stalled_s(self, now: float) -> float:
        """For how long there has been something to do and nothing was done."""
        return now - self._since
