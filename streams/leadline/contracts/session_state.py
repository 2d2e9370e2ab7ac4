"""The one compact record of a session: value of the sessions table and of its changelog ``leadline.sessions``.

Bounded whatever the agent sends (:mod:`leadline.contracts.limits`). The records are mutable for speed; whoever changes one
works on a copy made by :meth:`SessionState.working_copy`, and everything nested in it is replaced, never changed in place.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Final, Literal

import msgspec
import orjson
from msgspec import Struct
from msgspec.structs import replace

from leadline.contracts import ids
from leadline.contracts.orders import Cause, CommandKind, Measured, Mode, Parameters
from leadline.contracts.unknown import strip_unknown
from leadline.errors import Malformed

__all__ = [
    "CommandState",
    "Counts",
    "FactRecord",
    "Incident",
    "Measurement",
    "SessionState",
    "Stage",
    "copy_of",
    "decode_state",
    "encode_state",
]


_AS_OPENED: Final = -1
"""Stored for a time or a round that is that of the incident's opening."""
_AS_SESSION: Final = "="
"""Stored for a trace context that is the session's own."""


class Stage(StrEnum):
    """Where a command stands; the diagram is in :mod:`leadline.commands.lifecycle`."""

    ISSUED = "issued"
    ACCEPTED = "accepted"
    EFFECTIVE = "effective"
    RESOLVED = "resolved"
    ESCALATED = "escalated"


class Measurement(Struct, frozen=True, array_like=True, gc=False):
    """One round's measurements, after the pass. Units as in :mod:`leadline.contracts.events`."""

    round: int
    raw_tokens: int
    summary_tokens: int
    distinct_source_spans: int
    query_cosine_retained: float | None
    summary_depth_max: int

    @property
    def total_tokens(self) -> int:
        return self.raw_tokens + self.summary_tokens

    @property
    def raw_ratio(self) -> float | None:
        """``raw / (raw + summary)``; ``None`` (unknown) when both are 0. Exactly 0.0 is a value."""
        total = self.raw_tokens + self.summary_tokens
        return None if total == 0 else self.raw_tokens / total

    def measured(self) -> Measured:
        """As it is shown in a violation."""
        return Measured(
            round=self.round,
            raw_tokens=self.raw_tokens,
            summary_tokens=self.summary_tokens,
            distinct_source_spans=self.distinct_source_spans,
            summary_depth_max=self.summary_depth_max,
            raw_ratio=self.raw_ratio,
            query_cosine_retained=self.query_cosine_retained,
        )


class FactRecord(Struct, frozen=True, omit_defaults=True, gc=False):
    """What is known of one fact. ``kept_level``: the last level it was seen kept at; ``lost_level``: the first it vanished at."""

    fact_class: str = ""
    recall_floor: float | None = None
    kept_level: int | None = None
    lost_level: int | None = None
    excused: Literal["", "declared", "superseded"] = ""
    """Why its absence is no loss: the summarizer said so, or a later fact replaced it."""


class CommandState(Struct, frozen=True, omit_defaults=True, gc=False):
    """One command's record. Times are milliseconds since 1970."""

    command_id: str = ""
    seq: int = 0
    kind: CommandKind = "halt"
    stage: Stage = Stage.ISSUED
    attempt: int = 1
    issued_at: int = _AS_OPENED
    deadline: int = 0
    """When silence about it becomes a signal: first its expiry, once accepted the time by which it must show effect."""
    parameters: Parameters = Parameters()
    reason: str = ""
    rearmed: bool = False
    """The monitor itself looked too late, once: the agent was given its time anew."""
    misses: int = 0
    """Measurements without effect since it was accepted, or since the last that showed one. Of a level: 1 once the agent went on
    compacting."""
    repeats: int = 0
    """Firings of its rule since it was issued."""


class Incident(Struct, frozen=True, omit_defaults=True, gc=False):
    """One rule's trouble in one session, from the event that opened it to the event that resolves it."""

    incident_id: str
    rule: str
    subject: str = ""
    """Tells apart incidents of one rule: ``L2`` for a checkpoint level, empty for the session as a whole."""
    mode: Mode = "enforce"
    opened_at: int = 0
    opened_round: int = _AS_OPENED
    opening: Measurement | None = None
    level: int | None = None
    call_input: int | None = None
    """Input of the summarizer call that opened it, in tokens (in spans where it gave no tokens)."""
    facts: tuple[str, ...] = ()
    extent: int = 0
    """The most that there was since it opened of what its rule counts (ungrounded summaries); 0 where it counts nothing."""
    firings: int = 1
    good_rounds: int = 0
    """Good rounds in a row since it last fired."""
    releasing: bool = False
    """Resolved; only the release (``resume``) is still to be acknowledged."""
    release_unheeded: bool = False
    """That the release went unanswered was told to people."""
    command: CommandState | None = None
    cause: Cause = Cause()
    traceparent: str = ""
    tracestate: str = ""


class Counts(Struct, frozen=True, omit_defaults=True, gc=False):
    """What the order of events was like; one counter for each documented outcome."""

    duplicates: int = 0
    """Applied already (same round of this epoch, or same event id): ignored."""
    reordered: int = 0
    """A missing round that came late, within reach of the window: kept for trends, opens no incident."""
    late: int = 0
    """A round from beyond the window: ignored."""
    gaps: int = 0
    """Rounds that are missing now."""
    stale_epoch: int = 0
    """From an epoch that has ended: ignored."""
    superseded: int = 0
    """A round reported ok and then failed: its measurements were taken back."""
    failed: int = 0
    unknown: int = 0
    """Rounds with no tokens at all: nothing can be said about them."""
    bad_time: int = 0
    """Events whose ``ts`` was no time with a zone: the receive time was used."""
    after_end: int = 0
    """Events of a session that had ended: ignored."""
    unmatched_acks: int = 0
    overflow: int = 0
    """Facts or incidents past what the state keeps."""


class SessionState(Struct, omit_defaults=True, gc=False, tag_field="schema", tag="leadline.session/1"):
    """Everything the monitor remembers of one session of one agent."""

    session_id: str
    agent_id: str
    fleet: str = ""
    epoch: int = 0
    offset: int = -1
    """Watermark: the events partition's offset of the last event applied."""
    last_seen: int = 0
    """Receive time of the last event, milliseconds since 1970."""
    short_epochs: int = 0
    """Epochs in a row that ended after at most two rounds."""
    started: bool = False
    """A session-start of this epoch was seen."""
    ended_at: int | None = None
    token_budget: int | None = None
    fixed_tokens: int = 0
    max_depth: int | None = None
    penalizes_depth: bool | None = None
    eviction: str | None = None
    baseline_spans: int | None = None
    last_round: int | None = None
    seen_mask: int = 0
    """Bit i is set when round ``last_round - i`` was seen."""
    pinned_rounds: int = 0
    """Consecutive rounds at the depth limit."""
    stalled_rounds: int = 0
    """Consecutive passes that got nowhere."""
    depth_cap: int | None = None
    """The cap that the monitor commanded."""
    window: tuple[Measurement, ...] = ()
    facts: dict[str, FactRecord] = {}
    facts_reported: bool | None = None
    """False once a checkpoint came without fact statuses and none ever with: constraints are not reported."""
    output_sizes: dict[str, tuple[int, int]] = {}
    """By level: the size of the last output, and how many outputs in a row had it."""
    recent_events: tuple[str, ...] = ()
    incidents: tuple[Incident, ...] = ()
    next_seq: int = 1
    opened: int = 0
    """Incidents that were opened so far."""
    counts: Counts = Counts()
    traceparent: str = ""
    tracestate: str = ""
    deadline: int | None = None
    """When the monitor must look at this session again though nothing came, milliseconds since 1970."""
    done_by_hand: tuple[str, ...] = ()
    """Ids of the last events in which people halted or released it."""
    authenticated: bool = False
    """An event of it was signed as its fleet signs."""
    taken_over: bool = False
    """It was begun anew when its fleet first signed: before, others had spoken in its name."""

    def working_copy(self) -> SessionState:
        """A copy that may be changed; nested records are shared, as they are never changed in place."""
        return copy_of(self)


copy_of: Callable[[SessionState], SessionState] = SessionState.__copy__  # type: ignore[attr-defined]
"""As :meth:`SessionState.working_copy`, for where it counts."""

_decoder = msgspec.json.Decoder(SessionState)
_encoder = msgspec.json.Encoder()


def encode_state(state: SessionState) -> bytes:
    """A state record as JSON, UTF-8. What follows from the rest of it is left out: :func:`decode_state` puts it back."""
    if state.incidents:
        state = replace(state, incidents=tuple(_shortened(incident, state) for incident in state.incidents))
    return _encoder.encode(state)


def decode_state(value: bytes) -> SessionState:
    """Read what this, an older or a newer worker wrote: fields that are not known are ignored, at every depth.

    Raises :class:`Malformed` when the bytes are no state record of this major version.
    """
    try:
        state = _decoder.decode(value)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        state = _closely(value)
    if state.incidents:
        state.incidents = tuple(_whole(incident, state) for incident in state.incidents)
    return state


def _closely(value: bytes) -> SessionState:
    try:
        raw = orjson.loads(value)
        if isinstance(raw, dict):
            strip_unknown(raw, SessionState)
        return msgspec.convert(raw, SessionState)
    except (msgspec.ValidationError, orjson.JSONDecodeError) as error:
        raise Malformed("not-a-state", str(error)) from None


def _shortened(incident: Incident, state: SessionState) -> Incident:
    command, opening = incident.command, incident.opening
    if command is not None:
        if command.command_id == ids.command_id(incident.incident_id, command.kind, command.attempt):
            command = replace(command, command_id="")
        if command.issued_at == incident.opened_at:
            command = replace(command, issued_at=_AS_OPENED)
    if opening is not None and opening.round == incident.opened_round:
        incident = replace(incident, opened_round=_AS_OPENED)
    if incident.traceparent and (incident.traceparent, incident.tracestate) == (state.traceparent, state.tracestate):
        incident = replace(incident, traceparent=_AS_SESSION, tracestate="")
    return replace(incident, command=command)


def _whole(incident: Incident, state: SessionState) -> Incident:
    command = incident.command
    if command is not None:
        if not command.command_id:
            command = replace(command, command_id=ids.command_id(incident.incident_id, command.kind, command.attempt))
        if command.issued_at == _AS_OPENED:
            command = replace(command, issued_at=incident.opened_at)
    if incident.opened_round == _AS_OPENED and incident.opening is not None:
        incident = replace(incident, opened_round=incident.opening.round)
    if incident.traceparent == _AS_SESSION:
        incident = replace(incident, traceparent=state.traceparent, tracestate=state.tracestate)
    return replace(incident, command=command)
