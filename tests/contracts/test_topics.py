"""The table of topics holds together with the records and with what the design promises."""

from __future__ import annotations

from leadline.contracts.schemas import RECORDS
from leadline.contracts.topics import COMMANDS, DEAD_LETTER_BYTES, DEAD_LETTERS, EVENTS, SESSIONS, TOPICS, VIOLATIONS


def test_names_are_distinct_and_of_one_family() -> None:
    names = [topic.name for topic in TOPICS]
    assert len(set(names)) == len(names) == 6
    assert all(name.startswith("leadline.") for name in names)


def test_every_record_is_on_exactly_one_topic() -> None:
    tags = sorted(str(record.__struct_config__.tag) for record in RECORDS)
    assert sorted(record for topic in TOPICS if topic is not DEAD_LETTERS for record in topic.records) == tags


def test_a_session_has_one_partition_number_everywhere() -> None:
    """A command goes to the partition on which its session's events arrive; the table lies beside its events."""
    assert all(topic.partitioned_as_events for topic in (EVENTS, VIOLATIONS, COMMANDS, SESSIONS))


def test_only_the_monitor_may_command() -> None:
    assert COMMANDS.writers == ("monitor",)
    assert VIOLATIONS.writers == ("monitor",)
    assert SESSIONS.writers == ("monitor",)
    assert "monitor" in EVENTS.readers


def test_state_is_kept_and_logs_are_not_compacted() -> None:
    """Compaction of events would drop rounds; deletion of sessions would forget open incidents."""
    assert SESSIONS.config["cleanup.policy"] == "compact"
    assert {topic.config["cleanup.policy"] for topic in TOPICS if topic is not SESSIONS} == {"delete"}


def test_the_brokers_clock_stamps_events() -> None:
    """An agent whose clock is wrong must not move a deadline."""
    assert EVENTS.config["message.timestamp.type"] == "LogAppendTime"


def test_a_dead_letter_holds_any_event_and_its_headers() -> None:
    """A broker takes events of 1 MiB and a bit by default; one that cannot be read must not be lost for its headers."""
    assert int(DEAD_LETTERS.config["max.message.bytes"]) == DEAD_LETTER_BYTES >= 1_048_588 + 100_000
    assert "max.message.bytes" not in EVENTS.config
