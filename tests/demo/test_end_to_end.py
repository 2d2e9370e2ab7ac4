"""``leadline demo`` as a user runs it: embedded broker, worker, fleet, verdict, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.brokers import Broker
from tests.support.wiped import group

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks for left processes in /proc"),
]

KEYS = {
    "agents",
    "planted",
    "found",
    "missed",
    "false_halts",
    "commands",
    "acknowledged",
    "recovered",
    "p50_ms",
    "p99_ms",
}


class Demo:
    """A demo in a process group of its own, and whatever it starts: all of them carry one mark in their environment."""

    def __init__(self, *arguments: str) -> None:
        self._mark = f"LEADLINE_TEST_RUN={uuid.uuid4().hex}"
        name, _, value = self._mark.partition("=")
        environ = {key: each for key, each in os.environ.items() if not key.startswith("LEADLINE_")}
        environ["LEADLINE_APP_ID"] = group()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "leadline.cli.main", "demo", *arguments],
            env={**environ, name: value},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def left(self) -> list[str]:
        """Command lines of its processes that still run."""
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                if self._mark.encode() in (entry / "environ").read_bytes():
                    found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
            except OSError:
                continue
        return [line for line in found if line]


def until(check: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not check():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


@pytest.mark.timeout(150)
def test_finds_what_was_planted_and_leaves_nothing(broker: Broker, fresh_bootstrap: str) -> None:
    """Exit 0 and one object on standard output: nothing missed, nothing healthy halted, every halted session recovered."""
    # The embedded broker is the demo's own, as for anybody who just runs it.
    cluster = () if broker.kind == "embedded" else ("--bootstrap", fresh_bootstrap, "--create-topics")
    demo = Demo("--json", "--seed", "11", *cluster)
    out, err = demo.process.communicate(timeout=140)
    assert demo.process.returncode == 0, err[-3000:]
    (line,) = out.splitlines()
    said = json.loads(line)
    assert said.keys() >= KEYS
    assert said["agents"] >= 24
    assert said["missed"] == 0
    assert said["found"] == said["planted"] > 0
    assert said["false_halts"] == 0
    assert said["recovered"] == said["halted"] > 0
    assert said["unreleased"] == []
    assert said["acknowledged"] == said["commands"] > 0
    assert said["dropped_events"] == 0
    assert f"{said['agents']} sessions, 0 in trouble;" in err, "each shows the monitor's own word for it, at last that it ended"
    assert 0 < said["p50_ms"] <= said["p99_ms"]
    assert until(lambda: not demo.left(), 5), demo.left()


@pytest.mark.timeout(90)
@pytest.mark.parametrize(("sign", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)], ids=["ctrl-c", "kill-9"])
def test_ended_early_it_takes_its_children_along(sign: signal.Signals, code: int) -> None:
    """Broker, worker and fleet end with the demo, however it ends, and leave no files."""
    demo = Demo("--json")
    assert until(lambda: sum("leadline.demo.fleet" in line and "keeper" not in line for line in demo.left()) == 2, 60)
    time.sleep(1.0)
    demo.process.send_signal(sign)
    demo.process.communicate(timeout=30)
    assert demo.process.returncode == code
    assert until(lambda: not demo.left(), 15), demo.left()


def test_a_broker_that_is_not_there_is_one_sentence() -> None:
    """Exit 3, and the sentence names the address."""
    demo = Demo("--json", "--bootstrap", "127.0.0.1:1")
    out, err = demo.process.communicate(timeout=60)
    assert demo.process.returncode == 3
    assert out == ""
    assert "127.0.0.1:1" in err.splitlines()[-1]
    assert "Traceback" not in err
