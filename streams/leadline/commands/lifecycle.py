"""The life of one command, as a table: a signal comes in, the new stage and an instruction come out. Pure.

::

                 accepted, done                  improved                 recovered
      ISSUED ────────────────────▶ ACCEPTED ────────────────▶ EFFECTIVE ────────────▶ RESOLVED
        │ ▲                          │    │                     │   │                    ▲
        │ └──────── reissue ─────────┘    └──── recovered ──────┼───┼────────────────────┤
        │   (attempt + 1: expired, refused, without effect) ◀───┘   │                    │
        │                                                           │ attempts used up   │
        └────────── attempts used up ──────────▶ ESCALATED ◀────────┘                    │
                                                     └────────── recovered ──────────────┘
      A person who releases the session, and a policy or a silence that no longer enforces the rule, lead where `recovered`
      leads, by names of their own. A session that ends or begins anew takes its commands with it: nothing is left to repair.

An acknowledgement proves receipt, never effect: ``done`` leads to ACCEPTED like ``accepted``. An agent reaches EFFECTIVE and
RESOLVED by measurements alone; RESOLVED also without an acknowledgement, which may have been lost.

Once it is accepted, time alone says nothing against an agent: each measurement that is better gives it its time anew, and a
deadline by which none was worse is put off. An agent that waits for a person is halted, as it was told to be.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from msgspec.structs import replace

from leadline.contracts.session_state import CommandState, Incident, Stage
from leadline.detection.policy import FleetPolicy
from leadline.errors import LeadlineError

__all__ = ["FINAL", "TABLE", "IllegalTransition", "Instruction", "Move", "Signal", "Transition", "advance"]


class Signal(Enum):
    """What can happen to a command."""

    ACCEPTED = "accepted"
    DONE = "done"
    REFUSED = "refused"
    EXPIRED = "expired"
    """The agent says that it came too late."""
    DEADLINE = "deadline"
    """Its time is up: no acknowledgement before it expired, or once accepted no effect in time, as measurements have shown."""
    NO_EFFECT = "no-effect"
    """Several measurements since it was accepted show no improvement."""
    IMPROVED = "improved"
    RECOVERED = "recovered"
    RELEASED = "released"
    """A person ended its incident; nothing was measured."""
    WITHDRAWN = "withdrawn"
    """A policy or a silence no longer enforces its rule, or what led to it was not signed as it must be; nothing was measured."""


class Instruction(Enum):
    """What the caller must do next."""

    NONE = "none"
    REISSUE = "reissue"
    ESCALATE = "escalate"
    RELEASE = "release"


class IllegalTransition(LeadlineError):
    """A signal that cannot come at this stage: a fault in this code, told with the story so far."""


_I, _A, _E, _X = Stage.ISSUED, Stage.ACCEPTED, Stage.EFFECTIVE, Stage.ESCALATED
_RETRY: Final = None
"""Reissue while attempts are left, escalate when they are used up."""

FINAL: Final = frozenset({Stage.RESOLVED})

TABLE: Final[dict[tuple[Stage, Signal], Stage | None]] = {
    (_I, Signal.ACCEPTED): _A,
    (_I, Signal.DONE): _A,
    # Refused may mean overtaken by a later command: the next attempt has a later number.
    (_I, Signal.REFUSED): _RETRY,
    (_I, Signal.EXPIRED): _RETRY,
    (_I, Signal.DEADLINE): _RETRY,
    (_I, Signal.NO_EFFECT): _RETRY,
    # A measurement may have been on its way before the command came: until it is acknowledged only recovery counts.
    (_I, Signal.IMPROVED): _I,
    (_I, Signal.RECOVERED): Stage.RESOLVED,
    (_I, Signal.RELEASED): Stage.RESOLVED,
    (_I, Signal.WITHDRAWN): Stage.RESOLVED,
    (_A, Signal.ACCEPTED): _A,
    (_A, Signal.DONE): _A,
    (_A, Signal.REFUSED): _RETRY,
    (_A, Signal.EXPIRED): _A,
    (_A, Signal.DEADLINE): _RETRY,
    (_A, Signal.NO_EFFECT): _RETRY,
    (_A, Signal.IMPROVED): _E,
    (_A, Signal.RECOVERED): Stage.RESOLVED,
    (_A, Signal.RELEASED): Stage.RESOLVED,
    (_A, Signal.WITHDRAWN): Stage.RESOLVED,
    (_E, Signal.ACCEPTED): _E,
    (_E, Signal.DONE): _E,
    (_E, Signal.REFUSED): _E,
    (_E, Signal.EXPIRED): _E,
    (_E, Signal.DEADLINE): _RETRY,
    (_E, Signal.NO_EFFECT): _RETRY,
    (_E, Signal.IMPROVED): _E,
    (_E, Signal.RECOVERED): Stage.RESOLVED,
    (_E, Signal.RELEASED): Stage.RESOLVED,
    (_E, Signal.WITHDRAWN): Stage.RESOLVED,
    (_X, Signal.ACCEPTED): _X,
    (_X, Signal.DONE): _X,
    (_X, Signal.REFUSED): _X,
    (_X, Signal.EXPIRED): _X,
    (_X, Signal.DEADLINE): _X,
    (_X, Signal.NO_EFFECT): _X,
    (_X, Signal.IMPROVED): _X,
    (_X, Signal.RECOVERED): Stage.RESOLVED,
    (_X, Signal.RELEASED): Stage.RESOLVED,
    (_X, Signal.WITHDRAWN): Stage.RESOLVED,
}


class Transition(NamedTuple):
    """The command's new record and what to do."""

    command: CommandState
    instruction: Instruction


class Move(NamedTuple):
    """What happened to an incident and its command, for those who watch: nothing is decided by it."""

    incident: Incident
    """As it was before."""
    command: CommandState | None
    """As it was before; ``None``: the incident had none."""
    signal: Signal
    stage: Stage
    """Of the command now; RESOLVED also for an incident that had none."""


def advance(command: CommandState, signal: Signal, now: int, policy: FleetPolicy) -> Transition:
    """Apply ``signal`` at ``now`` (ms since 1970). Raises :class:`IllegalTransition` at a final stage."""
    try:
        stage = TABLE[command.stage, signal]
    except KeyError:
        raise IllegalTransition(
            f"command {command.command_id} ({command.kind}, attempt {command.attempt}) is {command.stage.value}: "
            f"{signal.value!r} cannot follow"
        ) from None
    if stage is _RETRY:
        if command.attempt < policy.attempts:
            return Transition(command, Instruction.REISSUE)
        return Transition(replace(command, stage=_X), Instruction.ESCALATE)
    moved = stage is not command.stage
    after = command
    if stage in (_A, _E) and (moved or signal is Signal.IMPROVED):
        after = replace(command, stage=stage, deadline=now + policy.effect_ttl_ms, misses=0)
    elif moved:
        after = replace(command, stage=stage)
    return Transition(after, Instruction.RELEASE if moved and stage is Stage.RESOLVED else Instruction.NONE)
