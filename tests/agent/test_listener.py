"""Commands reach the session they are for, once, in whatever way they arrive."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from leadline.agent import CommandListener, MemoryTransport, State
from leadline.agent.client import Client
from leadline.agent.listener import COMMAND_TTL_MS
from leadline.agent.transport import Received
from leadline.contracts.codec import decode_event, encode
from leadline.contracts.events import Ack
from leadline.contracts.orders import Command
from leadline.detection.policy import FleetPolicy
from leadline.errors import Retryable
from tests.agent.support import START, Clock, Sink, command, eventually, session

COMMANDS = "leadline.commands"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def transport(clock: Clock) -> MemoryTransport:
    return MemoryTransport(partitions=4, now=clock)


@pytest.fixture
def listener(transport: MemoryTransport, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Iterator[CommandListener]:
    monkeypatch.setattr("leadline.agent.listener._POLL_SECONDS", 0.02)
    listener = CommandListener(transport, now=clock, lifetime_ms=60_000)
    yield listener
    listener.close()


def send(transport: MemoryTransport, one: Command, partition: int = 0) -> None:
    transport.send(COMMANDS, one.session_id.encode(), encode(one), partition=partition)


def hear(listener: CommandListener, count: int) -> None:
    """Wait until that many commands reached their sessions."""
    eventually(lambda: listener.heard().routed >= count, f"{count} commands")


def test_a_command_goes_to_its_session_and_agent_only(
    transport: MemoryTransport, listener: CommandListener, clock: Clock
) -> None:
    """Field case: agents X and Y under one session id; only Y is halted."""
    sinks = {name: Sink() for name in "XY"}
    sessions = {name: session(sinks[name], clock, agent_id=name, listener=listener) for name in "XY"}
    for one in sessions.values():
        one.start()
    listener.learn("s-1", 0)
    send(transport, command(1, agent_id="Y"))
    send(transport, command(2, agent_id="Z"))
    eventually(lambda: listener.heard().routed == 1 and listener.heard().unrouted == 1)
    assert (sessions["X"].state, sessions["Y"].state) == (State.RUNNING, State.HALTED)
    assert (sinks["X"].acks, sinks["Y"].acks) == ([], [("cmd-1", "accepted")])


def test_an_old_halt_is_acknowledged_as_expired(transport: MemoryTransport, listener: CommandListener, clock: Clock) -> None:
    """Field case: after a restart the halt of 3 hours ago is still in the topic, and the broker cannot look up times."""
    transport.time_lookup = False
    clock.now = START - 3 * 3_600_000
    send(transport, command(1, expires_at=clock.now + 60_000))
    clock.now = START
    sink = Sink()
    one = session(sink, clock, listener=listener)
    one.start()
    listener.learn("s-1", 0)
    eventually(lambda: sink.acks == [("cmd-1", "expired")])
    assert one.may_compact()


def test_reading_starts_a_commands_lifetime_ago(transport: MemoryTransport, listener: CommandListener, clock: Clock) -> None:
    """Where times can be looked up, what is older than the lifetime is not even read."""
    clock.now = START - 60_001
    send(transport, command(1, expires_at=START + 60_000))
    clock.now = START - 30_000
    send(transport, command(2, expires_at=START + 60_000))
    clock.now = START
    sink = Sink()
    session(sink, clock, listener=listener).start()
    listener.learn("s-1", 0)
    eventually(lambda: listener.heard().routed == 1)
    assert sink.acks == [("cmd-2", "accepted")]


def test_a_policy_with_a_long_lifetime_is_told_to_the_client(transport: MemoryTransport, clock: Clock) -> None:
    """A halt of 20 minutes ago that is valid for an hour: read by a client that was told so, not by one that was not."""
    clock.now -= 20 * 60_000
    send(transport, command(1, expires_at=START + 40 * 60_000))
    clock.now += 20 * 60_000
    for command_ttl_ms, state in ((COMMAND_TTL_MS, State.RUNNING), (3_600_000, State.HALTED)):
        with Client(transport, command_ttl_ms=command_ttl_ms) as client:
            client.listener._now = clock
            sink = Sink()
            with session(sink, clock, listener=client.listener) as one:
                client.listener.learn("s-1", 0)
                if state is State.HALTED:
                    hear(client.listener, 1)
                else:
                    eventually(lambda: 0 in client.listener.positions)
                assert one.state is state


def test_the_sdk_reads_further_back_than_the_default_policys_commands_live() -> None:
    assert FleetPolicy().command_ttl_ms <= COMMAND_TTL_MS


def test_each_id_acts_once_and_every_result_is_reported(
    transport: MemoryTransport, listener: CommandListener, clock: Clock
) -> None:
    """Field case: six commands queued for the reconnect, two of them one command delivered twice, two expired."""
    seen: list[str] = []
    sink = Sink()
    one = session(sink, clock, listener=listener, on_command=lambda given: seen.append(given.command_id))
    one.start()
    for queued in (
        command(1, incident="A", expires_at=START - 1),
        command(2, incident="B", expires_at=START - 1),
        command(3, incident="C"),
        command(3, incident="C"),
        command(4, incident="D"),
        command(5, incident="E"),
    ):
        send(transport, queued)
    listener.learn("s-1", 0)
    eventually(lambda: listener.heard().routed == 6)
    one.poll()
    assert seen == ["cmd-3", "cmd-4", "cmd-5"]
    assert sink.acks == [
        ("cmd-1", "expired"),
        ("cmd-2", "expired"),
        ("cmd-3", "accepted"),
        ("cmd-3", "accepted"),
        ("cmd-4", "accepted"),
        ("cmd-5", "accepted"),
    ]


def test_resume_and_halt_in_the_wrong_order_leave_the_session_running(
    transport: MemoryTransport, listener: CommandListener, clock: Clock
) -> None:
    """Field case: halt (seq 1) and resume (seq 2) arrive as 2, 1."""
    sink = Sink()
    one = session(sink, clock, listener=listener)
    one.start()
    send(transport, command(2, "resume"))
    send(transport, command(1))
    listener.learn("s-1", 0)
    eventually(lambda: listener.heard().routed == 2)
    assert one.may_compact()
    assert sink.acks == [("cmd-2", "accepted"), ("cmd-1", "refused"), ("cmd-2", "done")]


def test_what_is_no_command_is_counted_and_skipped(transport: MemoryTransport, listener: CommandListener, clock: Clock) -> None:
    """A tombstone, rubbish, another record and a foreign major; the halt behind them arrives."""
    one = session(Sink(), clock, listener=listener)
    one.start()
    bad = (None, b"", b"null", b"\xff", b'{"schema":"leadline.round/1"}', encode(command(9)).replace(b"command/1", b"command/2"))
    for value in bad:
        transport.send(COMMANDS, b"s-1", value, partition=0)
    send(transport, command(1))
    listener.learn("s-1", 0)
    eventually(lambda: listener.heard().routed == 1)
    assert listener.heard().malformed == len(bad)
    assert one.state is State.HALTED


def test_learning_another_partition_keeps_the_places_of_the_others(
    transport: MemoryTransport, listener: CommandListener, clock: Clock
) -> None:
    """Three sessions on three partitions, learned one after the other; each command arrives exactly once."""
    sinks = [Sink() for _ in range(3)]
    for n, sink in enumerate(sinks):
        session(sink, clock, session_id=f"s-{n}", listener=listener).start()
    for n in range(3):
        listener.learn(f"s-{n}", n)
        for earlier in range(n + 1):
            send(transport, command(10 * n + earlier, incident=f"{n}", session_id=f"s-{earlier}"), partition=earlier)
        hear(listener, (n + 1) * (n + 2) // 2)
    assert [len(sink.acks) for sink in sinks] == [3, 2, 1]
    assert listener.positions == {0: 3, 1: 2, 2: 1}
    assert listener.heard().routed == 6


def test_partitions_that_no_session_needs_are_let_go(transport: MemoryTransport, listener: CommandListener, clock: Clock) -> None:
    """Of two sessions one ends: its partition is no longer read, the other's still is."""
    first, second = (session(Sink(), clock, session_id=name, listener=listener) for name in ("s-1", "s-2"))
    first.start()
    second.start()
    listener.learn("s-1", 1)
    listener.learn("s-2", 2)
    eventually(lambda: set(listener.positions) == {1, 2})
    first.end()
    eventually(lambda: set(listener.positions) == {2})
    send(transport, command(1, session_id="s-2"), partition=2)
    eventually(lambda: second.state is State.HALTED)


def test_a_recipient_that_raises_does_not_end_the_listening(
    transport: MemoryTransport, listener: CommandListener, clock: Clock
) -> None:
    class Broken:
        session_id, agent_id = "s-1", "broken"

        def receive(self, command: Command) -> None:
            raise RuntimeError("no")

    one = session(Sink(), clock, listener=listener)
    one.start()
    listener.register(Broken())
    listener.learn("s-1", 0)
    send(transport, command(1, agent_id="broken"))
    send(transport, command(2))
    eventually(lambda: listener.heard().routed == 1 and listener.heard().failed == 1)
    assert one.state is State.HALTED


def test_a_client_that_fails_is_made_anew_and_goes_on_where_it_was(
    transport: MemoryTransport, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker goes away under it once; no command is lost and none is routed twice."""
    monkeypatch.setattr("leadline.agent.listener._RETRY_SECONDS", 0.01)
    inner_of = transport.consumer
    failures = iter([True])

    class Failing:
        def __init__(self) -> None:
            self.inner = inner_of(COMMANDS)
            self.start_offset, self.assign, self.close = self.inner.start_offset, self.inner.assign, self.inner.close
            self.polls = 0

        def poll(self, timeout: float) -> list[Received]:
            found = self.inner.poll(timeout)
            if not found and next(failures, False):
                raise Retryable("the broker is gone")
            return found

    monkeypatch.setattr(transport, "consumer", lambda topic: Failing())
    listener = CommandListener(transport, now=clock)
    session(Sink(), clock, listener=listener).start()
    send(transport, command(1))
    listener.learn("s-1", 0)
    eventually(lambda: listener.heard().retries == 1)
    send(transport, command(2))
    eventually(lambda: listener.heard().routed == 2)
    assert listener.positions == {0: 2}
    listener.close()


def test_the_partition_is_learned_from_the_sessions_own_events() -> None:
    """Through a client: a session's first event is delivered, and a command on that partition reaches it."""
    transport = MemoryTransport(partitions=16)
    with Client(transport) as client:
        for n in range(5):
            one = client.session(f"s-{n}", agent_id="a-1", token_budget=10, max_depth=2, epoch=7)
            one.start()
            assert client.flush(5) == 0
            [mine] = {record.partition for record in transport.records("leadline.events") if record.key == f"s-{n}".encode()}
            send(transport, command(1, session_id=f"s-{n}", expires_at=START * 2), partition=mine)
            hear(client.listener, n + 1)
            assert one.state is State.HALTED
        assert client.flush(5) == 0
        events = [decode_event(record.value).event for record in transport.records("leadline.events")]
        assert sum(isinstance(event, Ack) for event in events) == 5
