"""The local guard over a session's life: what each round is compared with, and what became of its facts so far."""

from __future__ import annotations

from collections import deque

from leadline.agent import guard
from leadline.agent.options import GuardMode
from leadline.agent.signals import Signals
from leadline.contracts.events import Checkpoint, Policy, RoundOutcome, SessionStart
from leadline.contracts.session_state import FactRecord
from leadline.detection import facts as following
from leadline.detection.policy import FleetPolicy
from leadline.detection.rounds import is_pass
from leadline.detection.rules.depth_pin import at_limit
from leadline.errors import Halted

__all__ = ["Boundary"]


class Boundary:
    """Asks :mod:`leadline.agent.guard` after each pass and each summarizer call.

    ``stated``: how the agent said that it compacts. ``mode``: ``report`` only notes what is found in :attr:`warnings`; ``raise``
    raises it too, as the one mode that stops anything at the boundary; ``off`` asks nothing.
    """

    def __init__(self, stated: Policy, policy: FleetPolicy, mode: GuardMode) -> None:
        self.warnings: deque[Halted] = deque(maxlen=16)
        self._stated = stated
        self._policy = policy
        self._mode = mode
        self._penalizes_depth = None if stated.scorer is None else stated.scorer.penalizes_depth
        self._records: dict[str, FactRecord] = {}
        self._last: Signals | None = None
        self._pinned = 0
        self._taken_back: tuple[Signals | None, int] | None = None
        """What the last round was compared with, should that round turn out to have failed."""

    def declared(self, event: SessionStart) -> None:
        """Facts came up."""
        self._records = following.declare(self._records, event.facts).facts

    def passed(
        self, signals: Signals, baseline: int, depth_cap: int | None, trigger: str, outcome: RoundOutcome
    ) -> Halted | None:
        """A round was measured, and was no failure. Returns what is wrong with it, if anything.

        Raises :class:`leadline.errors.SalienceInversionError` in mode ``raise``.
        """
        previous = self._last
        self._taken_back = (previous, self._pinned)
        pinned = at_limit(signals.summary_depth_max, self._stated.max_depth or 0, depth_cap)
        # As the monitor counts: where no pass ran, the hierarchy can have become no deeper, and no flatter either.
        self._last, self._pinned = signals, self._pinned + is_pass(trigger, outcome) if pinned else 0
        if self._mode == "off":
            return None
        try:
            guard.check_inversion(
                previous,
                signals,
                baseline,
                self._pinned,
                policy=self._policy,
                penalizes_depth=self._penalizes_depth,
                eviction=self._stated.eviction,
            )
        except Halted as found:
            return self._note(found)
        return None

    def take_back(self) -> bool:
        """The last round turned out to have failed: the next is compared with the one before. ``False``: there is none."""
        if self._taken_back is None:
            return False
        (self._last, self._pinned), self._taken_back = self._taken_back, None
        return True

    def summarized(self, event: Checkpoint) -> Halted | None:
        """A summarizer call was reported. Returns what is wrong with it, if anything.

        Raises :class:`leadline.errors.RecallFloorViolation` in mode ``raise``.
        """
        self._records = following.follow(self._records, event).facts
        if self._mode == "off":
            return None
        try:
            guard.check_recall(event, self._records, policy=self._policy)
        except Halted as found:
            return self._note(found)
        return None

    def _note(self, found: Halted) -> Halted:
        self.warnings.append(found)
        if self._mode == "raise":
            raise found
        return found
