"""What a session can be told beyond who it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal, TypedDict

from leadline.agent.control import State
from leadline.agent.facts import Fact
from leadline.contracts.events import Scorer
from leadline.contracts.orders import Command
from leadline.detection.policy import FleetPolicy

__all__ = ["GuardMode", "HoldMode", "Options"]

GuardMode = Literal["off", "report", "raise"]
HoldMode = Literal["asynchronous", "hold-on-compact"]


class Options(TypedDict, total=False):
    """Every one may be left out.

    ``session_start_spans``: the baseline of the provenance floor; left out, the number of spans before the first round.
    ``fixed_tokens``: system prompt and tool schemas. ``scorer``, ``eviction``, ``decay``: how the agent compacts, where it
    can say so. ``epoch``: counts restarts from scratch; left out, it is taken from the clock. ``first_round``: where counting
    goes on in an epoch that is taken up again. ``guard``: what the local guard does when a rule fires after a pass: nothing,
    note it in ``warnings`` (the default), or raise it once the round was sent. ``policy``: its thresholds. ``on_command``:
    called for each new command; when it raises, the command is refused with the error as the reason. ``on_state``: called with
    the state before and after, when a look finds that it has changed. ``clock``: ms since 1970.

    ``hold``: with ``hold-on-compact``, a pass or summarizer call that the local guard finds violating waits for the monitor's
    verdict before it returns, for at most ``hold_seconds`` (6 unless given); the default, ``asynchronous``, never waits.
    ``fail_closed``: classes of facts for which nothing may be compacted while no monitor is heard, where the session has
    declared such facts; ``*`` is every session. All others fail open: they go on. See :attr:`Session.state`.
    """

    fleet: str
    facts: Iterable[Fact]
    session_start_spans: int
    fixed_tokens: int
    scorer: Scorer
    eviction: Literal["continuous", "overflow"]
    decay: float
    epoch: int
    first_round: int
    guard: GuardMode
    policy: FleetPolicy
    on_command: Callable[[Command], None]
    on_state: Callable[[State, State], None]
    hold: HoldMode
    hold_seconds: float
    fail_closed: Iterable[str]
    clock: Callable[[], int]
