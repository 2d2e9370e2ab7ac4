"""A monitor worker whose clock is off by what a file says: ``python -m tests.chaos.stepping_worker``, settings as ever.

``LEADLINE_TEST_CLOCK`` names the file; it holds milliseconds and is read anew each time the clock is looked at.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from leadline.processors import worker
from leadline.processors.topology import wall_clock
from leadline.settings import load_settings


def main() -> int:
    offset = Path(os.environ["LEADLINE_TEST_CLOCK"])
    return worker.run(load_settings(), now=lambda: wall_clock() + int(offset.read_text() or "0"))


if __name__ == "__main__":
    sys.exit(main())
