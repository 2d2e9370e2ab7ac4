"""Before a worker is ready: its directory, its broker, and a stop that comes early."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from leadline.errors import SettingsError
from leadline.processors.owned import owned
from leadline.processors.worker import BROKER_AWAY, OK, REFUSED
from tests.processors.running import RunningWorker, until
from tests.support.ports import free_ports

HOLDER = """
import sys, time
from pathlib import Path
from leadline.processors.owned import owned

with owned(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_data_directory_has_one_worker(tmp_path: Path) -> None:
    refused = pytest.raises(SettingsError, match=rf"in use by another worker \(pid {os.getpid()}\)")
    with owned(tmp_path / "data"), refused, owned(tmp_path / "data"):
        pass
    with owned(tmp_path / "data"):
        pass


def test_a_killed_worker_lets_go_of_its_directory(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(SettingsError, match=str(holder.pid)), owned(tmp_path):
            pass
        holder.kill()
        holder.wait(10)
    with owned(tmp_path):
        pass


def test_a_file_in_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    with pytest.raises(SettingsError, match="cannot be used"), owned(tmp_path / "data"):
        pass


def nowhere(tmp_path: Path, **options: Any) -> RunningWorker:
    (port,) = free_ports(1)
    return RunningWorker(f"127.0.0.1:{port}", tmp_path, **options)


def test_a_worker_without_a_broker_says_what_it_waits_for_and_how_long_it_did(tmp_path: Path) -> None:
    worker = nowhere(tmp_path, broker_away_s=1)
    assert worker.process.wait(30) == BROKER_AWAY
    assert "waiting for a broker" in worker.log
    assert "waited 1 s in all" in worker.log


def test_a_stop_before_it_is_ready_is_an_orderly_end(tmp_path: Path) -> None:
    worker = nowhere(tmp_path)
    until("a worker that waits", lambda: "waiting for a broker" in worker.log)
    worker.process.send_signal(signal.SIGTERM)
    assert worker.process.wait(30) == OK
    assert "stopped before it was ready" in worker.log


def test_a_second_worker_on_the_directory_is_refused_before_it_does_anything(tmp_path: Path) -> None:
    with owned(tmp_path / "data"):
        worker = nowhere(tmp_path)
        assert worker.process.wait(30) == REFUSED
    assert "in use by another worker" in worker.log


def test_a_ready_file_without_a_directory_is_refused_before_it_does_anything(tmp_path: Path) -> None:
    worker = nowhere(tmp_path, ready_file=tmp_path / "nowhere" / "ready.json")
    assert worker.process.wait(30) == REFUSED
    assert "LEADLINE_READY_FILE" in worker.log
