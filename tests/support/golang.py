"""Tools of the Go world for tests: built from a small module whose ``go.mod`` and ``go.sum`` name every version."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

__all__ = ["build", "built"]

_BUILD_S = 1_800.0


def built(module: Path, program: Path) -> bool:
    """Whether ``program`` is there, made of the module as it is now."""
    stamp = _stamp(program)
    return program.is_file() and stamp.is_file() and stamp.read_text() == _digest(module)


def build(module: Path, program: Path) -> str:
    """Make ``program`` of the module's ``main`` package: empty, or why that cannot be. May block for minutes the first time."""
    go = shutil.which("go")
    if go is None:
        return "there is no Go"
    program.parent.mkdir(parents=True, exist_ok=True)
    part = program.with_suffix(".part")
    command = [go, "build", "-mod=readonly", "-trimpath", "-ldflags=-s -w", "-o", str(part), "."]
    nice = [] if shutil.which("nice") is None else ["nice", "-n", "10"]
    environ = {**os.environ, "CGO_ENABLED": "0"}
    try:
        subprocess.run([*nice, *command], cwd=module, env=environ, check=True, capture_output=True, text=True, timeout=_BUILD_S)
    except subprocess.TimeoutExpired:
        return f"`go build` did not end within {_BUILD_S:g} s"
    except subprocess.CalledProcessError as error:
        said = error.stderr.strip().splitlines() or ["it does not say why"]
        return f"`go build` failed: {said[-1]}"
    part.replace(program)
    _stamp(program).write_text(_digest(module))
    return ""


def _stamp(program: Path) -> Path:
    return program.with_suffix(".made-of")


def _digest(module: Path) -> str:
    parts = (path.read_bytes() for path in sorted(module.iterdir()) if path.suffix in (".go", ".mod", ".sum"))
    return hashlib.sha256(b"\0".join(parts)).hexdigest()
