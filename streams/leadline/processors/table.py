"""The sessions table: one record a session, in RocksDB per partition, with the changelog ``leadline.sessions``.

A partition's store holds four things:

- ``state key -> state``; where the session stands in the index, the state's bytes follow eight bytes that say under which time;
- the index, ``\\0`` ``time`` ``state key``: sessions by a time at which to look at their deadline. A deadline that moves on is
  not moved in the index: the session is found too early, once, and placed anew (:mod:`leadline.processors.clock`). So a session
  that reports every second costs the index next to nothing, and one that is quiet costs no memory at all;
- up to which offset the partition's events are in it, written with the states: an event of a session that is not there, and
  below that offset, is one of a session that was removed, and comes again because its offset was not committed;
- the engine's own note of how far the changelog is in it.

The changelog has the states alone. Of two states of a session the one with the higher watermark is the newer, whatever their
order: a worker that was declared dead may still have finished a write. Where an older one stands last, the newer is written again
(:attr:`SessionsTable.regressed`), as compaction keeps the last.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import faust
import rocksdict
from faust.types import TP

from leadline.contracts.topics import SESSIONS
from leadline.processors.logs import with_fields
from leadline.processors.marks import Mark, Tally, Times, mark_of, times_of

__all__ = ["GONE_AT", "STORE_OPTIONS", "Change", "Row", "SessionsTable", "place"]

log = logging.getLogger(__name__)

STORE_OPTIONS = {
    # The engine's default block cache is 2 GiB for each partition.
    "block_cache_size": 8 * 1024 * 1024,
    "write_buffer_size": 8 * 1024 * 1024,
    "max_write_buffer_number": 2,
    "target_file_size_base": 16 * 1024 * 1024,
    "max_open_files": 256,
    "bloom_filter_size": 10,
}
"""Explicit and small. Never set ``ttl``: it expires live sessions."""

GONE_AT: Final = "offset"
"""Header of a tombstone: the watermark at which the session was removed."""

_INDEX: Final = b"\0"
_TIME: Final = 8
_THROUGH: Final = _INDEX + b"\xff" * _TIME
"""Behind the whole index, as no time is so late."""
_MOST_GONE: Final = 50_000
"""Removals remembered for each partition, to tell a late write of a removed session from a session that begins anew."""


def place(deadline: int | None, placed: int | None) -> int | None:
    """Where a session with this deadline is to stand in the index, never later than that; ``placed``: where it stands now."""
    if deadline is None:
        return placed
    return deadline if placed is None or deadline < placed else placed


class Row(NamedTuple):
    """A change of the local store. ``body`` absent: the state is removed. ``placed``: its place in the index from now on;
    ``was``: the place it had."""

    key: bytes
    body: bytes | None
    placed: int | None = None
    was: int | None = None


class Change(NamedTuple):
    """A record of the changelog, as it is restored. ``body`` absent: a tombstone, ``gone_at`` its watermark where it has one."""

    offset: int
    key: bytes
    body: bytes | None
    gone_at: int | None = None


class _Gone(NamedTuple):
    """A removal: the watermark at which the session went, and where the changelog says so."""

    at: int
    offset: int


class SessionsTable(faust.Table):  # type: ignore[misc]
    """The engine's table, with batch access by partition and a restore that never goes back in time."""

    logger = logging.getLogger("faust.leadline")

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.applied: dict[int, int] = {}
        """By partition, the highest changelog offset that was read or written."""
        self.regressed: dict[int, dict[bytes, int]] = {}
        """By partition, the keys whose last record in the changelog is older than their state here, with that record's offset."""
        self._gone: dict[int, dict[bytes, _Gone]] = {}
        """By partition, the removals that were restored and :meth:`through` does not account for, in the changelog's order."""
        self._own: dict[int, list[tuple[int, int]]] = {}
        """By partition, ranges of offsets that are this worker's own and do not follow what was applied."""
        self._tallies: dict[int, Tally] = {}
        """Of partitions that were restored from nothing, and to which nothing else was written since."""

    def look_up(self, partition: int, key: bytes) -> tuple[bytes | None, int | None]:
        """A state's bytes, and its place in the index."""
        return _unpack(self.data._db_for_partition(partition).get(key))

    def get_bytes(self, partition: int, key: bytes) -> bytes | None:
        return self.look_up(partition, key)[0]

    def put_all(self, partition: int, rows: Iterable[Row], through: int = -1) -> None:
        """One atomic write. ``through``: the offset up to which the partition's events are in the store from then on."""
        self._tallies.pop(partition, None)
        batch = rocksdict.WriteBatch(raw_mode=True)
        if through >= 0:
            batch.put(_THROUGH, through.to_bytes(_TIME, "big"))
            gone = self._gone.get(partition, {})
            for key in [key for key, one in gone.items() if one.at <= through]:
                del gone[key]
        self._write(partition, batch, rows)

    def _write(self, partition: int, batch: rocksdict.WriteBatch, rows: Iterable[Row]) -> None:
        for key, body, placed, was in rows:
            if was is not None and (body is None or was != placed):
                batch.delete(_entry(was, key))
            if body is None:
                batch.delete(key)
            elif placed is None:
                batch.put(key, body)
            else:
                batch.put(key, placed.to_bytes(_TIME, "big") + body)
                if was != placed:
                    batch.put(_entry(placed, key), b"")
        self.data._db_for_partition(partition).write(batch)

    def through(self, partition: int) -> int:
        """The offset up to which the partition's events are in the store, as far as this store knows; -1 where it does not."""
        value = self.data._db_for_partition(partition).get(_THROUGH)
        return -1 if value is None else int.from_bytes(value, "big")

    def unplace(self, partition: int, at: int, key: bytes) -> None:
        """Remove an entry of the index that stands for nothing."""
        self.data._db_for_partition(partition).delete(_entry(at, key))

    def placed_before(self, partition: int, until: int) -> Iterator[tuple[int, bytes]]:
        """The index in order of time, up to and with ``until``: time and state key."""
        for entry in self.data._db_for_partition(partition).keys(from_key=_INDEX):
            if not entry.startswith(_INDEX):
                return
            at = int.from_bytes(entry[1 : 1 + _TIME], "big")
            if at > until:
                return
            yield at, entry[1 + _TIME :]

    def note_changelog(self, partition: int, offset: int) -> None:
        """Everything up to this changelog offset is in the local store; less is noted while something is to be written again, or
        a removal is known from the changelog alone: it is read again then."""
        self.applied[partition] = max(offset, self.applied.get(partition, -1))
        regressed, gone = self.regressed.get(partition), self._gone.get(partition)
        if regressed:
            offset = min(offset, min(regressed.values()) - 1)
        if gone:
            offset = min(offset, next(iter(gone.values())).offset - 1)
        if offset >= 0:
            self.data.set_persisted_offset(TP(SESSIONS.name, partition), offset)

    def wrote(self, partition: int, keys: Iterable[bytes], first: int, last: int, number: int) -> None:
        """This worker's records with these keys are confirmed, ``number`` of them from offset ``first`` to ``last``.

        The note of the changelog moves on over what is known to be this worker's: a record of somebody else in between is looked
        at first (:meth:`gap`).
        """
        regressed = self.regressed.get(partition)
        if regressed:
            for key in keys:
                regressed.pop(key, None)
        own = self._own.setdefault(partition, [])
        if last - first + 1 == number:
            own.append((first, last))
        self._advance(partition)

    def _advance(self, partition: int) -> None:
        own, applied = self._own.get(partition, []), self.applied.get(partition, -1)
        upto = applied
        while own and own[0][0] <= upto + 1:
            upto = max(upto, own.pop(0)[1])
        if upto > applied:
            self.note_changelog(partition, upto)

    def gap(self, partition: int, end: int) -> tuple[int, int] | None:
        """Offsets, from and before, of the changelog that ends at ``end``, which neither were restored nor are this worker's."""
        start, own = self.applied.get(partition, -1) + 1, self._own.get(partition)
        if own:
            end = min(end, own[0][0])
        return (start, end) if start < end else None

    def inspect(self, partition: int, changes: Sequence[Change], end: int) -> list[bytes]:
        """Records that somebody wrote before offset ``end`` while this worker owned the partition; the keys they set back."""
        last = {each.key: each for each in changes}
        found = self.regressed.setdefault(partition, {})
        behind = []
        for key, (offset, _, body, gone_at) in last.items():
            ours = self.get_bytes(partition, key)
            mark = mark_of(body) if body is not None else None
            theirs = mark.offset if mark else -1 if gone_at is None else gone_at
            kept = mark_of(ours) if ours is not None else None
            if theirs < (kept.offset if kept else self.gone_at(partition, key)) or (ours is None) != (body is None):
                found[key] = offset
                behind.append(key)
        self.note_changelog(partition, end - 1)
        self._advance(partition)
        return behind

    def items_of(self, partition: int) -> Iterator[tuple[bytes, bytes, int | None]]:
        """Every state: key, bytes, place in the index."""
        for key, value in self.data._visible_items(self.data._db_for_partition(partition)):
            if not key.startswith(_INDEX):
                body, placed = _unpack(value)
                if body is not None:
                    yield key, body, placed

    def _open_all(self, partitions: Iterable[int]) -> None:
        """Open the local copies; one that is damaged is only a copy: it is put aside, and the changelog restores it."""
        for partition in partitions:
            try:
                self.data._db_for_partition(partition)
            except Exception as error:  # rocksdict raises bare Exception.
                if "lock" in str(error).lower():
                    raise  # Somebody else's, not damaged.
                log.warning(
                    "the local copy of a partition cannot be opened: it is wiped and restored",
                    extra=with_fields(partition=partition, error=str(error)),
                )
                self.wipe(partition)

    async def on_rebalance(self, assigned: set[TP], revoked: set[TP], newly_assigned: set[TP], generation_id: int = 0) -> None:
        """Partitions have changed hands. A local copy that is ahead of the changelog's end belongs to another log (the topic
        was made anew, or the broker lost it): it is wiped, as its watermarks would hide the new log's records."""
        self._open_all(tp.partition for tp in assigned if tp.topic == SESSIONS.name)
        await super().on_rebalance(assigned, revoked, newly_assigned, generation_id)
        ours = {tp.partition: tp for tp in assigned if tp.topic == SESSIONS.name}
        kept = {number: self.persisted_offset(tp) for number, tp in ours.items()}
        self.applied = {number: offset for number, offset in kept.items() if offset is not None}
        self.regressed = {}
        self._gone = {}
        self._own = {}
        self._tallies = {}
        if not self.applied:
            return
        for tp, end in (await self.app.consumer.highwaters(*ours.values())).items():
            offset = kept[tp.partition]
            if offset is not None and offset >= (end or 0):
                log.warning(
                    "the local copy of a partition is ahead of its changelog: it is wiped and restored",
                    extra=with_fields(partition=tp.partition, stored_offset=offset, changelog_end=end or 0),
                )
                self.wipe(tp.partition)

    def wipe(self, partition: int) -> None:
        """Remove the local copy of a partition; an empty one takes its place."""
        store = self.data
        database = store._dbs.pop(partition, None)
        if database is not None:
            database.close()
        path = store.partition_path(partition)
        if path.exists():
            shutil.rmtree(path)
        store._db_for_partition(partition)
        for known in (self.applied, self.regressed, self._gone, self._own, self._tallies):
            known.pop(partition, None)

    def apply_changelog_batch(self, batch: Iterable[Any]) -> None:
        """What the engine restores record by record; :meth:`restore` has had most of it, and passes over what it has seen."""
        changes: dict[int, list[Change]] = {}
        for event in batch:
            message = event.message
            changes.setdefault(message.partition, []).append(
                change(message.offset, message.key, message.value, getattr(message, "headers", None))
            )
        for partition, found in changes.items():
            self.restore(partition, found)

    def restore(self, partition: int, changes: Sequence[Change]) -> None:
        """Apply records of the changelog, ascending offsets. Those that were applied already are passed over."""
        seen = self.applied.get(partition, -1)
        if changes and changes[0].offset <= seen:
            changes = [each for each in changes if each.offset > seen]
        if not changes:
            return
        database, through = self.data._db_for_partition(partition), self.through(partition)
        if seen < 0 and next(iter(database.keys()), None) is None:
            self._tallies[partition] = Tally()
        gone = self._gone.setdefault(partition, {})
        regressed = self.regressed.setdefault(partition, {})
        keys = [each.key for each in changes]
        stored = dict(zip(keys, database.get(keys), strict=True))
        olds: dict[bytes, tuple[Mark | None, int | None]] = {}
        """Of the sessions that the store has: what of the state could be read, and its place in the index."""
        known: dict[bytes, int] = {}
        latest: dict[bytes, tuple[bytes | None, Mark | Times | None]] = {}
        for offset, key, body, gone_at in changes:
            mark = None if body is None else mark_of(body) or times_of(body)
            watermark = (gone_at if body is None else mark.offset if mark else None) or 0
            best = known.get(key)
            if best is None:
                # A state that the store does not have though it has all events up to there: the session was removed since.
                best = through if body is not None else -1
                times: Mark | Times | None = None
                if stored[key] is not None:
                    old, was = _unpack(stored[key])
                    assert old is not None
                    old_mark = mark_of(old)
                    olds[key] = old_mark, was
                    times = old_mark or times_of(old)
                if times is not None:
                    best = times.offset
                elif key in gone:
                    best = max(best, gone[key].at)
            # A tombstone that does not say when it was written is taken at its word.
            if watermark < best and (body is not None or gone_at is not None):
                regressed[key] = offset
                known[key] = best
                continue
            if regressed:
                regressed.pop(key, None)
            if body is None:
                known[key] = -1 if gone_at is None else gone_at
                gone.pop(key, None)
                if gone_at is not None and gone_at > through:
                    gone[key] = _Gone(gone_at, offset)
            else:
                known[key] = watermark
                if gone:
                    gone.pop(key, None)
            latest[key] = body, mark
        tally = self._tallies.get(partition)
        batch = rocksdict.WriteBatch(raw_mode=True)
        rows = []
        for key, (body, mark) in latest.items():
            before = olds.get(key)
            if tally is not None:
                if before is not None:
                    tally.went(key, before[0])
                if body is not None:
                    tally.came(key, mark if isinstance(mark, Mark) else None)
            if before is None and body is not None and mark is not None and mark.deadline is not None:
                # What nearly every record of a restore is, in the shortest way.
                at = mark.deadline.to_bytes(_TIME, "big")
                batch.put(key, at + body)
                batch.put(_INDEX + at + key, b"")
                continue
            was = None if before is None else before[1]
            rows.append(Row(key, body, was if mark is None else place(mark.deadline, was), was))
        self._write(partition, batch, rows)
        while len(gone) > _MOST_GONE:
            del gone[next(iter(gone))]
        self.note_changelog(partition, changes[-1].offset)

    def tally(self, partition: int) -> Tally | None:
        """What the partition holds, where it was restored from nothing and not written to since; told once."""
        return self._tallies.pop(partition, None)

    def gone_at(self, partition: int, key: bytes) -> int:
        """The watermark at which a session was removed, where that is still known; else -1."""
        gone = self._gone.get(partition, {}).get(key)
        return -1 if gone is None else gone.at

    def gone_last(self, partition: int) -> int:
        """The highest watermark of a removal that was restored; -1 where there is none."""
        return max((one.at for one in self._gone.get(partition, {}).values()), default=-1)


def change(offset: int, key: bytes, body: bytes | None, headers: Any) -> Change:
    """A record of the changelog from what a client of either library gives."""
    if body is not None or not headers:
        return Change(offset, key, body)
    said = dict(headers).get(GONE_AT)
    return Change(offset, key, None, int(said) if said and said.isdigit() else None)


def _entry(at: int, key: bytes) -> bytes:
    return _INDEX + at.to_bytes(_TIME, "big") + key


def _unpack(value: bytes | None) -> tuple[bytes | None, int | None]:
    # A time in milliseconds begins with a zero byte for the next two million years, and no state does.
    if value is None or value[:1] != b"\0":
        return value, None
    return value[_TIME:], int.from_bytes(value[:_TIME], "big")
