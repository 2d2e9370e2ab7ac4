"""The command line that puts a process under the keeper's watch."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

__all__ = ["kept", "kept_pid"]

_KEEPER: Final = Path(__file__).with_name("keeper.py")
_PID: Final = re.compile(r"^broker pid (\d+)$", re.MULTILINE)


def kept(command: Sequence[str], *, grace: float, scratch: Path, relay: int | None = None) -> list[str]:
    """Wrap ``command`` so that it ends when this process does, or when the pipe on its standard input is closed.

    ``grace`` is the seconds between SIGTERM and SIGKILL (0: SIGKILL at once); ``scratch`` is removed at that end.
    ``relay`` is for the embedded broker: the port on which its clients are taken (0: a free one).
    Start it with ``stdin=PIPE``, without a shell, from the process that owns it.
    """
    port = "-" if relay is None else str(relay)
    return [sys.executable, "-I", "-S", str(_KEEPER), str(os.getpid()), str(grace), str(scratch), port, *command]


def kept_pid(output: str) -> int | None:
    """The pid of the kept process, from what it and its keeper wrote; the last one if the output holds several."""
    found = _PID.findall(output)
    return int(found[-1]) if found else None
