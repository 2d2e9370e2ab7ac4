"""The embedded broker: where it listens, what it carries, and when it is gone."""

from __future__ import annotations

import importlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from leadline.broker import (
    CAPABILITIES,
    BrokerFailed,
    BrokerUnavailable,
    EmbeddedBroker,
    Feature,
)
from leadline.errors import BrokerError, Refused
from tests.support.ports import listening

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

_embedded = importlib.import_module("leadline.broker.embedded")


@pytest.fixture(scope="module")
def running() -> Iterator[EmbeddedBroker]:
    """One broker for the tests that only talk to it."""
    with EmbeddedBroker() as broker:
        yield broker


def _until(condition: Callable[[], bool], what: str, seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.01)


def _alive(pid: int) -> bool:
    try:
        # A zombie is gone for our purposes: it holds no port, and init will reap it.
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _create(address: str, topic: str, partitions: int = 2) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(10)


def _read(address: str, topic: str, partition: int, count: int) -> list[Message]:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "unused", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, 0)])
    messages: list[Message] = []
    deadline = time.monotonic() + 10
    while len(messages) < count and time.monotonic() < deadline:
        messages += consumer.consume(count - len(messages), 0.2)
    consumer.close()
    return messages


def test_listens_on_loopback_only(running: EmbeddedBroker) -> None:
    """Nobody outside this machine can reach any socket of the broker or of its keeper, and the address is one of them."""
    assert running.pid is not None
    assert running._keeper is not None
    sockets = listening(running.pid) | listening(running._keeper.pid)
    host, port = running.address.split(":")
    assert (host, int(port)) in sockets
    assert {address for address, _ in sockets} == {"127.0.0.1"}


def test_two_brokers_get_different_ports(running: EmbeddedBroker) -> None:
    """Port 0 means a free port for each."""
    with EmbeddedBroker() as other:
        assert other.address != running.address


def test_carries_keys_headers_and_tombstones(running: EmbeddedBroker) -> None:
    """What an idempotent producer wrote to one partition comes back whole, in order, and nowhere else."""
    _create(running.address, "round-trip")
    producer = Producer({"bootstrap.servers": running.address, "enable.idempotence": True, "linger.ms": 0})
    headers = [("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"), ("empty", b""), ("none", None)]
    producer.produce("round-trip", key=b"s1", value=b'{"round":1}', partition=1, headers=headers)
    producer.produce("round-trip", key=b"s1", value=None, partition=1)
    producer.produce("round-trip", key=None, value=b"", partition=1)
    assert producer.flush(10) == 0

    messages = _read(running.address, "round-trip", 1, 3)

    assert [(m.offset(), m.key(), m.value()) for m in messages] == [
        (0, b"s1", b'{"round":1}'),
        (1, b"s1", None),
        (2, None, b""),
    ]
    assert messages[0].headers() == headers
    probe = Consumer({"bootstrap.servers": running.address, "group.id": "unused"})
    assert probe.get_watermark_offsets(TopicPartition("round-trip", 0), timeout=5) == (0, 0)
    assert probe.get_watermark_offsets(TopicPartition("round-trip", 1), timeout=5) == (0, 3)
    probe.close()


def test_end_offset_counts_records_not_batches(running: EmbeddedBroker) -> None:
    """A worker recovers a table up to the end offset, so the offset after one batch of many records must be right."""
    _create(running.address, "batch", 1)
    producer = Producer({"bootstrap.servers": running.address, "linger.ms": 100})
    for number in range(100):
        producer.produce("batch", key=b"k", value=b"%d" % number, partition=0)
    assert producer.flush(10) == 0
    probe = Consumer({"bootstrap.servers": running.address, "group.id": "unused"})
    assert probe.get_watermark_offsets(TopicPartition("batch", 0), timeout=5) == (0, 100)
    probe.close()


def test_finds_offsets_by_time(running: EmbeddedBroker) -> None:
    """A listener starts at the first record younger than the command's time to live."""
    _create(running.address, "times", 1)
    producer = Producer({"bootstrap.servers": running.address})
    for stamp in (1_000, 2_000, 3_000):
        producer.produce("times", value=b"x", partition=0, timestamp=stamp)
    assert producer.flush(10) == 0
    probe = Consumer({"bootstrap.servers": running.address, "group.id": "unused"})
    found = probe.offsets_for_times([TopicPartition("times", 0, 1_500)], timeout=5)
    probe.close()
    assert [each.offset for each in found] == [1]


def test_stop_frees_the_port_and_may_be_repeated() -> None:
    """After stop() nothing listens, the process is gone, and the object can be started again."""
    broker = EmbeddedBroker()
    address = broker.start()
    pid = broker.pid
    assert pid is not None
    broker.stop()
    broker.stop()
    assert not _alive(pid)
    assert not broker.running
    with pytest.raises(BrokerFailed, match="not started"):
        _ = broker.address
    host, port = address.split(":")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), timeout=1)
    with broker:
        assert broker.running


def test_keeps_records_in_a_data_dir(tmp_path: Path) -> None:
    """With a data_dir, a stopped broker's records are there after the next start; without one, nothing is."""
    with EmbeddedBroker(data_dir=tmp_path / "kept") as broker:
        _create(broker.address, "kept", 1)
        producer = Producer({"bootstrap.servers": broker.address})
        producer.produce("kept", value=b"still here", partition=0)
        assert producer.flush(10) == 0
    with EmbeddedBroker(data_dir=tmp_path / "kept") as broker:
        assert [m.value() for m in _read(broker.address, "kept", 0, 1)] == [b"still here"]
    with EmbeddedBroker() as broker:
        assert "kept" not in AdminClient({"bootstrap.servers": broker.address}).list_topics(timeout=5).topics


_OWNER = """
import sys, time
from leadline.broker import EmbeddedBroker
broker = EmbeddedBroker()
broker.start()
{then}
print(broker.pid, broker._scratch, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize(
    "then",
    [
        pytest.param("", id="alone"),
        # The fork holds the pipe that the keeper watches, so the pipe alone would never tell.
        pytest.param("import os\nif os.fork() == 0: sys.stdin.read(); os._exit(0)", id="while-a-fork-lives"),
    ],
)
def test_gone_after_the_owner_is_killed(then: str) -> None:
    """kill -9 of the owner takes the broker and its scratch folder along."""
    pipe = subprocess.PIPE
    owner = subprocess.Popen([sys.executable, "-c", _OWNER.format(then=then)], stdin=pipe, stdout=pipe, text=True)
    assert owner.stdin is not None
    assert owner.stdout is not None
    pid_text, scratch = owner.stdout.readline().split()
    pid = int(pid_text)
    assert _alive(pid)
    owner.kill()
    owner.wait()
    try:
        _until(lambda: not _alive(pid), "the broker ends after its owner")
        _until(lambda: not Path(scratch).exists(), "the scratch folder is removed")
    finally:
        owner.stdin.close()  # lets the fork end, if there is one
        owner.stdout.close()


def test_gone_after_the_keeper_is_killed() -> None:
    """Even without its keeper the broker does not stay behind."""
    broker = EmbeddedBroker()
    broker.start()
    pid = broker.pid
    assert pid is not None
    parent = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    os.kill(parent, signal.SIGKILL)
    _until(lambda: not _alive(pid), "the broker ends after its keeper")
    _until(lambda: not broker.running, "the owner sees it")
    broker.stop()


def test_taken_port_is_said(running: EmbeddedBroker) -> None:
    """A taken port is refused in one sentence with the port's number, and the one who has it is left alone."""
    port = int(running.address.split(":")[1])
    with pytest.raises(BrokerUnavailable, match=rf"^Port {port} on 127\.0\.0\.1 is taken: .*choose another port.*\.$"):
        EmbeddedBroker(port=port).start()
    assert running.running


def test_missing_extra_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the extra, the message is the command that installs it."""
    monkeypatch.setitem(sys.modules, "noida_db", None)
    with pytest.raises(BrokerUnavailable, match=r"pip install 'leadline\[demo\]'"):
        EmbeddedBroker().start()


def test_unsupported_platform_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a platform that it cannot run on, the message names the platform and the way out."""
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(BrokerUnavailable, match=r"not on win32: use --bootstrap"):
        EmbeddedBroker().start()


@pytest.mark.parametrize(
    ("script", "timeout", "expected"),
    [
        ("echo bad luck; exit 3", 30, r"(?s)exited with code 3 at start.*\n  bad luck$"),
        ("echo I never listen; exec sleep 600", 2, r"(?s)did not answer within 2 s.*\n  I never listen$"),
    ],
    ids=["dies", "hangs"],
)
def test_a_failed_start_shows_the_last_output(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, timeout: float, expected: str
) -> None:
    """A broker that dies or hangs at start is reported with what it wrote last, and leaves no process."""
    program = tmp_path / "broker"
    program.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(_embedded, "_command", lambda: str(program))
    with pytest.raises(BrokerFailed, match=expected):
        EmbeddedBroker(start_timeout=timeout).start()
    assert not _alive(int((tmp_path / "pid").read_text()))


def test_what_it_cannot_do_is_named_with_a_way_out() -> None:
    """No feature is listed that it has, and none that it lacks goes without the way out."""
    assert set(CAPABILITIES.cannot) == set(Feature)
    assert all("Apache Kafka" in why for why in CAPABILITIES.cannot.values())


def test_errors_belong_to_the_tree() -> None:
    """What somebody must change first is Refused; what may work the next time is a BrokerError."""
    assert issubclass(BrokerFailed, BrokerError)
    assert issubclass(BrokerUnavailable, Refused)


_SERVE = """
from leadline.broker import serve
serve(lambda address: print(address, flush=True))
print("ended", flush=True)
"""


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_serve_runs_until_told_to_stop(signum: signal.Signals) -> None:
    """serve() hands out the address, ends in order on either signal, and leaves nothing that listens."""
    process = subprocess.Popen([sys.executable, "-c", _SERVE], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        host, port = process.stdout.readline().strip().split(":")
        socket.create_connection((host, int(port)), timeout=5).close()
        process.send_signal(signum)
        assert process.wait(20) == 0
        assert process.stdout.read() == "ended\n"
    finally:
        process.kill()
        process.stdout.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), timeout=1)
