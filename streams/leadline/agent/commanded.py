"""The half of a session that obeys: what the monitor wants, and what the agent is told of it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from leadline.agent.asked import asks_again
from leadline.agent.control import Answer, State
from leadline.agent.holding import Holding
from leadline.agent.inbox import Inbox
from leadline.agent.presence import Monitor
from leadline.agent.spans import receiving
from leadline.contracts.orders import Command
from leadline.errors import SessionHalted

__all__ = ["FREE", "Commanded"]

_log = logging.getLogger("leadline.agent")

FREE: Final = (State.RUNNING, State.CAPPED)
"""States in which the agent may compact."""


class Commanded:
    """Commands that came, and what follows from them. ``max_depth``: the agent's own limit; the callbacks are the agent's too.

    All methods belong to the agent's own thread, but for :meth:`receive`.
    """

    def __init__(
        self,
        inbox: Inbox,
        holding: Holding,
        max_depth: int,
        on_command: Callable[[Command], None] | None,
        on_state: Callable[[State, State], None] | None,
    ) -> None:
        self._inbox = inbox
        self._holding = holding
        self._max_depth = max_depth
        self._on_command = on_command
        self._on_state = on_state
        self._seen_state = State.RUNNING

    @property
    def state(self) -> State:
        """What the commands received so far add up to.

        Or ``held``, where nobody has commanded anything but the session was told to fail closed
        (:class:`~leadline.agent.options.Options`): no monitor is heard, or it has not judged what the guard found.
        """
        state = self._inbox.state
        return State.HELD if state in FREE and self._holding.reason else state

    @property
    def held(self) -> str:
        """Why the session is held, as a clause; empty where it is not."""
        return self._holding.reason

    @property
    def monitor(self) -> Monitor:
        """Whether the monitor is heard; followed only where the session waits for it, or fails closed without it."""
        return self._holding.monitor()

    @property
    def depth_cap(self) -> int | None:
        """The commanded limit of summary depth, if any; it stays after a resume."""
        return self._inbox.depth_cap

    @property
    def depth_limit(self) -> int:
        """How deep summaries may be now: the agent's own limit or the commanded one, whichever is lower."""
        cap = self.depth_cap
        return self._max_depth if cap is None else min(self._max_depth, cap)

    @property
    def pending(self) -> tuple[Command, ...]:
        """Commands that were accepted and are still to be acted on, in order."""
        return self._inbox.look()

    @property
    def retries(self) -> tuple[Command, ...]:
        """Those of :attr:`pending` that ask for a level to be summarized again, from its whole input.

        Each ``retry-level``; and each ``halt`` whose parameters have a ``level``: the retry did not help, and summarizing that
        level again is the one thing that may still be done, and the way out. The next :meth:`checkpoint` of the level answers.
        """
        return tuple(command for command in self.pending if asks_again(command))

    def may_compact(self) -> bool:
        """Whether compaction is allowed now: no incident's halt is without its release."""
        self.poll()
        return self.state in FREE

    def may_summarize(self, level: int) -> bool:
        """Whether one summarizer call at ``level`` is allowed now: also while halted, where that level is asked for again."""
        if self.may_compact():
            return True
        wanted = (*self._inbox.halts, *self._inbox.pending())
        return self.state is not State.STOPPED and any(asks_again(command, level) for command in wanted)

    def raise_if_halted(self) -> None:
        """Raises :class:`leadline.errors.SessionHalted` with the command's sentence while compaction is not allowed.

        Not to be asked before a retry (:attr:`retries`): that is allowed while halted.
        """
        self.poll()
        halts = self._inbox.halts
        if halts:
            raise SessionHalted("; ".join(f"{command.rule}: {command.reason}" for command in halts))
        if held := self._holding.reason:
            raise SessionHalted(f"held: {held}")

    def poll(self) -> list[Command]:
        """Commands that came since the last look, in order of ``seq``; ``on_command`` is called for each."""
        fresh = self._inbox.take()
        for command in fresh:
            try:
                if self._on_command is not None:
                    self._on_command(command)
            except Exception as error:
                self.refuse(command, f"{type(error).__name__}: {error}")
            else:
                if command.kind == "resume":
                    self.done(command)
        if self._on_state is not None:
            before, self._seen_state = self._seen_state, self.state
            if before is not self._seen_state:
                try:
                    self._on_state(before, self._seen_state)
                except Exception as error:
                    # The callback is the agent's: what goes wrong in it must not cost the commands.
                    _log.warning("on_state failed: %.200r", error)
        return fresh

    def done(self, command: Command, detail: str = "", raw_tokens_restored: int | None = None) -> None:
        """Say that a pending command was acted on. The session says so itself for what it sees."""
        self._inbox.settle(command, Answer("done", detail, raw_tokens_restored))

    def refuse(self, command: Command, detail: str) -> None:
        """Say that a pending command cannot be acted on, and why. A halt stays in force."""
        self._inbox.settle(command, Answer("refused", detail))

    def receive(self, command: Command) -> None:
        """A command arrived: record and acknowledge it. Called on the listener's thread."""
        with receiving(command):
            self._inbox.receive(command)
