"""What every variant is given and what it reports; the pure core as all of them call it.

A variant is ``python -m benchmarks.engines.NAME JOB`` with the job as JSON. It consumes ``events`` records, and prints one JSON
object with what that cost, from the moment it asks for the first record to the moment the last result is confirmed.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from time import process_time
from typing import Final

import msgspec

from leadline.commands.fold import Folded, Incoming, fold
from leadline.contracts.codec import encode
from leadline.contracts.ids import state_key
from leadline.contracts.orders import Command, Violation
from leadline.contracts.session_state import SessionState, decode_state, encode_state
from leadline.contracts.topics import COMMANDS, EVENTS, VIOLATIONS
from leadline.detection.policy import FleetPolicy, Policy

__all__ = ["POLICY", "POLICY_TOML", "Cost", "Job", "Meter", "destination", "fold_one", "job"]

_LONG_MS: Final = 30 * 24 * 3600 * 1000
"""The log was written before the run: nothing may fall silent or expire meanwhile, or the variants would see different logs."""

POLICY: Final = Policy(
    version="benchmark",
    default=FleetPolicy(
        silence_ms=_LONG_MS, command_ttl_ms=_LONG_MS, effect_ttl_ms=_LONG_MS, ended_linger_ms=_LONG_MS, idle_ms=_LONG_MS
    ),
)
POLICY_TOML: Final = "\n".join(
    [
        'version = "benchmark"',
        "[default]",
        *(f"{name}_ms = {_LONG_MS}" for name in ("silence", "command_ttl", "effect_ttl", "ended_linger", "idle")),
        "",
    ]
)


class Job(msgspec.Struct, kw_only=True):
    """``folder``: for local state. ``write_back_s``: how long state may stay in memory before it is stored, where it may."""

    bootstrap: str
    group: str
    folder: str
    events: int
    write_back_s: float = 0.25


class Cost(msgspec.Struct, kw_only=True):
    """CPU and wall-clock seconds of the whole job without the start-up; the peak memory of the process in bytes."""

    cpu_s: float
    wall_s: float
    peak_bytes: int


class Meter:
    """Measures this process from its creation on."""

    def __init__(self) -> None:
        self._cpu = process_time()
        self._wall = time.monotonic()

    def report(self) -> None:
        # Not ru_maxrss: that begins with the size of the process which started this one.
        status = Path("/proc/self/status").read_text()
        peak = next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))
        cost = Cost(cpu_s=process_time() - self._cpu, wall_s=time.monotonic() - self._wall, peak_bytes=peak)
        sys.stdout.write(msgspec.json.encode(cost).decode() + "\n")
        sys.stdout.flush()


def job() -> Job:
    """The job on the command line."""
    return msgspec.json.decode(sys.argv[1], type=Job)


def fold_one(record: Incoming, stored: bytes | None) -> tuple[Folded, bytes | None]:
    """One record with its session's stored state: what it led to, and the state to store. For engines that keep bytes a key."""
    folded = fold((record,), lambda _: None if stored is None else decode_state(stored), POLICY, now())
    state = next(iter(folded.states.values()), None)
    return folded, None if state is None else encode_state(state)


def destination(output: Violation | Command) -> tuple[str, bytes, bytes]:
    """Topic, key and value of what goes out."""
    topic = VIOLATIONS if isinstance(output, Violation) else COMMANDS
    return topic.name, output.session_id.encode(), encode(output)


def now() -> int:
    return time.time_ns() // 1_000_000


def keyed(state: SessionState) -> bytes:
    """Key of a state record."""
    return state_key(state.session_id, state.agent_id).encode()


INPUT: Final = EVENTS.name
