"""One data directory, one worker: two that share one would overwrite each other's state."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from leadline.errors import SettingsError

__all__ = ["owned"]

_LOCK = "worker.lock"


@contextmanager
def owned(data_dir: Path) -> Iterator[None]:
    """Hold ``data_dir`` (made if need be) for this process; the system lets go of it however the process ends.

    Raises :class:`SettingsError` when another worker holds it, or when it can't be written.
    """
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
        lock = os.open(data_dir / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise SettingsError(
            f"the data directory {data_dir} cannot be used: {error.strerror}. Give a directory that this user can write: "
            "--data-dir, or LEADLINE_DATA_DIR."
        ) from None
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(lock, 32, 0).decode(errors="replace").strip() or "unknown"
            raise SettingsError(
                f"the data directory {data_dir} is in use by another worker (pid {holder}). Give each worker its own: "
                "--data-dir, or LEADLINE_DATA_DIR."
            ) from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(lock)
