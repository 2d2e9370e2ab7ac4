from __future__ import annotations

from leadline.contracts.topics import EVENTS, SESSIONS, TOPICS
from leadline.processors import topology


def test_every_topic_of_the_table_has_its_place() -> None:
    """What the table says of writers and readers is what is wired."""
    steps = topology.topology()
    read = {step.source for step in steps}
    written = {target for step in steps for target in step.targets}
    for topic in TOPICS:
        assert ("monitor" in topic.writers) == (topic.name in written), topic.name
        assert ("monitor" in topic.readers) == (topic.name in read), topic.name


def test_the_picture_names_every_topic_and_stage() -> None:
    picture = topology.__doc__ or ""
    for topic in TOPICS:
        assert topic.name in picture
    for step in topology.topology():
        assert step.stage in picture


def test_the_sessions_changelog_is_only_compacted() -> None:
    assert SESSIONS.config == {"cleanup.policy": "compact"}
    assert EVENTS.partitioned_as_events
    assert SESSIONS.partitioned_as_events
