"""What a rule is: a pure judgement with a named reason, an exit, and the words for what it found.

A rule never looks at a clock, at other rules, or at the incident it may have opened. It sees one view of the session and says
whether it fires and why or why not; whether trouble that is already open still stands; and whether a command is working.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Generic, Literal, NamedTuple, TypeVar

from leadline.contracts.events import Checkpoint, Round
from leadline.contracts.orders import Action, CommandKind, Parameters, Severity
from leadline.contracts.session_state import FactRecord, Incident, Measurement
from leadline.detection.policy import FleetPolicy

__all__ = [
    "CheckpointView",
    "Decision",
    "Evidence",
    "Exit",
    "MayFire",
    "PresenceView",
    "RoundView",
    "Rule",
    "Window",
    "always",
]

V = TypeVar("V")

Evidence = dict[str, int | float | str | list[str]]


class Decision(NamedTuple):
    """Whether a rule fired, and the one named reason; a condition that was not met is named like one that was."""

    fired: bool
    reason: str


class Exit(Enum):
    """What the newest measurement says of trouble that is open."""

    STANDING = "standing"
    """It goes on."""
    GOOD = "good"
    """Back inside the limit, yet not past the exit level: several of these in a row end it."""
    OVER = "over"
    """Past the exit level: it has ended."""


class RoundView(NamedTuple):
    """One round as the rules see it. ``prev``: the last measured round before it in this epoch, if any."""

    prev: Measurement | None
    now: Measurement
    pinned_rounds: int
    """Consecutive rounds at the depth limit, this one included."""
    baseline_spans: int
    """``session_start_spans``."""
    max_depth: int
    penalizes_depth: bool | None
    eviction: str | None
    policy: FleetPolicy
    inversion_open: bool = False
    event: Round | None = None
    """The record itself, for the rehydration plan; absent in a tick."""
    fixed_tokens: int = 0
    token_budget: int | None = None
    window: Window = ()
    """The rounds kept, oldest first, ``now`` the last of them."""
    stalled_rounds: int = 0
    """Consecutive passes that got nowhere, this one included."""
    stalled: bool | None = None
    """Whether this pass got nowhere; ``None`` where no pass ran or nothing tells."""
    taken_back: bool = False
    """The pass had been reported as done before it was reported as failed."""


class CheckpointView(NamedTuple):
    """One summarizer call as the rules see it. ``facts``: the session's facts with this checkpoint already applied."""

    checkpoint: Checkpoint
    facts: dict[str, FactRecord]
    policy: FleetPolicy
    incident: Incident | None = None
    """The incident that the rule asked has open at this level, if any."""
    same_size: int = 1
    """Consecutive outputs of exactly this size at this level."""


class PresenceView(NamedTuple):
    """What there is to see of a session at all: made for each round, and when its deadline has come."""

    policy: FleetPolicy
    aspect: Literal["rounds", "silence"]
    """Missing rounds and silence are troubles of their own: each is told, each ends for itself."""
    gaps: int
    """Rounds that are missing now."""
    round: int | None = None
    missed_rounds: int = 0
    """Rounds that are missing just before this one."""
    silent_ms: int | None = None
    """How long nothing came; ``None`` while something does."""
    contradiction: str = ""


def _never(view: object, opening: Measurement | None) -> bool:
    return False


def _nothing(view: object) -> Evidence:
    return {}


def _no_parameters(view: object) -> Parameters:
    return Parameters()


def _no_facts(view: object) -> tuple[str, ...]:
    return ()


def always(action: Action) -> Callable[[object], Action]:
    """An action that does not depend on what was seen."""
    return lambda view: action


Window = tuple[Measurement, ...]

MayFire = Callable[[Window, Round, float, FleetPolicy], bool]
"""Whether a measured round could make a rule fire. Takes the session's window with the round already in it (``window[-1]``), the
round, its raw ratio, the policy."""


class Rule(NamedTuple, Generic[V]):
    """A rule and its words. Every callable is pure and, but for ``may_fire``, takes the view that made the decision."""

    name: str
    severity: Severity
    action: Callable[[V], Action]
    judge: Callable[[V], Decision]
    exit: Callable[[V, Decision], Exit]
    message: Callable[[V], str]
    threshold: Callable[[V], dict[str, float]]
    evidence: Callable[[V], Evidence] = _nothing
    parameters: Callable[[V], Parameters] = _no_parameters
    improved: Callable[[V, Measurement | None], bool] = _never
    """Whether this view is better than the measurement at which the incident opened: the command is working."""
    facts: Callable[[V], tuple[str, ...]] = _no_facts
    """The facts that it is about, by id."""
    extent: Callable[[V], int | None] | None = None
    """How much there is of what the rule counts, ``None`` where the view does not tell. Less than the most is better too."""
    needs: int = 0
    """The signs (:mod:`leadline.detection.signs`) without any of which a measured round cannot make it fire; 0: nothing tells.

    This and ``may_fire`` are looked at before the rule is asked. To say yes too often costs time; a no must be certain.
    """
    may_fire: MayFire | None = None
    """A closer look than the signs, where that is still much cheaper than ``judge``."""
    on_repeat: CommandKind | None = None
    """What is commanded instead when the rule fires again although its command was obeyed; none: the same once more."""
