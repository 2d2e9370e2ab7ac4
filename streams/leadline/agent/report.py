"""Making a session's records: who, when, and what was measured."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Protocol, TypedDict, Unpack

from leadline.agent import spans
from leadline.agent.calls import CallCounts
from leadline.agent.checks import sendable
from leadline.agent.control import Answer
from leadline.agent.facts import Fact
from leadline.agent.forks import follow_forks
from leadline.agent.signals import Signals
from leadline.contracts import limits
from leadline.contracts.events import (
    Ack,
    AgentEvent,
    Checkpoint,
    DeclaredDrop,
    FactState,
    FactStatus,
    Policy,
    Round,
    RoundOutcome,
    SessionEnd,
    SessionStart,
)
from leadline.contracts.orders import Command
from leadline.contracts.text import printable, safe
from leadline.contracts.times import format_ms
from leadline.contracts.trace import NO_TRACE, TraceContext

__all__ = ["Identity", "Reporter", "Sink"]


class Sink(Protocol):
    """Where events go: an emitter, or a list in a test."""

    def emit(self, event: AgentEvent, *, trace: TraceContext = NO_TRACE) -> bool:
        """Take an event over; never blocks, never raises.

        A sink may also have ``emit_later(make)``, to make the event itself, on a thread of its own."""


class _Who(TypedDict):
    session_id: str
    agent_id: str
    fleet: str
    epoch: int
    ts: str
    event_id: str


@dataclass(frozen=True, slots=True)
class Identity:
    """Who is reporting."""

    session_id: str
    agent_id: str
    fleet: str
    epoch: int


class Reporter:
    """Writes one session's records into a sink. Thread safe: a record's event id is its own, in a forked child too."""

    def __init__(self, sink: Sink, identity: Identity, policy: Policy, clock: Callable[[], int]) -> None:
        self._sink = sink
        self._later: Callable[[Callable[[], AgentEvent]], object] | None = getattr(sink, "emit_later", None)
        self._identity = identity
        self._policy = policy
        self._clock = clock
        # Not a plain number: a process that takes the same epoch up again must not repeat an id.
        self._instance = secrets.token_hex(4)
        self._numbers = count(1)
        follow_forks(self)

    def compacting(self, trigger: str) -> spans.Scope:
        """The span of a compaction pass."""
        who = self._identity
        return spans.compacting(who.session_id, who.agent_id, who.fleet, who.epoch, trigger)

    def started(self, baseline: int | None, facts: Iterable[Fact]) -> SessionStart:
        declared = [fact.declared() for fact in facts][: limits.MAX_FACTS]
        event = SessionStart(**self._who("s"), policy=self._policy, session_start_spans=baseline, facts=declared)
        sendable(event, "the start of the session")
        self._sink.emit(event)
        return event

    def round(
        self,
        number: int,
        trigger: str,
        signals: Signals,
        *,
        baseline: int,
        before: Signals | None = None,
        outcome: RoundOutcome = "ok",
        dropped_spans: int | None = None,
        fixed_tokens: int | None = None,
    ) -> str:
        """Report a round; returns its event id. Where the sink can wait for it, the record is made on the sink's own thread."""
        event_id = self._event_id("r")
        make = partial(
            self._round, event_id, self._clock(), number, trigger, signals, baseline, before, outcome, dropped_spans, fixed_tokens
        )
        if not spans.off():
            event = make()
            with spans.reporting(event):
                self._sink.emit(event)
        elif self._later is not None:
            self._later(make)
        else:
            self._sink.emit(make())
        return event_id

    def _round(
        self,
        event_id: str,
        now: int,
        number: int,
        trigger: str,
        signals: Signals,
        baseline: int,
        before: Signals | None,
        outcome: RoundOutcome,
        dropped_spans: int | None,
        fixed_tokens: int | None,
    ) -> Round:
        who = self._identity
        return Round(
            session_id=who.session_id,
            agent_id=who.agent_id,
            fleet=who.fleet,
            epoch=who.epoch,
            ts=format_ms(now),
            event_id=event_id,
            round=number,
            trigger=trigger[: limits.MAX_ID],
            raw_tokens=signals.raw_tokens,
            summary_tokens=signals.summary_tokens,
            distinct_source_spans=signals.distinct_source_spans,
            query_cosine_retained=signals.query_cosine_retained,
            summary_depth_max=signals.summary_depth_max,
            max_depth=self._policy.max_depth or 0,
            session_start_spans=baseline,
            token_budget=self._policy.token_budget or 0,
            fixed_tokens=fixed_tokens,
            before=None if before is None else before.measures(),
            dropped_spans=dropped_spans,
            ungrounded_summaries=signals.ungrounded_summaries,
            outcome=outcome,
            summaries=signals.listed(),
        )

    def checkpoint(
        self,
        level: int,
        round_number: int,
        statuses: Mapping[str, FactState] | None,
        facts: Mapping[str, Fact],
        *,
        drops: Mapping[str, str],
        input_facts: Iterable[str] | None,
        visible: bool,
        retry_of: str = "",
        **counts: Unpack[CallCounts],
    ) -> Checkpoint:
        event = Checkpoint(
            **self._who("c"),
            level=level,
            round=round_number,
            declared_drops=[
                DeclaredDrop(fact_id=fact_id, reason=printable(reason, limits.MAX_DETAIL - 20))
                for fact_id, reason in list(drops.items())[: limits.MAX_FACTS]
            ],
            facts=None if statuses is None else _statuses(statuses, facts),
            input_facts=None if input_facts is None else list(input_facts)[: limits.MAX_FACTS],
            summary_visible=visible,
            retry_of=retry_of,
            **counts,
        )
        sendable(event, "the summarizer call")
        self._sink.emit(event)
        return event

    def ack(self, command: Command, answer: Answer) -> None:
        """The acknowledgement continues the command's own trace."""
        event = Ack(
            **self._who("a"),
            command_id=command.command_id,
            seq=command.seq,
            outcome=answer.outcome,
            detail=safe(answer.detail, limits.MAX_DETAIL),
            raw_tokens_restored=answer.raw_tokens_restored,
        )
        with spans.acknowledging(command, event):
            self._sink.emit(event, trace=TraceContext(command.traceparent, command.tracestate))

    def ended(self, detail: str) -> None:
        self._sink.emit(SessionEnd(**self._who("e"), detail=safe(detail, limits.MAX_DETAIL)))

    def before_fork(self) -> None:
        """Nothing to put aside."""

    def after_fork(self, child: bool) -> None:
        if child:
            # Both go on reporting: neither must repeat an id of the other's.
            self._instance = secrets.token_hex(4)

    def _who(self, kind: str) -> _Who:
        who = self._identity
        return {
            "session_id": who.session_id,
            "agent_id": who.agent_id,
            "fleet": who.fleet,
            "epoch": who.epoch,
            "ts": format_ms(self._clock()),
            "event_id": self._event_id(kind),
        }

    def _event_id(self, kind: str) -> str:
        return f"{kind}-{self._instance}-{next(self._numbers)}"


def _statuses(statuses: Mapping[str, FactState], facts: Mapping[str, Fact]) -> list[FactStatus]:
    listed = []
    for fact_id, status in list(statuses.items())[: limits.MAX_FACTS]:
        fact = facts.get(fact_id)
        if fact is None:
            listed.append(FactStatus(fact_id=fact_id, status=status))
        else:
            listed.append(FactStatus(fact_id=fact_id, status=status, fact_class=fact.fact_class, recall_floor=fact.recall_floor))
    return listed
