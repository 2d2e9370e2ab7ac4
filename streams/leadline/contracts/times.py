"""Times on the wire: RFC 3339, UTC, milliseconds (``2026-11-12T08:30:00.000Z``); inside: integer milliseconds since 1970."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

__all__ = ["format_ms", "parse_ms"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MINUTE: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:", re.ASCII)
# A time as this project's own writers give it is read by three looks into tables, which is cheaper than any parser.
_SECONDS: Final = {f"{second:02}.": second * 1000 for second in range(60)}
_MILLISECONDS: Final = {f"{ms:03}Z": ms for ms in range(1000)}
_MINUTES: Final[dict[str, int]] = {}
"""The minutes met so far: many times are of the same few."""
_TEXTS: Final[dict[int, str]] = {}
"""The other way round, as are these."""
_SECOND_TEXTS: Final = tuple(_SECONDS)
_MILLISECOND_TEXTS: Final = tuple(_MILLISECONDS)
_TIMES: Final[dict[str, int]] = {}
"""Whole times met lately: of a hundred thousand events a second many share a millisecond."""
_MOST_KEPT: Final = 4096


def format_ms(ms: int) -> str:
    """Milliseconds since 1970 as RFC 3339 UTC with milliseconds."""
    minute, rest = divmod(ms, 60_000)
    text = _TEXTS.get(minute)
    if text is None:
        text = (_EPOCH + timedelta(minutes=minute)).isoformat()[:17]
        if len(_TEXTS) >= _MOST_KEPT:
            _TEXTS.clear()
        _TEXTS[minute] = text
    return text + _SECOND_TEXTS[rest // 1000] + _MILLISECOND_TEXTS[rest % 1000]


def parse_ms(text: str) -> int | None:
    """RFC 3339 text as milliseconds since 1970, or ``None`` where it is no time or names no zone.

    ``t`` and ``z`` may be lower case, as RFC 3339 has it. A text without a zone is refused rather than guessed: the reader then
    uses the receive time and counts it.
    """
    ms = _TIMES.get(text)
    if ms is not None:
        return ms
    try:
        ms = _MINUTES[text[:17]] + _SECONDS[text[17:20]] + _MILLISECONDS[text[20:]]
    except KeyError:
        ms = _parse(text)
        if ms is None:
            return None
        if _MINUTE.match(text) and (minute := _parse(f"{text[:17]}00Z")) is not None:
            if len(_MINUTES) >= _MOST_KEPT:
                _MINUTES.clear()
            _MINUTES[text[:17]] = minute
    if len(_TIMES) >= _MOST_KEPT:
        _TIMES.clear()
    _TIMES[text] = ms
    return ms


def _parse(text: str) -> int | None:
    try:
        moment = datetime.fromisoformat(text.upper())
    except ValueError:
        return None
    if moment.tzinfo is None:
        return None
    return (moment - _EPOCH) // timedelta(milliseconds=1)
