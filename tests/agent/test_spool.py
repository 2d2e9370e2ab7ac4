"""The spool: a bounded FIFO on disk, one file a process, that the next process takes over."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from leadline.agent import spool
from leadline.agent.outbox import ONCE, ORDINARY, TELLING
from leadline.agent.records import Record, with_gap
from leadline.agent.spool import Spool, default_directory
from leadline.contracts.trace import NO_TRACE, TraceContext


def record(name: str, session: str = "s", rank: int = ORDINARY, size: int = 100) -> Record:
    """Costs ``size`` + 202 bytes of the bound."""
    return Record(session, name, "leadline.round/1", rank, b"{}" + b" " * (size - 2), NO_TRACE)


def names(one: Spool, after: int = 0) -> list[str]:
    return [stored.record.event_id for stored in one.read(after, 1_000)]


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
