"""Trace context in Kafka headers (W3C ``traceparent``/``tracestate``): read what is valid, ignore the rest."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

__all__ = ["NO_TRACE", "TraceContext", "read_trace"]

_TRACEPARENT = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?", re.ASCII)
_PLAIN = re.compile(rb"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}", re.ASCII)
"""What nearly every sender writes; the rest is looked at more closely."""
_TRACESTATE = re.compile(rb"[\x20-\x7e]{0,512}")


class TraceContext(NamedTuple):
    """As it goes on in the monitor's own records. Empty: none, or ``ignored`` because it was not valid."""

    traceparent: str = ""
    tracestate: str = ""
    ignored: bool = False


NO_TRACE = TraceContext()


def read_trace(headers: Iterable[tuple[str, bytes | None]] | None) -> TraceContext:
    """The last valid context among the headers. Never raises, whatever bytes the headers hold.

    Not valid: an all-zero trace or span id, upper case, another length, version ``ff``, no value.
    """
    if not headers:
        return NO_TRACE
    parent = state = ""
    ignored = False
    for name, value in headers:
        if name == "traceparent":
            if value is not None and (_PLAIN.fullmatch(value) or _valid(value)):
                parent = value[:55].decode("ascii")
            else:
                ignored = True
        elif name == "tracestate" and value is not None and _TRACESTATE.fullmatch(value):
            state = value.decode("ascii")
    return TraceContext(parent, state if parent else "", ignored)


def _valid(value: bytes) -> bool:
    found = _TRACEPARENT.fullmatch(value)
    if found is None or found[1] == b"ff":
        return False
    if found[1] == b"00" and len(value) != 55:
        return False
    return found[2] != b"0" * 32 and found[3] != b"0" * 16
