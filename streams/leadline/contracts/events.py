"""What agents write to ``leadline.events``, one record type a class. All share who and when; ``schema`` tells them apart.

Definitions that must not drift:

``raw_tokens``
    Tokens of retained spans that are still verbatim source: a message, a tool result, a document chunk.
``summary_tokens``
    Tokens of retained text that a summarizer wrote, at any depth, also where it was wrapped or re-injected as an ordinary
    message. Both are counted **after** the pass, in the working set. System prompt and tool schemas are ``fixed_tokens``
    and in neither.
``distinct_source_spans``
    Distinct leaf spans, by id, still reachable from what is retained: retained themselves, or reachable by provenance
    pointers to a leaf whose text can still be produced. Copies of one span count once; an evicted leaf whose text is
    gone does not count.
``query_cosine_retained``
    Mean salience of the retained items under the agent's own scorer. Absent where the agent has no scorer.
``summary_depth_max``
    0 with no summary; 1 for a summary of raw spans; n+1 for a summary of depth-n summaries.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from leadline.contracts import limits

__all__ = [
    "Ack",
    "AckOutcome",
    "AgentEvent",
    "Checkpoint",
    "DeclaredDrop",
    "Fact",
    "FactState",
    "FactStatus",
    "Measures",
    "Policy",
    "Round",
    "Scorer",
    "SessionEnd",
    "SessionStart",
    "Summary",
]

Id = Annotated[str, Meta(min_length=1, max_length=limits.MAX_ID)]
OptionalId = Annotated[str, Meta(max_length=limits.MAX_ID)]
Text = Annotated[str, Meta(max_length=limits.MAX_DETAIL)]
Count = Annotated[int, Meta(ge=0, le=limits.MAX_COUNT)]
Depth = Annotated[int, Meta(ge=0, le=1024)]
Epoch = Annotated[int, Meta(ge=0, le=limits.MAX_EPOCH)]
Salience = Annotated[float, Meta(ge=-1e9, le=1e9)]
Fraction = Annotated[float, Meta(ge=0.0, le=1.0)]
Timestamp = Annotated[str, Meta(max_length=64, description="RFC 3339, UTC, milliseconds")]

AckOutcome = Literal["accepted", "done", "refused", "expired"]
FactState = Literal["verbatim", "abstracted", "absent", "unknown"]
RoundOutcome = Literal["ok", "failed", "skipped"]
Eviction = Literal["continuous", "overflow"]


class _Event(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, gc=False, tag_field="schema"):
    session_id: Id
    agent_id: Id
    fleet: OptionalId = ""
    epoch: Epoch | None = None
    """Counts the session's restarts from scratch; absent means the epoch in force."""
    ts: Timestamp = ""
    event_id: OptionalId = ""
    lost_before: Count = 0
    """Events of this session that the agent could not keep until they were sent, since the one that it sent before."""


class Scorer(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """The agent's salience scorer. ``penalizes_depth`` absent is taken as false: the condition of validity holds."""

    kind: OptionalId = ""
    penalizes_depth: bool | None = None


class Policy(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """How the agent compacts, as it states it. A condition that it does not state is taken to hold."""

    token_budget: Count | None = None
    max_depth: Depth | None = None
    scorer: Scorer | None = None
    eviction: Eviction | None = None
    decay: Annotated[float, Meta(ge=0.0, le=1e9)] | None = None


class Fact(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """A fact that compaction must carry along. ``recall_floor``: the least kept share of its class, 0 to 1."""

    fact_id: Id
    fact_class: OptionalId = ""
    recall_floor: Fraction | None = None
    supersedes: OptionalId = ""
    """The id of an earlier fact that may be lost from now on."""


class SessionStart(
    _Event, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, tag="leadline.session-start/1"
):
    """The session begins, or begins anew with the next ``epoch``: policy, declared facts, baseline."""

    policy: Policy = Policy()
    session_start_spans: Count | None = None
    """Distinct source spans at the start: the baseline of the provenance floor."""
    facts: Annotated[list[Fact], Meta(max_length=limits.MAX_FACTS)] = []


class Measures(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """The same four measurements before the pass."""

    raw_tokens: Count
    summary_tokens: Count
    distinct_source_spans: Count
    query_cosine_retained: Salience | None = None


class Summary(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """One retained summary. ``fan_out``: its direct children; ``reachable``: distinct leaves that can still be produced."""

    id: Id
    depth: Depth
    tokens: Count
    fan_out: Count = 0
    reachable: Count | None = None


class Round(_Event, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, tag="leadline.round/1"):
    """One compaction round, measured after its eviction pass. Rounds count from 1 within an epoch."""

    event_id: Id
    fleet: OptionalId
    epoch: Epoch
    ts: Timestamp
    round: Count
    trigger: OptionalId
    raw_tokens: Count
    summary_tokens: Count
    distinct_source_spans: Count
    query_cosine_retained: Salience | None = None
    summary_depth_max: Depth
    max_depth: Depth
    session_start_spans: Count
    token_budget: Count
    fixed_tokens: Count | None = None
    before: Measures | None = None
    dropped_spans: Count | None = None
    ungrounded_summaries: Count | None = None
    outcome: RoundOutcome = "ok"
    summaries: Annotated[list[Summary], Meta(max_length=limits.MAX_SUMMARIES)] | None = None


class FactStatus(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """What became of one fact at this level. A fact that was not declared at the start may bring its class here."""

    fact_id: Id
    status: FactState
    fact_class: OptionalId = ""
    recall_floor: Fraction | None = None


class DeclaredDrop(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """A fact that the summarizer left out on purpose and says so."""

    fact_id: Id
    reason: Text = ""


class Checkpoint(_Event, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, tag="leadline.checkpoint/1"):
    """One summarizer call: what it was given, what it consumed, what survived.

    Budget closure: ``consumed_input_tokens == declared_input_tokens`` and ``seen_spans == source_spans``.
    """

    level: Depth
    """0 for raw turns, 1 for summaries of raw turns, and so on."""
    round: Count | None = None
    budget_tokens: Count | None = None
    declared_input_tokens: Count | None = None
    consumed_input_tokens: Count | None = None
    source_spans: Count | None = None
    seen_spans: Count | None = None
    unseen_span_ids: Annotated[list[Id], Meta(max_length=limits.MAX_SUMMARIES)] | None = None
    """Which spans neither the call saw nor the working set still holds, by id; the first ones where there are many."""
    output_tokens: Count | None = None
    output_cap: Count | None = None
    stop_reason: OptionalId | None = None
    declared_drops: Annotated[list[DeclaredDrop], Meta(max_length=limits.MAX_FACTS)] = []
    facts: Annotated[list[FactStatus], Meta(max_length=limits.MAX_FACTS)] | None = None
    """Absent means not reported; an empty list means that nothing survived."""
    retry_of: OptionalId = ""
    """The id of the command that this call obeys: the level summarized again."""
    input_facts: Annotated[list[Id], Meta(max_length=limits.MAX_FACTS)] | None = None
    """The facts that were in this call's input; absent means every fact of the session."""
    summary_visible: bool = True
    """False where the summary is opaque (encrypted, server-side): facts are at risk, never absent."""


class Ack(_Event, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, tag="leadline.ack/1"):
    """The agent's answer to a command. It proves receipt, never effect: that is judged by measurements."""

    command_id: Id
    seq: Count
    outcome: AckOutcome
    detail: Text = ""
    raw_tokens_restored: Count | None = None


class SessionEnd(_Event, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, tag="leadline.session-end/1"):
    """Closes the session."""

    detail: Text = ""


AgentEvent = SessionStart | Round | Checkpoint | Ack | SessionEnd
