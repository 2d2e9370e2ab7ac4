"""What the monitor writes: violations, commands, and the ticks that it sends to itself."""

from __future__ import annotations

from typing import Literal, final

from msgspec import Struct

from leadline.contracts.events import Count, Depth, Epoch, Id, OptionalId, Timestamp

__all__ = [
    "Cause",
    "Command",
    "CommandKind",
    "Heartbeat",
    "Measured",
    "Mode",
    "Parameters",
    "Severity",
    "Target",
    "Tick",
    "Violation",
]

CommandKind = Literal["halt", "cap-depth", "retry-level", "stop-agent", "resume"]
Mode = Literal["off", "shadow", "warn", "enforce"]
Severity = Literal["info", "warning", "critical"]
Action = Literal["none", "halt", "cap-depth", "retry-level", "stop-agent"]


class Cause(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """The event that led here, so that a person finds the very record."""

    event_id: OptionalId = ""
    partition: int = -1
    offset: int = -1


class Measured(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """The measurements of one round, as a rule saw them. ``raw_ratio`` absent is unknown (0 tokens of both kinds)."""

    round: int
    raw_tokens: int
    summary_tokens: int
    distinct_source_spans: int
    summary_depth_max: int
    raw_ratio: float | None = None
    query_cosine_retained: float | None = None


class Violation(
    Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
    gc=False,
    tag_field="schema",
    tag="leadline.violation/1",
):
    """One incident's opening: the rule, the reason, the evidence, and what is done about it."""

    violation_id: Id
    incident_id: Id
    rule: str
    reason: str
    """The rule's named reason, e.g. ``boundary-crossed``."""
    severity: Severity
    mode: Mode
    session_id: Id
    agent_id: Id
    fleet: OptionalId
    epoch: Epoch
    detected_at: Timestamp
    message: str
    """A sentence that a person understands."""
    action: Action
    round: int | None = None
    level: int | None = None
    before: Measured | None = None
    now: Measured | None = None
    threshold: dict[str, float] = {}
    """The policy's values that the decision used, by name."""
    evidence: dict[str, int | float | str | list[str]] = {}
    """What the rule counted: unseen spans, facts lost by id, rounds at the depth limit."""
    policy: OptionalId = ""
    """Version of the policy that it was made under."""
    caused_by: Cause = Cause()
    traceparent: str = ""
    tracestate: str = ""


class Target(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """One summary to expand, in the order of the plan."""

    summary_id: Id
    depth: Depth
    fan_out: Count = 0
    tokens: Count = 0


class Parameters(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """What a command asks for; only the fields of its kind are set.

    ``halt``: stop compacting; expand ``plan`` in order (lowest depth first, then highest fan-out; without a plan the agent
    orders its own summaries that way) until ``target_raw_ratio`` and ``target_spans`` hold, restoring at most
    ``max_restore_tokens`` so that the result fits the budget; with ``drop_ungrounded`` drop each summary of the plan whose
    leaves can't be restored. ``cap-depth``: summaries no deeper than ``max_depth``.
    ``retry-level``: summarize ``level`` again, keeping ``facts``. ``resume``: ``releases`` names the command that ends.
    """

    target_raw_ratio: float | None = None
    target_spans: int | None = None
    max_restore_tokens: int | None = None
    plan: list[Target] | None = None
    drop_ungrounded: bool | None = None
    max_depth: int | None = None
    level: int | None = None
    facts: list[str] | None = None
    instruction: str | None = None
    releases: str | None = None


class Command(
    Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
    gc=False,
    tag_field="schema",
    tag="leadline.command/1",
):
    """An order to one agent session. Acts once by ``command_id``; of two, the higher ``seq`` is the later."""

    command_id: Id
    seq: Count
    incident_id: Id
    kind: CommandKind
    session_id: Id
    agent_id: Id
    fleet: OptionalId
    epoch: Epoch
    issued_at: Timestamp
    expires_at: Timestamp
    attempt: int
    rule: str
    reason: str
    parameters: Parameters = Parameters()
    policy: OptionalId = ""
    """Version of the policy that it was made under."""
    caused_by: Cause = Cause()
    traceparent: str = ""
    tracestate: str = ""


class Heartbeat(
    Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
    tag_field="schema",
    tag="leadline.heartbeat/1",
):
    """The monitor is there: written now and then by the worker that owns a partition, for all the agents that listen on it."""

    partition: Count
    at: Timestamp
    every_ms: Count
    """When the next one is to be expected."""
    through: int = -1
    """Events of this partition below this offset have been judged, and their commands stand before this record; -1: not known."""


@final
class Tick(
    Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
    gc=False,
    tag_field="schema",
    tag="leadline.tick/1",
):
    """The monitor's note to itself that a session's deadline has come: time enters the log as an event does.

    Idempotent: a tick before the deadline in force does nothing.
    """

    session_id: Id
    agent_id: Id
    due_at: Timestamp
