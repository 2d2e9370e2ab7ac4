"""Fleets as label values: agents name them, so their number is capped and their text is cleaned."""

from __future__ import annotations

from leadline.contracts.text import safe
from leadline.telemetry.labels import OTHER

__all__ = ["Fleets"]

_MAX_TEXT = 64


class Fleets:
    """The first ``most`` fleets have a label value of their own, for the life of the process; the others share :data:`OTHER`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._labels: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._labels)

    @property
    def full(self) -> bool:
        """No other fleet gets one of its own."""
        return len(self._labels) >= self._most

    def label(self, fleet: str) -> str:
        found = self._labels.get(fleet)
        if found is not None:
            return found
        if self.full:
            return OTHER
        label = safe(fleet, _MAX_TEXT)
        self._labels[fleet] = label
        return label
