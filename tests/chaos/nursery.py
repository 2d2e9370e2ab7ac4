"""Worker processes that start fast: a process that has imported everything forks each of them.

Hundreds of workers are killed and started again in one run, and most of a start is the imports. What runs in the child is
``leadline monitor`` with its settings in the environment, as in a process of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tests.processors.running import ROOT

__all__ = ["Child", "Nursery", "Worker"]

_START_S: Final = 120.0


class Child:
    """A forked process, with what is needed of ``subprocess.Popen``; its end is told by the nursery that is its parent."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.ended = threading.Event()

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float) -> int:
        """Raises ``subprocess.TimeoutExpired``."""
        if not self.ended.wait(timeout):
            raise subprocess.TimeoutExpired(f"worker {self.pid}", timeout)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Nursery:
    """The process that forks. Ends, and all its children with it, when it is closed or this process ends."""

    def __init__(self) -> None:
        self._popen = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.nursery"], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._children: dict[int, Child] = {}
        self._born: list[Child] = []
        self._changed = threading.Condition()
        self._one = threading.Lock()
        """Who asks for a child waits for it before another asks: births do not say whose they are."""
        threading.Thread(target=self._listen, daemon=True).start()

    def spawn(self, command: str, environ: Mapping[str, str], log: Path) -> Child:
        """A new worker: ``monitor``, ``stepping`` for one whose clock can be set, ``next`` for one of the next version."""
        assert self._popen.stdin is not None
        with self._one, self._changed:
            self._popen.stdin.write(json.dumps({"command": command, "environ": dict(environ), "log": str(log)}) + "\n")
            self._popen.stdin.flush()
            if not self._changed.wait_for(lambda: self._born, _START_S):
                raise TimeoutError(f"no worker was forked within {_START_S:g} s")
            return self._born.pop()

    def close(self) -> None:
        assert self._popen.stdin is not None
        self._popen.stdin.close()
        self._popen.wait(20)

    def _listen(self) -> None:
        assert self._popen.stdout is not None
        for line in self._popen.stdout:
            told = json.loads(line)
            with self._changed:
                if "code" in told:
                    child = self._children.pop(told["pid"])
                    child.returncode = told["code"]
                    child.ended.set()
                else:
                    self._children[told["pid"]] = child = Child(told["pid"])
                    self._born.append(child)
                self._changed.notify_all()


class Worker:
    """One worker process with its folder, its log and its file that tells when it is ready. ``settings`` by name."""

    def __init__(self, nursery: Nursery, folder: Path, command: str, settings: Mapping[str, Any]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.ready_file = folder / "ready.json"
        self.ready_file.unlink(missing_ok=True)
        self.log_file = folder / "worker.log"
        given = {"data_dir": folder / "data", "ready_file": self.ready_file, **settings}
        environ = {f"LEADLINE_{name.upper()}": str(value) for name, value in given.items() if value != ""}
        self.process = nursery.spawn(command, environ, self.log_file)

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(20)

    def stop(self, limit_s: float = 60.0) -> int:
        """An orderly stop, by force past the limit; raises ``subprocess.TimeoutExpired`` then."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise


def _child(told: dict[str, Any]) -> int:
    log = os.open(told["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    for name in [name for name in os.environ if name.startswith("LEADLINE_")]:
        del os.environ[name]
    os.environ.update(told["environ"])
    from leadline.cli.main import main
    from tests.chaos import next_worker, stepping_worker

    try:
        if told["command"] == "stepping":
            return stepping_worker.main()
        if told["command"] == "next":
            return next_worker.main()
        main(["monitor"])
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    return 0


def _serve() -> None:
    """Forks what is asked for, one line each, and tells of each child its birth and its end."""
    import gc

    import tests.chaos.next_worker
    import tests.chaos.stepping_worker  # noqa: F401

    gc.freeze()
    alive: set[int] = set()
    asked = b""
    while True:
        if select.select([0], [], [], 0.02)[0]:
            read = os.read(0, 65_536)
            if not read:
                break
            asked += read
            while b"\n" in asked:
                line, _, asked = asked.partition(b"\n")
                pid = os.fork()
                if pid == 0:
                    code = 1
                    try:
                        code = _child(json.loads(line))
                    finally:
                        with contextlib.suppress(Exception):
                            sys.stderr.flush()
                        os._exit(code)
                alive.add(pid)
                _tell(pid=pid)
        while alive:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            alive.discard(pid)
            _tell(pid=pid, code=os.waitstatus_to_exitcode(status))
    for pid in alive:
        os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while alive and time.monotonic() < deadline:
        alive.discard(os.wait()[0])


def _tell(**what: int) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _serve()
