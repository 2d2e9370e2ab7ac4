"""The whole fleet as it is known now, rebuilt from the topics alone. Pure: bytes go in, rows and changes come out."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final, NamedTuple

import msgspec

from leadline.contracts.codec import decode_order, decode_silence, decode_violation
from leadline.contracts.manual import Silence
from leadline.contracts.orders import Command
from leadline.contracts.session_state import SessionState, decode_state
from leadline.contracts.text import safe
from leadline.contracts.times import parse_ms
from leadline.dashboard.journal import Journal, percentile
from leadline.dashboard.rows import IN_FLIGHT, Row, Who, row_of
from leadline.detection.condition import CONDITIONS
from leadline.detection.rules import RULE_NAMES
from leadline.detection.silences import concerns, in_force
from leadline.errors import Malformed

__all__ = ["Changes", "FleetView", "Session"]

MANUAL: Final = "manual"
"""Rule of the incidents that people open by hand."""
_MOST_SILENCES: Final = 1_000
_MISSED: Final = 4
"""Heartbeats that a monitor may miss before it counts as silent."""


class Session:
    """What is kept of one session: its row, and the record as it came (decoded only when somebody opens the session)."""

    __slots__ = ("offset", "partition", "row", "value", "who")

    def __init__(self, who: Who, row: Row, partition: int, offset: int, value: bytes) -> None:
        self.who = who
        self.row = row
        self.partition = partition
        self.offset = offset
        self.value = value

    def state(self) -> SessionState:
        return decode_state(self.value)


class Changes(NamedTuple):
    """What happened since the last call: new or renamed sessions, new rows, slots that are gone."""

    who: list[Who]
    rows: list[Row]
    gone: list[int]

    def __bool__(self) -> bool:
        return bool(self.who or self.rows or self.gone)


class Beat(NamedTuple):
    """The last sign of life of the worker that owns a partition (ms since 1970), and how often there is one (ms)."""

    at: int
    every_ms: int


class FleetView:
    """Not thread safe: the reader and the server take turns with a lock.

    ``changes``: whether they are kept for :meth:`take_changes`. Who never takes them must say no: they would grow for ever.
    """

    def __init__(self, journal: Journal | None = None, *, changes: bool = True) -> None:
        self._tracks = changes
        self.journal = journal if journal is not None else Journal()
        self.unreadable = 0
        """Records that could not be read: they are left out, and counted."""
        self._sessions: dict[bytes, Session] = {}
        self._by_slot: dict[int, Session] = {}
        self._by_ids: dict[tuple[str, str], Session] = {}
        self.silences: dict[str, Silence] = {}
        """The last record of each, by id."""
        self._beats: dict[int, Beat] = {}
        self._next_slot = 0
        self._who: set[int] = set()
        self._rows: set[int] = set()
        self._gone: list[int] = []

    def clear(self) -> None:
        """Forget everything, as if nothing had been read; who follows the changes is told that the sessions are gone."""
        for key, session in list(self._sessions.items()):
            self._remove(key, session)
        self.journal = self.journal.emptied()
        self.silences.clear()
        self._beats.clear()

    # What the topics say

    def apply_state(self, partition: int, key: bytes | None, value: bytes | None) -> None:
        """One record of the sessions changelog. ``None`` for a value: the session is removed.

        A monitor that was declared dead may leave an older state behind a newer one: the higher watermark stays.
        """
        if key is None:
            return
        known = self._sessions.get(key)
        if value is None:
            if known is not None:
                self._remove(key, known)
            return
        try:
            state = decode_state(value)
        except Malformed:
            self.unreadable += 1
            return
        if known is None:
            known = self._add(key, partition, state, value)
        elif state.offset < known.offset:
            return
        else:
            known.row, known.value, known.offset = row_of(known.who.slot, state), value, state.offset
            if state.fleet != known.who.fleet:
                known.who = Who(known.who.slot, state.session_id, state.agent_id, state.fleet)
                self._changed(self._who, known.who.slot)
        self._changed(self._rows, known.who.slot)
        for incident in state.incidents:
            self.journal.opened(incident.incident_id, incident.opened_at)

    def apply_violation(self, value: bytes | None) -> None:
        try:
            record = decode_violation(value)
        except Malformed:
            self.unreadable += 1
            return
        session = self._by_ids.get((record.session_id, record.agent_id))
        opened = {one.incident_id: one.opened_at for one in session.row.open} if session is not None else {}
        self.journal.add_violation(record, opened.get(record.incident_id))

    def apply_silence(self, value: bytes | None) -> None:
        try:
            record = decode_silence(value)
        except Malformed:
            self.unreadable += 1
            return
        self.silences[record.silence_id] = record
        while len(self.silences) > _MOST_SILENCES:
            del self.silences[next(iter(self.silences))]

    def apply_command(self, value: bytes | None) -> None:
        try:
            record = decode_order(value)
        except Malformed:
            self.unreadable += 1
            return
        if isinstance(record, Command):
            self.journal.add_command(record)
        else:
            self._beats[record.partition] = Beat(parse_ms(record.at) or 0, record.every_ms)

    # What the page asks

    def take_changes(self) -> Changes:
        """Everything since the last call, each session once."""
        rows = [self._by_slot[slot].row for slot in self._rows if slot in self._by_slot]
        who = [self._by_slot[slot].who for slot in self._who if slot in self._by_slot]
        gone = self._gone
        self._who, self._rows, self._gone = set(), set(), []
        return Changes(who, rows, gone)

    def everything(self) -> Changes:
        """All sessions; does not touch what :meth:`take_changes` gives next."""
        sessions = self._by_slot.values()
        return Changes([one.who for one in sessions], [one.row for one in sessions], [])

    def find(self, session_id: str, agent_id: str = "") -> Session | None:
        """The session of this agent; of any, where the agent is not named."""
        if agent_id:
            return self._by_ids.get((session_id, agent_id))
        return next((one for one in self._by_slot.values() if one.who.session_id == session_id), None)

    def counts(self, fleet: str = "") -> dict[str, int]:
        """Sessions (of one fleet, where it is named) by condition, every condition named."""
        counted = Counter(one.row.condition for one in self._of(fleet))
        return {word: counted[number] for number, word in enumerate(CONDITIONS)}

    def overview(self, fleet: str = "") -> dict[str, Any]:
        """In numbers what the page's head and ``leadline top`` show. Times are the whole cluster's, whatever the fleet."""
        open_rules: Counter[str] = Counter()
        in_flight: Counter[str] = Counter()
        sessions = self._of(fleet)
        for session in sessions:
            for one in session.row.open:
                open_rules[one.rule] += 1
                if one.stage in IN_FLIGHT:
                    in_flight[one.kind] += 1
        return {
            "sessions": len(sessions),
            "conditions": self.counts(fleet),
            "incidents": dict(open_rules.most_common()),
            "commands_in_flight": dict(in_flight.most_common()),
            **self.timings(),
        }

    def timings(self) -> dict[str, Any]:
        """In milliseconds; ``None`` where nothing was timed yet."""
        verdicts, recoveries = self.journal.verdicts, self.journal.recoveries
        return {
            "time_to_verdict_ms": {"p50": percentile(verdicts, 0.5), "p99": percentile(verdicts, 0.99), "of": len(verdicts)},
            "time_to_release_ms": {
                "p50": percentile(recoveries, 0.5),
                "p99": percentile(recoveries, 0.99),
                "of": len(recoveries),
            },
        }

    def monitor(self, now: int) -> dict[str, int | None]:
        """Whether a monitor is at work, by its heartbeats: partitions that have had one, those that have missed several, and
        since when the worst of these is silent. Without any heartbeat nothing is known."""
        silent = [beat.at for beat in self._beats.values() if now - beat.at > _MISSED * max(beat.every_ms, 1_000)]
        return {"partitions": len(self._beats), "silent": len(silent), "since": min(silent, default=None)}

    def silences_now(self, now: int, about: Who | None = None) -> list[dict[str, Any]]:
        """Those in force at ``now`` (ms since 1970), the first to end first; only those about a session, where one is named."""
        found = [
            {**msgspec.to_builtins(one), "until": parse_ms(one.expires_at), "who": safe(one.who, 100), "why": safe(one.why, 300)}
            for one in self.silences.values()
            if in_force(one, now) and (about is None or concerns(one, about.fleet, about.session_id, about.agent_id))
        ]
        return sorted(found, key=lambda one: int(one["until"]))

    def vocabulary(self) -> dict[str, Any]:
        """The words that rows abbreviate."""
        return {"conditions": list(CONDITIONS), "rules": [*RULE_NAMES, MANUAL]}

    def sessions(self) -> list[Session]:
        return list(self._by_slot.values())

    def _of(self, fleet: str) -> list[Session]:
        return [one for one in self._by_slot.values() if not fleet or one.who.fleet == fleet]

    def __len__(self) -> int:
        return len(self._by_slot)

    def _add(self, key: bytes, partition: int, state: SessionState, value: bytes) -> Session:
        slot = self._next_slot
        self._next_slot += 1
        who = Who(slot, state.session_id, state.agent_id, state.fleet)
        session = Session(who, row_of(slot, state), partition, state.offset, value)
        self._sessions[key] = self._by_slot[slot] = self._by_ids[state.session_id, state.agent_id] = session
        self._changed(self._who, slot)
        return session

    def _remove(self, key: bytes, session: Session) -> None:
        del self._sessions[key]
        del self._by_slot[session.who.slot]
        self._by_ids.pop((session.who.session_id, session.who.agent_id), None)
        if self._tracks:
            self._gone.append(session.who.slot)

    def _changed(self, slots: set[int], slot: int) -> None:
        if self._tracks:
            slots.add(slot)
