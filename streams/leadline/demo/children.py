"""Child processes of the demo: each ends with this one, however this one ends (see :mod:`leadline.broker.keeper`)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from leadline.broker.kept import kept

__all__ = ["Child"]

_TAIL_LINES: Final = 6


class Child:
    """``python -m module arguments...`` under the keeper's watch; its output goes to ``folder/log``.

    ``folder`` is the child's own: removed by :meth:`wait`, or by the keeper when this process is gone. ``grace``: seconds
    between SIGTERM and SIGKILL.
    """

    def __init__(
        self, module: str, arguments: Sequence[str], folder: Path, *, grace: float, environ: Mapping[str, str] | None = None
    ) -> None:
        self.folder = folder
        self._grace = grace
        self._log = folder / "log"
        command = [sys.executable, "-m", module, *arguments]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                kept(command, grace=grace, scratch=folder),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environ or {})},
                # A Ctrl-C in the terminal is for the demo, which then stops its children in order.
                start_new_session=True,
            )

    @property
    def exit_code(self) -> int | None:
        """``None`` while it runs."""
        return self._process.poll()

    def tail(self) -> str:
        """The last lines of its output."""
        try:
            lines = self._log.read_text(errors="replace").splitlines()
        except OSError:
            return ""
        return " | ".join(line.strip() for line in lines[-_TAIL_LINES:] if line.strip())

    def stop(self) -> None:
        """Tell it to end and do not wait. A second call does nothing."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._process.stdin.close()

    def wait(self) -> None:
        """Wait until it has ended, by force past its grace, and remove its folder."""
        self.stop()
        try:
            self._process.wait(self._grace + 5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
