"""The emitter with a spool behind it: trouble, disks that fail, processes that die or fork."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from leadline.agent import Emitter, MemoryTransport
from leadline.agent.emitter import DropReason
from leadline.agent.spool import Spool
from leadline.agent.transport import Blocked, Delivery, Headers, OnDelivery
from leadline.contracts.codec import decode_event
from leadline.contracts.events import AgentEvent, Round, SessionStart
from tests.agent.support import eventually, round_event

EVENTS = "leadline.events"
ROOT = Path(__file__).resolve().parents[2]


def sent(transport: MemoryTransport) -> list[AgentEvent]:
    return [decode_event(record.value).event for record in transport.records(EVENTS)]  # type: ignore[misc]


def numbers(transport: MemoryTransport) -> list[int]:
    return [event.round for event in sent(transport) if isinstance(event, Round)]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trouble is trouble at once."""
    monkeypatch.setattr("leadline.agent.sender._SPILL_SECONDS", 0.0)
    monkeypatch.setattr("leadline.agent.sender._RETRY_SECONDS", 0.01)
    monkeypatch.setattr("leadline.agent.sender._BLOCKED_SECONDS", 0.05)


@pytest.mark.usefixtures("quick")
def test_with_the_broker_away_events_go_to_disk_and_later_out_in_order(make: Callable[..., Spool], tmp_path: Path) -> None:
    """300 while it is away, 100 with a client that is full at 50; all 400 arrive once, in order, and the disk is empty again."""
    transport = MemoryTransport(partitions=1, queue_limit=50)
    transport.up = False
    emitter = Emitter(transport, spool=make())
    for n in range(300):
        emitter.emit(round_event(number=n))
    eventually(lambda: emitter.counters().spooled == 300, "all are on disk")
    assert emitter.counters().queued == 0
    transport.up = True
    for n in range(300, 400):
        emitter.emit(round_event(number=n))
    assert emitter.flush(10) == 0
    assert numbers(transport) == list(range(400))
    eventually(lambda: not list((tmp_path / "spool").iterdir()), "the file is gone")
    counters = emitter.counters()
    assert (counters.delivered, counters.spooled, counters.in_flight, dict(counters.dropped)) == (400, 0, 0, {})
    emitter.close()


@pytest.mark.usefixtures("quick")
def test_what_was_kept_at_the_end_is_sent_by_the_next_process_before_its_own(
    make: Callable[..., Spool], caplog: pytest.LogCaptureFixture
) -> None:
    """Closing without a broker loses nothing, and says where it is. The next emitter sends the old events first."""
    transport = MemoryTransport(partitions=1)
    transport.up = False
    emitter = Emitter(transport, spool=make())
    for n in range(10):
        emitter.emit(round_event(number=n))
    assert emitter.close(0.05) == 0
    assert "10 events wait in" in caplog.text
    assert dict(emitter.counters().dropped) == {}
    after = MemoryTransport(partitions=1)
    following = Emitter(after, spool=make())
    following.emit(round_event(number=10))
    assert following.flush(5) == 0
    assert numbers(after) == list(range(11))
    assert following.counters().adopted == 10
    following.close()


@pytest.mark.usefixtures("quick")
def test_past_the_bound_alarms_and_the_newest_arrive_and_what_gave_way_is_told(
    make: Callable[..., Spool],
) -> None:
    """A start, 5,000 rounds with an alarm among every 100, room for some 350: the start and the 50 alarms arrive, as do the
    newest rounds, and what gave way is counted, and told by what was sent."""
    transport = MemoryTransport(partitions=1, queue_limit=10)
    transport.up = False
    emitter = Emitter(transport, max_queued=50_000, spool=make(max_bytes=250_000))
    emitter.emit(SessionStart(session_id="s-1", agent_id="a-1"))
    for n in range(5_000):
        emitter.emit(round_event(number=n, outcome="failed" if n % 100 == 0 else "ok"))
    eventually(lambda: emitter.counters().spooled + emitter.counters().dropped[DropReason.SPOOL_FULL] == 5_001, "all on disk")
    transport.up = True
    assert emitter.flush(20) == 0
    arrived = sent(transport)
    counters = emitter.counters()
    assert isinstance(arrived[0], SessionStart)
    assert numbers(transport) == sorted(numbers(transport))
    assert {*range(0, 5_000, 100), *range(4_900, 5_000)} <= {*numbers(transport)}
    assert counters.dropped[DropReason.SPOOL_FULL] == 5_001 - len(arrived) > 4_000
    assert sum(event.lost_before for event in arrived) == counters.dropped[DropReason.SPOOL_FULL]
    emitter.close()


def test_without_a_spool_the_next_event_of_the_session_tells_what_was_dropped_in_memory() -> None:
    """The client has 2 of 20, the queue takes 5: what gave way is told by the first event that was sent after the gap."""
    transport = MemoryTransport(partitions=1, queue_limit=2)
    transport.up = False
    emitter = Emitter(transport, max_queued=5)
    for n in range(20):
        emitter.emit(round_event(number=n))
    transport.up = True
    assert emitter.flush(5) == 0
    arrived = [event for event in sent(transport) if isinstance(event, Round)]
    dropped = emitter.counters().dropped[DropReason.QUEUE_FULL]
    assert dropped == 20 - len(arrived) > 0
    assert sum(event.lost_before for event in arrived) == dropped
    assert [event.round for event in arrived] == sorted(event.round for event in arrived)
    assert arrived[-1].round == 19
    emitter.close()


def test_an_event_that_was_to_tell_of_a_gap_and_gives_way_itself_leaves_the_gap_to_the_next_one() -> None:
    """Each burst drops what the client had refused before, that with the gap first of all."""
    refused = threading.Semaphore(0)

    class Full(MemoryTransport):
        def producer(self) -> Any:
            producer = super().producer()
            produce = producer.produce

            def telling(*record: Any) -> None:
                try:
                    produce(*record)
                except BufferError:
                    refused.release()
                    raise

            producer.produce = telling  # type: ignore[method-assign,assignment]
            return producer

    transport = Full(partitions=1, queue_limit=2)
    transport.up = False
    emitter = Emitter(transport, max_queued=5)
    for burst in range(4):
        for n in range(20):
            emitter.emit(round_event(number=20 * burst + n))
        done = 20 * (burst + 1)
        eventually(lambda: emitter.counters().emitted == done, "all gathered")  # noqa: B023
        while refused.acquire(blocking=False):
            pass
        assert refused.acquire(timeout=10), "the client is full, and was asked again"
    transport.up = True
    assert emitter.flush(5) == 0
    arrived = sent(transport)
    assert emitter.counters().dropped[DropReason.QUEUE_FULL] == 80 - len(arrived) > 60
    assert sum(event.lost_before for event in arrived) == 80 - len(arrived)
    emitter.close()


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("failing", ["append", "read", "remove"])
def test_a_disk_that_fails_costs_one_warning_and_no_event(
    make: Callable[..., Spool], failing: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Writing, reading or deleting fails for good. What could not be stored waits in memory; what was on disk stays there for the
    next process: each of 20 events is sent by one of them at least."""

    def fail(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    transport = MemoryTransport(partitions=1, queue_limit=5)
    transport.up = False
    one = make()
    monkeypatch.setattr(one, failing, fail)
    emitter = Emitter(transport, spool=one)
    for n in range(20):
        emitter.emit(round_event(number=n))
    eventually(lambda: "cannot be used" in caplog.text or emitter.counters().spooled == 20, "the disk is tried")
    transport.up = True
    emitter.flush(0.5)
    emitter.close(0.5)
    following = Emitter(transport, spool=make())
    following.emit(round_event(number=20))
    assert following.flush(5) == 0
    assert {*numbers(transport)} == {*range(21)}
    assert caplog.text.count("cannot be used") == 1
    assert dict(emitter.counters().dropped) == {}
    following.close()


def test_a_directory_that_cannot_be_made_leaves_memory(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The place is a file: one warning, and at the end the events are counted as lost."""
    (tmp_path / "file").write_text("")
    transport = MemoryTransport()
    transport.up = False
    emitter = Emitter(transport, spool=Spool(tmp_path / "file" / "spool", "kafka:9092"))
    for n in range(3):
        emitter.emit(round_event(number=n))
    assert emitter.close(0.05) == 3
    assert caplog.text.count("cannot be used") == 1
    assert "3 events were not delivered" in caplog.text


@pytest.mark.usefixtures("quick")
def test_a_path_that_cannot_be_opened_at_all_leaves_memory(caplog: pytest.LogCaptureFixture) -> None:
    """Opening it raises no ``OSError`` but a ``ValueError``: one warning, and events are sent once the broker is there."""
    transport = MemoryTransport(partitions=1)
    transport.up = False
    emitter = Emitter(transport, spool=Spool(Path("/tmp/a\0b"), "kafka:9092"))
    for n in range(3):
        emitter.emit(round_event(number=n))
    eventually(lambda: "cannot be used" in caplog.text, "the disk is tried")
    transport.up = True
    assert emitter.flush(5) == 0
    assert numbers(transport) == [0, 1, 2]
    assert emitter.close(0.5) == 0
    assert caplog.text.count("cannot be used") == 1


class _Barred(MemoryTransport):
    """Its clients may not write, as long as ``barred``: each record is refused when it is polled."""

    barred = True
    made = 0

    def producer(self):  # type: ignore[no-untyped-def]
        self.made += 1
        inner = super().producer()
        if not self.barred:
            return inner
        held: list[OnDelivery] = []

        def produce(topic: str, key: bytes, value: bytes, headers: Headers, on_delivery: OnDelivery) -> None:
            held.append(on_delivery)

        def poll(timeout: float) -> None:
            while held:
                held.pop(0)(Delivery(-1, -1, "Topic authorization failed", again=True, blocked=True))

        inner.produce, inner.poll, inner.flush = produce, poll, poll  # type: ignore[method-assign]
        return inner


@pytest.mark.usefixtures("quick")
def test_an_agent_that_may_not_write_is_told_apart_and_sends_once_it_may(
    make: Callable[..., Spool], caplog: pytest.LogCaptureFixture
) -> None:
    """One error in the log, ``blocked`` says why; nothing is dropped; once the right was granted all arrives in order."""
    transport = _Barred(partitions=1)
    emitter = Emitter(transport, spool=make())
    for n in range(5):
        emitter.emit(round_event(number=n))
    eventually(lambda: transport.made >= 3 and emitter.counters().spooled == 5, "several attempts")
    assert emitter.counters().blocked == "Topic authorization failed"
    assert [entry.levelname for entry in caplog.records if "until somebody changes what is wrong" in entry.message] == ["ERROR"]
    transport.barred = False
    assert emitter.flush(10) == 0
    assert numbers(transport) == [0, 1, 2, 3, 4]
    assert emitter.counters().blocked == ""
    assert dict(emitter.counters().dropped) == {}
    emitter.close()


def test_blocked_is_worth_another_attempt_later() -> None:
    from leadline.errors import Retryable

    assert issubclass(Blocked, Retryable)


# -- processes


def run(source: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(source), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode in (0, -9), done.stderr
    return done.stdout


KILLED = """
    import os, signal, sys
    from pathlib import Path
    from leadline.agent import Emitter, MemoryTransport, sender
    from leadline.agent.spool import Spool
    from tests.agent.support import eventually, round_event

    sender._SPILL_SECONDS = 0.0
    transport = MemoryTransport(partitions=1)
    transport.up = False
    emitter = Emitter(transport, spool=Spool(Path(sys.argv[1]), "kafka:9092"))
    for n in range(100):
        emitter.emit(round_event(number=n))
    eventually(lambda: emitter.counters().spooled == 100)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_leaves_its_events_to_the_next(tmp_path: Path) -> None:
    """Killed with 100 events on disk, and its write-ahead log still open: the next process sends all of them, in order."""
    run(KILLED, str(tmp_path))
    transport = MemoryTransport(partitions=1)
    emitter = Emitter(transport, spool=Spool(tmp_path, "kafka:9092"))
    emitter.emit(round_event(number=100))
    assert emitter.flush(5) == 0
    assert numbers(transport) == list(range(101))
    emitter.close()


FORKED = """
    import os, sys
    from pathlib import Path
    from leadline.agent import Emitter, MemoryTransport, sender
    from leadline.agent.spool import Spool
    from tests.agent.support import eventually, round_event

    sender._SPILL_SECONDS = 0.0
    transport = MemoryTransport(partitions=1)
    transport.up = False
    emitter = Emitter(transport, spool=Spool(Path(sys.argv[1]), "kafka:9092"))

    def spool(first, last):
        for n in range(first, last):
            emitter.emit(round_event(str(os.getpid()), n))
        eventually(lambda: emitter.counters().spooled == last, timeout=30)

    spool(0, 50)
    children = []
    for _ in range(3):
        child = os.fork()
        if child == 0:
            # The child has a queue and a spool of its own.
            spool(0, 20)
            emitter.close(0.1)
            os._exit(0)
        children.append(child)
    spool(50, 70)
    codes = [os.waitpid(child, 0)[1] for child in children]
    transport.up = True
    left = emitter.flush(10)
    mine = [r.key.decode() for r in transport.records("leadline.events")].count(str(os.getpid()))
    print(codes, left, mine, emitter.counters().dropped.total(), emitter.close(1))
"""


def test_a_fork_in_the_middle_of_trouble_leaves_each_process_its_own_spool(tmp_path: Path) -> None:
    """50 events on disk, three forks with 20 each, 20 more: the parent delivers its 70, the children's 60 wait."""
    assert run(FORKED, str(tmp_path)) == "[0, 0, 0] 0 70 0 0\n"
    transport = MemoryTransport(partitions=1)
    emitter = Emitter(transport, spool=Spool(tmp_path, "kafka:9092"))
    emitter.emit(round_event("last", 0))
    assert emitter.flush(5) == 0
    by_session: dict[str, list[int]] = {}
    for event in sent(transport):
        assert isinstance(event, Round)
        by_session.setdefault(event.session_id, []).append(event.round)
    by_session.pop("last")
    assert sorted(by_session.values()) == [list(range(20))] * 3
    emitter.close()
