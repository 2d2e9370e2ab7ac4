"""Many sessions while the broker goes away and comes back: no event lost, none out of order, and what it costs a round.

::

    python -m benchmarks.soak [--seconds 600] [--sessions 200] [--broker kafka|embedded] [--json]

Each session reports a round a second or so, from a few threads, over one client with a spool. On Apache Kafka the broker is
stopped in order and started again; the embedded one would lose records at that, so it is halted (SIGSTOP) and let go on. In the
end every event that was emitted must be in the log, each session's in the order of emission; events may be there twice, which
their ids tell.

Leadline's part of a round is ``Session.compacted`` on the agent's thread, in wall time and in CPU time of that thread. The exit
code is 1 where an event was lost or out of order; the times are told, and judged by whoever reads them.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from confluent_kafka import Consumer, TopicPartition
from rich.table import Table
from tests.support import brokers

from benchmarks.latency import percentile
from benchmarks.report import circumstances, emit, parser, tell
from benchmarks.stage import PARTITIONS, Broker
from leadline.agent import Client, Session, connect
from leadline.broker import EmbeddedBroker
from leadline.contracts.codec import decode_event
from leadline.contracts.topics import EVENTS

__all__ = ["main", "soak"]

_THREADS: Final = 4
_ITEMS: Final = 30
_LEAST_UP_S: Final = 1.0
_FLUSH_S: Final = 120.0


class Switch(Protocol):
    """A broker that can be away."""

    def off(self) -> None: ...

    def on(self) -> None: ...


class _Paused:
    def __init__(self, pid: int) -> None:
        self._pid = pid

    def off(self) -> None:
        os.kill(self._pid, signal.SIGSTOP)

    def on(self) -> None:
        os.kill(self._pid, signal.SIGCONT)


class _Stopped:
    def __init__(self, kafka: brokers.ApacheKafka) -> None:
        self._kafka = kafka

    def off(self) -> None:
        self._kafka.stop()

    def on(self) -> None:
        self._kafka.start()


@contextlib.contextmanager
def switchable(kind: str, folder: Path) -> Iterator[tuple[str, Switch]]:
    """A broker of ``kind`` with the topics on it: its address, and how it goes away. Raises ``RuntimeError`` without one."""
    if kind == "embedded":
        with EmbeddedBroker() as embedded:
            Broker(embedded.address, kind, embedded.pid or 0).make_topics(keep_events=False)
            paused = _Paused(embedded.pid or 0)
            try:
                yield embedded.address, paused
            finally:
                paused.on()
        return
    if reason := brokers.prepare():
        raise RuntimeError(reason)
    with brokers.ApacheKafka(folder / "kafka") as kafka:
        Broker(kafka.bootstrap, kind, 0).make_topics(keep_events=False)
        yield kafka.bootstrap, _Stopped(kafka)


class _Agents(threading.Thread):
    """One thread's sessions, a round after the other."""

    def __init__(self, client: Client, names: Sequence[str], until: float) -> None:
        super().__init__(name=f"agents-{names[0]}", daemon=True)
        self._client = client
        self._names = names
        self._until = until
        self.wall: list[float] = []
        self.cpu: list[float] = []
        self.emitted: dict[str, list[str]] = {}

    def run(self) -> None:
        with contextlib.ExitStack() as stack:
            sessions = [stack.enter_context(self._session(name)) for name in self._names]
            number = 0
            while time.monotonic() < self._until:
                number += 1
                for session in sessions:
                    began, cpu = time.perf_counter(), time.thread_time()
                    session.compacted()
                    self.cpu.append(time.thread_time() - cpu)
                    self.wall.append(time.perf_counter() - began)
                    # Spread over the second, as the rounds of many agents are.
                    time.sleep(1 / len(sessions))
        for name in self._names:
            self.emitted[name] = ["start", *map(str, range(1, number + 1)), "end"]

    def _session(self, name: str) -> Session:
        session = self._client.session(name, agent_id="a", token_budget=180_000, max_depth=3)
        for item in range(_ITEMS):
            session.ledger.add_raw(f"m{item}", 500, 0.4)
        session.ledger.summarize("S", [f"m{item}" for item in range(10)], 200, 0.6)
        return session


def soak(kind: str, seconds: float, sessions: int, down_s: float, folder: Path) -> dict[str, Any]:
    """Run it; what was lost, doubled, out of order, and the times. ``down_s``: how long the broker is away each time."""
    with switchable(kind, folder) as (bootstrap, switch):
        client = connect(bootstrap, fleet="soak", spool=folder / "spool")
        names = [f"s-{number}" for number in range(sessions)]
        until = time.monotonic() + seconds
        agents = [_Agents(client, names[at::_THREADS], until) for at in range(min(_THREADS, sessions))]
        for thread in agents:
            thread.start()
        outages = 0
        while time.monotonic() + 2 * down_s < until:
            time.sleep(max(_LEAST_UP_S, down_s))
            switch.off()
            outages += 1
            tell(f"broker away ({outages})")
            time.sleep(down_s)
            switch.on()
            counters = client.emitter.counters()
            tell(f"broker back; {counters.spooled} events on disk, {counters.queued} in memory, {counters.in_flight} in flight")
        for thread in agents:
            thread.join()
        left = client.flush(_FLUSH_S)
        counters = client.emitter.counters()
        client.close()
        found = _read(bootstrap)
    emitted = {name: events for thread in agents for name, events in thread.emitted.items()}
    wall = [one * 1e6 for thread in agents for one in thread.wall]
    cpu = [one * 1e6 for thread in agents for one in thread.cpu]
    lost = sum(len({*events} - {*found.get(name, [])}) for name, events in emitted.items())
    first = {name: list(dict.fromkeys(events)) for name, events in found.items()}
    return {
        "broker": kind,
        "seconds": seconds,
        "sessions": sessions,
        "outages": outages,
        "emitted": sum(map(len, emitted.values())),
        "lost": lost,
        "dropped": counters.dropped.total(),
        "left": left,
        "doubled": sum(len(events) - len(first[name]) for name, events in found.items()),
        "sessions_out_of_order": sum(first.get(name) != events for name, events in emitted.items()) if not lost else None,
        "round_wall_us": {"p50": percentile(wall, 50), "p99": percentile(wall, 99), "max": max(wall)},
        "round_cpu_us": {"p50": percentile(cpu, 50), "p99": percentile(cpu, 99)},
        "rounds_over_1_ms": sum(one > 1_000 for one in wall) / len(wall),
    }


def _read(bootstrap: str) -> dict[str, list[str]]:
    """Every event in the log by session, in its order: ``start``, a round's number, ``end``."""
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "soak", "enable.auto.commit": False})
    found: dict[str, list[str]] = {}
    try:
        places = [TopicPartition(EVENTS.name, number, 0) for number in range(PARTITIONS)]
        ends = {place.partition: reader.get_watermark_offsets(place, timeout=20)[1] for place in places}
        left = {number for number, end in ends.items() if end}
        reader.assign(places)
        deadline = time.monotonic() + 120
        while left:
            if time.monotonic() > deadline:
                raise TimeoutError("the log could not be read to its end")
            for message in reader.consume(1_000, 0.2):
                if message.error() is None:
                    event = decode_event(message.value()).event
                    kind = str(type(event).__struct_config__.tag).removeprefix("leadline.").partition("/")[0]
                    name = str(getattr(event, "round", "")) if kind == "round" else kind.removeprefix("session-")
                    found.setdefault(event.session_id, []).append(name)
                    if message.offset() + 1 >= ends[message.partition()]:
                        left.discard(message.partition())
    finally:
        reader.close()
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code is 1 where anything was lost or out of order."""
    options = parser("soak", __doc__, repeat=1)
    options.add_argument("--seconds", type=float, default=600.0)
    options.add_argument("--sessions", type=int, default=200)
    options.add_argument("--down", type=float, default=8.0, help="seconds that the broker is away each time")
    given = options.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        result = soak(given.broker, given.seconds, given.sessions, given.down, Path(folder))
    result["circumstances"] = circumstances()
    table = Table("what", "value")
    for name, value in result.items():
        if name != "circumstances":
            table.add_row(name.replace("_", " "), str(value))
    emit(result, table, given.json)
    return 0 if not (result["lost"] or result["dropped"] or result["left"] or result["sessions_out_of_order"]) else 1


if __name__ == "__main__":
    sys.exit(main())
