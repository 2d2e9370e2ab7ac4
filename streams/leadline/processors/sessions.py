"""Typed states over the sessions table, written back in one go, through a bounded cache of decoded ones."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import NamedTuple

from leadline.commands.fold import Load, Removed
from leadline.contracts.session_state import Incident, SessionState, decode_state, encode_state
from leadline.contracts.topics import SESSIONS
from leadline.errors import Malformed
from leadline.processors.marks import Mark, mark_of
from leadline.processors.outputs import Outgoing, Sent
from leadline.processors.table import GONE_AT, Row, SessionsTable, place

__all__ = ["Sessions", "Survey", "Taken"]

_YIELD_EVERY = 500
_MOST_STRAYS = 20_000
_MISSING = object()


class Survey(NamedTuple):
    """What a restored partition holds: the number of sessions, the highest event offset that it has seen, in sessions that are
    there or are gone, what is open, by state key, and the fleets that there are."""

    sessions: int
    watermark: int
    incidents: list[tuple[str, tuple[Incident, ...]]]
    fleets: frozenset[str] = frozenset()


class Taken(NamedTuple):
    """States that are to be written, by partition: as they are, and as rows of the store. ``upto``: the offset up to which the
    partition's events are in them. ``gone``: for each that is removed, the offset up to which its events are done with."""

    states: dict[int, dict[str, SessionState | None]]
    rows: dict[int, list[Row]]
    upto: dict[int, int]
    gone: dict[tuple[int, bytes], int]

    def records(self) -> list[Outgoing]:
        """For the changelog, each on the partition of its events."""
        return [
            Outgoing(SESSIONS.name, partition, row.key, row.body, () if row.body is not None else self._gone(partition, row.key))
            for partition, rows in self.rows.items()
            for row in rows
        ]

    def _gone(self, partition: int, key: bytes) -> tuple[tuple[str, bytes], ...]:
        at = self.gone[partition, key]
        return ((GONE_AT, b"%d" % at),) if at >= 0 else ()


class _Part:
    """One partition's states in memory."""

    __slots__ = ("cache", "dirty", "fresh", "placed", "sessions", "stored", "upto")

    def __init__(self, through: int) -> None:
        self.cache: dict[str, SessionState | None] = {}
        self.dirty: dict[str, None] = {}
        """Keys that are to be taken; the cache holds each."""
        self.placed: dict[str, int] = {}
        """Where those in the cache stand in the index."""
        self.fresh: set[str] = set()
        """Keys in the cache that the store does not have."""
        self.sessions = 0
        self.upto = through
        """The offset up to which the partition's events are in the states that were applied."""
        self.stored = None if through < 0 else Removed(through)
        """What the store says of a session that it does not have."""


class Sessions:
    """What :meth:`apply` was given is what :meth:`loader` gives at once; it reaches the store by :meth:`take` and :meth:`store`.

    The cache never lets go of a state that the store does not have yet. ``cache_size``: states kept beyond those, in all
    partitions.
    """

    def __init__(self, table: SessionsTable, cache_size: int) -> None:
        self._table = table
        self._cache_size = cache_size
        self._parts: dict[int, _Part] = {}
        self.unwritten = 0
        """States that were applied and not taken yet."""
        self.settled = True
        """Nothing was taken that is not stored."""

    def _part(self, partition: int) -> _Part:
        part = self._parts.get(partition)
        if part is None:
            part = self._parts[partition] = _Part(self._table.through(partition))
        return part

    @property
    def partitions(self) -> list[int]:
        return list(self._parts)

    def number(self) -> int:
        """Sessions that this worker keeps."""
        return sum(part.sessions for part in self._parts.values())

    def loader(self, partition: int) -> Load:
        """``load`` as the fold wants it. Of a session that is not there it says up to which offset that is so: one that the fold
        has removed must not begin anew because its events come again. Raises :class:`~leadline.errors.Malformed` when the store
        holds no state there."""
        part = self._part(partition)
        cache, fresh, placed, get = part.cache, part.fresh, part.placed, self._table.look_up
        stored, gone_at = part.stored, self._table.gone_at

        def load(key: str) -> SessionState | Removed | None:
            state = cache.get(key, _MISSING)
            if state is not _MISSING and state is not None:
                return state  # type: ignore[return-value]
            name = _key(key)
            body, at = get(partition, name) if state is _MISSING else (None, None)
            if body is None:
                if state is _MISSING:
                    fresh.add(key)
                gone = gone_at(partition, name)
                return Removed(gone) if gone > (stored.offset if stored else -1) else stored
            if at is not None:
                placed[key] = at
            return decode_state(body)

        return load

    def apply(self, partition: int, states: Mapping[str, SessionState | None], upto: int) -> None:
        """These states are the newest; the partition's events up to the offset ``upto`` are in them."""
        part = self._part(partition)
        part.upto = max(part.upto, upto)
        cache, dirty = part.cache, part.dirty
        before = len(dirty)
        for key, state in states.items():
            cache.pop(key, None)  # So that it stands last: the first ones go first.
            cache[key] = state
            dirty[key] = None
        self.unwritten += len(dirty) - before

    def again(self, partition: int, keys: Iterable[bytes]) -> None:
        """These sessions are to be written again as they are."""
        load, part = self.loader(partition), self._part(partition)
        for key in keys:
            name = key.decode("utf-8", "surrogatepass")
            try:
                state = load(name)
            except Malformed:
                continue
            self.apply(partition, {name: None if isinstance(state, Removed) else state}, part.upto)

    def take(self) -> Taken:
        """All that was applied since the last time, encoded now: later changes do not show in it."""
        taken = Taken({}, {}, {}, {})
        for partition, part in self._parts.items():
            if not part.dirty:
                continue
            states = {key: part.cache[key] for key in part.dirty}
            rows, placed = [], part.placed
            for key, state in states.items():
                was = placed.get(key)
                if state is None:
                    placed.pop(key, None)
                    rows.append(Row(_key(key), None, None, was))
                    taken.gone[partition, _key(key)] = max(part.upto, self._table.gone_at(partition, _key(key)))
                    part.sessions -= key not in part.fresh
                    part.fresh.add(key)
                    continue
                at = place(state.deadline, was)
                if at is not None:
                    placed[key] = at
                rows.append(Row(_key(key), encode_state(state), at, was))
                if key in part.fresh:
                    part.sessions += 1
                    part.fresh.discard(key)
            part.dirty = {}
            taken.states[partition], taken.rows[partition], taken.upto[partition] = states, rows, part.upto
        self.unwritten = 0
        self.settled = False
        return taken

    def store(self, taken: Taken) -> None:
        """Write to the local store: one write a partition."""
        for partition, rows in taken.rows.items():
            upto = taken.upto[partition]
            self._table.put_all(partition, rows, upto)
            if upto >= 0:
                self._part(partition).stored = Removed(upto)
            self._evict(partition, taken.states[partition])
        self.settled = True

    def _evict(self, partition: int, written: Mapping[str, SessionState | None]) -> None:
        part = self._part(partition)
        going = [key for key, state in written.items() if state is None and key not in part.dirty and part.cache.get(key) is None]
        over = len(part.cache) - self._cache_size // max(1, len(self._parts))
        if over > 0:
            going += [key for key in islice(part.cache, over) if key not in part.dirty]
        for key in going:
            part.cache.pop(key, None)
            part.placed.pop(key, None)
            part.fresh.discard(key)
        # What was asked for and came to nothing leaves its key there.
        if len(part.fresh) + len(part.placed) > 2 * len(part.cache) + _MOST_STRAYS:
            part.fresh.intersection_update(part.cache)
            for key in part.placed.keys() - part.cache.keys():
                del part.placed[key]

    def due(self, partition: int, at: int, key: bytes, now: int) -> Mark | None:
        """A session that stands in the index at ``at``: what is known of it, where its deadline has come; else it is placed anew,
        or no more. Only while :attr:`settled`."""
        name = key.decode("utf-8", "surrogatepass")
        part = self._part(partition)
        body, placed = self._table.look_up(partition, key)
        if body is None or placed != at:
            self._table.unplace(partition, at, key)
            return None
        state = part.cache.get(name, _MISSING)
        mark: Mark | None
        if state is _MISSING:
            mark = mark_of(body)
        elif isinstance(state, SessionState):
            mark = Mark(state.session_id, state.agent_id, state.offset, state.deadline)
        else:
            mark = None
        deadline = mark.deadline if mark else None
        if deadline is not None and deadline <= now:
            return mark
        self._table.put_all(partition, [Row(key, body, deadline, at)])
        part.placed.pop(name, None)
        if deadline is not None:
            part.placed[name] = deadline
        return None

    def note(self, taken: Taken, confirmed: Iterable[Sent]) -> None:
        """The changelog has confirmed these records."""
        ends: dict[int, tuple[int, int, int]] = {}
        for partition, offset in confirmed:
            first, last, number = ends.get(partition, (offset, offset, 0))
            ends[partition] = min(first, offset), max(last, offset), number + 1
        for partition, (first, last, number) in ends.items():
            self._table.wrote(partition, [row.key for row in taken.rows[partition]], first, last, number)

    def forget(self, partitions: Iterable[int]) -> None:
        """Drop the states of partitions that may have changed hands, also those that were not written."""
        for partition in partitions:
            part = self._parts.pop(partition, None)
            self.unwritten -= len(part.dirty) if part else 0
        self.settled = True

    async def survey(self, partition: int) -> Survey:
        """Go once over all stored states of a partition, unless its restore has counted them; gives way to others from time to
        time. States of an older store are put into the index."""
        tally = self._table.tally(partition)
        if tally is not None:
            part = self._part(partition)
            part.sessions = tally.sessions
            watermark = max(tally.watermark, part.upto, self._table.gone_last(partition))
            opened = [(key.decode("utf-8", "surrogatepass"), incidents) for key, incidents in tally.incidents.items()]
            return Survey(tally.sessions, watermark, opened, frozenset(+tally.fleets))
        sessions, watermark, incidents, rows = 0, -1, [], []
        fleets: set[str] = set()
        for key, body, placed in self._table.items_of(partition):
            sessions += 1
            if sessions % _YIELD_EVERY == 0:
                await asyncio.sleep(0)
            mark = mark_of(body)
            if mark is None:
                continue
            watermark = max(watermark, mark.offset)
            fleets.add(mark.fleet)
            if mark.incidents:
                incidents.append((key.decode("utf-8", "surrogatepass"), mark.incidents))
            if mark.deadline is not None and placed is None:
                rows.append(Row(key, body, mark.deadline))
        if rows:
            self._table.put_all(partition, rows)
        part = self._part(partition)
        part.sessions = sessions
        watermark = max(watermark, part.upto, self._table.gone_last(partition))
        return Survey(sessions, watermark, incidents, frozenset(fleets))


def _key(key: str) -> bytes:
    return key.encode("utf-8", "surrogatepass")
