"""Prometheus' own tools for tests: found where they are, or taken from Debian's packages without installing them.

``python -m tests.observability.tools`` fetches what is missing into ``.cache/observability`` and says what cannot be had.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

__all__ = ["PACKAGES", "fetch", "find", "needed"]

_CACHE = Path(__file__).resolve().parents[2] / ".cache" / "observability"
PACKAGES = {"promtool": "prometheus", "prometheus": "prometheus", "amtool": "prometheus-alertmanager"}
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


def fetch() -> list[str]:
    """Get what is missing; returns a sentence for each program that cannot be had."""
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
