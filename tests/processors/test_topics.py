from __future__ import annotations

import logging

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from leadline.broker.embedded import EmbeddedBroker
from leadline.contracts.topics import TOPICS
from leadline.errors import BrokerError, TopicMismatch
from leadline.processors import topics
from leadline.processors.topics import Finding
from leadline.settings import Settings
from tests.cli.run import leadline


def make(bootstrap: str, name: str, partitions: int, config: dict[str, str] | None = None) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1, config=config or {})])[name].result(10)


def test_missing_topics_are_found_created_and_then_fine() -> None:
    with EmbeddedBroker() as broker:
        settings = Settings(bootstrap=broker.address, partitions=3)
        findings = topics.check(settings)
        assert [finding.topic for finding in findings] == [topic.name for topic in TOPICS]
        assert all(finding.partitions is None and "does not exist" in finding.problem for finding in findings)
        with pytest.raises(TopicMismatch) as caught:
            topics.require(findings)
        names = ", ".join(topic.name for topic in TOPICS[:-1])
        assert str(caught.value).startswith(f"topics {names} and {TOPICS[-1].name} do not exist. Create them: run ")
        assert str(caught.value).count(f"`leadline topics create --bootstrap {settings.bootstrap}`") == 1
        assert topics.create(settings) == [topic.name for topic in TOPICS]
        assert topics.create(settings) == []
        assert topics.require(topics.check(settings)) == 3
        assert topics.ensure(Settings(bootstrap=broker.address)) == 3


def test_more_replicas_than_brokers_are_refused_with_what_to_do() -> None:
    """It would not succeed later either."""
    with EmbeddedBroker() as broker:
        ran = leadline("topics", "create", "--bootstrap", broker.address, "--replication", "3")
        assert ran.code == 2
        assert "--replication 1" in ran.err
        assert ".." not in ran.err


def test_another_count_than_was_asked_for_is_told() -> None:
    with EmbeddedBroker() as broker:
        topics.create(Settings(bootstrap=broker.address, partitions=3))
        ran = leadline("topics", "create", "--bootstrap", broker.address, "--partitions", "2")
        assert ran.code == 0
        assert ran.out.count("asked for 2, has 3") == len(TOPICS)


def test_unequal_counts_are_refused_with_both_numbers() -> None:
    with EmbeddedBroker() as broker:
        make(broker.address, "leadline.events", 4)
        make(broker.address, "leadline.commands", 2)
        settings = Settings(bootstrap=broker.address, partitions=8, create_topics=True)
        with pytest.raises(TopicMismatch) as caught:
            topics.ensure(settings)
        sentence = str(caught.value)
        assert "leadline.commands has 2 partitions but leadline.events has 4" in sentence
        assert "create it again with 4 partitions" in sentence
        wrong = [finding for finding in topics.check(settings) if finding.problem]
        assert [(finding.topic, finding.partitions, finding.expected) for finding in wrong] == [("leadline.commands", 2, 4)]


def test_dead_letters_may_have_any_count() -> None:
    finding = topics._finding(TOPICS[3], 1, 8, {})
    assert finding == Finding("leadline.dead-letters", 1, None, "", "")


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_sessions_that_are_deleted_by_age_are_refused(policy: str) -> None:
    """Open incidents would be forgotten; the sentence says how to set it right."""
    with EmbeddedBroker() as broker:
        make(broker.address, "leadline.sessions", 2, {"cleanup.policy": policy})
        settings = Settings(bootstrap=broker.address, partitions=2, create_topics=True)
        make(broker.address, "leadline.events", 2)
        with pytest.raises(TopicMismatch) as caught:
            topics.ensure(settings)
        assert f"leadline.sessions has cleanup.policy={policy} but needs cleanup.policy=compact" in str(caught.value)
        assert "--add-config cleanup.policy=compact" in str(caught.value)


def test_what_is_only_worse_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    """Writers' stamps on events, dead letters that are too small: a worker starts and says so, and so does the verb."""
    with EmbeddedBroker() as broker:
        make(broker.address, "leadline.events", 2, {"message.timestamp.type": "CreateTime"})
        make(broker.address, "leadline.dead-letters", 1)
        with caplog.at_level(logging.WARNING):
            assert topics.ensure(Settings(bootstrap=broker.address, create_topics=True)) == 2
        assert [
            what in record.getMessage()
            for what, record in zip(
                ("message.timestamp.type=CreateTime", "max.message.bytes=1048588"), caplog.records, strict=True
            )
        ] == [True, True]
        ran = leadline("topics", "check", "--bootstrap", broker.address)
        assert ran.code == 0
        assert "message.timestamp.type=LogAppendTime" in " ".join(ran.out.split())


def test_settings_that_are_not_told_are_passed_over() -> None:
    assert [topics._finding(topic, 3, 3, {}) for topic in TOPICS] == [
        Finding(topic.name, 3, 3 if topic.partitioned_as_events else None, "", "") for topic in TOPICS
    ]


def test_states_that_have_seen_what_is_not_there_are_refused() -> None:
    """The last record lies one below the end, so a watermark at the end is already of another log."""
    topics.require_seen({0: 9, 1: 0}, {0: 10, 1: 1, 2: 0})
    for ends in ({0: 9}, {0: 0}, {}):
        with pytest.raises(
            TopicMismatch, match=r"partition 0 of leadline\.events ends at offset .* have seen offset 9.*delete leadline"
        ):
            topics.require_seen({0: 9}, ends)


def test_no_broker_is_said_plainly() -> None:
    settings = Settings(bootstrap="127.0.0.1:1", broker_away_s=1.0)
    with pytest.raises(BrokerError, match=r"no broker answered at 127\.0\.0\.1:1.*--bootstrap or LEADLINE_BOOTSTRAP"):
        topics.check(settings, timeout_s=1.0)
