"""A worker process that runs the tiny fold: ``python -m tests.processors.fake_worker`` takes the worker's options."""

from __future__ import annotations

import sys

from leadline.processors import worker
from tests.processors.fakes import tiny_fold

if __name__ == "__main__":
    sys.exit(worker.main(fold=tiny_fold))
