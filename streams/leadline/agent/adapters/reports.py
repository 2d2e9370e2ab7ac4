"""What a conversation reports, without the session's waits: those come later, and in an event loop they do not block it."""

from __future__ import annotations

import threading

from leadline.agent.adapters.moments import Look
from leadline.agent.calls import CallCounts
from leadline.agent.presence import Verdict
from leadline.agent.rehydrate import Rehydration, Restore
from leadline.agent.session import Session
from leadline.contracts.events import RoundOutcome
from leadline.errors import Halted

__all__ = ["Reports"]


class Reports:
    """A session that several threads may come by with. What is reported is followed by :meth:`wait` or :meth:`wait_async`."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._lock = threading.RLock()
        self._due: Halted | None = None
        """What the local guard has found, if a verdict on it is to be waited for."""

    def wait(self) -> None:
        """Before the agent's next step: until there is a verdict on what was reported, where it is to wait for that; for a
        bounded time."""
        found = self._found()
        if found is not None:
            self._came_to(self.session._holding.wait(self.session._commanded), found)

    async def wait_async(self) -> None:
        """As :meth:`wait`, in an event loop, which goes on meanwhile."""
        found = self._found()
        if found is not None:
            self._came_to(await self.session._holding.wait_async(self.session._commanded), found)

    # -- for who reports, with the lock held

    def _round(self, trigger: str, look: Look, outcome: RoundOutcome = "ok", dropped_spans: int | None = None) -> None:
        _, found = self.session._compacted(trigger, look.signals, outcome, dropped_spans)
        self._due = found or self._due

    def _call(self, level: int, text: str | None, visible: bool, retry_of: str, counts: CallCounts) -> None:
        _, found = self.session._checkpoint(level, text, visible, None, None, None, retry_of, counts)
        self._due = found or self._due

    def _rehydration(self, restore: Restore) -> Rehydration:
        result, found = self.session._rehydrate(restore, None, True)
        self._due = found or self._due
        return result

    # -- inside

    def _found(self) -> Halted | None:
        with self._lock:
            found, self._due = self._due, None
            return found

    def _came_to(self, verdict: Verdict, found: Halted) -> None:
        with self._lock:
            self.session._holding.came_to(verdict, found)
            self.session.poll()
