"""Times on the wire: RFC 3339, UTC, milliseconds (``2026-11-12T08:30:00.000Z``); inside: integer milliseconds since 1970."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

__all__ = ["format_ms", "parse_ms"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def format_ms(ms: int) -> str:
    """Milliseconds since 1970 as RFC 3339 UTC with milliseconds."""
    return (_EPOCH + timedelta(milliseconds=ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_ms(text: str) -> int | None:
    """RFC 3339 text as milliseconds since 1970, or ``None`` where it is no time or names no zone.

    ``t`` and ``z`` may be lower case, as RFC 3339 has it. A text without a zone is refused rather than guessed: the reader then
    uses the receive time and counts it.
    """
    try:
        moment = datetime.fromisoformat(text.upper())
    except ValueError:
        return None
    if moment.tzinfo is None:
        return None
    return (moment - _EPOCH) // timedelta(milliseconds=1)
