"""The whole monitor as one pure function: records of one partition and the states they touch go in; new states, violations,
commands and dead letters come out.

The stream processor, the offline replay, the lab and the tests all call :func:`fold`; nothing else decides anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from leadline.commands.deadlines import next_deadline, quiet_ms
from leadline.commands.incidents import settle
from leadline.commands.lifecycle import Move
from leadline.contracts import limits
from leadline.contracts.codec import Decoded, Event, decode_event, plain_events
from leadline.contracts.events import Ack, AgentEvent, Round, SessionEnd
from leadline.contracts.manual import Manual
from leadline.contracts.orders import Cause, Command, Tick, Violation
from leadline.contracts.reasons import Reason
from leadline.contracts.session_state import Counts, SessionState
from leadline.contracts.times import parse_ms
from leadline.contracts.trace import NO_TRACE, TraceContext, read_trace
from leadline.detection.asking import FAILED
from leadline.detection.observe import apply
from leadline.detection.policy import FleetPolicy, Policy
from leadline.detection.quiet import quiet
from leadline.detection.rounds import Arrival
from leadline.detection.silences import silenced
from leadline.errors import Malformed

__all__ = ["Admit", "DeadLetter", "Folded", "Incoming", "Load", "Removed", "Step", "fold"]

_CLOCK_SKEW_MS = 60_000
_OF_KNOWN_SESSIONS = frozenset({Ack, Tick, Manual, SessionEnd})
"""Events that begin no session."""
_APPLIED = (Arrival.NEXT, Arrival.REORDERED, Arrival.SUPERSEDES)
"""Of rounds; the others were there before, or came too late."""
_KEY_BEGINS: Final = tuple(f"{length}:" for length in range(limits.MAX_ID + 1))
"""What a state key begins with, by the length of the session id."""
_NOT_MET: Final = object()


class Incoming(NamedTuple):
    """One record of ``leadline.events`` as the broker delivered it. ``timestamp``: ms since 1970, negative when absent."""

    key: bytes | None
    value: bytes | None
    partition: int
    offset: int
    timestamp: int
    headers: Sequence[tuple[str, bytes | None]] = ()


Admit = Callable[[Incoming, Event, SessionState, int], bool]
"""``admit(record, event, state, receive)``: what the record says, its session before it, which is not changed, and the receive
time (ms since 1970). Tells whether the event is signed as its fleet signs. Raises :class:`Malformed` where it must be and is not;
the state is then as it was."""


class Removed(NamedTuple):
    """What is stored of a session that is gone: its events up to ``offset`` have been applied, and come again where they were not
    committed before a worker ended."""

    offset: int


Load = Callable[[str], SessionState | Removed | None]
"""The state stored under a state key; ``None`` where nothing is known of such a session."""


class DeadLetter(NamedTuple):
    """A record that could not be read, with the named reason and a sentence."""

    source: Incoming
    reason: str
    error: str


class Step(NamedTuple):
    """One event that led to something, for those who watch; what is done is all in the other fields of :class:`Folded`."""

    record: Incoming
    event: Event
    receive: int
    """Receive time, ms since 1970."""
    trace: TraceContext
    """The event's own; empty for a tick."""
    state: SessionState
    """After it."""
    outputs: slice
    """Its part of :attr:`Folded.outputs`."""
    moves: tuple[Move, ...]


@dataclass(slots=True)
class Folded:
    """What a batch led to, in order. ``states``: every session touched, by state key; ``None`` is to be removed.

    A session whose events had been applied before is listed too: its record must be written again, since the first time
    may not have reached the changelog. So is, as removed, one that a tick asks about and that is not there.
    """

    states: dict[str, SessionState | None] = field(default_factory=dict)
    outputs: list[Violation | Command] = field(default_factory=list)
    dead_letters: list[DeadLetter] = field(default_factory=list)
    ignored: dict[str, int] = field(default_factory=dict)
    """Records that led to nothing, by why: ``tombstone``, ``replayed``, ``unknown-session``, ``tick-early``; and
    states that could not be read (``unreadable-state``), whose sessions began anew."""
    tolerated: dict[str, int] = field(default_factory=dict)
    """What was read in spite of: ``unknown-fields``, ``newer-minor``, ``bad-time``, ``bad-trace-context``."""
    rounds: dict[str, int] = field(default_factory=dict)
    """Rounds applied, by fleet: not those that were there before, came too late, or after their session's end."""
    irregular: dict[str, int] = field(default_factory=dict)
    """What was not simply the session's next event, by the names of :class:`~leadline.contracts.session_state.Counts`."""
    failures: dict[str, int] = field(default_factory=dict)
    """Rules that raised instead of deciding."""
    steps: list[Step] = field(default_factory=list)
    """The events that led to an output, or moved a command or incident, in order."""

    def ignore(self, why: str) -> None:
        self.ignored[why] = self.ignored.get(why, 0) + 1

    def tolerate(self, what: str, count: int) -> None:
        self.tolerated[what] = self.tolerated.get(what, 0) + count

    def compare(self, before: Counts, after: Counts) -> None:
        """Note what was counted from ``before`` to ``after``."""
        for name in Counts.__struct_fields__:
            more = getattr(after, name) - getattr(before, name)
            if more > 0:
                self.irregular[name] = self.irregular.get(name, 0) + more


def fold(
    batch: Sequence[Incoming],
    load: Load,
    policy: Policy,
    now: int,
    admit: Admit | None = None,
    *,
    explain: bool = False,
) -> Folded:
    """Apply ``batch`` (one partition, ascending offsets) at time ``now`` (ms since 1970).

    What a state remembers comes from the records alone (their receive times are the broker's): a replay ends in the same states.
    ``now`` stamps what is sent, and stands in for a receive time that a record lacks or that lies far in the future.

    ``load`` gives the state stored under a state key; it is asked once for each session in the batch, and what it gives is never
    changed: a caller may keep decoded states and hand them out again. The states in the result are the caller's to keep.
    ``admit`` may refuse an agent's event by raising :class:`Malformed`, as where it is not signed as its fleet must sign.
    ``explain`` asks every rule of every event, which decides nothing differently and takes longer. Never raises for anything that
    an agent can send.
    """
    folded = Folded()
    states, rounds = folded.states, folded.rounds
    met: Callable[[str, object], Any] = states.get
    gone: dict[str, int] = {}
    latest = now + limits.MAX_FUTURE_MS
    policies: dict[str, tuple[FleetPolicy, int]] = {}
    current: str | None = None
    known, patience = policy.default, 0
    for record, event in zip(batch, plain_events([record.value for record in batch]), strict=True):
        key, value, _, offset, timestamp, headers = record
        receive = timestamp if 0 < timestamp <= latest else now
        decoded = None
        try:
            ts = None
            if event is not None and type(event) is not Tick and event.ts:
                ts = parse_ms(event.ts)
                if ts is None:
                    event = None  # As plain as it is, its time is none.
            if event is None:
                if value is None:
                    folded.ignore("tombstone")
                    continue
                decoded = decode_event(value)
                event, ts = decoded.event, decoded.ts
            session_id = event.session_id
            if key != session_id.encode() or (ts is not None and ts - receive > limits.MAX_FUTURE_MS):
                _check(record, session_id, ts, receive)
            name = f"{_KEY_BEGINS[len(session_id)]}{session_id}{event.agent_id}"  # state_key(), at a third of its cost.
            state = met(name, _NOT_MET)
            ours = True
            if state is _NOT_MET:
                ours = False
                try:
                    state = load(name)
                except Malformed:
                    # It is counted, and the session begins anew: it must not stop its neighbours.
                    folded.ignore("unreadable-state")
                    state = None
                if type(state) is Removed:
                    gone[name] = state.offset
                    state = None
            if state is None:
                if offset <= gone.get(name, -1):
                    # As for one that is there: what was written of it may not have reached the changelog.
                    states[name] = None
                    folded.ignore("replayed")
                    continue
                if type(event) in _OF_KNOWN_SESSIONS:
                    if type(event) is Tick:
                        # The tick that removed it, perhaps, once more: the removal may not have reached the changelog.
                        states[name] = None
                    folded.ignore("unknown-session")
                    continue
                state, ours = SessionState(session_id, event.agent_id), True
            if offset <= state.offset:
                states[name] = state if ours else state.working_copy()
                folded.ignore("replayed")
                continue
            usurped = False
            if admit is not None and type(event) is not Tick and admit(record, event, state, receive) and not state.authenticated:
                usurped = bool(event.fleet) and event.fleet != state.fleet
                state, ours = _begun_anew(state, event) if usurped else state.working_copy(), True
                state.authenticated = True
        except Malformed as error:
            folded.dead_letters.append(DeadLetter(record, error.reason, error.detail))
            continue
        fleet = state.fleet if type(event) is Tick else event.fleet or state.fleet
        if fleet != current:
            if fleet not in policies:
                policies[fleet] = policy.of(fleet), quiet_ms(policy.of(fleet))
            current, (known, patience) = fleet, policies[fleet]
        if type(event) is Round and decoded is None and not explain:
            # Whether a rule is silenced makes no difference here.
            after = quiet(state, event, receive, known, ours)
            if after is not None:
                for header in headers:
                    if header[0] == "traceparent":
                        _followed(folded, headers, after)
                        break
                after.offset = offset
                after.deadline = after.last_seen + patience
                states[name] = after
                rounds[fleet] = rounds.get(fleet, 0) + 1
                continue
        if not ours:
            state = state.working_copy()
        rules = known
        if policy.silences:
            rules = silenced(rules, policy.silences, fleet, session_id, event.agent_id, receive)
        if type(event) is Tick:
            receive = _claimed(event, receive)
            if state.deadline is None or state.deadline > receive:
                folded.ignore("tick-early")
                continue
            if receive >= _removal(state, rules):
                states[name] = None
                continue
        counts = state.counts
        found = apply(state, event, receive, rules, explain=explain)
        if found.arrival in _APPLIED:
            rounds[state.fleet] = rounds.get(state.fleet, 0) + 1
        state.offset = offset
        if decoded is not None:
            _tolerated(folded, decoded, state)
        trace = NO_TRACE
        for header in headers:
            if header[0] == "traceparent":
                trace = _followed(folded, headers, state)
                break
        for finding in found.findings:
            if finding.decision is FAILED:
                folded.failures[finding.rule] = folded.failures.get(finding.rule, 0) + 1
        cause = Cause(event_id="" if type(event) is Tick else event.event_id, partition=record.partition, offset=offset)
        moves: list[Move] = []
        outputs = settle(found, event, receive, rules, cause, policy.version, max(now, receive), moves, usurped=usurped)
        state.deadline = next_deadline(state, rules)
        if outputs or moves:
            first = len(folded.outputs)
            folded.outputs.extend(outputs)
            part = slice(first, first + len(outputs))
            folded.steps.append(Step(record, event, receive, trace, state, part, tuple(moves)))
            state = state.working_copy()  # What was told stays as it was told.
        if state.counts is not counts:
            folded.compare(counts, state.counts)
        states[name] = state
    return folded


def _begun_anew(state: SessionState, event: AgentEvent | Manual) -> SessionState:
    """The session as its fleet finds it when it signs for the first time: nothing that others said in its name is left, but what
    tells commands apart, and the incidents whose commands must be released."""
    return SessionState(
        state.session_id,
        state.agent_id,
        epoch=getattr(event, "epoch", None) or 0,
        offset=state.offset,
        incidents=state.incidents,
        next_seq=state.next_seq,
        done_by_hand=state.done_by_hand,
        opened=state.opened,
        taken_over=state.offset >= 0,
    )


def _check(record: Incoming, session_id: str, ts: int | None, receive: int) -> None:
    """What can only be told with the record's key and time at hand. Raises :class:`Malformed`."""
    if record.key != session_id.encode():
        if record.key is None:
            raise Malformed(Reason.KEY_MISMATCH, "the message has no key; it must be the session id")
        try:
            key = record.key.decode()
        except UnicodeDecodeError:
            raise Malformed(Reason.BAD_UTF8, "the message key is not valid UTF-8; it must be the session id") from None
        raise Malformed(Reason.KEY_MISMATCH, f"the message key {key[:80]!r} is not the session id {session_id[:80]!r}")
    if ts is not None and ts - receive > limits.MAX_FUTURE_MS:
        hours = (ts - receive) / 3_600_000
        raise Malformed(Reason.FUTURE_TIMESTAMP, f"ts is {hours:.0f} h ahead of the receive time; check the agent's clock")


def _claimed(tick: Tick, receive: int) -> int:
    """The time of a tick. The monitor's clock may be a little ahead of the broker's: its word is taken for that little."""
    return max(receive, min(parse_ms(tick.due_at) or 0, receive + _CLOCK_SKEW_MS))


def _tolerated(folded: Folded, decoded: Decoded, state: SessionState) -> None:
    if decoded.unknown_fields:
        folded.tolerate("unknown-fields", decoded.unknown_fields)
    if decoded.newer_minor:
        folded.tolerate("newer-minor", 1)
    if decoded.bad_time:
        folded.tolerate("bad-time", 1)
        state.counts = replace(state.counts, bad_time=state.counts.bad_time + 1)


def _followed(folded: Folded, headers: Sequence[tuple[str, bytes | None]], state: SessionState) -> TraceContext:
    """The event's trace context. The session's is that of its newest event that has one."""
    trace = read_trace(headers)
    if trace.traceparent:
        state.traceparent, state.tracestate = trace.traceparent, trace.tracestate
    elif trace.ignored:
        folded.tolerate("bad-trace-context", 1)
    return trace


def _removal(state: SessionState, policy: FleetPolicy) -> int:
    """When the session's record goes: some time after its end, or after a long silence. ms since 1970."""
    if state.ended_at is not None:
        return state.ended_at + policy.ended_linger_ms
    return state.last_seen + policy.idle_ms
