"""Places in the work of a worker where a test may end it, or freeze it, from inside. For tests only; off unless armed.

``LEADLINE_TEST_FAULT`` (a setting like any other) arms one place: ``NAME``, ``NAME:COUNT`` or ``NAME:COUNT:ACTION``. At the
COUNT-th passage (1 unless given) the process sends itself a signal: ``kill`` is SIGKILL, the default, and ``stop`` SIGSTOP, after
which SIGCONT lets it go on as a zombie would. An armed place acts once.

Code that passes such a place calls what :func:`armed` returned; where nothing is armed that is ``None``, and one comparison.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Final

from leadline.errors import SettingsError

__all__ = ["POINTS", "Reach", "armed"]

POINTS: Final[dict[str, str]] = {
    "after-fold": "a batch was folded; its outputs are not sent",
    "after-outputs": "the outputs of all that was folded are confirmed; nothing is stored",
    "after-store": "the states are in the local store; the changelog does not have them",
    "after-removal": "as after-store, where a session was removed",
    "after-changelog": "the changelog has confirmed the states; nothing is acknowledged",
    "after-tombstone": "as after-changelog, where a session was removed",
    "after-ack": "the records are acknowledged; their offsets are not committed",
    "after-commit": "the offsets are committed",
    "after-tick": "a tick is in the log; the clock does not know yet",
    "after-restore": "states were restored; no record has been taken yet",
}
"""Every place, with what is true when it is reached."""

_ACTIONS: Final = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}

Reach = Callable[[str], None]


def armed(text: str) -> Reach | None:
    """What to call with the name of each place that is passed; ``None`` where ``text`` is empty.

    Raises :class:`SettingsError` for a place, count or action that there is not.
    """
    if not text:
        return None
    name, _, rest = text.partition(":")
    count, _, action = rest.partition(":")
    if name not in POINTS or not (count or "1").isdecimal() or int(count or 1) < 1 or (action or "kill") not in _ACTIONS:
        raise SettingsError(
            f"LEADLINE_TEST_FAULT is {text[:80]!r}: expected NAME, NAME:COUNT or NAME:COUNT:ACTION with a NAME of "
            f"{', '.join(POINTS)}, a COUNT from 1 and an ACTION of {', '.join(_ACTIONS)}. Leave it unset outside of tests."
        )
    left, number = int(count or 1), _ACTIONS[action or "kill"]

    def reach(place: str) -> None:
        nonlocal left
        if place == name and left > 0:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), number)

    return reach
