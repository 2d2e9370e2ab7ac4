"""The raw spans of a ledger, by bit: who carries each one's text, and which text can still be produced. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from leadline.agent.items import Item, bits

__all__ = ["Leaves"]


class Leaves:
    """Every distinct raw span has a bit; forgotten ones give theirs away. Masks are sets of spans."""

    def __init__(self) -> None:
        self.added = 0
        """Distinct spans that ever came."""
        self.available = 0
        """Mask of those whose text can still be produced."""
        self.verbatim = 0
        """Mask of those that a retained item carries."""
        self._carriers: list[list[Item]] = []
        """Of each span its original, then copies; none where the span was forgotten."""
        self._ages: list[int] = []
        """When each span came."""
        self._free: list[int] = []

    def __len__(self) -> int:
        """How many bits there are."""
        return len(self._carriers)

    def new(self) -> int:
        """The bit of a span that comes."""
        self.added += 1
        if self._free:
            bit = self._free.pop()
            self._ages[bit] = self.added
            return bit
        self._carriers.append([])
        self._ages.append(self.added)
        return len(self._carriers) - 1

    def carriers(self, bit: int) -> Sequence[Item]:
        return self._carriers[bit]

    def join(self, item: Item) -> None:
        """One more item carries the text."""
        self._carriers[item.bit].append(item)

    def leave(self, item: Item) -> None:
        """It is forgotten."""
        carriers = self._carriers[item.bit]
        carriers.remove(item)
        self.settle(item)
        if not carriers:
            self._free.append(item.bit)

    def held(self, bit: int) -> bool:
        """Whether a retained item carries the text."""
        return any(carrier.retained for carrier in self._carriers[bit])

    def settle(self, item: Item) -> None:
        """Bring the masks in line with what became of ``item``."""
        place = 1 << item.bit
        held = self.held(item.bit)
        self.verbatim = self.verbatim | place if held else self.verbatim & ~place
        if held or any(carrier.archived for carrier in self._carriers[item.bit]):
            self.available |= place
        else:
            self.available &= ~place

    def ids(self, mask: int) -> list[str]:
        """The spans of a mask, in the order in which they came."""
        return self._by_age(bits(mask))

    def ids_without(self, mask: int) -> list[str]:
        """All other spans that are not forgotten."""
        inside = set(bits(mask))
        return self._by_age(bit for bit, carriers in enumerate(self._carriers) if carriers and bit not in inside)

    def _by_age(self, places: Iterable[int]) -> list[str]:
        return [self._carriers[bit][0].id for bit in sorted(places, key=self._ages.__getitem__)]
