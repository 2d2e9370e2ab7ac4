"""Whether a session must wait though nobody has commanded it: for the monitor's verdict, or for the monitor itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from leadline.agent.facts import Fact
from leadline.agent.options import HoldMode
from leadline.agent.presence import Monitor, Presence, Verdict
from leadline.errors import Halted

__all__ = ["Holding"]

_EVERY: Final = "*"
_LOOK_SECONDS: Final = 0.02


class Holding:
    """One session's hold mode, and what it holds now. Belongs to the agent's thread.

    ``facts``: those declared so far, by id; read, never written. Without a ``presence`` there is no monitor to wait for, and
    none that could be missed.
    """

    def __init__(
        self,
        session_id: str,
        presence: Presence | None,
        mode: HoldMode,
        seconds: float,
        fail_closed: Iterable[str],
        facts: Mapping[str, Fact],
    ) -> None:
        self._session_id = session_id
        self._presence = presence
        self._waits = mode == "hold-on-compact"
        self._seconds = seconds
        self._fail_closed = frozenset(fail_closed)
        self._facts = facts
        self._event_id = ""
        self._why = ""

    @property
    def needed(self) -> bool:
        """Whether the session has asked for any of it."""
        return self._presence is not None and (self._waits or bool(self._fail_closed))

    def start(self) -> None:
        if self.needed and self._presence is not None:
            self._presence.follow(self._session_id)

    def end(self) -> None:
        if self.needed and self._presence is not None:
            self._presence.unfollow(self._session_id)

    def monitor(self) -> Monitor:
        """Whether the monitor is heard. Unknown where nobody follows that."""
        return Monitor.UNKNOWN if self._presence is None else self._presence.monitor(self._session_id)

    @property
    def reason(self) -> str:
        """Why nothing may be compacted now, as a clause; empty where it may."""
        if not self.needed:
            return ""
        assert self._presence is not None
        if self._why and self._presence.judged(self._session_id, self._event_id):
            self._why = ""
        if self._why:
            return self._why
        closed = self._closed()
        if closed and self.monitor() is Monitor.AWAY:
            return f"no monitor is heard, and {closed} fails closed"
        return ""

    def judged_by_guard(self, event_id: str, found: Halted | None) -> bool:
        """The local guard has looked at an event. ``True``: the agent is to wait for the monitor's verdict on it."""
        self._event_id, self._why = event_id, ""
        return self._waits and self._presence is not None and found is not None

    def look(self, commanded: Callable[[], bool]) -> Verdict | None:
        """The verdict on that event so far."""
        assert self._presence is not None
        return self._presence.look(self._session_id, self._event_id, commanded)

    def wait(self, commanded: Callable[[], bool]) -> Verdict:
        """Wait for it. Blocks for a bounded time."""
        assert self._presence is not None
        return self._presence.wait(self._session_id, self._event_id, commanded, self._seconds)

    async def wait_async(self, commanded: Callable[[], bool]) -> Verdict:
        """As :meth:`wait`, in an event loop, which goes on meanwhile."""
        import asyncio  # An agent without an event loop does not pay for one.

        until = time.monotonic() + self._seconds
        while (verdict := self.look(commanded)) is None:
            if time.monotonic() >= until:
                return Verdict.SILENT
            await asyncio.sleep(_LOOK_SECONDS)
        return verdict

    def came_to(self, verdict: Verdict, found: Halted) -> None:
        """The wait is over. Where nobody has answered, the classes of facts that fail closed stay held."""
        closed = self._closed()
        if verdict is Verdict.SILENT and closed:
            self._why = f"the monitor has not judged what the guard found ({found}), and {closed} fails closed"

    def _closed(self) -> str:
        """What of this session fails closed, in words; empty where nothing does."""
        if _EVERY in self._fail_closed:
            return "everything"
        classes = sorted({fact.fact_class for fact in self._facts.values()} & self._fail_closed)
        return f"the fact class {', '.join(map(repr, classes))}" if classes else ""
