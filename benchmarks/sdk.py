"""What reporting costs the agent's own thread: with the broker up, slow, and gone.

::

    python -m benchmarks.sdk [--rounds 2000] [--repeat 5] [--gap-ms 2] [--json]

emit     ``Emitter.emit`` of a finished record: what is queued and signalled
round    ``Session.compacted``: the working set of 60 items is measured, the round made and emitted, the local guard looks on;
         before each one a message and a summary left or came back, so that there is something to measure

up       the broker answers
slow     its process runs for a tenth of the time
gone     nobody listens

CPU microseconds of the calling thread and its waiting time a call (99th percentile); blocks of memory that one call leaves
behind until it was sent; what did not reach the queue. The calls come 2 ms apart, so that the sending thread does its work
meanwhile, as it would beside an agent; each then finds the processor's caches cold, which is most of what it costs: with
``--gap-ms 0`` it is the same code without that.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from rich.table import Table

from benchmarks.latency import percentile
from benchmarks.report import circumstances, emit, median, parser, tell
from benchmarks.stage import Broker, broker
from leadline.agent import Client, Session, connect
from leadline.contracts.events import Round

__all__ = ["CASES", "main", "measure"]

CASES: Final = ("up", "slow", "gone")
_ITEMS: Final = 60
_GONE: Final = "127.0.0.1:1"
"""Nobody listens on the port multiplexer's number; it is below those that are handed out."""
_SLOW_RUN_S: Final = 0.05
_SLOW_STOP_S: Final = 0.45


class Cost(NamedTuple):
    """Of one call: CPU microseconds, waiting included as its 99th percentile in microseconds, memory blocks."""

    cpu_us: float
    wall_p99_us: float
    blocks: float


@contextlib.contextmanager
def slowed(pid: int) -> Iterator[None]:
    """The process runs for a tenth of the time."""
    end = threading.Event()

    def pulse() -> None:
        while not end.is_set():
            os.kill(pid, signal.SIGSTOP)
            end.wait(_SLOW_STOP_S)
            os.kill(pid, signal.SIGCONT)
            end.wait(_SLOW_RUN_S)

    thread = threading.Thread(target=pulse, daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()
        os.kill(pid, signal.SIGCONT)


def _timed(calls: int, gap_s: float, call: Callable[[int], object], prepare: Callable[[int], None] | None = None) -> Cost:
    cpu = 0
    blocks = 0
    walls = []
    for number in range(calls):
        if prepare is not None:
            prepare(number)
        before = sys.getallocatedblocks()
        began, cpu_began = time.perf_counter_ns(), time.thread_time_ns()
        call(number)
        cpu += time.thread_time_ns() - cpu_began
        walls.append(time.perf_counter_ns() - began)
        blocks += sys.getallocatedblocks() - before
        if gap_s:
            time.sleep(gap_s)
    return Cost(cpu / calls / 1000, percentile(walls, 99.0) / 1000, blocks / calls)


def _filled(session: Session) -> None:
    """A working set as after some passes: raw spans, summaries of raw spans, a summary of those."""
    for number in range(_ITEMS):
        session.ledger.add_raw(f"m{number}", tokens=900, salience=0.4)
    for number in range(4):
        session.ledger.summarize(f"S{number}", [f"m{number * 4 + n}" for n in range(4)], tokens=300, salience=0.5)
    session.ledger.summarize("T0", ["S0", "S1"], tokens=200, salience=0.6)


def _changed(session: Session, number: int) -> None:
    """A message and a summary leave the working set, or come back into it."""
    if number % 2:
        session.ledger.restore(["m59", "S3"])
    else:
        session.ledger.evict(["m59", "S3"], archived=True)


def _round(number: int) -> Round:
    return Round(
        session_id="s-1",
        agent_id="a-1",
        event_id=f"r{number}",
        fleet="",
        epoch=0,
        ts="2026-11-30T12:00:00.000Z",
        round=number + 1,
        trigger="budget",
        raw_tokens=60_000,
        summary_tokens=40_000,
        distinct_source_spans=200,
        query_cosine_retained=0.5,
        summary_depth_max=1,
        max_depth=4,
        session_start_spans=214,
        token_budget=180_000,
    )


def _case(client: Client, rounds: int, gap_s: float) -> dict[str, Cost]:
    with client.session("s-1", agent_id="a-1", token_budget=180_000, max_depth=4) as session:
        _filled(session)
        made = [_round(number) for number in range(rounds)]
        for number in range(min(50, rounds)):
            session.compacted()
            client.emitter.emit(made[number])
        return {
            "emit": _timed(rounds, gap_s, lambda number: client.emitter.emit(made[number])),
            "round": _timed(rounds, gap_s, lambda _: session.compacted(), lambda number: _changed(session, number)),
        }


def measure(on: Broker, rounds: int, repeat: int, gap_s: float = 0.002) -> dict[str, Any]:
    """Every case ``repeat`` times."""
    on.make_topics(keep_events=False)
    found: dict[str, list[dict[str, Cost]]] = {case: [] for case in CASES}
    dropped = dict.fromkeys(CASES, 0)
    for turn in range(repeat):
        for case in CASES:
            with tempfile.TemporaryDirectory() as spool:
                client = connect(_GONE if case == "gone" else on.bootstrap, spool=spool)
                with slowed(on.pid) if case == "slow" else contextlib.nullcontext():
                    costs = _case(client, rounds, gap_s)
                # Before it is closed: what a client without a broker holds is given up only then.
                dropped[case] += sum(client.counters()[0].dropped.values())
                client.close(0.5)
                found[case].append(costs)
                shown = ", ".join(f"{name} {cost.cpu_us:.1f} us" for name, cost in costs.items())
                tell(f"broker {case}, {turn + 1} of {repeat}: {shown}")
    return {
        "rounds": rounds,
        "gap_ms": gap_s * 1000,
        "repeat": repeat,
        "cases": {
            case: {
                "dropped": dropped[case],
                **{
                    call: {
                        "cpu_us": round(median(run[call].cpu_us for run in runs), 2),
                        "wall_p99_us": round(median(run[call].wall_p99_us for run in runs), 1),
                        "blocks": round(median(run[call].blocks for run in runs), 1),
                    }
                    for call in ("emit", "round")
                },
            }
            for case, runs in found.items()
        },
    }


def _table(result: dict[str, Any]) -> Table:
    table = Table(
        title=f"the agent's thread, {result['rounds']:,} calls {result['gap_ms']:g} ms apart, medians of {result['repeat']}",
        title_justify="left",
    )
    for column in ("broker", "call", "CPU us", "with waiting, p99 us", "blocks", "dropped"):
        table.add_column(column, justify="left" if column in ("broker", "call") else "right")
    for case, row in result["cases"].items():
        for call in ("emit", "round"):
            cost = row[call]
            values = (f"{cost['cpu_us']:.1f}", f"{cost['wall_p99_us']:.0f}", f"{cost['blocks']:.1f}", str(row["dropped"]))
            table.add_row(case, call, *values)
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser("sdk", __doc__)
    options.add_argument("--rounds", type=int, default=2000, help="calls in each run")
    options.add_argument("--gap-ms", type=float, default=2.0, help="pause after each call")
    given = options.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="leadline-benchmark-") as scratch, broker(given.broker, Path(scratch)) as on:
        about = circumstances()
        try:
            result = measure(on, given.rounds, given.repeat, given.gap_ms / 1000)
        finally:
            on.close()
    emit({"benchmark": "sdk", "circumstances": {**about, "broker": on.kind}, **result}, _table(result), given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
