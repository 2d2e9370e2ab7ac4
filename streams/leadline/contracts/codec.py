"""Bytes to typed records and back.

Reading is tolerant of what is new (unknown fields are ignored and counted, a newer minor version is read) and strict about
what is wrong: everything that cannot be read raises :class:`leadline.errors.Malformed` with one
:class:`~leadline.contracts.reasons.Reason`, and nothing else is ever raised.

The fast path is one strict decode in C. Only where it refuses does the slow path look closer: it either finds that the
record is merely newer than this reader, or names what is wrong with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any, NamedTuple, TypeVar, cast

import msgspec
import orjson

from leadline.contracts import limits
from leadline.contracts.events import Ack, AgentEvent, Checkpoint, Round, SessionEnd, SessionStart
from leadline.contracts.manual import Manual, Silence
from leadline.contracts.orders import Command, Heartbeat, Tick, Violation
from leadline.contracts.reasons import Reason
from leadline.contracts.text import safe
from leadline.contracts.times import parse_ms
from leadline.contracts.unknown import strip_unknown
from leadline.errors import Malformed

__all__ = [
    "Decoded",
    "Event",
    "decode_command",
    "decode_event",
    "decode_order",
    "decode_silence",
    "decode_violation",
    "encode",
    "plain_events",
]

Event = AgentEvent | Tick | Manual
Kinds = dict[str, type[msgspec.Struct]]
T = TypeVar("T", bound=msgspec.Struct)

_EVENTS: Kinds = {
    "leadline.session-start": SessionStart,
    "leadline.round": Round,
    "leadline.checkpoint": Checkpoint,
    "leadline.ack": Ack,
    "leadline.session-end": SessionEnd,
    "leadline.tick": Tick,
    "leadline.manual": Manual,
}
_COMMANDS: Kinds = {"leadline.command": Command}
_ORDERS: Kinds = {**_COMMANDS, "leadline.heartbeat": Heartbeat}
_VIOLATIONS: Kinds = {"leadline.violation": Violation}

_MAJOR = 1
_SCHEMA = re.compile(r"([a-z][a-z-]*\.[a-z][a-z-]*)/(\d{1,6})(?:\.(\d{1,6}))?", re.ASCII)

_event_decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)
_decode_plain = _event_decoder.decode
_AT_ONCE = 64
"""Values decoded before the first of them is looked at."""
_command_decoder = msgspec.json.Decoder(Command)
_order_decoder: msgspec.json.Decoder[Command | Heartbeat] = msgspec.json.Decoder(Command | Heartbeat)
_encoder = msgspec.json.Encoder()
_silence_decoder = msgspec.json.Decoder(Silence)
_violation_decoder = msgspec.json.Decoder(Violation)


class Decoded(NamedTuple):
    """One readable event, and what was tolerated to read it."""

    event: Event
    ts: int | None = None
    """The event's own time, milliseconds since 1970; ``None`` where it gives none."""
    unknown_fields: int = 0
    newer_minor: bool = False
    bad_time: bool = False
    """``ts`` was no RFC 3339 time with a zone (a number of seconds, say): it was dropped; the receive time counts."""


def encode(record: msgspec.Struct) -> bytes:
    """A record as one JSON object, UTF-8. Fields that hold their default are left out."""
    return _encoder.encode(record)


def plain_events(values: Iterable[bytes | None]) -> Iterator[Event | None]:
    """For each value its event, where it is all that this reader expects. ``None``: :func:`decode_event` must look closer.

    Says nothing of the event's time, which may be none. Reads some of the values ahead of what it gives. Never raises.
    """
    values = iter(values)
    return chain.from_iterable(map(_plain, iter(lambda: list(islice(values, _AT_ONCE)), [])))


def _plain(values: list[bytes | None]) -> list[Event | None]:
    try:
        if max(map(len, values)) <= limits.MAX_RECORD_BYTES:  # type: ignore[arg-type]
            return [_decode_plain(value) for value in values]  # type: ignore[arg-type]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, TypeError):
        pass
    return [None if value is None else _plain_event(value) for value in values]


def _plain_event(value: bytes) -> Event | None:
    if len(value) > limits.MAX_RECORD_BYTES:
        return None
    try:
        return _decode_plain(value)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def decode_event(value: bytes | None) -> Decoded:
    """One value of ``leadline.events``. Raises :class:`Malformed`, nothing else."""
    event = None if value is None else _plain_event(value)
    if event is not None:
        text = "" if type(event) is Tick else event.ts
        ts = parse_ms(text) if text else None
        if ts is not None or not text:
            return Decoded(event, ts)
    raw = _load(value)
    bad_time = _drop_bad_time(raw)
    record, unknown, newer = _convert(raw, _EVENTS)
    text = raw["ts"] if isinstance(raw.get("ts"), str) else ""
    return Decoded(cast(Event, record), parse_ms(text) if text else None, unknown, newer, bad_time)


def decode_command(value: bytes | None) -> Command:
    """One command of ``leadline.commands``. Raises :class:`Malformed`, nothing else."""
    return _decode(value, _command_decoder, _COMMANDS)


def decode_order(value: bytes | None) -> Command | Heartbeat:
    """One value of ``leadline.commands``, as an agent reads it. Raises :class:`Malformed`, nothing else."""
    return _decode(value, _order_decoder, _ORDERS)


def decode_silence(value: bytes | None) -> Silence:
    """One value of ``leadline.silences``. Raises :class:`Malformed`, nothing else."""
    return _decode(value, _silence_decoder, {"leadline.silence": Silence})


def decode_violation(value: bytes | None) -> Violation:
    """One value of ``leadline.violations``. Raises :class:`Malformed`, nothing else."""
    return _decode(value, _violation_decoder, _VIOLATIONS)


def _decode(value: bytes | None, decoder: msgspec.json.Decoder[T], kinds: Kinds) -> T:
    try:
        if value is not None and len(value) <= limits.MAX_RECORD_BYTES:
            return decoder.decode(value)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    return cast(T, _convert(_load(value), kinds)[0])


def _load(value: bytes | None) -> dict[str, Any]:
    """The value as an untyped object, or the reason why it is none."""
    if not value:
        raise Malformed(Reason.NOT_AN_OBJECT, "the value is empty; expected one JSON object")
    if len(value) > limits.MAX_RECORD_BYTES:
        raise Malformed(Reason.OVER_SIZE, f"{len(value)} bytes; at most {limits.MAX_RECORD_BYTES} are read")
    try:
        value.decode()
    except UnicodeDecodeError as error:
        raise Malformed(Reason.BAD_UTF8, f"byte {error.start} is not valid UTF-8") from None
    depth = _nesting(value)
    if depth > limits.MAX_NESTING:
        raise Malformed(Reason.NESTED_TOO_DEEP, f"nested {depth} deep; at most {limits.MAX_NESTING}")
    try:
        raw = orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise Malformed(*_syntax(value, str(error))) from None
    if not isinstance(raw, dict):
        raise Malformed(Reason.NOT_AN_OBJECT, f"the value is {_named(raw)}; expected one JSON object")
    return raw


# A string that never ends runs to the end of the value: tried anew at each quote within it, the search would be quadratic.
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)', re.DOTALL)
_NOT_BRACKET = re.compile(rb"[^\[\]{}]+")


def _nesting(value: bytes) -> int:
    """Deepest nesting of brackets outside strings."""
    depth = deepest = 0
    for byte in _NOT_BRACKET.sub(b"", _STRING.sub(b"", value)):
        if byte in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        else:
            depth -= 1
    return deepest


_BARE_NON_FINITE = re.compile(rb"(?<![\w\"])-?(?:NaN|Infinity)(?![\w\"])")


def _syntax(value: bytes, error: str) -> tuple[Reason, str]:
    """Name what a JSON reader refused."""
    if "infinity" in error:
        return Reason.NOT_FINITE, "a number overflows to infinity"
    if "surrogate" in error:
        return Reason.LONE_SURROGATE, "a string holds half a surrogate pair"
    if _BARE_NON_FINITE.search(_STRING.sub(b'""', value)):
        return Reason.NOT_FINITE, "NaN and Infinity are not JSON numbers"
    return Reason.NOT_JSON, error


def _drop_bad_time(raw: dict[str, Any]) -> bool:
    ts = raw.get("ts")
    if ts is None or (isinstance(ts, str) and (len(ts) <= 64 and (not ts or parse_ms(ts) is not None))):
        return False
    if isinstance(ts, bool | list | dict):
        return False
    raw["ts"] = ""
    return True


def _convert(raw: dict[str, Any], kinds: Kinds) -> tuple[msgspec.Struct, int, bool]:
    """The typed record, the number of unknown fields, whether its minor is newer."""
    name = raw.get("schema")
    if name is None:
        raise Malformed(Reason.MISSING_FIELD, "field `schema` is missing")
    if not isinstance(name, str):
        raise Malformed(Reason.WRONG_TYPE, f"field `schema` is {_named(name)}; expected a string")
    found = _SCHEMA.fullmatch(name)
    kind = kinds.get(found[1]) if found else None
    if found is None or kind is None:
        raise Malformed(Reason.UNKNOWN_RECORD, f"{name[:80]!r} is not read here; known: {', '.join(sorted(kinds))}")
    if int(found[2]) != _MAJOR:
        raise Malformed(Reason.UNKNOWN_MAJOR, f"{found[1]} in major version {found[2]}; this reader knows {_MAJOR}")
    newer = found[3] is not None and int(found[3]) > 0
    raw["schema"] = f"{found[1]}/{_MAJOR}"
    unknown = strip_unknown(raw, kind)
    try:
        return msgspec.convert(raw, kind), unknown, newer
    except msgspec.ValidationError as error:
        raise Malformed(*_validation(raw, str(error))) from None


_GOT = re.compile(r"got `(\w+)`")
_WHERE = re.compile(r" - at `\$\.?(.*)`$")
_STEP = re.compile(r"(\w+)|\[(\d+)\]")
_MAX_ERROR = 300
"""The validator's sentence can quote the record: that many characters of it are passed on, redacted and on one line."""


def _validation(raw: dict[str, Any], error: str) -> tuple[Reason, str]:
    """Map the validator's sentence to a named reason; the sentence stays as the detail."""
    where = _WHERE.search(error)
    got = _GOT.search(error)
    detail = safe(_WHERE.sub("", error), _MAX_ERROR) + (f" - at `{where[1]}`" if where else "")
    if "missing required field" in error:
        return Reason.MISSING_FIELD, detail
    if got and got[1] == "bool" and re.search(r"Expected `(?:int|float)", error):
        return Reason.BOOLEAN_FOR_NUMBER, detail
    number = _at(raw, where[1]) if where else None
    if isinstance(number, int | float) and not isinstance(number, bool) and abs(number) >= 2**63 and "int" in error:
        return Reason.OVER_64_BITS, detail
    if got:
        return Reason.WRONG_TYPE, detail
    if "enum value" in error or ("Expected" in error and any(mark in error for mark in (">=", "<=", "of length"))):
        return Reason.OUT_OF_RANGE, detail
    if "Number out of range" in error or "Integer value out of range" in error:
        return Reason.OVER_64_BITS, detail
    return Reason.WRONG_TYPE, detail


def _at(raw: Any, path: str) -> Any:
    """The value at a validator's path such as ``summaries[0].tokens``; ``None`` where there is none."""
    for name, index in _STEP.findall(path):
        try:
            raw = raw[int(index)] if index else raw[name]
        except (LookupError, TypeError):
            return None
    return raw


def _named(value: Any) -> str:
    names = {
        type(None): "null",
        bool: "a boolean",
        int: "a number",
        float: "a number",
        str: "a string",
        list: "an array",
    }
    return names.get(type(value), "an object")
