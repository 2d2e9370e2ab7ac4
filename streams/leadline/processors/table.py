"""The sessions table: one record a session, in RocksDB per partition, with the changelog ``leadline.sessions``.

States are written back now and then: as one RocksDB write, and as changelog records on the very partition of their events; the
stored changelog offset is noted once all of them are confirmed. Reads go through a bounded cache of decoded states.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any, NamedTuple

import faust
import msgspec
import rocksdict
from faust.types import TP

from leadline.contracts.session_state import Incident, SessionState, decode_state, encode_state
from leadline.contracts.topics import SESSIONS
from leadline.processors.clock import Deadline
from leadline.processors.logs import with_fields
from leadline.processors.outputs import Outgoing, Sent

__all__ = ["STORE_OPTIONS", "Sessions", "SessionsTable", "Survey", "Taken"]

log = logging.getLogger(__name__)

STORE_OPTIONS = {
    # The engine's default block cache is 2 GiB for each partition.
    "block_cache_size": 16 * 1024 * 1024,
    "write_buffer_size": 8 * 1024 * 1024,
    "max_write_buffer_number": 2,
    "target_file_size_base": 16 * 1024 * 1024,
    "max_open_files": 256,
}
"""Explicit and small. Never set ``ttl``: it expires live sessions."""

_YIELD_EVERY = 500


class _Mark(msgspec.Struct):
    """The fields of a stored state that restoring needs; the rest is skipped unread."""

    session_id: str
    agent_id: str
    offset: int = -1
    deadline: int | None = None
    incidents: tuple[Incident, ...] = ()


_mark = msgspec.json.Decoder(_Mark)


class SessionsTable(faust.Table):  # type: ignore[misc]
    """The engine's table, with batch access by partition and a restore that never goes back in time."""

    logger = logging.getLogger("faust.leadline")

    def get_bytes(self, partition: int, key: bytes) -> bytes | None:
        value: bytes | None = self.data._db_for_partition(partition).get(key)
        return value

    def put_all(self, partition: int, items: Iterable[tuple[bytes, bytes | None]]) -> None:
        """One atomic write; ``None`` removes."""
        batch = rocksdict.WriteBatch(raw_mode=True)
        for key, value in items:
            if value is None:
                batch.delete(key)
            else:
                batch.put(key, value)
        self.data._db_for_partition(partition).write(batch)

    def note_changelog(self, partition: int, offset: int) -> None:
        """Everything up to this changelog offset is in the local store."""
        self.data.set_persisted_offset(TP(SESSIONS.name, partition), offset)

    def items_of(self, partition: int) -> Iterable[tuple[bytes, bytes]]:
        pairs: Iterable[tuple[bytes, bytes]] = self.data._visible_items(self.data._db_for_partition(partition))
        return pairs

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
        if not any(offset is not None for offset in kept.values()):
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

    def apply_changelog_batch(self, batch: Iterable[Any]) -> None:
        """Restore from the changelog.

        A worker that was declared dead but still finished a write leaves an older state behind a newer one: of two states
        the one with the higher watermark stays.
        """
        events = list(batch)
        latest: dict[tuple[int, bytes], int] = {}
        kept = []
        for event in events:
            message = event.message
            place = message.partition, message.key
            if message.value is not None:
                mark = _watermark(message.value)
                known = latest.get(place)
                if known is None:
                    stored = self.get_bytes(*place)
                    known = -1 if stored is None else _watermark(stored)
                if mark < known:
                    continue
                latest[place] = mark
            else:
                latest[place] = -1
            kept.append(event)
        super().apply_changelog_batch(kept)
        ends: dict[int, int] = {}
        for event in events:
            ends[event.message.partition] = max(event.message.offset, ends.get(event.message.partition, -1))
        for partition, offset in ends.items():
            self.note_changelog(partition, offset)


def _watermark(value: bytes) -> int:
    try:
        return _mark.decode(value).offset
    except msgspec.MsgspecError:
        return -1


class Survey(NamedTuple):
    """What a restored partition holds: every deadline by state key, the highest event offset that any state has seen, and what is
    open, by state key."""

    deadlines: list[tuple[str, Deadline]]
    watermark: int
    incidents: list[tuple[str, tuple[Incident, ...]]]


class Taken(NamedTuple):
    """States that are to be written, by partition: as they are, and as bytes by their bytes key (``None``: to be removed)."""

    states: dict[int, dict[str, SessionState | None]]
    items: dict[int, list[tuple[bytes, bytes | None]]]

    def records(self) -> list[Outgoing]:
        """For the changelog, each on the partition of its events."""
        return [Outgoing(SESSIONS.name, partition, key, value) for partition, items in self.items.items() for key, value in items]


class Sessions:
    """Typed states over a :class:`SessionsTable`, written back in one go.

    What :meth:`apply` was given is what :meth:`loader` gives at once; it reaches the store by :meth:`take` and :meth:`store`. The
    cache never lets go of a state that the store does not have yet. ``cache_size``: states kept beyond those, in all partitions.
    """

    def __init__(self, table: SessionsTable, cache_size: int) -> None:
        self._table = table
        self._cache_size = cache_size
        self._cache: dict[int, dict[str, SessionState | None]] = {}
        self._dirty: dict[int, dict[str, None]] = {}
        self.unwritten = 0
        """States that were applied and not taken yet."""

    def loader(self, partition: int) -> Callable[[str], SessionState | None]:
        """``load`` as the fold wants it. Raises :class:`~leadline.errors.Malformed` when the store holds no state there."""
        cache = self._cache.setdefault(partition, {})
        get, missing = self._table.get_bytes, object()

        def load(key: str) -> SessionState | None:
            state = cache.get(key, missing)
            if state is not missing:
                return state  # type: ignore[return-value]
            value = get(partition, _key(key))
            return None if value is None else decode_state(value)

        return load

    def apply(self, partition: int, states: Mapping[str, SessionState | None]) -> None:
        """These states are the newest."""
        cache = self._cache.setdefault(partition, {})
        dirty = self._dirty.setdefault(partition, {})
        before = len(dirty)
        for key, state in states.items():
            cache.pop(key, None)  # So that it stands last: the first ones go first.
            cache[key] = state
            dirty[key] = None
        self.unwritten += len(dirty) - before

    def take(self) -> Taken:
        """All that was applied since the last time, encoded now: later changes do not show in it."""
        states = {
            partition: {key: self._cache[partition][key] for key in keys} for partition, keys in self._dirty.items() if keys
        }
        items = {
            partition: [(_key(key), None if state is None else encode_state(state)) for key, state in kept.items()]
            for partition, kept in states.items()
        }
        self._dirty = {}
        self.unwritten = 0
        return Taken(states, items)

    def store(self, taken: Taken) -> None:
        """Write to the local store: one write a partition."""
        for partition, items in taken.items.items():
            self._table.put_all(partition, items)
            self._evict(partition, taken.states[partition])

    def note(self, confirmed: Iterable[Sent]) -> None:
        """The changelog has what the store has, up to these records."""
        ends: dict[int, int] = {}
        for sent in confirmed:
            ends[sent.partition] = max(sent.offset, ends.get(sent.partition, -1))
        for partition, offset in ends.items():
            self._table.note_changelog(partition, offset)

    def _evict(self, partition: int, written: Mapping[str, SessionState | None]) -> None:
        cache, dirty = self._cache.get(partition, {}), self._dirty.get(partition, {})
        for key, state in written.items():
            if state is None and key not in dirty:
                cache.pop(key, None)
        over = len(cache) - self._cache_size // max(1, len(self._cache))
        if over > 0:
            for key in [key for key in islice(cache, over) if key not in dirty]:
                del cache[key]

    def forget(self, partitions: Iterable[int]) -> None:
        """Drop the states of partitions that may have changed hands, also those that were not written."""
        for partition in partitions:
            self._cache.pop(partition, None)
            self.unwritten -= len(self._dirty.pop(partition, ()))

    async def survey(self, partition: int) -> Survey:
        """Go once over all stored states of a partition; gives way to others from time to time."""
        found = Survey([], -1, [])
        for number, (key, value) in enumerate(self._table.items_of(partition)):
            if number % _YIELD_EVERY == 0:
                await asyncio.sleep(0)
            try:
                mark = _mark.decode(value)
            except msgspec.MsgspecError:
                continue
            if mark.offset > found.watermark:
                found = found._replace(watermark=mark.offset)
            if mark.incidents:
                found.incidents.append((key.decode("utf-8", "surrogatepass"), mark.incidents))
            if mark.deadline is not None:
                deadline = Deadline(mark.session_id, mark.agent_id, mark.deadline)
                found.deadlines.append((key.decode("utf-8", "surrogatepass"), deadline))
        return found


def _key(key: str) -> bytes:
    return key.encode("utf-8", "surrogatepass")
