"""A worker with the tiny fold that, once it is ready, does not hear a broker's answers to its probes; with
``LEADLINE_TEST_DEAF=all`` not any."""

from __future__ import annotations

import os
import sys

from leadline.processors import worker
from leadline.processors.contact import Contact
from leadline.processors.engine import MonitorApp
from tests.processors.fakes import tiny_fold


async def _unheard(self: MonitorApp) -> bool:
    return not self.producer.started or not self.flowing()


if __name__ == "__main__":
    MonitorApp.ask = _unheard  # type: ignore[method-assign]
    if os.environ["LEADLINE_TEST_DEAF"] == "all":
        Contact.heard = lambda self: None  # type: ignore[method-assign]
    sys.exit(worker.main(fold=tiny_fold))
