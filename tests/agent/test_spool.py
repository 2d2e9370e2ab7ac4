"""The spool: a bounded FIFO on disk, one file a process, that the next process takes over."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from leadline.agent import Emitter, MemoryTransport, spool
from leadline.agent.emitter import DropReason
from leadline.agent.outbox import ONCE, ORDINARY, TELLING
from leadline.agent.records import Record, with_gap
from leadline.agent.spool import Spool, default_directory
from leadline.agent.transport import Blocked, Delivery, Headers, OnDelivery
from leadline.contracts.codec import decode_event
from leadline.contracts.events import AgentEvent, Round, SessionStart
from leadline.contracts.trace import NO_TRACE, TraceContext
from tests.agent.support import eventually, round_event

EVENTS = "leadline.events"
ROOT = Path(__file__).resolve().parents[2]


def record(name: str, session: str = "s", rank: int = ORDINARY, size: int = 100) -> Record:
    """Costs ``size`` + 202 bytes of the bound."""
    return Record(session, name, "leadline.round/1", rank, b"{}" + b" " * (size - 2), NO_TRACE)


def names(one: Spool, after: int = 0) -> list[str]:
    return [stored.record.event_id for stored in one.read(after, 1_000)]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Spool]]:
    made: list[Spool] = []

    def spool_of(target: str = "kafka:9092", **options: int) -> Spool:
        made.append(Spool(tmp_path / "spool", target, **options))
        return made[-1]

    yield spool_of
    for one in made:
        one.close()


def test_records_come_back_as_they_were_in_order(make: Callable[..., Spool]) -> None:
    one = make()
    trace = TraceContext(f"00-{1:032x}-{2:016x}-01", "vendor=1")
    first = Record("sitzung-ä", "e-1", "leadline.ack/1", ONCE, b'{"a":1}', trace)
    places, gone = one.append([first, record("e-2"), record("e-3")])
    assert (places, gone, len(one)) == ([1, 2, 3], [], 3)
    assert [stored.record for stored in one.read(0, 2)] == [first, record("e-2")]
    assert names(one, after=2) == ["e-3"]
    one.remove([1, 3])
    assert (len(one), names(one)) == (1, ["e-2"])


def test_nothing_is_written_before_it_is_needed_and_nothing_stays_behind(make: Callable[..., Spool], tmp_path: Path) -> None:
    """No directory at first; files of this user alone; none once all is delivered and the spool is closed."""
    one = make()
    assert (len(one), one.adopt(), one.read(0, 10)) == (0, (0, []), [])
    assert not (tmp_path / "spool").exists()
    one.append([record("e")])
    assert (tmp_path / "spool").stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in (tmp_path / "spool").iterdir()} == {0o600}
    one.remove([1])
    assert one.close() == 0
    assert list((tmp_path / "spool").iterdir()) == []
    one.append([record("again")])
    assert names(one) == ["again"]


def test_past_the_bound_the_least_telling_gives_way_the_oldest_first(make: Callable[..., Spool]) -> None:
    """Room for 4 records: r1 and r2 give way for alarms and r4 stays, being the newest; then only alarms are left to give way."""
    one = make(max_bytes=4 * 302)
    one.append([record("start", rank=ONCE), record("r1"), record("a1", rank=TELLING), record("r2")])
    _, gone = one.append([record("a2", rank=TELLING), record("r4")])
    assert [each.event_id for each in gone] == ["r1", "r2"]
    _, gone = one.append([record("a3", rank=TELLING), record("a4", rank=TELLING)])
    assert [each.event_id for each in gone] == ["r4", "a1"]
    assert names(one) == ["start", "a2", "a3", "a4"]


def test_what_the_client_has_does_not_give_way(make: Callable[..., Spool]) -> None:
    """Neither the first of a batch, where they are in flight, nor what was read before."""
    one = make(max_bytes=3 * 302)
    _, gone = one.append([record("r1"), record("r2"), record("r3"), record("r4")], in_flight=2)
    assert [each.event_id for each in gone] == ["r3"]
    _, gone = one.append([record("r5")], kept=4)
    assert [each.event_id for each in gone] == ["r5"]


def test_the_next_event_of_the_session_tells_how_many_gave_way(make: Callable[..., Spool]) -> None:
    """Of session a, rounds 1 and 2 are lost, and told by 4, the first that came after them; also when it is read again. Session b
    lost none."""
    one = make(max_bytes=2 * 302)
    one.append([record("a0", "a", rank=ONCE), record("a1", "a")])
    one.append([record("a2", "a")])
    one.append([record("a4", "a", rank=TELLING)])
    assert names(one) == ["a0", "a4"]
    values = [stored.record.value.strip() for stored in one.read(0, 10)]
    assert values == [b"{}", b'{"lost_before":2}']
    assert [stored.record.value.strip() for stored in one.read(1, 10)] == [b'{"lost_before":2}']
    one.append([record("b", "b", rank=ONCE)])
    assert one.read(2, 10)[0].record.value.strip() == b"{}"


def test_gaps_add_up() -> None:
    assert with_gap(b'{"lost_before":2,"x":1}', 3) == b'{"lost_before":5,"x":1}'


# -- several processes


def test_a_spool_in_use_is_nobody_elses(make: Callable[..., Spool]) -> None:
    one, other = make(), make()
    one.append([record("mine")])
    assert other.adopt() == (0, [])
    assert names(one) == ["mine"]


def test_what_is_left_is_taken_over_the_oldest_first_with_its_gaps(make: Callable[..., Spool], tmp_path: Path) -> None:
    """Two spools were left behind, the younger with a gap; a third process has both, in order, and their files are gone."""
    for number, name in enumerate(("older", "younger")):
        left = make(max_bytes=302)
        left.append([record(f"{name} 1")])
        left.append([record(f"{name} 2")] if name == "younger" else [])
        path = left.path
        assert path is not None
        assert left.close() == 1
        for each in (path, path.with_suffix(".lock")):
            os.utime(each, (number, number + 1_000_000_000))
    one = make()
    taken, gone = one.adopt()
    assert (taken, gone, names(one)) == (2, [], ["older 1", "younger 2"])
    assert one.read(1, 1)[0].record.value.strip() == b'{"lost_before":1}'
    assert len(list((tmp_path / "spool").glob("*.db"))) == 1


def test_another_clusters_events_are_left_alone_and_removed_when_they_are_old(
    make: Callable[..., Spool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = make("elsewhere:9092")
    other.append([record("e")])
    other.close()
    one = make()
    assert one.adopt() == (0, [])
    assert len(list((tmp_path / "spool").glob("*.db"))) == 1
    monkeypatch.setattr(spool, "_KEEP_SECONDS", -1)
    assert one.adopt() == (0, [])
    assert list((tmp_path / "spool").iterdir()) == []


def test_a_damaged_file_is_put_aside_and_told(make: Callable[..., Spool], caplog: pytest.LogCaptureFixture) -> None:
    left = make()
    left.append([record("e")])
    path = left.path
    assert path is not None
    left.close()
    path.write_bytes(b"no database at all" * 1_000)
    assert make().adopt() == (0, [])
    assert path.with_suffix(".damaged").exists()
    assert not path.exists()
    assert "cannot be read and is put aside" in caplog.text


def test_files_that_are_none_of_ours_cost_no_more_than_themselves(
    make: Callable[..., Spool], tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory, a table without columns, a value of another type and a text that is none are put aside. What cannot be opened
    now waits for its turn. What lies beside them is adopted, and our own spool works."""
    monkeypatch.setattr("leadline.agent.spool_files.BUSY_SECONDS", 0.0)
    left, later = make(), make()
    for each, name in ((left, "left"), (later, "later")):
        each.append([record(name)])
    assert left.path is not None
    assert later.path is not None
    hindrance = Path(f"{later.path}-wal")
    prefix = left.path.name.rsplit("-", 2)[0]
    left.close()
    later.close()
    others = [tmp_path / "spool" / f"{prefix}-1-{number}.db" for number in range(4)]
    others[0].mkdir()
    for path, statement in (
        (others[1], "CREATE TABLE event (id)"),
        (others[2], f"CREATE TABLE event AS SELECT 1 AS {spool._COLUMNS.replace(', ', ', 1 AS ')}, 1 AS id, 1 AS size"),
        (others[3], f"CREATE TABLE event AS SELECT CAST(x'ff' AS TEXT) AS {spool._COLUMNS.replace(', ', ', 1 AS ')}, 1 AS id"),
    ):
        with closing(sqlite3.connect(path)) as db, db:
            db.execute(statement)
    for number, path in enumerate(others):  # They are the oldest.
        path.with_suffix(".lock").touch()
        os.utime(path.with_suffix(".lock"), (number, number))
        os.utime(path, (number, number))
    hindrance.mkdir()
    one = make()
    assert [one.adopt()[0] for _ in range(2)] == [1, 0]
    assert names(one) == ["left"]
    one.append([record("mine")])
    for path in others:
        assert path.with_suffix(".damaged").exists()
        assert not path.with_suffix(".lock").exists()
    assert caplog.text.count("is put aside") == 4
    assert caplog.text.count("cannot be taken over now") == 1
    hindrance.rmdir()
    assert one.adopt() == (1, [])
    assert names(one) == ["left", "mine", "later"]


def test_what_does_not_fit_waits_for_its_turn(make: Callable[..., Spool]) -> None:
    left = make()
    left.append([record("left")])
    left.close()
    one = make(max_bytes=302)
    one.append([record("mine")])
    assert one.adopt() == (0, [])
    one.remove([1])
    assert one.adopt() == (1, [])
    assert names(one) == ["left"]


def test_another_users_directory_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The default place lies where everybody may make directories: one that others can read is refused."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    default_directory().mkdir(mode=0o755)
    with pytest.raises(PermissionError, match="not this user's alone"):
        Spool(default_directory(), "kafka:9092").append([record("e")])


# -- behind the emitter


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
