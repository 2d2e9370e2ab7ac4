"""What a session can be told beyond who it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal, TypedDict

from leadline.agent.facts import Fact
from leadline.contracts.events import Scorer
from leadline.contracts.orders import Command
from leadline.detection.policy import FleetPolicy

__all__ = ["GuardMode", "Options"]

GuardMode = Literal["off", "report", "raise"]


class Options(TypedDict, total=False):
    """Every one may be left out.

    ``session_start_spans``: the baseline of the provenance floor; left out, the number of spans before the first round.
    ``fixed_tokens``: system prompt and tool schemas. ``scorer``, ``eviction``, ``decay``: how the agent compacts, where it
    can say so. ``epoch``: counts restarts from scratch; left out, it is taken from the clock. ``first_round``: where counting
    goes on in an epoch that is taken up again. ``guard``: what the local guard does when a rule fires after a pass: nothing,
    note it in ``warnings`` (the default), or raise it once the round was sent. ``policy``: its thresholds. ``on_command``:
    called for each new command; when it raises, the command is refused with the error as the reason. ``clock``: ms since 1970.
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
    clock: Callable[[], int]
