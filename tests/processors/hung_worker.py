"""A worker with the tiny fold on a file system that hangs once ``LEADLINE_TEST_HUNG`` is there: no policy read comes back."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

from leadline.processors import policy_source, worker
from tests.processors.fakes import tiny_fold

_read = policy_source._content


def _content(file: str) -> bytes:
    if Path(os.environ["LEADLINE_TEST_HUNG"]).exists():
        print("the read hangs", flush=True)  # noqa: T201
        threading.Event().wait()
    return _read(file)


if __name__ == "__main__":
    policy_source._content = _content
    sys.exit(worker.main(fold=tiny_fold))
