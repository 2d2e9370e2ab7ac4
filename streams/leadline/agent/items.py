"""What the ledger keeps of one message or summary, and the checks of what it is told."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import inf, isfinite
from operator import index
from typing import Final

from leadline.contracts import limits
from leadline.contracts.events import Summary
from leadline.errors import LedgerError

__all__ = ["UNIT", "Item", "bits", "check_id", "check_sum", "count", "in_units", "mask_of", "score"]

_SMALLEST: Final = 1074
UNIT: Final = 1 << _SMALLEST
"""Every finite float is a whole number of its parts, so that sums of those are exact."""


@dataclass(slots=True, eq=False)
class Item:
    """One message, document chunk or summary.

    ``sources``: ids that a summary was made from; ``None`` for verbatim source. ``bit``: the leaf's place in the masks;
    copies share their original's. ``mask``: the leaves below a retained summary; dropped with its text to save memory.
    ``users``: how many summaries were made from it. ``listed``: a retained summary as it was measured last.
    """

    id: str
    tokens: int
    salience: float | None
    sources: tuple[str, ...] | None = None
    depth: int = 0
    bit: int = -1
    mask: int | None = None
    retained: bool = False
    archived: bool = False
    users: int = 0
    listed: Summary | None = None


def check_id(item_id: str) -> None:
    """Raises :class:`LedgerError` for what no record can carry as an id."""
    if not isinstance(item_id, str) or not 0 < len(item_id) <= limits.MAX_ID:
        raise LedgerError(f"an id is a string of 1 to {limits.MAX_ID} characters, not {item_id!r:.80}")
    if not item_id.isascii():
        try:
            item_id.encode()
        except UnicodeEncodeError:
            raise LedgerError(f"{item_id!a:.80} cannot be an id: it holds half a surrogate pair") from None


def check_sum(tokens: int) -> None:
    """Raises :class:`LedgerError` for a working set of more tokens than a record can carry."""
    if tokens > limits.MAX_COUNT:
        raise LedgerError(f"the working set would have {tokens} tokens; at most 2**53 - 1 can be reported")


def count(item_id: str, tokens: int) -> int:
    """A token count as an int (also from numpy's integers)."""
    try:
        number = -1 if isinstance(tokens, bool) else index(tokens)
    except TypeError:
        number = -1
    if not 0 <= number <= limits.MAX_COUNT:
        raise LedgerError(f"tokens of {item_id!r} must be a whole number from 0 to 2**53 - 1, not {tokens!r:.80}")
    return number


def score(item_id: str, salience: float | None) -> float | None:
    """A salience as a float (also from numpy's floats)."""
    if salience is None:
        return None
    try:
        number = float(salience)
    except (TypeError, ValueError):
        number = inf
    if not (isfinite(number) and abs(number) <= 1e9):
        raise LedgerError(f"salience of {item_id!r} must be a finite number, not {salience!r:.80}")
    return number


def in_units(number: float) -> int:
    """A finite float as a whole number of parts of :data:`UNIT`."""
    numerator, denominator = number.as_integer_ratio()
    return numerator << (_SMALLEST + 1 - denominator.bit_length())


def bits(mask: int) -> Iterator[int]:
    """Places of the ones in a mask, lowest first."""
    for at, byte in enumerate(mask.to_bytes((mask.bit_length() + 7) // 8, "little")):
        while byte:
            low = byte & -byte
            yield 8 * at + low.bit_length() - 1
            byte ^= low


def mask_of(places: Iterable[int]) -> int:
    """A mask with ones at these places. Many at once: setting them one by one would copy the mask each time."""
    found = bytearray()
    for place in places:
        at = place >> 3
        if at >= len(found):
            found.extend(bytes(at + 1 - len(found)))
        found[at] |= 1 << (place & 7)
    return int.from_bytes(found, "little")
