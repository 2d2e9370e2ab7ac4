"""Lines of a JSONL file, read so that no line, however long or broken, can stop the rest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, Final, NamedTuple

from leadline.contracts.limits import MAX_RECORD_BYTES

__all__ = ["Line", "read_lines"]

_CHUNK: Final = 1 << 16


class Line(NamedTuple):
    """One line that is not blank. ``number`` counts from 1 within ``file``; ``value`` is without its line end."""

    number: int
    value: bytes
    file: str = "-"


def read_lines(stream: BinaryIO, file: str = "-", limit: int = MAX_RECORD_BYTES) -> Iterator[Line]:
    """The lines of ``stream``; a blank one is skipped but counted.

    One longer than ``limit`` bytes comes cut, yet still over the limit: the rest of it is never held in memory.
    """
    most = limit + 2
    number = 0
    while chunk := stream.readline(most):
        number += 1
        if not chunk.endswith(b"\n") and len(chunk) == most:
            _skip_rest(stream)
        value = chunk.rstrip(b"\r\n")
        if value.strip():
            yield Line(number, value, file)


def _skip_rest(stream: BinaryIO) -> None:
    while (rest := stream.readline(_CHUNK)) and not rest.endswith(b"\n"):
        pass
