"""The files of spools: a database, and beside it the lock that claims it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
from pathlib import Path
from typing import Final

__all__ = ["age", "claim", "connect", "unlink"]

BUSY_SECONDS: Final = 1.0


def connect(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, timeout=BUSY_SECONDS, check_same_thread=False)
    # One owner: no shared memory file. A process that is killed loses nothing; a machine that crashes, its last moments.
    try:
        for pragma in ("locking_mode = EXCLUSIVE", "journal_mode = WAL", "synchronous = NORMAL", "journal_size_limit = 1048576"):
            db.execute(f"PRAGMA {pragma}").fetchall()
    except sqlite3.Error:
        db.close()  # Whoever keeps the error must not keep the file locked.
        raise
    return db


def claim(lock_path: Path) -> int | None:
    """The lock's descriptor if its owner is gone, or ``None``."""
    try:
        held = os.open(lock_path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(held).st_nlink:
            return held
    except OSError:
        pass
    os.close(held)
    return None


def age(lock_path: Path) -> float:
    """When something was last written there."""
    times = [0.0]
    for each in (lock_path, lock_path.with_suffix(".db"), lock_path.with_suffix(".db-wal")):
        with contextlib.suppress(OSError):
            times.append(each.stat().st_mtime)
    return max(times)


def unlink(path: Path) -> None:
    """Remove a spool's files, the lock last: while it stands, nobody takes the name for a file of his own."""
    for each in (path, Path(f"{path}-wal"), Path(f"{path}-shm"), path.with_suffix(".lock")):
        each.unlink(missing_ok=True)
