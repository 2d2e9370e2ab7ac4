"""What every benchmark says about itself: the machine, the versions, how busy it was; medians; progress and tables."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

__all__ = ["circumstances", "console", "emit", "median", "parser", "spread", "tell"]

_PACKAGES: Final = ("leadline", "faust-streaming", "aiokafka", "confluent-kafka", "rocksdict", "msgspec", "orjson", "bytewax")
WIDTH: Final = 130

console = Console(stderr=True, width=WIDTH, highlight=False)
"""Progress; results go to standard output."""


def parser(module: str, doc: str | None, repeat: int = 5) -> argparse.ArgumentParser:
    """With the options that all have: ``--json``, ``--repeat`` and ``--broker``."""
    made = argparse.ArgumentParser(prog=f"python -m benchmarks.{module}", description=(doc or "").split("\n")[0])
    made.add_argument("--json", action="store_true", help="the result as one JSON object")
    made.add_argument("--repeat", type=int, default=repeat, help="runs of which the median is taken")
    made.add_argument("--broker", choices=("kafka", "embedded"), default="kafka", help="Apache Kafka, or the embedded one")
    return made


def tell(what: str) -> None:
    """A line of progress with the time of day."""
    console.print(f"{time.strftime('%H:%M:%S')}  {what}", style="dim")


def circumstances() -> dict[str, Any]:
    """The machine, its load of the last minute, and the versions of what was run."""
    versions = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "load_1m": round(os.getloadavg()[0], 2),
        "system": platform.platform(terse=True),
        "versions": versions,
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.processor())


def median(values: Iterable[float]) -> float:
    return statistics.median(values)


def spread(values: Sequence[float]) -> float:
    """The range of the runs as a share of their median."""
    middle = statistics.median(values)
    return (max(values) - min(values)) / middle if middle else 0.0


def emit(result: dict[str, Any], table: Table, as_json: bool) -> None:
    """Print the result: JSON, or the circumstances and the table."""
    if as_json:
        print(json.dumps(result))  # noqa: T201
        return
    shown = Console(width=WIDTH, highlight=False)
    about = result["circumstances"]
    shown.print(f"{about['cpu']}, {about['cores']} cores, {about['memory_gib']} GiB, load {about['load_1m']}, {about['system']}")
    shown.print(", ".join(f"{name} {version}" for name, version in about["versions"].items()))
    shown.print(table)
