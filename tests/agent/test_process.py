"""What belongs to the process rather than to a session: forks, the interpreter's exit, the tracing library."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import time
import uuid
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from leadline.agent import trace
from leadline.agent.spool import Spool
from leadline.agent.trace import active_trace
from leadline.contracts.topics import EVENTS
from leadline.contracts.trace import NO_TRACE
from tests.agent.support import create_topics
from tests.support.brokers import Broker
from tests.support.ports import free_ports

ROOT = Path(__file__).resolve().parents[2]


def run(source: str, *arguments: str, timeout: float = 60.0) -> str:
    """Run a program in a fresh interpreter; its output. Fails when it does not end in time or ends badly."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(source), *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


FORK = """
    import os, sys
    from leadline.agent import connect
    from tests.agent.support import round_event

    client = connect(sys.argv[1], spool=False)
    client.emitter.emit(round_event("parent"))
    client.flush(float(sys.argv[2]))
    child = os.fork()
    if child == 0:
        client.emitter.emit(round_event("child"))
        left = client.flush(float(sys.argv[2]))
        counters = client.emitter.counters()
        print("child", left, counters.emitted, counters.delivered, flush=True)
        sys.exit(0)  # the whole way out: exit handlers and the freeing of what was inherited
    os.waitpid(child, 0)
    print("parent", client.emitter.counters().delivered, client.close(0.1))
"""


@pytest.mark.broker
def test_a_forked_child_delivers_with_a_client_of_its_own(broker: Broker) -> None:
    """Field case: made and used in the parent, forked, used in the child: delivered there, once, and both processes end."""
    create_topics(broker.bootstrap, 4, EVENTS.name)
    assert run(FORK, broker.bootstrap, "10") == "child 0 1 1\nparent 1 0\n"


def test_a_forked_child_without_a_broker_ends_too() -> None:
    """The flush gives up in time; nothing hangs on the client that the parent had made."""
    [port] = free_ports(1)
    assert run(FORK, f"127.0.0.1:{port}", "0.3") == "child 1 1 0\nparent 0 1\n"


def test_an_agent_that_just_ends_has_its_last_events_sent() -> None:
    """No flush and no close: the interpreter's exit sends them."""
    source = """
    import atexit
    from leadline.agent import Client, MemoryTransport

    transport = MemoryTransport()
    atexit.register(lambda: print(len(transport.records("leadline.events"))))
    client = Client(transport)
    with client.session("s-1", agent_id="a-1", token_budget=10, max_depth=2) as session:
        session.compacted()
    """
    assert run(source) == "3\n"


TERMINATED = """
    import logging, os, signal, sys, time
    from leadline.agent import connect
    from tests.agent.support import round_event

    logging.basicConfig(stream=sys.stdout, format="%(message)s")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    client = connect(sys.argv[1], spool=sys.argv[3] if len(sys.argv) > 3 else False)
    for number in range(500):
        client.emitter.emit(round_event(sys.argv[2], number))
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(10)
"""
"""An agent that leaves on SIGTERM as programs do."""


@pytest.mark.broker
def test_an_agent_that_is_terminated_has_all_500_events_sent(broker: Broker) -> None:
    """Field case: 500 are queued when the signal comes."""
    create_topics(broker.bootstrap, 8, EVENTS.name)
    name = f"terminated-{uuid.uuid4().hex[:8]}"
    assert "not delivered" not in run(TERMINATED, broker.bootstrap, name, timeout=60.0)
    reader = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": name, "auto.offset.reset": "earliest"})
    reader.assign([TopicPartition(EVENTS.name, at, OFFSET_BEGINNING) for at in range(8)])
    seen = 0
    try:
        deadline = time.monotonic() + 20
        while seen < 500 and time.monotonic() < deadline:
            seen += sum(record.key() == name.encode() for record in reader.consume(500, 0.5) if record.error() is None)
    finally:
        reader.close()
    assert seen == 500


def test_an_agent_that_is_terminated_without_a_broker_says_how_many_were_lost() -> None:
    """The same with nobody at the other end: it ends in time, and one line gives the number."""
    [port] = free_ports(1)
    told = [line for line in run(TERMINATED, f"127.0.0.1:{port}", "lost").splitlines() if "events" in line]
    assert told == [f"500 events were not delivered: no broker answered at 127.0.0.1:{port}"]


def test_an_agent_that_is_terminated_without_a_broker_keeps_its_events_for_the_next(tmp_path: Path) -> None:
    """With a spool nothing is lost: the line says where the 500 are, and another process has them."""
    [port] = free_ports(1)
    address = f"127.0.0.1:{port}"
    [told] = [line for line in run(TERMINATED, address, "kept", str(tmp_path)).splitlines() if "events" in line]
    assert told.startswith(f"500 events wait in {tmp_path}/spool-")
    assert Spool(tmp_path, address).adopt() == (500, [])


UNHANDLED = """
    import logging, os, signal, sys, time
    from leadline.agent import Client, MemoryTransport
    from tests.agent.support import round_event

    class Printing(MemoryTransport):
        def send(self, *args, **kwargs):
            print("sent", flush=True)
            return super().send(*args, **kwargs)

    transport = Printing()
    client = Client(transport)
    if len(sys.argv) > 1:
        signal.signal(signal.SIGTERM, lambda *_: print("mine", flush=True) or os._exit(3))
    transport.up = False
    for number in range(3):
        client.emitter.emit(round_event("s", number))
    transport.up = True
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(10)
"""


def test_sigterm_that_nobody_handles_sends_what_is_left_and_still_ends_the_process_as_it_would() -> None:
    """Three events are queued; the process ends by the signal, and not with an exit code."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(UNHANDLED)], capture_output=True, text=True, timeout=60, cwd=ROOT
    )
    assert (done.returncode, done.stdout.split()) == (-signal.SIGTERM, ["sent"] * 3)


def test_a_handler_of_the_programs_own_is_left_alone() -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(UNHANDLED), "own"], capture_output=True, text=True, timeout=60, cwd=ROOT
    )
    assert done.returncode == 3
    assert "mine" in done.stdout


def test_a_worker_of_a_process_pool_has_its_last_events_sent() -> None:
    """Such a child ends without exit handlers."""
    source = """
    import multiprocessing
    from leadline.agent import Client, MemoryTransport
    from tests.agent.support import round_event

    class Printing(MemoryTransport):
        def send(self, *args, **kwargs):
            print("sent", flush=True)
            return super().send(*args, **kwargs)

    transport = Printing()
    client = Client(transport)

    def work():
        transport.up = False
        client.emitter.emit(round_event())
        transport.up = True

    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    child.join()
    print(child.exitcode)
    """
    assert run(source) == "sent\n0\n"


def test_the_sdk_needs_no_stream_processor_and_no_tracing_library() -> None:
    """Importing it and running a session in memory loads neither faust nor opentelemetry's SDK."""
    source = """
    import sys
    sys.modules["opentelemetry"] = None
    from leadline.agent import Client, MemoryTransport
    with Client(MemoryTransport()) as client:
        with client.session("s-1", agent_id="a-1", token_budget=10, max_depth=2) as session:
            session.compacted()
        print(client.flush(5), [name for name in ("faust", "aiokafka", "rocksdict", "opentelemetry.sdk") if name in sys.modules])
    """
    assert run(source) == "0 []\n"


def test_the_active_spans_context_is_taken() -> None:
    """W3C form; without an active span there is none."""
    api = pytest.importorskip("opentelemetry.trace")
    assert active_trace() == NO_TRACE
    state = api.TraceState([("vendor", "1")])
    context = api.SpanContext(trace_id=0xABC, span_id=0xDEF, is_remote=False, trace_flags=api.TraceFlags(1), trace_state=state)
    with api.use_span(api.NonRecordingSpan(context)):
        found = active_trace()
    assert (found.traceparent, found.tracestate) == (f"00-{0xABC:032x}-{0xDEF:016x}-01", "vendor=1")


def test_a_broken_tracing_library_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise RuntimeError("tracer gone")

    monkeypatch.setattr(trace, "_read", broken)
    assert active_trace() == NO_TRACE
