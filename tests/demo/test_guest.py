"""The demo on a cluster that is not its own: refused, with one sentence, where it would disturb."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from leadline.broker import EmbeddedBroker
from leadline.contracts.topics import EVENTS, TOPICS
from leadline.demo.guest import admit
from leadline.processors import topics
from leadline.settings import load_settings
from tests.agent.support import eventually
from tests.cli.run import Ran, leadline

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def cluster() -> Iterator[str]:
    """Address of a broker of this test's own."""
    with EmbeddedBroker() as broker:
        yield broker.address


def names(bootstrap: str) -> set[str]:
    return set(AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics(timeout=10).topics)


def refused(ran: Ran, *said: str) -> None:
    assert (ran.code, ran.out) == (2, "")
    sentence = ran.err.splitlines()[-1]
    assert sentence.startswith("leadline: ")
    for part in said:
        assert part in sentence


def test_topics_that_are_missing_are_not_made_unasked(cluster: str) -> None:
    """The sentence names them and both ways out; nothing was created."""
    advice = f"`leadline topics create --bootstrap {cluster}`"
    refused(leadline("demo", "--json", "--bootstrap", cluster), EVENTS.name, advice, "--create-topics")
    assert not names(cluster) & {topic.name for topic in TOPICS}
    admit(load_settings({}, bootstrap=cluster), create_topics=True)


@pytest.mark.parametrize("flags", [(), ("--create-topics",)])
def test_where_a_monitor_works_there_is_no_demo(cluster: str, flags: tuple[str, ...]) -> None:
    """One member in the group: it keeps all its partitions, whatever is asked for."""
    partitions = topics.require(topics.check(settings)) if topics.create(settings := load_settings({}, bootstrap=cluster)) else 0
    monitor = Consumer({"bootstrap.servers": cluster, "group.id": settings.app_id, "log_level": 0})
    try:
        monitor.subscribe([EVENTS.name])

        def all_mine() -> bool:
            monitor.poll(0.1)
            return len(monitor.assignment()) == partitions

        eventually(all_mine, timeout=30)
        refused(leadline("demo", "--json", "--bootstrap", cluster, *flags), "consumer group leadline", "1 member:")
        assert all_mine()
    finally:
        monitor.close()
