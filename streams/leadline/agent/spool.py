"""Events on disk while they cannot be sent: a bounded SQLite file a process, taken over by the next when its owner is gone.

A file is claimed by a lock that the system lets go of however its owner ends. Nothing is written while the broker is well.
One thread at a time; a fork closes the file first, and the child begins with none.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
import secrets
import sqlite3
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from leadline.agent.forks import follow_forks
from leadline.agent.records import Record, with_gap
from leadline.agent.spool_files import age, claim, connect, unlink
from leadline.contracts.trace import TraceContext

__all__ = ["Lost", "Spool", "Stored", "default_directory"]

_log = logging.getLogger("leadline.agent")

_OVERHEAD: Final = 200
"""Bytes that a record costs besides its text, about."""
_KEEP_SECONDS: Final = 7 * 24 * 3600
"""What nobody took over for so long is removed: the events topic keeps nothing older."""
_FORK_WAIT: Final = 1.0
_TABLES: Final = """
    CREATE TABLE IF NOT EXISTS event (
        id INTEGER PRIMARY KEY, session TEXT NOT NULL, event_id TEXT NOT NULL, kind TEXT NOT NULL, rank INTEGER NOT NULL,
        value BLOB NOT NULL, size INTEGER NOT NULL, gap INTEGER NOT NULL, traceparent TEXT NOT NULL, tracestate TEXT NOT NULL
    );
    CREATE INDEX IF NOT EXISTS event_rank ON event (rank, id);
    CREATE TABLE IF NOT EXISTS lost (session TEXT PRIMARY KEY, count INTEGER NOT NULL, last INTEGER NOT NULL);
"""
_COLUMNS: Final = "session, event_id, kind, rank, value, gap, traceparent, tracestate"
_Row = tuple[int, str, str, str, int, bytes, int, str, str]
_Gap = tuple[str, int, int]


class Lost(NamedTuple):
    """What had to give way."""

    id: int
    session_id: str
    event_id: str
    size: int
    gap: int


class Stored(NamedTuple):
    """A record and its place in the spool; places ascend."""

    id: int
    record: Record


class Spool:
    """A FIFO on disk in ``directory`` for the cluster ``target``; at most ``max_bytes`` bytes of records, about.

    Every method but :meth:`close` may raise ``OSError`` or ``sqlite3.Error``: the disk is full, or cannot be written. Places that
    were handed out stay valid until the spool is closed.
    """

    def __init__(self, directory: Path, target: str, *, max_bytes: int = 64 * 1024 * 1024) -> None:
        self.directory = directory
        self._prefix = f"spool-{hashlib.sha256(target.encode(errors='replace')).hexdigest()[:8]}-"
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._forking = False
        self._bytes = 0
        self._skipped: set[Path] = set()
        """Others' files that were warned of."""
        self._forget()
        follow_forks(self)

    def __len__(self) -> int:
        """How many events are on the disk."""
        return self._count

    @property
    def path(self) -> Path | None:
        """The file in use, if there is one."""
        return self._path

    def append(self, records: Sequence[Record], in_flight: int = 0, kept: int = 0) -> tuple[list[int], list[Lost]]:
        """Store records, in order; returns their places, and those (of all that is stored) that had to give way.

        The lowest rank gives way first, the oldest of it before the newer; but neither the first ``in_flight`` of ``records`` nor
        what is stored at place ``kept`` or before: they are with the client already.
        """
        if not records:
            return [], []
        with self._open() as db:
            last = self._last
            rows = [
                (last + at, r.session_id, r.event_id, r.kind, r.rank, r.value, r.gap, *r.trace[:2], _size(r))
                for at, r in enumerate(records, 1)
            ]
            floor = max(kept, last + in_flight) if in_flight else kept
            with db:
                db.executemany(f"INSERT INTO event (id, {_COLUMNS}, size) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
                size = self._bytes + sum(map(_size, records))
                gone, size = self._make_room(db, size, floor)
            self._last += len(records)
            self._count += len(records) - len(gone)
            self._bytes = size
            return [row[0] for row in rows], gone

    def read(self, after: int, most: int) -> list[Stored]:
        """The next records after a place, at most ``most``; each says how many before it had to give way."""
        if not self._count:
            return []
        with self._open() as db:
            query = f"SELECT id, {_COLUMNS} FROM event WHERE id > ? ORDER BY id LIMIT ?"
            found = [_stored(row) for row in db.execute(query, (after, most))]
            if self._gaps:
                found = [self._told(db, one) for one in found]
            return found

    def remove(self, places: Iterable[int]) -> None:
        """They were delivered."""
        with self._open() as db:
            ids = [(place,) for place in places]
            with db:
                sizes = [self._size_at(db, place) for (place,) in ids]
                db.executemany("DELETE FROM event WHERE id = ?", ids)
            self._count -= sum(size > 0 for size in sizes)
            self._bytes -= sum(sizes)

    def adopt(self) -> tuple[int, list[Lost]]:
        """Take over what processes that are gone left for the same cluster, the oldest first, as far as it fits.

        Returns how many events were taken, and those that had to give way. What can never be read is put aside; what cannot be
        read or removed now stays where it is, with one warning.
        """
        taken: list[Record] = []
        gone: list[Lost] = []
        for lock_path in sorted(self.directory.glob("spool-*.lock"), key=age) if self.directory.is_dir() else ():
            held = None if lock_path == self._lock_path else claim(lock_path)
            if held is None:
                continue
            try:
                path = lock_path.with_suffix(".db")
                if lock_path.name.startswith(self._prefix) and path.exists():
                    left = self._left_in(path)
                    if left is not None:
                        found = self._take_over(path, *left)
                        taken += found[0]
                        gone += found[1]
                    if path.exists():
                        continue
                elif path.exists() and time.time() - age(lock_path) < _KEEP_SECONDS:
                    continue
                self._discard(path)
            finally:
                os.close(held)
        return len(taken), gone

    def close(self) -> int:
        """Let go of the file, which is removed where nothing is left in it; returns how many events stay on the disk."""
        with self._lock:
            left, path = self._count, self._path
            self._disconnect()
            if path is not None and not left:
                unlink(path)
            if self._held is not None:
                os.close(self._held)
            self._forget()
        return left

    def abandon(self) -> None:
        """The file turned out to be unusable: leave it, with what is in it, to whoever comes next."""
        with self._lock:
            with contextlib.suppress(sqlite3.Error):
                self._disconnect()
            if self._held is not None:
                os.close(self._held)
            self._forget()

    # -- forks

    def before_fork(self) -> None:
        """SQLite's files must not be carried across a fork open."""
        self._forking = self._lock.acquire(timeout=_FORK_WAIT)
        if self._forking:
            try:
                self._disconnect()
            except sqlite3.Error as error:
                _log.warning("the spool was not closed before a fork: %r", error)

    def after_fork(self, child: bool) -> None:
        if not child:
            if self._forking:
                self._lock.release()
            return
        if self._held is not None:
            os.close(self._held)
        if self._db is not None:
            # It could not be closed before the fork: to free it here would touch the parent's file.
            _inherited.append(self._db)
        self._lock = threading.Lock()
        self._forget()

    # -- inside

    def _forget(self) -> None:
        self._db: sqlite3.Connection | None = None
        self._path: Path | None = None
        self._lock_path: Path | None = None
        self._held: int | None = None
        self._count = self._bytes = self._last = 0
        self._gaps = False

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            if self._path is None:
                self._create()
            if self._db is None:
                assert self._path is not None
                self._db = connect(self._path)
                self._db.executescript(_TABLES)
            yield self._db

    def _create(self) -> None:
        _make_directory(self.directory)
        lock_path = self.directory / f"{self._prefix}{os.getpid()}-{secrets.token_hex(4)}.lock"
        held = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.fstat(held).st_nlink:
                raise FileNotFoundError(f"{lock_path} was taken for one that was left behind")
            path = lock_path.with_suffix(".db")
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        except BaseException:
            os.close(held)
            lock_path.unlink(missing_ok=True)
            raise
        self._held, self._lock_path, self._path = held, lock_path, path

    def _disconnect(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            db.close()

    def _make_room(self, db: sqlite3.Connection, size: int, floor: int) -> tuple[list[Lost], int]:
        """Remove what must give way. What is lost is noted, so that the next event of its session tells of it."""
        gone: list[Lost] = []
        while size > self._max_bytes:
            query = "SELECT id, session, event_id, size, gap FROM event WHERE id > ? ORDER BY rank, id LIMIT 512"
            victims = [Lost(*row) for row in db.execute(query, (floor,))]
            if not victims:
                break
            for at, one in enumerate(victims, 1):
                size -= one.size
                if size <= self._max_bytes:
                    victims = victims[:at]
                    break
            db.executemany("DELETE FROM event WHERE id = ?", [(one.id,) for one in victims])
            counts: Counter[str] = Counter()
            for one in victims:
                counts[one.session_id] += 1 + one.gap
            last = {one.session_id: one.id for one in sorted(victims)}
            db.executemany(
                "INSERT INTO lost VALUES (?, ?, ?)"
                " ON CONFLICT DO UPDATE SET count = count + excluded.count, last = max(last, excluded.last)",
                [(session, counts[session], last[session]) for session in counts],
            )
            gone += victims
            self._gaps = True
        return gone, size

    def _told(self, db: sqlite3.Connection, one: Stored) -> Stored:
        """The record with its gap told, on the disk too: it may be read again."""
        session = one.record.session_id
        row = db.execute("SELECT count FROM lost WHERE session = ? AND last < ?", (session, one.id)).fetchone()
        if row is None:
            return one
        value = with_gap(one.record.value, row[0])
        with db:
            told = one.record._replace(value=value, gap=one.record.gap + row[0])
            db.execute("UPDATE event SET value = ?, size = ?, gap = ? WHERE id = ?", (value, _size(told), told.gap, one.id))
            db.execute("DELETE FROM lost WHERE session = ?", (session,))
        self._bytes += _size(told) - _size(one.record)
        return Stored(one.id, told)

    def _size_at(self, db: sqlite3.Connection, place: int) -> int:
        row = db.execute("SELECT size FROM event WHERE id = ?", (place,)).fetchone()
        return 0 if row is None else int(row[0])

    def _left_in(self, path: Path) -> tuple[list[Stored], list[_Gap]] | None:
        """What a dead process left: its events, and its gaps; ``None`` where that cannot be read."""
        try:
            other = connect(path)
            try:
                other.executescript(_TABLES)
                rows = other.execute(f"SELECT id, {_COLUMNS} FROM event ORDER BY id").fetchall()
                gaps = other.execute("SELECT session, count, last FROM lost").fetchall()
            finally:
                other.close()
            return [_stored(row) for row in msgspec.convert(rows, list[_Row])], msgspec.convert(gaps, list[_Gap])
        except (sqlite3.Error, msgspec.ValidationError) as error:
            # Busy, or a full disk, may pass; what is no database of ours does not. Python's own errors have no code.
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
            if isinstance(error, sqlite3.OperationalError) and code != sqlite3.SQLITE_ERROR and not path.is_dir():
                self._skip(path, error)
                return None
            _log.warning("what an earlier process kept in %s cannot be read and is put aside: %r", path, error)
        try:
            path.replace(path.with_suffix(".damaged"))
        except OSError as error:
            self._skip(path, error)
        return None

    def _skip(self, path: Path, error: Exception) -> None:
        if path not in self._skipped:
            self._skipped.add(path)
            _log.warning("what an earlier process left in %s stays there, it cannot be taken over now: %r", path, error)

    def _discard(self, path: Path) -> None:
        try:
            unlink(path)
        except OSError as error:
            self._skip(path, error)

    def _take_over(self, path: Path, found: list[Stored], lost: list[_Gap]) -> tuple[list[Record], list[Lost]]:
        """Copy what a dead process left, then remove its file: after a crash in between it is sent twice, never lost.

        Returns what was taken, and what had to give way.
        """
        records = [one.record for one in found]
        if self._bytes + sum(map(_size, records)) > self._max_bytes and self._count:
            return [], []  # Later, when there is room.
        before = self._last
        _, gone = self.append(records)
        if lost:
            places = {one.id: before + at for at, one in enumerate(found, 1)}
            with self._open() as db, db:
                # A gap stands before the first event that came after what was lost.
                moved = [
                    (session, count, min((to for of, to in places.items() if of > last), default=self._last + 1) - 1)
                    for session, count, last in lost
                ]
                db.executemany(
                    "INSERT INTO lost VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET count = count + excluded.count", moved
                )
            self._gaps = True
        self._discard(path)
        return records, gone


_inherited: list[sqlite3.Connection] = []


def default_directory() -> Path:
    """This user's own, on the machine's own disk."""
    return Path(tempfile.gettempdir()) / f"leadline-spool-{os.getuid()}"


def _make_directory(directory: Path) -> None:
    """Raises ``OSError`` also where the place is another user's: what agents report is nobody else's business."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    about = directory.lstat()
    if directory == default_directory() and (directory.is_symlink() or about.st_uid != os.getuid() or about.st_mode & 0o077):
        raise PermissionError(f"{directory} is not this user's alone; remove it, or name another place")


def _stored(row: _Row) -> Stored:
    place, session, event_id, kind, rank, value, gap, traceparent, tracestate = row
    return Stored(place, Record(session, event_id, kind, rank, value, TraceContext(traceparent, tracestate), gap))


def _size(record: Record) -> int:
    return len(record.value) + 2 * len(record.session_id) + _OVERHEAD
