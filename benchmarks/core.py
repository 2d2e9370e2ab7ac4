"""What the pure core costs, without any engine: microseconds of CPU a record, by stage and kind of fleet.

::

    python -m benchmarks.core [--json] [--sessions 5000] [--rounds 5] [--repeats 7]

decode     bytes to typed records, as the fold does it
fold       all the rest of :func:`leadline.commands.fold.fold`: states found, rules asked, incidents settled
encode     states to bytes, once a session for every ``--flush`` records, as an engine does that writes states back in intervals
total      the three together; ``calm`` is the same, of each batch of 200 records its best run: what is left of the total where
           nothing else disturbs the machine
cold       (apart) a record whose state is not in memory: loaded, folded alone, encoded at once
load       (apart) bytes to one state; ``store``: the other way; ``bytes``: its mean size

Medians over ``--repeats`` runs, each from the same states. ``yardstick`` is what 1,000 steps of a plain loop cost in the same
minutes: two runs on one machine are compared by it, or by the ratio of ``total`` to ``decode``.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from time import process_time
from typing import Any, Final

import msgspec
import orjson

from benchmarks.fleets import KINDS, START, fleet
from leadline.commands.fold import Incoming, fold
from leadline.contracts.codec import plain_events
from leadline.contracts.session_state import SessionState, decode_state, encode_state
from leadline.detection.policy import DEFAULT_POLICY

__all__ = ["main", "measure"]

_NOW: Final = START + 24 * 3_600_000
_BATCH: Final = 200
_SOME: Final = 500


class _Timed:
    """CPU seconds of the same pieces of work, done several times."""

    def __init__(self) -> None:
        self.runs: list[list[float]] = []

    def run(self, pieces: Iterable[Callable[[], object]]) -> None:
        gc.collect()
        times = []
        for piece in pieces:
            begun = process_time()
            piece()
            times.append(process_time() - begun)
        self.runs.append(times)

    @property
    def median(self) -> float:
        return statistics.median(map(sum, self.runs))

    @property
    def calm(self) -> float:
        """The sum of each piece's best time."""
        return float(sum(min(times) for times in zip(*self.runs, strict=True)))


def _yardstick() -> int:
    total = 0
    for number in range(1_000):
        total += number & 7
    return total


class _Store:
    """Decoded states as an engine's cache holds them."""

    def __init__(self, states: dict[str, SessionState]) -> None:
        self.states = dict(states)
        self.outputs = 0
        self.touched: list[list[str]] = []

    def apply(self, batch: Sequence[Incoming]) -> None:
        folded = fold(batch, self.states.get, DEFAULT_POLICY, _NOW)
        self.outputs += len(folded.outputs)
        for key, state in folded.states.items():
            if state is not None:
                self.states[key] = state
        self.touched.append(list(folded.states))

    def flushes(self, batches: Sequence[Sequence[Incoming]], every: int) -> list[list[SessionState]]:
        """The states that each write would hold: of every session touched since the last one."""
        found: list[list[SessionState]] = []
        dirty: dict[str, None] = {}
        seen = 0
        for batch, keys in zip(batches, self.touched, strict=True):
            dirty |= dict.fromkeys(keys)
            seen += len(batch)
            if seen >= every or keys is self.touched[-1]:
                found.append([self.states[key] for key in dirty if key in self.states])
                dirty, seen = {}, 0
        return found


def _batches(records: Sequence[Incoming]) -> list[Sequence[Incoming]]:
    return [records[at : at + _BATCH] for at in range(0, len(records), _BATCH)]


def _cold(batch: Sequence[Incoming], stored: dict[str, bytes]) -> None:
    folded = fold(batch, lambda key: decode_state(stored[key]) if key in stored else None, DEFAULT_POLICY, _NOW)
    for state in folded.states.values():
        if state is not None:
            encode_state(state)


def measure(kind: Any, sessions: int, rounds: int, repeats: int, flush: int, seed: int = 1) -> dict[str, Any]:
    """One kind of fleet: CPU microseconds a record unless the name says otherwise."""
    made = fleet(kind, sessions, rounds, seed)
    warm = _Store({})
    for batch in _batches(made.warm):
        warm.apply(batch)
    stored = {key: encode_state(state) for key, state in warm.states.items()}
    records = made.records
    batches = _batches(records)
    timed = {name: _Timed() for name in ("decode", "fold", "encode", "cold", "load", "store", "yardstick")}
    values: list[bytes] = []
    outputs = 0
    for _ in range(repeats):
        store = _Store(warm.states)
        timed["yardstick"].run([_yardstick] * 100)
        timed["decode"].run([partial(_decode, batch) for batch in batches])
        timed["fold"].run([partial(store.apply, batch) for batch in batches])
        timed["encode"].run([partial(_encode, states) for states in store.flushes(batches, flush)])
        timed["cold"].run([partial(_cold, batch, stored) for batch in _batches(records[:sessions])])
        some = list(store.states.values())[:_SOME]
        values, outputs = [encode_state(state) for state in store.states.values()], store.outputs
        timed["load"].run([partial(_load, values[:_SOME])])
        timed["store"].run([partial(_encode, some)])
    each, kept = 1e6 / len(records), 1e6 / len(values[:_SOME])
    whole = timed["fold"]
    return {
        "kind": kind,
        "records": len(records),
        "rounds": made.rounds,
        "violating": made.violating,
        "bytes_a_record": round(statistics.fmean(len(record.value or b"") for record in records)),
        "outputs": outputs,
        "decode": round(timed["decode"].median * each, 2),
        "fold": round((whole.median - timed["decode"].median) * each, 2),
        "encode": round(timed["encode"].median * each, 2),
        "total": round((whole.median + timed["encode"].median) * each, 2),
        "calm_decode": round(timed["decode"].calm * each, 2),
        "calm": round((whole.calm + timed["encode"].calm) * each, 2),
        "cold": round(timed["cold"].calm * 1e6 / min(sessions, len(records)), 2),
        "load": round(timed["load"].calm * kept, 2),
        "store": round(timed["store"].calm * kept, 2),
        "bytes": round(statistics.fmean(map(len, values))),
        "largest": max(map(len, values)),
        "yardstick": round(timed["yardstick"].median * 1e4, 1),
        "calm_yardstick": round(timed["yardstick"].calm * 1e4, 1),
    }


def _decode(batch: Sequence[Incoming]) -> None:
    for _ in plain_events([record.value for record in batch]):
        pass


def _load(values: Sequence[bytes]) -> None:
    for value in values:
        decode_state(value)


def _encode(states: Sequence[SessionState]) -> None:
    for state in states:
        encode_state(state)


def _machine() -> dict[str, Any]:
    model = platform.processor()
    try:
        with open("/proc/cpuinfo") as lines:
            model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), model)
    except OSError:
        pass
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "load": [round(value, 1) for value in os.getloadavg()],
        "python": platform.python_version(),
        "msgspec": msgspec.__version__,
        "orjson": orjson.__version__,
    }


_SHOWN: Final = ("decode", "fold", "encode", "total", "calm_decode", "calm", "cold", "load", "store", "bytes", "yardstick")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.core", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--sessions", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument(
        "--flush", type=int, default=25_000, help="records between two writes of the states (250 ms at 100,000/s)"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    shown: dict[str, Any] = {
        "machine": _machine(),
        "sessions": given.sessions,
        "flush": given.flush,
        "repeats": given.repeats,
        "fleets": [measure(kind, given.sessions, given.rounds, given.repeats, given.flush, given.seed) for kind in given.kinds],
    }
    if given.json:
        sys.stdout.write(json.dumps(shown, indent=2) + "\n")
        return 0
    machine = ", ".join(f"{name} {value}" for name, value in shown["machine"].items())
    lines = [machine, f"CPU us a record; medians of {given.repeats} runs, but calm, cold, load and store: best of each piece", ""]
    lines.append("".join(name.rjust(12) for name in ("kind", *_SHOWN)))
    lines += ["".join(str(row[name]).rjust(12) for name in ("kind", *_SHOWN)) for row in shown["fleets"]]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
