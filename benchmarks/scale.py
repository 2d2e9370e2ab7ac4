"""What it costs to watch many sessions: cost of a record, memory, bytes of state, speed of a restore, one worker against two.

::

    python -m benchmarks.scale [--sessions 1000,100000,1000000] [--events 100000] [--repeat 5] [--json]
    python -m benchmarks.scale --restore [--sessions 100000] [--repeat 3]

For each number of sessions the changelog is written first, by the pure core: every session has a full window. A fresh worker
restores it (records a second, without the time that an empty worker takes to start), then does the events, each of another
session, so that of a million states hardly any is in a cache. The largest number is measured ``--repeat-largest`` times, as it
takes minutes. ``--restore`` measures nothing but the restore, in a few minutes for 100,000 sessions.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from rich.table import Table

from benchmarks.engines.job import POLICY, POLICY_TOML, now
from benchmarks.engines.loader import FIRST_ROUND, key_of, partition_of, rounds
from benchmarks.report import circumstances, emit, median, parser, tell
from benchmarks.stage import PARTITIONS, Broker, Worker, broker
from leadline.commands.fold import Incoming, fold
from leadline.contracts.codec import encode
from leadline.contracts.events import SessionStart
from leadline.contracts.ids import state_key
from leadline.contracts.session_state import encode_state
from leadline.contracts.topics import EVENTS, SESSIONS

__all__ = ["main", "measure", "states"]

_LIMIT_S: Final = 1800.0
_SETTLE_S: Final = 5.0


class Run(NamedTuple):
    """``restore_s``: from the start of the process until it is ready. ``store_bytes``: the local copy on disk."""

    restore_s: float
    cpu_s: float
    wall_s: float
    peak_bytes: int
    store_bytes: int


def states(sessions: int) -> Iterator[Incoming]:
    """A changelog: the state of each session after its start and :data:`FIRST_ROUND` - 1 rounds, as the core leaves it."""
    name = key_of(0)
    start = SessionStart(session_id=name, agent_id="a", epoch=0, session_start_spans=214, fleet="load")
    mine = (value for key, value in rounds(1) if key == name.encode())
    before = [next(mine).replace(b'"round":%d' % (FIRST_ROUND + n), b'"round":%d' % (n + 1)) for n in range(FIRST_ROUND - 1)]
    log = [encode(start), *before]
    at = now()
    folded = fold([Incoming(name.encode(), value, 0, n, at) for n, value in enumerate(log)], lambda _: None, POLICY, at)
    state = folded.states[state_key(name, "a")]
    assert state is not None
    assert len(state.window) == 16
    # As if no event of the log that is to come had been seen.
    state.offset = -1
    template = encode_state(state)
    assert template.count(name.encode()) == 1
    head, tail = template.split(name.encode())
    for number in range(sessions):
        key = key_of(number)
        where = partition_of(key.encode(), PARTITIONS)
        yield Incoming(state_key(key, "a").encode(), head + key.encode() + tail, where, number, at)


def events_of(sessions: int, count: int) -> Iterator[Incoming]:
    source = rounds(sessions)
    for number in range(count):
        key, value = next(source)
        yield Incoming(key, value, partition_of(key, PARTITIONS), number, 0)


def one_worker(on: Broker, folder: Path, done: int, events: int) -> Run:
    """A fresh worker over what is on the topics: ``done`` records of the log were there before it."""
    started = time.monotonic()
    worker = Worker(on, folder, POLICY_TOML)
    try:
        worker.ready(_LIMIT_S)
        ready = time.monotonic()
        cpu = worker.cpu_s()
        worker.finish(on, done + events, _LIMIT_S)
        ended = time.monotonic()
        cost, peak = worker.cpu_s() - cpu, worker.peak_bytes()
        return Run(ready - started, cost, ended - ready, peak, _size(folder / "data"))
    finally:
        worker.stop()
        shutil.rmtree(folder, ignore_errors=True)


def two_workers(on: Broker, folder: Path, sessions: int, events: int) -> float:
    """Events a second that two workers do together, with everything restored and assigned before the first event is there."""
    group = on.group()
    both = [Worker(on, folder / name, POLICY_TOML, app_id=group, instance_id=name) for name in ("one", "two")]
    try:
        for worker in both:
            worker.ready(_LIMIT_S)
        # The second one's coming moved partitions of the first.
        time.sleep(_SETTLE_S)
        before = on.end(EVENTS.name)
        started = time.monotonic()
        on.write(EVENTS.name, events_of(sessions, events), by_key=False)
        both[0].finish(on, before + events, _LIMIT_S)
        return events / (time.monotonic() - started)
    finally:
        for worker in both:
            worker.stop()


def one_alone(on: Broker, folder: Path, sessions: int, events: int) -> float:
    """As :func:`two_workers` with one."""
    worker = Worker(on, folder / "alone", POLICY_TOML)
    try:
        worker.ready(_LIMIT_S)
        before = on.end(EVENTS.name)
        started = time.monotonic()
        on.write(EVENTS.name, events_of(sessions, events), by_key=False)
        worker.finish(on, before + events, _LIMIT_S)
        return events / (time.monotonic() - started)
    finally:
        worker.stop()


def _size(folder: Path) -> int:
    done = subprocess.run(["du", "-sk", str(folder)], capture_output=True, text=True, check=True)
    return int(done.stdout.split()[0]) * 1024


def measure(on: Broker, folder: Path, counts: Sequence[int], events: int, repeat: int, repeat_largest: int) -> dict[str, Any]:
    """Everything, from the smallest number of sessions to the largest."""
    result: dict[str, Any] = {"events": events, "repeat": repeat, "repeat_largest": repeat_largest, "sessions": {}}
    on.make_topics(keep_events=False)
    empty = median(_start_up(on, folder / f"empty-{turn}") for turn in range(repeat))
    tell(f"an empty worker is ready after {empty:.1f} s")
    result["empty_start_s"] = round(empty, 2)
    for count in sorted(counts):
        runs = []
        for turn in range(repeat_largest if count == max(counts) else repeat):
            on.make_topics(keep_events=False)
            tell(f"{count:,} sessions, run {turn + 1}: writing {count:,} states and {events:,} events")
            sample = next(states(1))
            on.write(SESSIONS.name, states(count), by_key=False)
            on.write(EVENTS.name, events_of(count, events), by_key=False)
            run = one_worker(on, folder / f"{count}-{turn}", 0, events)
            runs.append(run)
            tell(
                f"{count:,} sessions: restored in {run.restore_s:.1f} s, {1e6 * run.cpu_s / events:.1f} us of CPU an event, "
                f"{run.peak_bytes / 2**20:.0f} MiB at most"
            )
        # The restore of few records drowns in the start-up: it is told where it takes longer than that.
        restore = median(run.restore_s for run in runs) - empty
        result["sessions"][str(count)] = {
            "cpu_us": round(1e6 * median(run.cpu_s for run in runs) / events, 3),
            "events_per_s": round(events / median(run.wall_s for run in runs)),
            "peak_mib": round(median(run.peak_bytes for run in runs) / 2**20, 1),
            "state_bytes": len(sample.value or b"") + len(sample.key or b""),
            "store_bytes_a_session": round(median(run.store_bytes for run in runs) / count),
            "restore_s": round(restore, 2),
            "restore_records_per_s": round(count / restore) if restore > empty else None,
        }
    middle = sorted(counts)[len(counts) // 2]
    several = {"one": one_alone, "two": two_workers}
    if on.kind == "embedded":
        del several["two"]  # It serves one worker.
    speeds: dict[str, list[float]] = {name: [] for name in several}
    for turn in range(repeat):
        for name, run_it in several.items():
            on.make_topics(keep_events=False)
            on.write(SESSIONS.name, states(middle), by_key=False)
            speeds[name].append(run_it(on, folder / f"{name}-{turn}", middle, events))
            tell(f"{name} worker(s), {middle:,} sessions: {speeds[name][-1]:,.0f} events/s")
            shutil.rmtree(folder / f"{name}-{turn}", ignore_errors=True)
    result["workers"] = {"sessions": middle, **{f"{name}_events_per_s": round(median(found)) for name, found in speeds.items()}}
    return result


def restores(on: Broker, folder: Path, sessions: int, repeat: int) -> dict[str, Any]:
    """How fast a fresh worker has ``sessions`` states back."""
    on.make_topics(keep_events=False)
    empty = median(_start_up(on, folder / f"empty-{turn}") for turn in range(repeat))
    on.write(SESSIONS.name, states(sessions), by_key=False)
    took, cpu, peaks = [], [], []
    for turn in range(repeat):
        started = time.monotonic()
        worker = Worker(on, folder / f"full-{turn}", POLICY_TOML)
        try:
            worker.ready(_LIMIT_S)
            took.append(time.monotonic() - started - empty)
            cpu.append(worker.cpu_s())
            peaks.append(worker.peak_bytes())
        finally:
            worker.stop()
            shutil.rmtree(folder / f"full-{turn}", ignore_errors=True)
        tell(f"{sessions:,} states restored in {took[-1]:.1f} s after the {empty:.1f} s that an empty worker takes")
    return {
        "sessions": sessions,
        "repeat": repeat,
        "empty_start_s": round(empty, 2),
        "restore_s": round(median(took), 2),
        "restore_records_per_s": round(sessions / max(0.001, median(took))),
        "cpu_s_with_start": round(median(cpu), 2),
        "peak_mib": round(median(peaks) / 2**20, 1),
    }


def _start_up(on: Broker, folder: Path) -> float:
    started = time.monotonic()
    worker = Worker(on, folder, POLICY_TOML)
    try:
        worker.ready()
        return time.monotonic() - started
    finally:
        worker.stop()


def _table(result: dict[str, Any]) -> Table:
    workers = result["workers"]
    speeds = ", ".join(
        f"{name} {workers[f'{name}_events_per_s']:,}" for name in ("one", "two") if f"{name}_events_per_s" in workers
    )
    table = Table(
        title=f"{result['events']:,} events over full windows; medians of {result['repeat']} "
        f"(largest: {result['repeat_largest']}); {workers['sessions']:,} sessions, workers and events/s: {speeds}",
        title_justify="left",
    )
    for column in ("sessions", "CPU us an event", "events/s", "peak MiB", "state bytes", "on disk", "restored records/s"):
        table.add_column(column, justify="right")
    for count, row in result["sessions"].items():
        speed = row["restore_records_per_s"]
        table.add_row(
            f"{int(count):,}",
            f"{row['cpu_us']:.2f}",
            f"{row['events_per_s']:,}",
            f"{row['peak_mib']:.0f}",
            f"{row['state_bytes']:,}",
            f"{row['store_bytes_a_session']:,}",
            f"{speed:,}" if speed else "too few to tell",
        )
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser("scale", __doc__)
    options.add_argument("--sessions", help="numbers of sessions, comma between")
    options.add_argument("--restore", action="store_true", help="nothing but the restore, of one number of sessions")
    options.add_argument("--events", type=int, default=100_000)
    options.add_argument("--repeat-largest", type=int, default=1, help="runs of the largest number of sessions")
    given = options.parse_args(arguments)
    counts = [int(text) for text in (given.sessions or ("100000" if given.restore else "1000,100000,1000000")).split(",")]
    with tempfile.TemporaryDirectory(prefix="leadline-benchmark-") as scratch, broker(given.broker, Path(scratch)) as on:
        about = circumstances()
        try:
            if given.restore:
                found = restores(on, Path(scratch) / "runs", max(counts), given.repeat)
                table = Table(title="restore alone")
                for name in found:
                    table.add_column(name, justify="right")
                table.add_row(*map(str, found.values()))
                emit({"benchmark": "restore", "circumstances": {**about, "broker": on.kind}, **found}, table, given.json)
                return 0
            result = measure(on, Path(scratch) / "runs", counts, given.events, given.repeat, given.repeat_largest)
        finally:
            on.close()
    emit({"benchmark": "scale", "circumstances": {**about, "broker": on.kind}, **result}, _table(result), given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
