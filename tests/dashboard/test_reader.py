"""What the reader makes of what it seldom meets: a record that ends it, topics that are made anew, very many heartbeats."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import msgspec
import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from leadline.contracts.codec import encode
from leadline.contracts.ids import state_key
from leadline.contracts.orders import Heartbeat
from leadline.contracts.session_state import encode_state
from leadline.contracts.times import format_ms
from leadline.contracts.topics import COMMANDS, SESSIONS, TOPICS
from leadline.dashboard import reader as readers
from leadline.dashboard.reader import Reader
from leadline.dashboard.view import FleetView
from leadline.settings import load_settings
from tests.dashboard.feed import Feed, inverting
from tests.dashboard.test_serve import PARTITION, Topics
from tests.support.core import round_

pytestmark = pytest.mark.timeout(120)


def wall() -> int:
    return time.time_ns() // 1_000_000


@contextlib.contextmanager
def reading(
    bootstrap: str, view: FleetView, now: Callable[[], int] = wall, renewed: Callable[[], None] = lambda: None
) -> Iterator[tuple[Reader, threading.Lock]]:
    lock = threading.Lock()
    reader = Reader(load_settings({}, bootstrap=bootstrap), view, lock, now, renewed)
    try:
        yield reader, lock
    finally:
        reader.close()


def until(true: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_reader_that_stopped_says_so_for_ever(fresh_bootstrap: str) -> None:
    """An answer of the broker, once a second, does not make it well again."""

    class Broken(FleetView):
        def apply_state(self, partition: int, key: bytes | None, value: bytes | None) -> None:
            raise ZeroDivisionError

    asked: list[int] = []

    def now() -> int:
        asked.append(wall())
        return asked[-1]

    written = Topics(fresh_bootstrap)
    with reading(fresh_bootstrap, Broken(), now) as (reader, _):
        written.write(SESSIONS.name, "k", b"{}")
        written.flush()
        until(lambda: reader.reading().stopped)
        probes = len(asked)
        until(lambda: len(asked) > probes + 1)  # One whole look at the ends of the topics lies between.
        assert reader.reading().error == "reading stopped: ZeroDivisionError"
        assert reader.reading().stopped


def test_partitions_that_have_no_leader_yet_are_waited_for(fresh_bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of a topic that was just made: twice the broker is not the leader, then it is."""
    begin, answers = Reader._begin, [KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE]

    def leaderless(self: Reader) -> None:
        if answers:
            raise KafkaException(KafkaError(answers.pop()))
        begin(self)

    monkeypatch.setattr(Reader, "_begin", leaderless)
    Topics(fresh_bootstrap)
    with reading(fresh_bootstrap, FleetView()) as (reader, _):
        assert reader.wait_restored(30)
    assert answers == []


def test_topics_made_anew_of_which_nothing_is_heard_are_asked_for_again(
    fresh_bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client's answer never comes, neither as one nor as a failure: the reader says so, and reads once it does."""
    mute, asked = threading.Event(), threading.Event()

    class Mute(AdminClient):  # type: ignore[misc]
        def list_offsets(self, places: Any, **options: Any) -> Any:
            if not mute.is_set():
                return super().list_offsets(places, **options)
            if threading.current_thread().name == "dashboard-reader":
                # From here on it waits for the answer alone: what it asked before may take as long as it likes.
                monkeypatch.setattr(readers, "REACH_S", 0.01)
                asked.set()
            return {place: Future() for place in places}

    monkeypatch.setattr(readers, "AdminClient", Mute)
    Topics(fresh_bootstrap)
    with reading(fresh_bootstrap, FleetView()) as (reader, _):
        assert reader.wait_restored(30)
        mute.set()
        reader._anew.set()
        assert asked.wait(30)
        until(lambda: reader.reading().error)
        monkeypatch.setattr(readers, "REACH_S", 10.0)
        mute.clear()
        until(lambda: not reader._anew.is_set() or reader.reading().stopped)
        assert reader.wait_restored(30)
        assert not reader.reading().stopped


def test_topics_that_are_made_anew_are_read_anew(fresh_bootstrap: str) -> None:
    """As after a disaster: what stands on them has lower offsets than what was seen before, and is no older for it."""
    view, feed = FleetView(), Feed()
    inverting(feed)
    written = Topics(fresh_bootstrap)
    state = feed.monitor.load(state_key("s1", "a1"))
    assert state is not None
    for name in ("s1", "lost"):
        record = msgspec.structs.replace(state, session_id=name, offset=100_000)
        written.write(SESSIONS.name, state_key(name, "a1"), encode_state(record))
    written.publish(feed)
    renewed = threading.Event()
    with reading(fresh_bootstrap, view, renewed=renewed.set) as (reader, lock):
        until(lambda: reader.reading().as_of)
        with lock:
            assert len(view.journal.violations) == len(feed.monitor.violations) > 0
            slots = {row.slot for row in view.take_changes().rows}
        assert not renewed.is_set()
        admin = AdminClient({"bootstrap.servers": fresh_bootstrap, "log_level": 0})
        for future in admin.delete_topics([topic.name for topic in TOPICS]).values():
            future.result(30.0)
        again, after = Topics(fresh_bootstrap), Feed()
        after.send(round_(3, session_id="s1"))
        again.publish(after)
        until(lambda: renewed.is_set() and (found := view.find("s1", "a1")) is not None and found.row.round == 3)
        until(lambda: reader.reading().as_of)
        with lock:
            assert {one.who.session_id for one in view.sessions()} == {"s1"}
            assert len(view.journal.violations) == 0
            assert set(view.take_changes().gone) == slots, "pages are told"
        # What a probe met while the topics were away is said until the next one.
        until(lambda: reader.reading().error == "")


def test_heartbeats_do_not_push_out_commands(fresh_bootstrap: str) -> None:
    """2,600 heartbeats after the commands of one partition of four; and a command of two days ago, which is not read back."""
    view, feed = FleetView(), Feed()
    inverting(feed)
    Topics(fresh_bootstrap)
    producer = Producer({"bootstrap.servers": fresh_bootstrap, "log_level": 0})
    beat = encode(Heartbeat(partition=PARTITION, at=format_ms(wall()), every_ms=5_000))
    ancient = msgspec.structs.replace(feed.monitor.commands[0], command_id="ancient")
    producer.produce(COMMANDS.name, encode(ancient), b"s1", partition=PARTITION, timestamp=wall() - 2 * 86_400_000)
    for order in feed.monitor.commands:
        producer.produce(COMMANDS.name, encode(order), b"s1", partition=PARTITION)
    for _ in range(2_600):
        producer.produce(COMMANDS.name, beat, partition=PARTITION)
    assert producer.flush(60.0) == 0
    with reading(fresh_bootstrap, view) as (reader, _):
        until(lambda: reader.reading().as_of)
    assert {kept.record.command_id for kept in view.journal.commands.values()} == {
        order.command_id for order in feed.monitor.commands
    }
