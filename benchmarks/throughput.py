"""What a record costs with Leadline, and with the same work done by hand and by other engines.

::

    python -m benchmarks.throughput [--events 200000] [--repeat 5] [--variants leadline,handwritten] [--json]

The same log, the same rules (Leadline's own pure core, all of them on), the same records out, for every variant:

leadline      ``leadline monitor`` as users start it, one process
handwritten   a loop over confluent-kafka, written for this: the practical limit
quixstreams   as its documentation shows it
bytewax       as its documentation shows it; state in memory, nothing kept
faust         as its documentation shows it
floor         consumes and decodes, decides nothing
observed      (with ``--telemetry``) Leadline with metrics and traces on, sent to a receiver that takes everything
closed, hanging, slow   (with ``--telemetry``) the same, the receiver being one of :data:`benchmarks.collectors.TROUBLES`

CPU microseconds of the process for each record, user and system, without the start-up; medians, the variants taking turns.
Fails when a variant's set of violation ids is not exactly that of the core alone.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from rich.table import Table
from tests.support.ports import free_ports

from benchmarks.collectors import TROUBLES, collector
from benchmarks.engines.job import POLICY, POLICY_TOML, Cost, Job, now
from benchmarks.fleets import fleet
from benchmarks.report import circumstances, emit, median, parser, spread, tell
from benchmarks.stage import ROOT, Broker, Worker, broker
from leadline.commands.fold import Incoming, fold
from leadline.contracts.orders import Violation
from leadline.contracts.topics import EVENTS

__all__ = ["VARIANTS", "WrongIds", "main", "measure", "same_ids"]

SESSIONS: Final = 5000
VARIANTS: Final = ("leadline", "handwritten", "quixstreams", "bytewax", "faust", "floor")
_MODULES: Final = {
    "handwritten": "handwritten",
    "quixstreams": "quix",
    "bytewax": "bytewax_flow",
    "faust": "faust_agent",
    "floor": "floor",
}
_LIMIT_S: Final = 1800.0
_OWN_VENV: Final = ROOT / ".cache" / "benchmarks" / "quixstreams"
_REQUIREMENTS: Final = ROOT / "benchmarks" / "engines" / "quixstreams.txt"


class WrongIds(Exception):
    """A variant did not do the same work: its figures are worth nothing."""


def log_of(events: int, sessions: int) -> list[Incoming]:
    """About so many records: each session from its start, its window filled, then rounds of which six in a hundred violate."""
    warm = len(fleet("violations", sessions, 0).warm)
    made = fleet("violations", sessions, max(1, round((events - warm) / (1.11 * sessions))))
    return [*made.warm, *made.records]


def wanted(records: Sequence[Incoming]) -> set[str]:
    """The violation ids of the core alone."""
    folded = fold(records, lambda _: None, POLICY, now())
    return {output.violation_id for output in folded.outputs if isinstance(output, Violation)}


def python_for(variant: str) -> str:
    """The interpreter: quixstreams wants another confluent-kafka than the one that Leadline is tested with, so it has its own."""
    if variant != "quixstreams":
        return sys.executable
    python = _OWN_VENV / "bin" / "python"
    stamp = _OWN_VENV / "requirements.txt"
    if not stamp.is_file() or stamp.read_bytes() != _REQUIREMENTS.read_bytes():
        tell(f"installing {variant} in {_OWN_VENV.relative_to(ROOT)}")
        shutil.rmtree(_OWN_VENV, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(_OWN_VENV)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", "--requirement", str(_REQUIREMENTS)], check=True)
        shutil.copyfile(_REQUIREMENTS, stamp)
    return str(python)


def run_leadline(on: Broker, folder: Path, events: int, **settings: Any) -> Cost:
    """From the moment the worker is ready until the last event is committed, seen from outside."""
    worker = Worker(on, folder, POLICY_TOML, **settings)
    try:
        worker.ready()
        cpu, wall = worker.cpu_s(), time.monotonic()
        worker.finish(on, events, _LIMIT_S)
        return Cost(cpu_s=worker.cpu_s() - cpu, wall_s=time.monotonic() - wall, peak_bytes=worker.peak_bytes())
    finally:
        worker.stop()


def run_observed(on: Broker, folder: Path, events: int, kind: str = "taking") -> Cost:
    """Leadline with all its telemetry: metrics on its page, metrics and traces sent to a receiver of this ``kind``."""
    with collector(kind) as endpoint:
        return run_leadline(on, folder, events, http_port=free_ports(1)[0], otlp_endpoint=endpoint, otlp_metrics="true")


def run_other(variant: str, on: Broker, folder: Path, events: int) -> Cost:
    """A variant that measures itself."""
    job = Job(bootstrap=on.bootstrap, group=on.group(), folder=str(folder / "state"), events=events)
    folder.mkdir(parents=True)
    environ = {**os.environ, "PYTHONPATH": f"{ROOT / 'streams'}{os.pathsep}{ROOT}"}
    done = subprocess.run(
        [python_for(variant), "-m", f"benchmarks.engines.{_MODULES[variant]}", msgspec.json.encode(job).decode()],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )
    # Some engines draw on the terminal around it.
    said = re.findall(r'\{"cpu_s":[^}]*\}', done.stdout)
    if done.returncode != 0 or not said:
        raise RuntimeError(f"{variant} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-3000:]}")
    return msgspec.json.decode(said[-1], type=Cost)


_OURS: Final[dict[str, Callable[[Broker, Path, int], Cost]]] = {
    "leadline": run_leadline,
    "observed": run_observed,
    **{trouble: functools.partial(run_observed, kind=trouble) for trouble in TROUBLES},
}


def measure(
    on: Broker, folder: Path, variants: Sequence[str], events: int, sessions: int, repeat: int, say: Callable[[str], None] = tell
) -> dict[str, Any]:
    """Every variant ``repeat`` times. Raises :class:`WrongIds`."""
    say(f"making a log of about {events:,} events of {sessions:,} sessions")
    records = log_of(events, sessions)
    want = wanted(records)
    on.make_topics(keep_events=False)
    written = on.write(EVENTS.name, records)
    size = sum(len(record.value or b"") for record in records) / written
    say(f"{written:,} events of {size:.0f} bytes; {len(want):,} of them lead to a violation")
    del records
    costs: dict[str, list[Cost]] = {variant: [] for variant in variants}
    for turn in range(repeat):
        for variant in variants:
            on.make_topics(keep_events=True)
            place = folder / f"{variant}-{turn}"
            ours = _OURS.get(variant)
            cost = run_other(variant, on, place, written) if ours is None else ours(on, place, written)
            costs[variant].append(cost)
            say(
                f"{variant}, {turn + 1} of {repeat}: {1e6 * cost.cpu_s / written:.2f} us of CPU an event, "
                f"{written / cost.wall_s:,.0f} events/s, {cost.peak_bytes / 2**20:.0f} MiB"
            )
            if variant != "floor":
                same_ids(variant, want, on.violation_ids())
            shutil.rmtree(place, ignore_errors=True)
    if on.end(EVENTS.name) != written:
        raise WrongIds("a variant wrote into the log that all share")
    return {
        "events": written,
        "sessions": sessions,
        "bytes_an_event": round(size),
        "violations": len(want),
        "repeat": repeat,
        "variants": {variant: _summary(found, written) for variant, found in costs.items()},
    }


def same_ids(variant: str, want: set[str], got: set[str]) -> None:
    """Raises :class:`WrongIds`."""
    if got != want:
        raise WrongIds(
            f"{variant} did not do the same work: {len(want - got)} of {len(want)} violation ids are missing, "
            f"{len(got - want)} are too many"
        )


def _summary(costs: Sequence[Cost], events: int) -> dict[str, float]:
    cpu = [1e6 * cost.cpu_s / events for cost in costs]
    return {
        "cpu_us": round(median(cpu), 3),
        "spread": round(spread(cpu), 3),
        "events_per_s": round(events / median(cost.wall_s for cost in costs)),
        "peak_mib": round(median(cost.peak_bytes for cost in costs) / 2**20, 1),
    }


def _table(result: dict[str, Any]) -> Table:
    table = Table(
        title=f"{result['events']:,} events of {result['bytes_an_event']} bytes, {result['sessions']:,} sessions, "
        f"{result['violations']:,} violations, the same ids in all; medians of {result['repeat']}",
        title_justify="left",
    )
    for column in ("variant", "CPU us an event", "spread", "events/s", "to Leadline's", "peak MiB", "Leadline's CPU to its"):
        table.add_column(column, justify="left" if column == "variant" else "right")
    ours = result["variants"].get("leadline", {}).get("cpu_us")
    rate = result["variants"].get("leadline", {}).get("events_per_s")
    for variant, row in result["variants"].items():
        faster = f"{row['events_per_s'] / rate:.2f}" if rate else ""
        ratio = f"{ours / row['cpu_us']:.2f}" if ours and row["cpu_us"] else ""
        cells = (
            f"{row['cpu_us']:.2f}",
            f"{row['spread']:.0%}",
            f"{row['events_per_s']:,}",
            faster,
            f"{row['peak_mib']:.0f}",
            ratio,
        )
        table.add_row(variant, *cells)
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser("throughput", __doc__)
    options.add_argument("--events", type=int, default=200_000, help="about so many")
    options.add_argument("--sessions", type=int, default=SESSIONS)
    options.add_argument("--telemetry", action="store_true", help="Leadline with its telemetry against Leadline without it")
    options.add_argument("--variants", default=",".join(VARIANTS), help=f"of {', '.join(VARIANTS)}")
    given = options.parse_args(arguments)
    variants = [name.strip() for name in given.variants.split(",") if name.strip()]
    if given.telemetry:
        variants = list(_OURS)
    if unknown := [name for name in variants if name not in (*VARIANTS, *_OURS)]:
        options.error(f"{', '.join(unknown)}: no such variant; there are {', '.join(VARIANTS)}")
    with tempfile.TemporaryDirectory(prefix="leadline-benchmark-") as scratch, broker(given.broker, Path(scratch)) as on:
        about = circumstances()
        try:
            result = measure(on, Path(scratch) / "runs", variants, given.events, given.sessions, given.repeat)
        except WrongIds as error:
            if given.json:
                print(json.dumps({"failed": str(error)}))  # noqa: T201
            print(error, file=sys.stderr)  # noqa: T201
            return 1
        finally:
            on.close()
    ours = result["variants"].get("leadline", {}).get("cpu_us")
    if ours:
        for row in result["variants"].values():
            row["leadline_to_this"] = round(ours / row["cpu_us"], 3) if row["cpu_us"] else None
            row["rate_to_leadline"] = round(row["events_per_s"] / result["variants"]["leadline"]["events_per_s"], 3)
    emit({"benchmark": "throughput", "circumstances": {**about, "broker": on.kind}, **result}, _table(result), given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
