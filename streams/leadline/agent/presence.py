"""Whether the monitor is there, and whether it has judged an event: read off the heartbeats on the commands partition.

Thread safe; the listener's and the emitter's threads write, sessions read and wait.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from enum import StrEnum
from typing import Final, NamedTuple

from leadline.agent.forks import follow_forks
from leadline.contracts.orders import Heartbeat

__all__ = ["GRACE_SECONDS", "Monitor", "Presence", "Verdict"]

GRACE_SECONDS: Final = 15.0
"""Three heartbeats at their default pace: how long nobody is called away who has not been heard yet."""
_MISSED: Final = 3
_REMEMBERED: Final = 32
"""Places of the last events of a session that waits for verdicts."""


class Monitor(StrEnum):
    """What is known of the monitor, for one partition."""

    UNKNOWN = "unknown"
    """Never heard, and not waited for long enough."""
    THERE = "there"
    AWAY = "away"
    """Not heard for three heartbeats, or never within 15 seconds."""


class Verdict(StrEnum):
    """What waiting for the monitor came to."""

    COMMANDED = "commanded"
    """A command came."""
    CLEAR = "clear"
    """The event was judged, and no command came."""
    SILENT = "silent"
    """Nobody has judged it in time."""


class _Heard(NamedTuple):
    at: float
    within: float
    through: int


class Presence:
    """What was heard of the monitor. ``now``: seconds, ever rising."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._heard: dict[int, _Heard] = {}
        self._followed: dict[str, OrderedDict[str, tuple[int, int]]] = {}
        self._since: dict[str, float] = {}
        self._partition: dict[str, int] = {}
        self._changed = threading.Condition()
        follow_forks(self)

    # -- from the SDK's threads

    def heard(self, partition: int, beat: Heartbeat) -> None:
        """A heartbeat came on a partition."""
        before = self._heard.get(partition)
        # A worker that has just taken the partition over does not know; what the last one said still holds.
        through = before.through if before is not None and beat.through < 0 else beat.through
        within = max(GRACE_SECONDS, _MISSED * beat.every_ms / 1000)
        with self._changed:
            self._heard[partition] = _Heard(self._now(), within, through)
            self._changed.notify_all()

    def placed(self, session_id: str, event_id: str, partition: int, offset: int) -> None:
        """An event is in the log."""
        places = self._followed.get(session_id)
        if places is None:
            return
        with self._changed:
            self._partition[session_id] = partition
            places[event_id] = (partition, offset)
            if len(places) > _REMEMBERED:
                places.popitem(last=False)
            self._changed.notify_all()

    def stir(self) -> None:
        """A command came: whoever waits looks again."""
        with self._changed:
            self._changed.notify_all()

    # -- for sessions

    def follow(self, session_id: str) -> None:
        """Remember where this session's events are."""
        with self._changed:
            self._followed.setdefault(session_id, OrderedDict())
            self._since[session_id] = self._now()

    def unfollow(self, session_id: str) -> None:
        with self._changed:
            self._followed.pop(session_id, None)
            self._since.pop(session_id, None)
            self._partition.pop(session_id, None)

    def monitor(self, session_id: str) -> Monitor:
        """Whether somebody judges the partition on which the session's events arrive."""
        with self._changed:
            now = self._now()
            beat = self._heard.get(self._partition.get(session_id, -1))
            if beat is not None:
                return Monitor.THERE if now - beat.at <= beat.within else Monitor.AWAY
            since = self._since.get(session_id)
            return Monitor.UNKNOWN if since is None or now - since <= GRACE_SECONDS else Monitor.AWAY

    def judged(self, session_id: str, event_id: str) -> bool:
        """Whether the monitor has judged this event: its commands, if any, have been read by then."""
        places = self._followed.get(session_id)
        place = None if places is None else places.get(event_id)
        if place is None:
            return False
        beat = self._heard.get(place[0])
        return beat is not None and beat.through > place[1]

    def look(self, session_id: str, event_id: str, commanded: Callable[[], bool]) -> Verdict | None:
        """The verdict so far; ``None``: not yet. Where the monitor is away, nobody will say anything."""
        if commanded():
            return Verdict.COMMANDED
        if self.judged(session_id, event_id):
            return Verdict.CLEAR
        return Verdict.SILENT if self.monitor(session_id) is Monitor.AWAY else None

    def wait(self, session_id: str, event_id: str, commanded: Callable[[], bool], seconds: float) -> Verdict:
        """:meth:`look`, for at most ``seconds``. Blocks; ``commanded`` must not."""
        until = time.monotonic() + seconds
        while (verdict := self.look(session_id, event_id, commanded)) is None:
            with self._changed:
                left = until - time.monotonic()
                if left <= 0:
                    return Verdict.SILENT
                # What changed between the look and here is seen a moment later.
                self._changed.wait(min(left, 0.05))
        return verdict

    # -- forks

    def before_fork(self) -> None:
        """Nothing to put aside."""

    def after_fork(self, child: bool) -> None:
        if child:
            self._changed = threading.Condition()
