"""A Java that is new enough for Apache Kafka, wherever it is installed."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["LEAST", "find"]

LEAST = 17
_INSTALLED = Path("/usr/lib/jvm")


def find(environ: Mapping[str, str] = os.environ, installed: Path = _INSTALLED) -> str | None:
    """The program: JAVA_HOME's, that on the PATH, or one below ``installed``, whichever comes first and is new enough."""
    named = [str(Path(environ["JAVA_HOME"]) / "bin" / "java")] if environ.get("JAVA_HOME") else []
    on_path = shutil.which("java", path=environ.get("PATH", os.defpath))
    candidates: Sequence[str] = [*named, *([on_path] if on_path else []), *map(str, sorted(installed.glob("*/bin/java")))]
    return next((each for each in candidates if (version(each) or 0) >= LEAST), None)


@functools.cache
def version(java: str) -> int | None:
    """The major version; None when it does not run."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(\d+)', done.stderr)
    return int(found[1]) if found else None
