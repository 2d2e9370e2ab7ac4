"""What is claimed of Apache Kafka only: restarts of the broker, rebalances, topics that go away."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import rocksdict
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from leadline.processors import topics as declared
from leadline.processors import worker
from leadline.settings import Settings
from tests.processors import test_real_fold as real
from tests.processors.running import MONITOR, RunningWorker, Topics, round_event, until
from tests.processors.test_crashes import found, oracle, settled, under_way
from tests.support import brokers
from tests.support.wiped import wipe

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def _clean(kafka: brokers.ApacheKafka) -> None:
    wipe(kafka.bootstrap)
    declared.create(Settings(bootstrap=kafka.bootstrap, partitions=4))


@pytest.fixture
def node(kafka: brokers.ApacheKafka, _clean: None) -> Iterator[brokers.ApacheKafka]:
    """The node, up at each test's start and end. The log and the group live on from test to test."""
    yield kafka
    kafka.revive()


@pytest.fixture
def fresh_kafka(broker: brokers.Broker, request: pytest.FixtureRequest) -> str:
    """Apache Kafka with no topics of Leadline's, for one test."""
    if broker.kind != "kafka":
        pytest.skip("needs Apache Kafka: set LEADLINE_TEST_BROKERS=kafka")
    return str(request.getfixturevalue("fresh_bootstrap"))


@pytest.fixture
def topics(node: brokers.ApacheKafka) -> Iterator[Topics]:
    opened = Topics(node.bootstrap)
    yield opened
    opened.close()


class Stream:
    """Rounds of 40 sessions that go on from test to test; one in ten is a violation."""

    number = 0

    @classmethod
    def send(cls, topics: Topics, count: int) -> None:
        for _ in range(count):
            cls.number += 1
            session = f"s{cls.number % 40}"
            topics.send(session, round_event(session, cls.number, raw_tokens=0 if cls.number % 10 == 0 else 5))


def test_a_broker_that_is_killed_and_comes_back(node: brokers.ApacheKafka, topics: Topics, tmp_path: Path) -> None:
    """The worker waits, and goes on by itself; nothing is lost and nothing is doubled in effect."""
    running = RunningWorker(node.bootstrap, tmp_path, broker_away_s=90).ready()
    try:
        Stream.send(topics, 1000)
        topics.flush()
        under_way(topics, 20)
        node.kill()
        Stream.send(topics, 300)
        time.sleep(3)
        node.start()
        topics.flush()
        settled(topics, 90)
        assert running.process.poll() is None, running.log
        Stream.send(topics, 100)
        topics.flush()
        settled(topics, 60)
        assert running.stop() == worker.OK, running.log
    finally:
        running.stop()


def test_a_worker_that_dies_is_replaced_by_another(node: brokers.ApacheKafka, topics: Topics, tmp_path: Path) -> None:
    """Two workers share the partitions; one is killed in mid-stream, the other takes over what it had."""
    one = RunningWorker(node.bootstrap, tmp_path / "one", instance_id="one", session_timeout_s=6)
    two = RunningWorker(node.bootstrap, tmp_path / "two", instance_id="two", session_timeout_s=6)
    try:
        one.ready()
        two.ready()
        done = len(topics.read("leadline.violations"))
        Stream.send(topics, 1500)
        topics.flush()
        under_way(topics, done + 10)
        one.kill()
        Stream.send(topics, 300)
        topics.flush()
        settled(topics, 90)
        assert two.stop() == worker.OK, two.log
    finally:
        one.stop()
        two.stop()


def ids(topics: Topics) -> tuple[set[str], set[str]]:
    return found(topics)[:2]


def test_a_worker_that_joins_and_leaves(node: brokers.ApacheKafka, topics: Topics, tmp_path: Path) -> None:
    """Orderly rebalances in mid-stream, there and back, without static membership."""
    one = RunningWorker(node.bootstrap, tmp_path / "one", instance_id="", session_timeout_s=6).ready()
    two: RunningWorker | None = None
    try:
        Stream.send(topics, 600)
        topics.flush()
        two = RunningWorker(node.bootstrap, tmp_path / "two", instance_id="", session_timeout_s=6)
        Stream.send(topics, 600)
        topics.flush()
        two.ready()
        Stream.send(topics, 600)
        topics.flush()
        assert two.stop() == worker.OK, two.log
        Stream.send(topics, 100)
        topics.flush()
        settled(topics, 90)
        assert one.stop() == worker.OK, one.log
    finally:
        one.stop()
        if two is not None:
            two.stop()


def test_without_its_dead_letter_topic_detection_goes_on(node: brokers.ApacheKafka, topics: Topics, tmp_path: Path) -> None:
    """Loud and counted; and letters arrive again once the topic is back."""
    running = RunningWorker(node.bootstrap, tmp_path, dead_letter_s=1).ready()
    try:
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        admin.delete_topics(["leadline.dead-letters"])["leadline.dead-letters"].result(10)
        topics.send("s1", b"{bad")
        Stream.send(topics, 100)
        topics.flush()
        settled(topics, 60)
        until("a loud line", lambda: "a dead letter could not be delivered" in running.log)
        declared.create(Settings(bootstrap=node.bootstrap))

        def again() -> bool:
            topics.send("s1", b"{bad")
            topics.flush()
            time.sleep(0.5)
            return bool(topics.read("leadline.dead-letters"))

        until("a dead letter", again)
        assert running.stop() == worker.OK, running.log
    finally:
        running.stop()


def test_a_broker_that_stays_away_ends_a_busy_worker(node: brokers.ApacheKafka, topics: Topics, tmp_path: Path) -> None:
    """With records in flight, and past the limit: exit code and one sentence; the next worker picks up all of it."""
    running = RunningWorker(node.bootstrap, tmp_path, broker_away_s=4, drain_s=3).ready()
    try:
        Stream.send(topics, 1000)
        topics.flush()
        node.kill()
        assert running.exit_code(40) == worker.BROKER_AWAY, running.log
        node.start()
        running = RunningWorker(node.bootstrap, tmp_path).ready()
        settled(topics, 60)
    finally:
        running.stop()


def test_the_broker_is_killed_and_comes_back_under_the_real_monitor(
    kafka: brokers.ApacheKafka, fresh_bootstrap: str, tmp_path: Path
) -> None:
    """``leadline monitor`` waits and goes on by itself: every inversion is found once, and the states are those of the log."""
    running = RunningWorker(fresh_bootstrap, tmp_path, MONITOR, broker_away_s=90)
    topics = Topics(fresh_bootstrap)
    try:
        running.ready()
        for number in range(150):
            real.send(topics, f"before-{number}")
        topics.flush()
        under_way(topics, 20)
        kafka.kill()
        for number in range(50):
            real.send(topics, f"meanwhile-{number}")
        time.sleep(2)
        kafka.start()
        topics.flush()
        real.settled(topics, exactly=True)
        assert len(real.inversions(topics, 200)) == 200
        assert running.process.poll() is None, running.log
        assert running.stop() == worker.OK, running.log
    finally:
        running.stop()
        topics.close()
        kafka.revive()


def stopped(running: RunningWorker) -> bool:
    """Whether the process is frozen."""
    return Path(f"/proc/{running.process.pid}/stat").read_text().rpartition(")")[2].split()[0] in "Tt"


def partitions(running: RunningWorker) -> list[int]:
    """What the worker had when it was last ready; nothing before that."""
    assert running.process.poll() is None, running.log
    owned: list[int] = json.loads(running.ready_file.read_text())["partitions"] if running.ready_file.exists() else []
    return owned


@pytest.mark.parametrize("place", ["after-outputs", "after-store"])
def test_a_worker_that_was_frozen_and_wakes_up(fresh_kafka: str, tmp_path: Path, place: str) -> None:
    """Frozen between two steps of a write, it loses its partitions in its sleep, and goes on with that write when it wakes up:
    that must not undo anything. It joins again, and what both have made in the end is what the log leads to."""
    topics = Topics(fresh_kafka)
    options: dict[str, Any] = {"instance_id": "", "session_timeout_s": 6}
    one = RunningWorker(fresh_kafka, tmp_path / "one", test_fault=f"{place}:1:stop", **options).ready()
    two = RunningWorker(fresh_kafka, tmp_path / "two", **options)
    try:
        two.ready()
        until("two workers that share the work", lambda: len(partitions(one)) == len(partitions(two)) == 2)
        Stream.send(topics, 200)
        topics.flush()
        until("a frozen worker", lambda: stopped(one))
        until("the other one to have it all", lambda: len(partitions(two)) == 4)
        Stream.send(topics, 200)
        topics.flush()
        until("what was in the hands of the frozen one", lambda: ids(topics) == oracle(topics)[:2])
        one.process.send_signal(signal.SIGCONT)
        until("both to share the work again", lambda: len(partitions(two)) == len(partitions(one)) == 2)
        Stream.send(topics, 200)
        topics.flush()
        settled(topics, 90)
        assert two.stop() == worker.OK, two.log
        assert one.stop() == worker.OK, one.log
        settled(topics, 1)
    finally:
        one.process.kill()
        one.stop()
        two.stop()
        topics.close()


def copied(running: RunningWorker, partition: int) -> int:
    """The changelog offset up to which a worker's copy of a partition's states goes, as it stands on its disk; -1: none."""
    found = list(running.folder.rglob(f"sessions-{partition}.db"))
    if not found:
        return -1
    options = rocksdict.Options(raw_mode=True)
    try:
        database = rocksdict.Rdict(str(found[0]), options, access_type=rocksdict.AccessType.read_only())
    except Exception:  # rocksdict raises bare Exception; the copy may be in the making.
        return -1
    try:
        return int(database.get(b"__faust\0offset__") or -1)
    finally:
        database.close()


def test_a_standby_copy_takes_over(fresh_kafka: str, tmp_path: Path) -> None:
    """The changelog of the partitions of the worker that dies is emptied before: the states that the other one goes on from can
    only be those of its standby copies. The states count rounds, so that one that began anew would show."""
    topics = Topics(fresh_kafka)
    options: dict[str, Any] = {"session_timeout_s": 6, "standby_replicas": 1}
    one = RunningWorker(fresh_kafka, tmp_path / "one", **{**options, "instance_id": "one"}).ready()
    two = RunningWorker(fresh_kafka, tmp_path / "two", **{**options, "instance_id": "two"})
    try:
        two.ready()
        until("two workers that share the work", lambda: len(partitions(one)) == len(partitions(two)) == 2)
        Stream.send(topics, 200)
        topics.flush()
        settled(topics, 90)
        ends = {number: end for number, end in topics.ends("leadline.sessions").items() if number in partitions(one)}
        until("standby copies", lambda: all(copied(two, number) >= end - 1 for number, end in ends.items()))
        admin = AdminClient({"bootstrap.servers": fresh_kafka, "log_level": 2})
        # Of a topic that is only compacted nobody may delete records.
        entry = ConfigEntry("cleanup.policy", "compact,delete", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, "leadline.sessions", incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(20)
        gone = [TopicPartition("leadline.sessions", number, end) for number, end in ends.items()]
        for future in admin.delete_records(gone).values():
            future.result(20)
        one.kill()
        until("the other one to have it all", lambda: len(partitions(two)) == 4)
        Stream.send(topics, 40)
        topics.flush()
        settled(topics, 90)
        assert two.stop() == worker.OK, two.log
    finally:
        one.stop()
        two.stop()
        topics.close()
