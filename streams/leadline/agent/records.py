"""Events as the bytes that go to the broker, or onto the disk until they can. Pure."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import orjson

from leadline.agent.outbox import Entry
from leadline.agent.transport import Headers
from leadline.contracts import limits
from leadline.contracts.codec import decode_event, encode
from leadline.contracts.events import AgentEvent, Round
from leadline.contracts.trace import TraceContext
from leadline.errors import Malformed

__all__ = ["DropReason", "Record", "after_gap", "encoded", "with_gap"]


class DropReason:
    """Why an event was not sent; the keys of :attr:`leadline.agent.emitter.Emitted.dropped`."""

    QUEUE_FULL = "queue-full"
    """The broker has been away, or slow, for too long, and there is no spool: what matters least gave way, the oldest first."""
    SPOOL_FULL = "spool-full"
    """The same of the spool on disk."""
    OVER_SIZE = "over-size"
    """Larger than :data:`leadline.contracts.limits.MAX_RECORD_BYTES`, also without its list of summaries."""
    UNENCODABLE = "unencodable"
    """It has no JSON form: half a surrogate pair in an id, say."""
    MALFORMED = "malformed"
    """The monitor would refuse it: a negative count, an id that is too long; ``last_error`` says which."""
    UNDELIVERED = "undelivered"
    """The transport gave up on it for good: the broker refuses this record; ``last_error`` says why."""
    CLOSED = "closed"
    """Emitted, or still queued, when the emitter was closed."""
    INTERNAL = "internal"
    """A fault of the emitter itself."""


class Record(NamedTuple):
    """What goes to the broker, and what is needed to choose between records.

    ``kind``: the record's schema; ``gap``: how many events before it could not be kept, as ``value`` says.
    """

    session_id: str
    event_id: str
    kind: str
    rank: int
    value: bytes
    trace: TraceContext
    gap: int = 0

    @property
    def key(self) -> bytes:
        return self.session_id.encode()

    @property
    def headers(self) -> Headers:
        headers: Headers = [("schema", self.kind.encode()), ("content-type", b"application/json")]
        if self.trace.traceparent:
            headers.append(("traceparent", self.trace.traceparent.encode()))
            if self.trace.tracestate:
                headers.append(("tracestate", self.trace.tracestate.encode()))
        return headers


def encoded(entry: Entry) -> tuple[Record, bool]:
    """The record, and whether its list of summaries was too long and was left out. Raises :class:`Malformed` with the reason to
    drop it."""
    event, cut = entry.event, False
    try:
        value = encode(event)
        if len(value) > limits.MAX_RECORD_BYTES and isinstance(event, Round) and event.summaries:
            cut = True
            value = encode(msgspec.structs.replace(event, summaries=None))
        event.session_id.encode()
    except (TypeError, ValueError, AttributeError, msgspec.MsgspecError) as error:
        raise Malformed(DropReason.UNENCODABLE, repr(error)) from None
    if len(value) > limits.MAX_RECORD_BYTES:
        raise Malformed(DropReason.OVER_SIZE, f"{len(value)} bytes; at most {limits.MAX_RECORD_BYTES} are sent")
    try:
        decode_event(value)
    except Malformed as refused:
        raise Malformed(DropReason.MALFORMED, str(refused)) from None
    tag = str(event.__struct_config__.tag)
    return Record(event.session_id, event.event_id, tag, entry.rank, value, entry.trace, event.lost_before), cut


def after_gap(event: AgentEvent, lost: int) -> AgentEvent:
    """The same event, saying that ``lost`` more events before it could not be kept."""
    return msgspec.structs.replace(event, lost_before=min(event.lost_before + lost, limits.MAX_COUNT))


def with_gap(value: bytes, lost: int) -> bytes:
    """:func:`after_gap` of an encoded event."""
    fields = orjson.loads(value)
    fields["lost_before"] = min(fields.get("lost_before", 0) + lost, limits.MAX_COUNT)
    return orjson.dumps(fields)
