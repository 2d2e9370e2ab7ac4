"""Topics that are deleted, or made anew, under a running worker: it ends with a sentence, and loses nothing that is there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from leadline.processors import topics as declared
from leadline.processors import worker
from leadline.settings import Settings
from tests.processors.running import RunningWorker, Topics, round_event, until
from tests.processors.test_crashes import settled
from tests.support import brokers

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(240)]


@pytest.fixture
def topics(kafka: brokers.ApacheKafka, fresh_bootstrap: str) -> Iterator[Topics]:
    opened = Topics(fresh_bootstrap)
    yield opened
    opened.close()


def delete(topics: Topics, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": topics.bootstrap, "log_level": 2})
    admin.delete_topics([name])[name].result(20)
    until("the topic to be gone", lambda: name not in admin.list_topics(timeout=10).topics)


def violate(topics: Topics, numbers: range) -> None:
    for number in numbers:
        topics.send(f"s{number % 8}", round_event(f"s{number % 8}", number, raw_tokens=0 if number % 2 else 5))
    topics.flush()


@pytest.mark.parametrize("anew", [False, True], ids=["deleted", "made anew"])
def test_events_that_go_away_end_the_worker(topics: Topics, tmp_path: Path, anew: bool) -> None:
    """Exit code 2 and what to do; who starts again on a topic made anew is told that its sessions belong to the old one."""
    running = RunningWorker(topics.bootstrap, tmp_path, partitions=2, broker_away_s=20).ready()
    try:
        violate(topics, range(1, 41))
        settled(topics)
        delete(topics, "leadline.events")
        if anew:
            declared.create(Settings(bootstrap=topics.bootstrap, partitions=2))
        assert running.exit_code(90) == worker.REFUSED, running.log
        assert f"leadline.events {'was made anew' if anew else 'is gone'}" in running.log
        again = RunningWorker(topics.bootstrap, tmp_path, partitions=2)
        assert again.exit_code(90) == worker.REFUSED, again.log
        assert "have seen offset" in again.log
    finally:
        running.stop()


def test_commands_that_go_away_end_the_worker_and_are_sent_once_there_is_a_place(topics: Topics, tmp_path: Path) -> None:
    """Nothing is committed past what could not be sent: the next worker, with the topic there again, sends it."""
    running = RunningWorker(topics.bootstrap, tmp_path, partitions=2, broker_away_s=4, drain_s=3).ready()
    try:
        violate(topics, range(1, 11))
        settled(topics)
        delete(topics, "leadline.commands")
        violate(topics, range(11, 21))
        assert running.exit_code(90) == worker.BROKER_AWAY, running.log
        assert "did not confirm" in running.log
        assert "leadline.commands" in running.log
        assert "nothing was committed past them" in running.log
        running = RunningWorker(topics.bootstrap, tmp_path, partitions=2).ready()
        until("the commands of the second part", lambda: len(topics.read("leadline.commands")) >= 5)
        assert len({message.value() for message in topics.read("leadline.violations")}) == 10
        assert running.stop() == worker.OK, running.log
    finally:
        running.stop()
