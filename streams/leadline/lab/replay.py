"""The replay driver: the monitor's own decisions on recorded events, with a clock that the recording moves.

It calls the same :func:`leadline.commands.fold.fold` as the stream processor and adds only what a broker and a clock would:
offsets, receive times, and a tick when a session's deadline comes. Nothing here waits or reads the time of day.

>>> driver = ReplayDriver()
>>> for step in driver.feed(b'{"schema": "leadline.round/1", ...}'):  # doctest: +SKIP
...     print(step.outputs)
>>> driver.advance(60_000)  # a minute of silence: overdue acknowledgements and sessions are noticed  # doctest: +SKIP
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec
import orjson

from leadline.commands.fold import DeadLetter, Folded, Incoming, fold
from leadline.contracts.codec import Event, decode_event, encode
from leadline.contracts.ids import state_key
from leadline.contracts.limits import MAX_FUTURE_MS
from leadline.contracts.orders import Command, Tick, Violation
from leadline.contracts.session_state import SessionState
from leadline.contracts.times import format_ms, parse_ms
from leadline.detection.policy import DEFAULT_POLICY, Policy
from leadline.errors import Malformed
from leadline.lab.lines import Line

__all__ = ["Fold", "ReplayDriver", "Step", "key_of", "read_event", "replay", "time_of"]

Fold = Callable[[Sequence[Incoming], Callable[[str], SessionState | None], Policy, int], Folded]

_LAST: Final = 253_370_764_800_000
"""The year 9999: the deadlines of what came then could not be written down."""


class Step(NamedTuple):
    """What one record led to. ``offset`` is negative for a tick, which is in no recording.

    ``event`` is ``None`` where the record could not be read, a :class:`Tick` where time did it.
    """

    offset: int
    now: int
    event: Event | None
    outputs: Sequence[Violation | Command] = ()
    dead_letters: Sequence[DeadLetter] = ()
    ignored: Mapping[str, int] = MappingProxyType({})


class ReplayDriver:
    """Feeds records one by one and collects what they lead to.

    ``start`` is the first time on the clock, milliseconds since 1970. The clock only moves forward. ``fold`` may be
    replaced in tests. Never raises for anything that a record can hold.
    """

    def __init__(self, policy: Policy = DEFAULT_POLICY, *, start: int = 0, fold: Fold = fold) -> None:
        self.policy = policy
        self.now = start
        self.offset = 0
        """The last record's offset; the first record has offset 1, as lines of a file are counted."""
        self.violations: list[Violation] = []
        self.commands: list[Command] = []
        self.dead_letters: list[DeadLetter] = []
        self.ignored: dict[str, int] = {}
        self.states: dict[str, SessionState] = {}
        """The states in force, by state key."""
        self.last_states: dict[str, SessionState] = {}
        """The last state of every session ever seen, also of those removed since."""
        self._fold = fold
        self._due: list[tuple[int, str]] = []
        self._scheduled: dict[str, int] = {}

    def feed(self, record: bytes | msgspec.Struct, *, offset: int | None = None, at: int | None = None) -> list[Step]:
        """One record of ``leadline.events``: first the deadlines that came due before it, then the record itself.

        ``at`` is the receive time; without it the record's own time, or the clock where it has none. An earlier time
        than the clock's is received now. ``offset`` must rise; without it records count on.
        """
        value = record if isinstance(record, bytes) else encode(record)
        event = read_event(value)
        moment = at if at is not None else time_of(event)
        steps = self.move_to(moment) if moment is not None else []
        self.offset = self.offset + 1 if offset is None else offset
        source = Incoming(key_of(value, event), value, 0, self.offset, self.now)
        steps.append(self._apply(source, event, self.states.get))
        return steps

    def advance(self, milliseconds: int) -> list[Step]:
        """Let time pass without any record."""
        return self.move_to(self.now + milliseconds)

    def move_to(self, moment: int) -> list[Step]:
        """Move the clock forward to ``moment``, firing each deadline on the way at its own time, in order."""
        steps = []
        while self._due and self._due[0][0] <= moment:
            deadline, key = heapq.heappop(self._due)
            state = self.states.get(key)
            if self._scheduled.get(key) != deadline or state is None:
                continue
            self.now = max(self.now, deadline)
            steps.append(self._tick(state, deadline))
        self.now = max(self.now, moment)
        return steps

    def _tick(self, state: SessionState, deadline: int) -> Step:
        """Fold a tick. The recording has no offset for it: it gets one made from its time, the same on every replay, and the
        watermark is set aside meanwhile, or the next record would count as applied already."""
        key = state_key(state.session_id, state.agent_id)
        relaxed = state.working_copy()
        offset = min(-1, -deadline)
        relaxed.offset = offset - 1
        tick = Tick(session_id=state.session_id, agent_id=state.agent_id, due_at=format_ms(deadline))
        source = Incoming(state.session_id.encode(), encode(tick), 0, offset, self.now)
        step = self._apply(source, tick, lambda _key: relaxed)
        after = self.states.get(key)
        if after is not None:
            after = after.working_copy()
            after.offset = state.offset
            self._keep(key, after, settled=deadline)
        return step

    def _apply(self, source: Incoming, event: Event | None, load: Callable[[str], SessionState | None]) -> Step:
        folded = self._fold([source], load, self.policy, self.now)
        for name, state in folded.states.items():
            self._keep(name, state)
        for output in folded.outputs:
            if isinstance(output, Violation):
                self.violations.append(output)
            else:
                self.commands.append(output)
        self.dead_letters += folded.dead_letters
        for why, count in folded.ignored.items():
            self.ignored[why] = self.ignored.get(why, 0) + count
        return Step(source.offset, self.now, event, folded.outputs, folded.dead_letters, folded.ignored)

    def _keep(self, key: str, state: SessionState | None, settled: int = -1) -> None:
        """``settled``: a deadline that was fired; one that is still no later is not fired again until something happens."""
        if state is None:
            self.states.pop(key, None)
            self._scheduled.pop(key, None)
            return
        self.states[key] = self.last_states[key] = state
        deadline = state.deadline
        if deadline is None or deadline <= settled:
            self._scheduled.pop(key, None)
        elif self._scheduled.get(key) != deadline:
            self._scheduled[key] = deadline
            heapq.heappush(self._due, (deadline, key))
            if len(self._due) > 4 * len(self._scheduled) + 1024:
                self._due = [(due, name) for name, due in self._scheduled.items()]
                heapq.heapify(self._due)


_HOLD: Final = 256
"""How many untimed lines after a suspicious one are held back until a timed one confirms or refutes it."""


def replay(driver: ReplayDriver, lines: Iterable[Line]) -> Iterator[tuple[Line, Step]]:
    """Feed every line; yield each step with the line that it belongs to (a tick belongs to the line it came before).

    A record's own time is its receive time, with one exception: a time more than a day ahead of the clock that the next
    timed line does not confirm is a broken clock, not a pause. It moves nothing, and the record is received now.
    """
    held: list[Line] = []
    for line in lines:
        time = time_of(read_event(line.value))
        if held:
            if time is None and len(held) < _HOLD:
                held.append(line)
                continue
            yield from _release(driver, held, time)
            held = []
        if time is not None and time - driver.now > MAX_FUTURE_MS:
            held.append(line)
        else:
            yield from _feed(driver, line, time)
    if held:
        yield from _release(driver, held, None)


def _release(driver: ReplayDriver, held: list[Line], following: int | None) -> Iterator[tuple[Line, Step]]:
    time = time_of(read_event(held[0].value))
    assert time is not None, "only a timed line is held back"
    if following is not None and time - following > MAX_FUTURE_MS:
        time = following if driver.offset == 0 else driver.now
    yield from _feed(driver, held[0], time)
    for line in held[1:]:
        yield from _feed(driver, line, None)


def _feed(driver: ReplayDriver, line: Line, time: int | None) -> Iterator[tuple[Line, Step]]:
    offset = line.number if line.number > driver.offset else driver.offset + 1
    for step in driver.feed(line.value, offset=offset, at=driver.now if time is None else time):
        yield line, step


def read_event(value: bytes) -> Event | None:
    """The record, or ``None`` where it cannot be read: why not is the fold's to say."""
    try:
        return decode_event(value).event
    except Malformed:
        return None


def time_of(event: Event | None) -> int | None:
    """When the event was written, milliseconds since 1970, where it says so and such a time can be."""
    if event is None:
        return None
    time = parse_ms(event.due_at if isinstance(event, Tick) else event.ts)
    return time if time is None or time < _LAST else None


def key_of(value: bytes, event: Event | None = None) -> bytes | None:
    """The Kafka key of a record: its session id, where it is an object that has one."""
    if event is not None:
        return event.session_id.encode()
    try:
        raw = orjson.loads(value)
    except orjson.JSONDecodeError:
        return None
    session = raw.get("session_id") if isinstance(raw, dict) else None
    return session.encode() if isinstance(session, str) and session else None
