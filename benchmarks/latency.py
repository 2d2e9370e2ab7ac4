"""How long it takes from a violating event to the command at the agent.

::

    python -m benchmarks.latency [--probes 400] [--repeat 5] [--json]

A probe is a session whose next round crosses the boundary of inversion. The clock starts when the agent hands that round to
its producer and stops when the SDK's own listener gives the ``halt`` to the session. Measured on a worker that has nothing else
to do, at half of the load that it can take, and at nine tenths. What it can take is measured first: events a second while a
loader sends as fast as the broker takes it, on this very machine.
"""

from __future__ import annotations

import math
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from confluent_kafka import KafkaError, Message, Producer
from rich.table import Table

from benchmarks.engines.job import POLICY_TOML
from benchmarks.engines.loader import Load, Sent
from benchmarks.report import circumstances, emit, median, parser, tell
from benchmarks.stage import PARTITIONS, ROOT, Broker, Worker, broker
from leadline.agent import CommandListener
from leadline.agent.kafka import KafkaTransport
from leadline.contracts.codec import encode
from leadline.contracts.events import Round, SessionStart
from leadline.contracts.orders import Command
from leadline.contracts.topics import EVENTS

__all__ = ["LEVELS", "main", "measure", "percentile"]

LEVELS: Final = {"idle": 0.0, "half": 0.5, "nine tenths": 0.9}
_SHARES: Final = (50.0, 99.0, 99.9)
_PROBES_PER_S: Final = 40.0
_LOST_S: Final = 30.0


class _Probe:
    """A session that waits for its ``halt``."""

    def __init__(self, name: str) -> None:
        self.session_id = name
        self.agent_id = "probe"
        self.sent_at = 0.0
        self.heard_at = 0.0
        self.heard = threading.Event()

    def receive(self, command: Command) -> None:
        if command.kind == "halt" and not self.heard.is_set():
            self.heard_at = time.perf_counter()
            self.heard.set()

    def start(self) -> SessionStart:
        return SessionStart(session_id=self.session_id, agent_id=self.agent_id, epoch=0, session_start_spans=214)

    def round(self, number: int, raw: int, spans: int, salience: float) -> Round:
        return Round(
            session_id=self.session_id,
            agent_id=self.agent_id,
            event_id=f"{self.session_id}/{number}",
            fleet="probes",
            epoch=0,
            ts="",
            round=number,
            trigger="budget",
            raw_tokens=raw,
            summary_tokens=100_000 - raw,
            distinct_source_spans=spans,
            query_cosine_retained=salience,
            summary_depth_max=2,
            max_depth=4,
            session_start_spans=214,
            token_budget=180_000,
        )


class Agents:
    """Probes and the SDK's listener for them."""

    def __init__(self, on: Broker) -> None:
        self._producer = Producer({"bootstrap.servers": on.bootstrap, "linger.ms": 0, "acks": "all", "log_level": 2})
        self._listener = CommandListener(KafkaTransport(on.bootstrap))
        self._count = 0

    def probe(self, count: int, rate: float, label: str) -> list[float]:
        """Latencies in milliseconds, of probes at ``rate`` a second. A probe that hears nothing counts as infinite."""
        probes = [_Probe(f"probe-{label}-{self._count + n}") for n in range(count)]
        self._count += count
        for probe in probes:
            self._listener.register(probe)
            self._send(probe, probe.start())
            self._send(probe, probe.round(1, 60_000, 200, 0.4))
        self._producer.flush(30)
        time.sleep(0.5)
        started = time.perf_counter()
        for number, probe in enumerate(probes):
            wait = started + number / rate - time.perf_counter()
            if wait > 0:
                self._producer.poll(wait)
            probe.sent_at = time.perf_counter()
            self._send(probe, probe.round(2, 20_000, 150, 0.6))
            self._producer.poll(0)
        self._producer.flush(30)
        deadline = time.perf_counter() + _LOST_S
        for probe in probes:
            probe.heard.wait(max(0.0, deadline - time.perf_counter()))
            self._listener.unregister(probe)
        return [1000 * (probe.heard_at - probe.sent_at) if probe.heard.is_set() else math.inf for probe in probes]

    def _send(self, probe: _Probe, event: msgspec.Struct) -> None:
        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                self._listener.learn(probe.session_id, message.partition())

        self._producer.produce(EVENTS.name, encode(event), probe.session_id.encode(), on_delivery=delivered)

    def close(self) -> None:
        self._listener.close()


class Loader:
    """The load, as a process, from ``with`` to its end."""

    def __init__(self, on: Broker, rate: float, seconds: float, sessions: int) -> None:
        job = Load(bootstrap=on.bootstrap, sessions=sessions, partitions=PARTITIONS, rate=rate, seconds=seconds)
        self._popen = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.engines.loader", msgspec.json.encode(job).decode()],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )

    def sent(self, limit_s: float) -> Sent:
        out, _ = self._popen.communicate(timeout=limit_s)
        return msgspec.json.decode(out, type=Sent)


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that ``share`` per cent of all values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share / 100 * len(ordered)) - 1)]


def capacity(on: Broker, worker: Worker, seconds: float, sessions: int) -> float:
    """Events a second that the worker does while a loader sends without a limit."""
    before, started = on.committed(worker.group), time.monotonic()
    loader = Loader(on, 0.0, seconds, sessions)
    time.sleep(seconds)
    done, passed = on.committed(worker.group) - before, time.monotonic() - started
    sent = loader.sent(120)
    worker.finish(on, on.end(EVENTS.name), 600)
    if not done:
        # Too short to see any of it done meanwhile: all of it, to the end.
        done, passed = on.committed(worker.group) - before, time.monotonic() - started
    tell(f"{done / passed:,.0f} events/s done while {sent.events / sent.seconds:,.0f} a second were sent")
    return done / passed


def measure(
    on: Broker, folder: Path, probes: int, repeat: int, seconds: float, sessions: int, rate: float, lead_s: float = 2.0
) -> dict[str, Any]:
    """Latencies at each level of :data:`LEVELS`; ``probes`` each, ``repeat`` times. ``lead_s``: how long a load runs before."""
    on.make_topics(keep_events=False)
    worker = Worker(on, folder, POLICY_TOML)
    agents = Agents(on)
    found: dict[str, list[list[float]]] = {level: [] for level in LEVELS}
    loads: dict[str, list[float]] = {level: [] for level in LEVELS}
    try:
        worker.ready()
        agents.probe(min(probes, 20), rate, "warm")
        most = capacity(on, worker, seconds, sessions)
        for turn in range(repeat):
            for level, share in LEVELS.items():
                lasts = lead_s + 1.5 + probes / rate
                loader = Loader(on, share * most, lasts, sessions) if share else None
                if loader is not None:
                    time.sleep(lead_s)
                latencies = agents.probe(probes, rate, f"{level.replace(' ', '-')}-{turn}")
                found[level].append(latencies)
                if loader is not None:
                    sent = loader.sent(lasts + 120)
                    loads[level].append(sent.events / sent.seconds)
                worker.finish(on, on.end(EVENTS.name), 600)
                shown = ", ".join(f"p{share:g} {percentile(latencies, share):.1f} ms" for share in _SHARES)
                tell(f"{level}, {turn + 1} of {repeat}: {shown}")
    finally:
        agents.close()
        worker.stop()
    return {
        "probes": probes * repeat,
        "repeat": repeat,
        "capacity_per_s": round(most),
        "levels": {
            level: {
                "load_per_s": round(median(loads[level])) if loads[level] else 0,
                "lost": sum(math.isinf(value) for run in runs for value in run),
                # The rarest need all probes together; of the others the median run.
                "p50_ms": round(median(percentile(run, 50.0) for run in runs), 2),
                "p99_ms": round(median(percentile(run, 99.0) for run in runs), 2),
                "p99_9_ms": round(percentile([value for run in runs for value in run], 99.9), 2),
            }
            for level, runs in found.items()
        },
    }


def _table(result: dict[str, Any]) -> Table:
    table = Table(
        title=f"violating event to command, {result['probes']:,} probes at each level; the worker can do "
        f"{result['capacity_per_s']:,} events/s here",
        title_justify="left",
    )
    for column in ("level", "events/s", "p50 ms", "p99 ms", "p99.9 ms", "never heard"):
        table.add_column(column, justify="left" if column == "level" else "right")
    for level, row in result["levels"].items():
        times = [f"{row[name]:.1f}" for name in ("p50_ms", "p99_ms", "p99_9_ms")]
        table.add_row(level, f"{row['load_per_s']:,}", *times, str(row["lost"]))
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser("latency", __doc__)
    options.add_argument("--probes", type=int, default=400, help="at each level, in each run")
    options.add_argument("--probe-rate", type=float, default=_PROBES_PER_S, help="probes a second")
    options.add_argument("--capacity-seconds", type=float, default=10.0, help="how long the unlimited load lasts")
    options.add_argument("--sessions", type=int, default=5000, help="sessions of the load")
    given = options.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="leadline-benchmark-") as scratch, broker(given.broker, Path(scratch)) as on:
        about = circumstances()
        try:
            result = measure(
                on, Path(scratch), given.probes, given.repeat, given.capacity_seconds, given.sessions, given.probe_rate
            )
        finally:
            on.close()
    emit({"benchmark": "latency", "circumstances": {**about, "broker": on.kind}, **result}, _table(result), given.json)
    return 1 if any(row["lost"] for row in result["levels"].values()) else 0


if __name__ == "__main__":
    sys.exit(main())
