"""Workers that are forked are workers: their settings, their log, their exit codes, and their death by a signal."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from leadline.processors.worker import REFUSED
from tests.chaos.nursery import Nursery, Worker


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    made = Nursery()
    yield made
    made.close()


def test_a_wrong_setting_is_refused_in_the_workers_own_log(nursery: Nursery, tmp_path: Path) -> None:
    worker = Worker(nursery, tmp_path, "monitor", {"bootstrap": "127.0.0.1:1", "batch_max": "many"})
    assert worker.process.wait(60) == REFUSED
    assert "LEADLINE_BATCH_MAX is 'many'" in worker.log


def test_two_at_once_are_told_apart(nursery: Nursery, tmp_path: Path) -> None:
    """Neither finds a broker; the end of one is not taken for that of the other."""
    one, two = (Worker(nursery, tmp_path / name, "monitor", {"bootstrap": "127.0.0.1:1"}) for name in ("one", "two"))
    assert one.process.pid != two.process.pid
    one.kill()
    assert one.process.poll() == -signal.SIGKILL
    assert two.process.poll() is None
    two.kill()
    assert two.process.returncode == -signal.SIGKILL
