"""Run the embedded broker in the foreground, for the command line."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from leadline.broker.embedded import BrokerFailed, EmbeddedBroker

__all__ = ["serve"]

_ENDING = (signal.SIGINT, signal.SIGTERM)
_CHECK_S = 0.5


def serve(announce: Callable[[str], None], *, port: int = 0, data_dir: Path | str | None = None) -> None:
    """Start a broker, hand its ``host:port`` to ``announce`` once, and keep it until SIGINT or SIGTERM.

    Called by a command-line verb, from the main thread; blocks. The handlers of the two signals are as before when
    it returns.

    Raises:
        BrokerUnavailable, BrokerFailed: as :meth:`EmbeddedBroker.start`; BrokerFailed also if the broker dies later.
    """
    asked = threading.Event()

    def on_signal(_signum: int, _frame: FrameType | None) -> None:
        asked.set()

    before = {signum: signal.signal(signum, on_signal) for signum in _ENDING}
    try:
        with EmbeddedBroker(port=port, data_dir=data_dir) as broker:
            announce(broker.address)
            while not asked.wait(_CHECK_S):
                if not broker.running:
                    raise BrokerFailed("The embedded broker has died: start it again.")
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
