"""The dashboard under load: 10,000 live sessions at 5,000 events a second, one page open in a real browser.

``python -m benchmarks.dashboard`` starts an embedded broker, ``leadline dashboard`` and a headless browser, writes session
records as the monitor would (one for each event, an upper bound: the monitor writes a session once a flush), and prints what was
measured beside what is asked for. It needs chromium, playwright and the demo's broker.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from confluent_kafka import Producer
from tests.support.browser import find

from leadline.broker import EmbeddedBroker
from leadline.contracts.ids import state_key
from leadline.contracts.session_state import CommandState, Incident, Measurement, SessionState, Stage, encode_state
from leadline.contracts.topics import SESSIONS
from leadline.dashboard.view import FleetView
from leadline.processors import topics
from leadline.settings import load_settings

_PARTITIONS = 8
_PROBE = "a-probe"
_TROUBLED = 0.03
_BUSY = """
  // How long the main thread was busy at a time, from the first script on.
  window.long = [];
  const note = (list) => list.getEntries().forEach((entry) => window.long.push(entry.duration));
  new PerformanceObserver(note).observe({ type: "longtask" });
"""
_WATCH = """
(probe) => {
  // When the page shows a new round of the probe: looked at when its text has changed, so that to look costs it little.
  window.seen = [];
  let last = "";
  const look = () => {
    const rows = [...document.querySelectorAll("table.sessions tbody tr")];
    const row = rows.find((each) => each.cells[0].textContent.trim() === probe);
    const round = row?.cells[7].textContent.trim() ?? "";
    if (round && round !== last) window.seen.push([Number(round.replace(/\\D/g, "")), Date.now()]);
    last = round;
  };
  const table = document.querySelector("section[aria-label=Sessions]");
  new MutationObserver(look).observe(table, { subtree: true, childList: true, characterData: true });
  const before = window.long;
  window.long = [];
  return before;
}
"""


class Measured(NamedTuple):
    events_per_s: float
    latencies_ms: list[float]
    memory_mb: float
    cores: float
    longest_ms: float
    long_tasks: int
    longest_at_first_ms: float
    """Until all sessions stood there, and in the first moments of the load."""


class Fleet:
    """States that go on as sessions do: 16 rounds in the window, now and then an incident with a command."""

    def __init__(self, sessions: int, seed: int) -> None:
        self.dice = Random(seed)
        self.states = [self._fresh(number) for number in range(sessions)]
        self.offset = 0

    def _fresh(self, number: int) -> SessionState:
        state = SessionState(f"session-{number:06d}", f"agent-{number:06d}", f"fleet-{number % 4}")
        state.started, state.token_budget, state.max_depth, state.baseline_spans = True, 180_000, 4, 214
        state.window = tuple(self._measured(each) for each in range(1, 17))
        state.last_round = 16
        if self.dice.random() < _TROUBLED:
            stage = self.dice.choice((Stage.ISSUED, Stage.ACCEPTED))
            command = CommandState(f"cmd-{number}", 1, "halt", stage, 1, _now(), _now() + 60_000)
            incident = Incident(f"inc-{number}", "inversion", "", "enforce", _now(), 16, command=command)
            state.incidents = (incident,)
        return state

    def _measured(self, round: int) -> Measurement:
        raw = self.dice.randint(20_000, 90_000)
        return Measurement(round, raw, 100_000 - raw, self.dice.randint(60, 214), self.dice.random(), self.dice.randint(1, 3))

    def step(self, number: int) -> SessionState:
        """The session's next round."""
        state = self.states[number]
        self.offset += 1
        state.last_round = (state.last_round or 0) + 1
        state.window = (*state.window[1:], self._measured(state.last_round))
        state.offset, state.last_seen = self.offset, _now()
        return state


def _now() -> int:
    return time.time_ns() // 1_000_000


def _write(producer: Any, state: SessionState) -> None:
    key = state_key(state.session_id, state.agent_id).encode()
    partition = hash(state.session_id) % _PARTITIONS
    while True:
        try:
            producer.produce(SESSIONS.name, encode_state(state), key, partition=partition)
            return
        except BufferError:
            producer.poll(0.05)


def load(bootstrap: str, fleet: Fleet, rate: int, stop: threading.Event, written: dict[int, int], done: list[int]) -> None:
    """Write ``rate`` records a second, and a round of the probe each half second. ``written``: its rounds, when each went out."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "queue.buffering.max.messages": 50_000, "log_level": 0})
    probe = fleet._fresh(0)
    probe.session_id = probe.agent_id = _PROBE
    halt = CommandState("cmd-probe", 1, "halt", Stage.ACCEPTED, 1, _now(), _now() + 60_000)
    probe.incidents = (Incident("inc-probe", "inversion", "", "enforce", _now(), 1, command=halt),)
    begun, count, at = time.monotonic(), 0, 0
    while not stop.is_set():
        due = int((time.monotonic() - begun) * rate)
        for _ in range(min(500, max(0, due - count))):
            _write(producer, fleet.step(count % len(fleet.states)))
            count += 1
        if (half := int((time.monotonic() - begun) * 2)) > at:
            at = half
            fleet.offset += 1
            probe.last_round, probe.offset, probe.last_seen = 1_000 + at, fleet.offset, _now()
            written[probe.last_round] = _now()
            _write(producer, probe)
        producer.poll(0)
        if due <= count:
            time.sleep(0.01)
    done.append(count)
    producer.flush(10)


@contextmanager
def dashboard(bootstrap: str) -> Iterator[tuple[str, int]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "leadline.cli.main", "dashboard", "--bootstrap", bootstrap, "--port", "0", "--json"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())["address"], process.pid
    finally:
        process.terminate()
        process.wait(20)


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _peak_mb(pid: int) -> float:
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def measure(sessions: int, rate: int, seconds: float, seed: int) -> Measured:
    from playwright.sync_api import sync_playwright

    browser = find()
    if browser is None:
        raise SystemExit("no browser: install chromium, on Debian and Ubuntu with: apt-get install chromium")
    fleet, stop = Fleet(sessions, seed), threading.Event()
    written: dict[int, int] = {}
    done: list[int] = []
    with EmbeddedBroker() as broker, sync_playwright() as playwright:
        topics.create(load_settings({}, bootstrap=broker.address, partitions=_PARTITIONS), timeout_s=20.0)
        writer = threading.Thread(target=load, args=(broker.address, fleet, rate, stop, written, done))
        producer = Producer({"bootstrap.servers": broker.address, "log_level": 0})
        for number in range(sessions):
            _write(producer, fleet.step(number))
        producer.flush(60)
        with dashboard(broker.address) as (address, pid):
            launched = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
            page = launched.new_page(viewport={"width": 1920, "height": 1080})
            page.set_default_timeout(120_000)
            page.add_init_script(_BUSY)
            page.goto(address)
            while int("0" + "".join(filter(str.isdigit, page.locator(".strip h2").inner_text()))) < sessions:
                page.wait_for_timeout(100)
            writer.start()
            page.wait_for_timeout(3_000)
            first = page.evaluate(_WATCH, _PROBE)
            begun, used, before = time.monotonic(), _cpu_s(pid), len(written)
            page.wait_for_timeout(seconds * 1_000)
            took = time.monotonic() - begun
            cores, memory = (_cpu_s(pid) - used) / took, _peak_mb(pid)
            seen = page.evaluate("() => window.seen")
            long = page.evaluate("() => window.long")
            stop.set()
            writer.join(30)
            launched.close()
    # The first one stood there already when the watch began.
    latencies = [float(at - written[round]) for round, at in seen[1:] if round in written]
    if len(latencies) < (len(written) - before) / 4:
        raise SystemExit(f"the page showed {len(latencies)} of {len(written) - before} changes: it cannot be said how late it is")
    return Measured(done[0] / (seconds + 3), latencies, memory, cores, max(long, default=0.0), len(long), max(first, default=0.0))


def memory(sessions: int, seed: int) -> tuple[float, float]:
    """Bytes that the dashboard's process keeps for a session with a full window, and those of its record."""
    fleet, view, size = Fleet(0, seed), FleetView(), 0
    before = _resident_bytes()
    for number in range(sessions):
        state = fleet._fresh(number)
        value = encode_state(state)
        size += len(value)
        view.apply_state(number % _PARTITIONS, state_key(state.session_id, state.agent_id).encode(), value)
        if number % 1_000 == 999:
            view.take_changes()
    return (_resident_bytes() - before) / sessions, size / sessions


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dashboard", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sessions", type=int, default=10_000)
    parser.add_argument("--rate", type=int, default=5_000, help="events a second")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--memory", action="store_true", help="only what a session costs in memory: no broker, no browser")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    if given.memory:
        kept, record = memory(given.sessions, given.seed)
        told = {"bytes that the dashboard keeps for a session": round(kept), "bytes of its record": round(record)}
        shown_as = (
            json.dumps(told, indent=2) if given.json else "\n".join(f"{name:<48}{value:>10,}" for name, value in told.items())
        )
        sys.stdout.write(f"{shown_as}\n")
        return 0
    found = measure(given.sessions, given.rate, given.seconds, given.seed)
    late = sorted(found.latencies_ms)
    shown: dict[str, tuple[float, str]] = {
        "events a second, written": (round(found.events_per_s), f"{given.rate}"),
        "page shows a change within, ms, median": (round(statistics.median(late)), ""),
        "page shows a change within, ms, worst": (round(late[-1]), "2000"),
        "dashboard's memory at its peak, MB": (round(found.memory_mb), "400"),
        "dashboard's cores": (round(found.cores, 2), "0.5"),
        "main thread busy at a time, ms, worst": (round(found.longest_ms), "200"),
        "main thread busy for 50 ms or more, times": (found.long_tasks, ""),
        "main thread busy at a time at first, ms, worst": (round(found.longest_at_first_ms), ""),
        "load of the machine, per core": (round(os.getloadavg()[0] / (os.cpu_count() or 1), 1), ""),
    }
    if given.json:
        sys.stdout.write(json.dumps({name: value for name, (value, _) in shown.items()}, indent=2) + "\n")
        return 0
    for name, (value, limit) in shown.items():
        sys.stdout.write(f"{name:<48}{value:>10,}{f'   asked for: {limit}' if limit else ''}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
