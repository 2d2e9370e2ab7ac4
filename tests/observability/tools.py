"""Prometheus' own tools for tests, found where they are or taken from Debian's packages without installing them; and a collector,
built with Go where it is here, of the components that our configurations name.

``python -m tests.observability.tools`` gets what is missing into ``.cache/observability`` and says what cannot be had.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import golang

__all__ = ["COLLECTOR", "PACKAGES", "collector", "fetch", "find", "needed"]

_CACHE = Path(__file__).resolve().parents[2] / ".cache" / "observability"
PACKAGES = {"promtool": "prometheus", "prometheus": "prometheus", "amtool": "prometheus-alertmanager"}
COLLECTOR = Path(__file__).with_name("collector")
"""The module that the collector is built of."""
_BUILT = _CACHE / "bin" / "otelcol"
_FETCH_S = 180.0


def find(name: str) -> str | None:
    """The program ``name``: on the PATH, in ``LEADLINE_TEST_TOOLS``, or fetched before."""
    places = [os.environ.get("LEADLINE_TEST_TOOLS", ""), str(_CACHE / "usr" / "bin")]
    return shutil.which(name) or shutil.which(name, path=os.pathsep.join(filter(None, places)))


def needed(name: str) -> str:
    """The program, for a test that is skipped without it."""
    found = find(name)
    if found is None:
        pytest.skip(f"{name} is not here: make observability-test fetches it where it can be had")
    return found


def collector() -> str | None:
    """The OpenTelemetry Collector, as it was built of what the module names now."""
    return str(_BUILT) if golang.built(COLLECTOR, _BUILT) else None


def fetch() -> list[str]:
    """Get what is missing; returns a sentence for each program that cannot be had. The collector's first build takes minutes."""
    refused = "" if collector() else golang.build(COLLECTOR, _BUILT)
    built = [f"the OpenTelemetry Collector cannot be had: {refused}"] if refused else []
    return [*_fetch_packages(), *built]


def _fetch_packages() -> list[str]:
    missing = sorted({package for name, package in PACKAGES.items() if find(name) is None})
    why = ""
    if missing:
        why = _download(missing)
    return [
        f"{name} cannot be had: {why or f'the package {PACKAGES[name]} does not hold it'}"
        for name in PACKAGES
        if find(name) is None
    ]


def _download(packages: list[str]) -> str:
    """Empty, or why it did not work."""
    for program in ("apt-get", "dpkg-deb"):
        if shutil.which(program) is None:
            return f"there is no {program}; put the programs on the PATH, or name their folder in LEADLINE_TEST_TOOLS"
    _CACHE.mkdir(parents=True, exist_ok=True)
    for command in (["apt-get", "download", *packages], ["apt-get", "update", "-qq"], ["apt-get", "download", *packages]):
        try:
            done = subprocess.run(command, cwd=_CACHE, capture_output=True, text=True, timeout=_FETCH_S, check=False)
        except subprocess.TimeoutExpired:
            return f"`{' '.join(command)}` did not end within {_FETCH_S:g} s"
        if done.returncode == 0 and command[1] == "download":
            break
    archives = sorted(_CACHE.glob("*.deb"))
    if not archives:
        said = done.stderr.strip().splitlines() or ["it does not say why"]
        return f"apt-get cannot download {' and '.join(packages)}: {said[-1]}"
    for archive in archives:
        subprocess.run(["dpkg-deb", "-x", str(archive), str(_CACHE)], check=True, timeout=_FETCH_S)
    return ""


if __name__ == "__main__":
    for line in fetch():
        print(line)  # noqa: T201
    sys.exit(0)
