"""One small session that loses its grounding on purpose, through a real cluster: does its halt come, and its release?"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, NamedTuple

from leadline.agent import Client, Session, State

__all__ = ["RoundTrip", "round_trip"]

_SPANS: Final = 30
_ROUNDS: Final = 12
_TICK_S: Final = 0.05


class RoundTrip(NamedTuple):
    """What came of it. ``missing`` says what did not, and is empty where all is well; times in seconds, absent where not seen."""

    session_id: str
    missing: str
    halted_after_s: float | None = None
    """From the violating round to the halt."""
    resumed_after_s: float | None = None
    """From the repair to the release."""


def round_trip(client: Client, session_id: str, timeout_s: float) -> RoundTrip:
    """Summaries of summaries take the place of their sources until the monitor halts the session; it repairs itself from what it
    had put aside, and is released. Blocks for at most ``timeout_s`` seconds for each of the three answers."""
    archive = {f"m{number}": 100 for number in range(_SPANS)}
    with client.session(
        session_id, agent_id="leadline-check", token_budget=4_000, max_depth=3, eviction="continuous", guard="report"
    ) as one:
        for span in archive:
            one.ledger.add_raw(span, 100, 0.3)
        one.compacted("start")
        if client.flush(timeout_s):
            why = client.counters()[0].last_error
            return RoundTrip(session_id, "its events were not delivered" + (f" ({why})" if why else ""))
        began = time.monotonic()
        _invert(one, archive)
        if not _within(timeout_s, lambda: one.state if not one.may_compact() else None):
            return RoundTrip(session_id, f"no halt came within {timeout_s:g} s")
        halted = time.monotonic() - began
        if one.state is not State.HALTED:
            return RoundTrip(session_id, f"it was not halted but {one.state}", halted)
        began = time.monotonic()
        one.rehydrate(archive.get)
        if not _within(timeout_s, one.may_compact):
            return RoundTrip(session_id, f"it repaired itself, and was not released within {timeout_s:g} s", halted)
        return RoundTrip(session_id, "", halted, time.monotonic() - began)


def _invert(one: Session, archive: dict[str, int]) -> None:
    """Rounds until the boundary is crossed, as the local guard sees it too."""
    below = list(archive)
    for number in range(1, _ROUNDS):
        with one.compaction("budget"):
            one.ledger.summarize(f"S{number}", below, 300, 0.3 + 0.05 * number)
            one.ledger.evict(below, archived=True)
            # The next three sources are gone for good, as far as the session knows.
            one.ledger.evict([f"m{span}" for span in range(3 * number - 3, 3 * number)])
            one.ledger.add_raw(f"new{number}", 60, 0.3)
        archive[f"new{number}"] = 60
        if one.warnings:
            return
        below = [f"S{number}", f"new{number}"]


def _within(limit_s: float, check: Callable[[], object]) -> bool:
    end = time.monotonic() + limit_s
    while not check():
        if time.monotonic() > end:
            return False
        time.sleep(_TICK_S)
    return True
