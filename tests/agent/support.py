"""What the SDK's tests share: a movable clock, a sink, commands, and waiting for a condition rather than for a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient, NewTopic

from leadline.agent import Session
from leadline.contracts.events import Ack, AgentEvent, Round
from leadline.contracts.orders import Command, CommandKind, Parameters
from leadline.contracts.times import format_ms
from leadline.contracts.trace import NO_TRACE, TraceContext

__all__ = ["START", "Clock", "Sink", "command", "compact", "create_topics", "eventually", "round_event", "session"]

START = 1_790_000_000_000


class Clock:
    """Milliseconds since 1970, moved by hand."""

    def __init__(self, now: int = START) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


class Sink:
    """Keeps what is emitted."""

    def __init__(self) -> None:
        self.events: list[AgentEvent] = []
        self.traces: list[TraceContext] = []

    def emit(self, event: AgentEvent, *, trace: TraceContext = NO_TRACE) -> bool:
        self.events.append(event)
        self.traces.append(trace)
        return True

    @property
    def acks(self) -> list[tuple[str, str]]:
        """Command id and outcome of each acknowledgement, in order."""
        return [(event.command_id, event.outcome) for event in self.events if isinstance(event, Ack)]

    @property
    def rounds(self) -> list[Round]:
        return [event for event in self.events if isinstance(event, Round)]


def session(sink: Sink, clock: Clock | None = None, **options: Any) -> Session:
    """A session s-1 of agent a-1 in epoch 7, budget 10,000, depth 3."""
    values: dict[str, Any] = {
        "agent_id": "a-1",
        "token_budget": 10_000,
        "max_depth": 3,
        "epoch": 7,
        "clock": clock or Clock(),
        **options,
    }
    return Session(sink, values.pop("session_id", "s-1"), **values)


def compact(one: Session, leaves: int = 4) -> dict[str, int]:
    """``leaves`` spans of 100 become a summary S1 of 50 and then S2 of 40 of it; all text but S2's is archived."""
    archive = {f"m{n}": 100 for n in range(leaves)}
    for name in archive:
        one.ledger.add_raw(name, 100, 0.4)
    one.ledger.summarize("S1", archive, 50, 0.6)
    one.ledger.evict(archive, archived=True)
    one.ledger.summarize("S2", ["S1"], 40, 0.8)
    one.ledger.evict(["S1"], archived=True)
    return archive


def command(
    seq: int,
    kind: CommandKind = "halt",
    *,
    incident: str = "inc-1",
    command_id: str | None = None,
    session_id: str = "s-1",
    agent_id: str = "a-1",
    epoch: int = 7,
    expires_at: int = START + 60_000,
    rule: str = "inversion",
    traceparent: str = "",
    **parameters: Any,
) -> Command:
    """Command ``cmd-<seq>`` to the session of :func:`session`."""
    return Command(
        command_id=command_id or f"cmd-{seq}",
        seq=seq,
        incident_id=incident,
        kind=kind,
        session_id=session_id,
        agent_id=agent_id,
        fleet="",
        epoch=epoch,
        issued_at=format_ms(START),
        expires_at=format_ms(expires_at),
        attempt=1,
        rule=rule,
        reason=f"reason of {kind} {seq}",
        parameters=Parameters(**parameters),
        traceparent=traceparent,
    )


def create_topics(bootstrap: str, partitions: int, *topics: str) -> None:
    """Make sure that the topics are there; those with fixed names may have been made by others."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(name, partitions, 1) for name in topics]).values():
        error = future.exception(10)
        assert error is None or error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS, error


def round_event(session_id: str = "s-1", number: int = 1, **fields: Any) -> Round:
    """A round of 100 raw and 100 summary tokens."""
    values: dict[str, Any] = {
        "session_id": session_id,
        "agent_id": "a-1",
        "fleet": "",
        "epoch": 7,
        "ts": format_ms(START),
        "event_id": f"r-{number}",
        "round": number,
        "trigger": "budget",
        "raw_tokens": 100,
        "summary_tokens": 100,
        "distinct_source_spans": 10,
        "summary_depth_max": 1,
        "max_depth": 3,
        "session_start_spans": 10,
        "token_budget": 10_000,
        **fields,
    }
    return Round(**values)


def eventually(condition: Callable[[], bool], what: str = "", timeout: float = 8.0) -> None:
    """Wait until ``condition`` holds; fails after ``timeout`` seconds."""
    pause = threading.Event()
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"did not happen within {timeout} s: {what or condition}"
        pause.wait(0.003)
