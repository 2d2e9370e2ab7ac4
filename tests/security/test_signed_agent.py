"""The agent and signed commands: which it obeys, which it refuses, under which name, and how keys change."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from leadline.agent import CommandListener, MemoryTransport, State
from leadline.agent.signed import SignedTransport, signed
from leadline.contracts.codec import encode
from leadline.contracts.orders import Command
from leadline.contracts.signatures import HEADER, read_signature
from leadline.security import Security
from leadline.security.keys import KeyRing, SigningKey
from tests.agent.support import START, Clock, Sink, command, eventually, session
from tests.security.signing import key, ring

COMMANDS, EVENTS = "leadline.commands", "leadline.events"


@pytest.fixture
def clock() -> Clock:
    return Clock()


class Agent:
    """A session that takes only what ``trusted`` signed, on a log in memory."""

    def __init__(self, clock: Clock, trusted: KeyRing) -> None:
        self.log = MemoryTransport(partitions=1, now=clock)
        self.transport = SignedTransport(self.log, trusted=trusted, now=clock)
        self.listener = CommandListener(self.transport, now=clock, lifetime_ms=60_000)
        self.sink = Sink()
        self.session = session(self.sink, clock, listener=self.listener)
        self.session.start()
        self.listener.learn("s-1", 0)
        self.read = 0

    def hear(self, one: Command, *headers: tuple[str, bytes]) -> None:
        """Put a command on the log, and wait until it was refused or taken."""
        self.log.send(COMMANDS, b"s-1", encode(one), list(headers), partition=0)
        self.read += 1
        passed = ("unsigned", "foreign-key", "bad-signature", "replayed")
        eventually(
            lambda: self.listener.heard().routed + sum(self.transport.refused[why] for why in passed) == self.read, "a command"
        )


@pytest.fixture
def monitor_key(tmp_path: Path) -> SigningKey:
    return key(tmp_path, "monitor")


@pytest.fixture
def agent(clock: Clock, monitor_key: SigningKey, monkeypatch: pytest.MonkeyPatch) -> Iterator[Agent]:
    monkeypatch.setattr("leadline.agent.listener._POLL_SECONDS", 0.02)
    made = Agent(clock, ring(monitor_key))
    yield made
    made.listener.close()


def sealed(by: SigningKey, one: Command) -> tuple[str, bytes]:
    return (HEADER, by.sign(COMMANDS, encode(one)))


def test_a_signed_command_is_obeyed(agent: Agent, monitor_key: SigningKey) -> None:
    agent.hear(command(1), sealed(monitor_key, command(1)))
    assert agent.session.state is State.HALTED
    assert agent.transport.refused == {}


def test_forged_commands_are_refused_by_name_and_change_nothing(agent: Agent, monitor_key: SigningKey, tmp_path: Path) -> None:
    """Unsigned; signed by a stranger; with another command's signature. The session runs on, and acknowledges none."""
    stranger = key(tmp_path, "stranger")
    agent.hear(command(1))
    agent.hear(command(2), sealed(stranger, command(2)))
    agent.hear(command(3), sealed(monitor_key, command(4)))
    assert agent.transport.refused == {"unsigned": 1, "foreign-key": 1, "bad-signature": 1}
    assert agent.session.state is State.RUNNING
    assert agent.sink.acks == []


def test_a_replayed_command_is_refused_and_one_read_again_is_not(agent: Agent, monitor_key: SigningKey) -> None:
    """A copied resume would release a session that was halted again."""
    halt, resume, again = command(1), command(2, "resume"), command(3)
    for one in (halt, resume, again):
        agent.hear(one, sealed(monitor_key, one))
    assert agent.session.state is State.HALTED
    agent.hear(resume, sealed(monitor_key, resume))
    assert agent.session.state is State.HALTED
    assert agent.transport.refused == {"replayed": 1}
    reader = agent.transport.consumer(COMMANDS)
    reader.assign({0: 0})
    assert [record.offset for record in reader.poll(1)] == [0, 1, 2]
    reader.assign({0: 0})
    assert [record.offset for record in reader.poll(1)] == [0, 1, 2]


def test_a_stale_command_is_counted_answered_and_not_obeyed(agent: Agent, monitor_key: SigningKey, clock: Clock) -> None:
    old = command(1, expires_at=START + 60_000)
    clock.now = START + 60_000
    agent.hear(old, sealed(monitor_key, old))
    assert agent.transport.refused == {"stale": 1}
    assert agent.session.state is State.RUNNING
    assert agent.sink.acks == [("cmd-1", "expired")]


def test_keys_change_by_trusting_both_for_a_while(clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Old and new in one file, one after the other; then the new alone."""
    old, new = key(tmp_path, "old"), key(tmp_path, "new")
    trusted = tmp_path / "trusted.pem"
    trusted.write_text(f"# the old one\n{old.public_pem()}\n{new.public_pem()}")
    both = KeyRing.read(str(trusted), "LEADLINE_COMMAND_KEYS_FILE")
    assert both.ids == sorted([old.key_id, new.key_id])
    monkeypatch.setattr("leadline.agent.listener._POLL_SECONDS", 0.02)
    agent = Agent(clock, both)
    agent.hear(command(1), sealed(old, command(1)))
    agent.hear(command(2, "resume"), sealed(new, command(2, "resume")))
    assert (agent.session.state, agent.transport.refused) == (State.RUNNING, {})
    agent.listener.close()
    trusted.write_text(new.public_pem())
    one = command(3)
    alone = KeyRing.read(str(trusted), "X")
    assert alone.fault(COMMANDS, encode(one), read_signature([sealed(old, one)])) == "foreign-key"


def test_events_are_signed_on_their_way_out(clock: Clock, tmp_path: Path) -> None:
    mine = key(tmp_path, "fleet")
    log = MemoryTransport(partitions=1, now=clock)
    transport = signed(log, Security(event_key_file=str(tmp_path / "fleet.pem")))
    producer = transport.producer()
    producer.produce(EVENTS, b"s", b"{}", [("schema", b"x")], lambda delivery: None)
    producer.flush(1)
    (record,) = log.records(EVENTS)
    assert record.headers[0] == ("schema", b"x")
    assert ring(mine).fault(EVENTS, b"{}", read_signature(record.headers)) == ""
    assert signed(log, Security()) is log
