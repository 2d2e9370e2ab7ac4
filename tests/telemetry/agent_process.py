"""An agent as a process of its own: ``python -m tests.telemetry.agent_process BROKER COLLECTOR SESSION``.

It traces as any agent might, loses the ground under its summaries in one round, is halted, mends itself and is released.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from leadline.agent import Session, State, connect

WAIT_S = 90.0


def until(what: str, check: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not check():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {WAIT_S} s for {what}")
        time.sleep(0.05)


def sink_deep(one: Session) -> None:
    """One round in which 26 of 30 sources go for good, under a summary of a summary."""
    names = [f"m{number}" for number in range(30)]
    with one.compaction("budget"):
        one.ledger.summarize("S1", names[:28], 100)
        one.ledger.evict(names[:2], archived=True)
        one.ledger.evict(names[2:28])
        one.ledger.summarize("S2", ["S1"], 40)
        one.ledger.evict(["S1"], archived=True)


def main(broker: str, collector: str, session_id: str) -> None:
    provider = TracerProvider(resource=Resource({"service.name": "agent"}))
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(endpoint=f"{collector}/v1/traces")))
    trace.set_tracer_provider(provider)
    tracer = trace.get_tracer("agent")
    with (
        connect(broker, idempotence=False, fleet="f1") as client,
        client.session(session_id, agent_id="a1", token_budget=10_000, max_depth=4) as one,
    ):
        for number in range(30):
            one.ledger.add_raw(f"m{number}", 100)
        with tracer.start_as_current_span("first turn"):
            one.compacted("start")
        with tracer.start_as_current_span("second turn"):
            sink_deep(one)
        client.flush()
        until("a halt", lambda: not one.may_compact() and one.state is State.HALTED)
        (halt,) = [command for command in one.pending if command.kind == "halt"]
        with tracer.start_as_current_span("third turn"):
            for number in range(30):
                one.ledger.add_raw(f"n{number}", 100)
            one.done(halt, "sources were read again")
            one.compacted("rehydrate")
        one.compacted("rehydrate")
        client.flush()
        until("the release", one.may_compact)
    provider.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
