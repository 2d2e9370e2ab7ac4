"""Why a record was refused: one named reason each, the same in dead letters, counters and documentation."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Reason"]


class Reason(StrEnum):
    """Named reasons of :class:`leadline.errors.Malformed`; the value is what the dead letter's header says."""

    NOT_JSON = "not-json"
    """The bytes are not one complete JSON text (also: trailing characters, a byte order mark)."""
    NOT_AN_OBJECT = "not-an-object"
    """The JSON is fine but is not an object (``null``, ``[]``, ``"x"``, ``0``), or the value is empty."""
    BAD_UTF8 = "bad-utf8"
    """The value or the key is not valid UTF-8."""
    LONE_SURROGATE = "lone-surrogate"
    r"""A string holds half a surrogate pair (``"\ud800"``)."""
    NOT_FINITE = "not-finite"
    """``NaN``, ``Infinity``, or a number such as ``1e999`` that overflows to infinity."""
    OVER_SIZE = "over-size"
    """The value is larger than :data:`leadline.contracts.limits.MAX_RECORD_BYTES`."""
    NESTED_TOO_DEEP = "nested-too-deep"
    """Deeper than :data:`leadline.contracts.limits.MAX_NESTING`."""
    MISSING_FIELD = "missing-field"
    WRONG_TYPE = "wrong-type"
    """Another JSON type than the contract's. Counts are integers: ``"12"`` and ``12.0`` are refused, not converted."""
    BOOLEAN_FOR_NUMBER = "boolean-for-number"
    OUT_OF_RANGE = "out-of-range"
    """A number outside its bounds (a negative count), a string or list longer than its bound or empty where it must not be, a
    word that is none of those allowed."""
    OVER_64_BITS = "over-64-bits"
    UNKNOWN_MAJOR = "unknown-major"
    """A record type that is known, in a major version that is not."""
    UNKNOWN_RECORD = "unknown-record"
    """``schema`` names no record that belongs on this topic."""
    KEY_MISMATCH = "key-mismatch"
    """The message key is not the session id, so the record may be on another session's partition."""
    FUTURE_TIMESTAMP = "future-timestamp"
    """``ts`` lies further ahead of the receive time than a clock can plausibly be."""
    UNSIGNED = "unsigned"
    """The fleet has keys, and the record has no signature that can be read; or fleets have keys, and a record that names no fleet
    would begin a session."""
    FOREIGN_KEY = "foreign-key"
    """Signed with a key that is not the fleet's, or of another fleet than the session."""
    BAD_SIGNATURE = "bad-signature"
    """The fleet's key did not sign these bytes."""
    STALE = "stale"
    """Done by hand and signed, with no ``ts`` or one further than :data:`leadline.contracts.limits.MAX_BY_HAND_MS` from the
    receive time: it may be a copy of what was done long ago."""
