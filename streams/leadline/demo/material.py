"""What a demo agent works on: spans with embeddings around a task query, and the facts of its task. Pure, seeded.

An embedding is the query's direction plus a part of its own. Combining several averages those parts out, so a summary lies
nearer to the query than what it was made from: the density that the salience-inversion document blames is not scripted here,
it follows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import fsum, sqrt
from random import Random
from typing import Final

from leadline.agent.facts import Fact

__all__ = ["FACTS", "PARAPHRASES", "Item", "Vector", "World", "combine", "cosine"]

Vector = tuple[float, ...]

DIMENSIONS: Final = 24

FACTS: Final[tuple[Fact, ...]] = tuple(
    Fact(name, text, anchors, fact_class="constraint", recall_floor=1.0)
    for name, text, anchors in (
        ("no-rotation", "Do not rotate the credential after step 4.", ("credential", "rotat*", "4")),
        ("port", "The gateway listens on port 8443.", ("port", "8443")),
        ("read-only", "Never write to the replica eu-2.", ("writ*", "eu-2")),
        ("deadline", "The cutover must end by 06:30 UTC.", ("cutover", "06:30")),
    )
)
"""The constraints that every demo session declares; they stand in its first spans."""

PARAPHRASES: Final[dict[str, str]] = {
    "no-rotation": "Credential rotation is not allowed after step 4.",
    "port": "Gateway: port 8443.",
    "read-only": "No writing to eu-2.",
    "deadline": "Cutover done by 06:30.",
}


@dataclass(slots=True)
class Item:
    """One span or summary. ``notes``: the sentences in it that state facts, by fact id. ``depth`` 0 is verbatim source."""

    id: str
    tokens: int
    vector: Vector
    cosine: float
    born: int
    depth: int = 0
    notes: tuple[tuple[str, str], ...] = ()
    covered: bool = False
    """A summary that reports to have read it exists: it will not be summarized again."""

    @property
    def text(self) -> str:
        return " ".join(sentence for _, sentence in self.notes)


class World:
    """The task query, and the spans that come in."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.query = _unit([random.gauss(0.0, 1.0) for _ in range(DIMENSIONS)])
        self._count = 0

    def span(self, tokens: tuple[int, int], born: int, notes: tuple[tuple[str, str], ...] = ()) -> Item:
        """A message or tool result of ``tokens`` (least, most), somewhat related to the query."""
        random = self._random
        self._count += 1
        near = random.uniform(0.15, 0.55)
        own = [random.gauss(0.0, 1.0) for _ in range(DIMENSIONS)]
        along = fsum(a * b for a, b in zip(own, self.query, strict=True))
        own = list(_unit([a - along * b for a, b in zip(own, self.query, strict=True)]))
        far = sqrt(1.0 - near * near)
        vector = tuple(near * q + far * o for q, o in zip(self.query, own, strict=True))
        return Item(f"s{self._count}", random.randint(*tokens), vector, near, born, notes=notes)


def combine(vectors: Iterable[Vector]) -> Vector:
    """The embedding of a text made from several: their mean, at length 1."""
    return _unit([fsum(parts) for parts in zip(*vectors, strict=True)])


def cosine(one: Vector, other: Vector) -> float:
    """Of two vectors of length 1."""
    return fsum(a * b for a, b in zip(one, other, strict=True))


def _unit(vector: Sequence[float]) -> Vector:
    length = sqrt(fsum(part * part for part in vector)) or 1.0
    return tuple(part / length for part in vector)
