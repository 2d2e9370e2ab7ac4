"""The permissions are the table's, and the two that matter most are worked out by hand here."""

from __future__ import annotations

from leadline.contracts.acls import ROLES, Acl, acls
from leadline.contracts.topics import TOPICS

WANTED = acls("workers")


def who(operation: str, topic: str) -> set[str]:
    return {one.role for one in WANTED if (one.operation, one.resource, one.name) == (operation, "topic", topic)}


def test_agents_write_events_and_read_commands_and_nothing_else() -> None:
    assert [one for one in WANTED if one.role == "agents"] == [
        Acl("agents", "topic", "leadline.commands", "Read"),
        Acl("agents", "topic", "leadline.events", "Write"),
    ]


def test_only_the_monitor_writes_violations_commands_dead_letters_and_sessions() -> None:
    for name in ("violations", "commands", "dead-letters", "sessions"):
        assert who("Write", f"leadline.{name}") == {"monitor"}
    assert who("Write", "leadline.events") == {"agents", "monitor"}
    assert who("Write", "leadline.silences") == set()


def test_the_dashboard_reads_what_it_shows_and_writes_only_where_people_act_on_it() -> None:
    mine = [one for one in WANTED if one.role == "dashboard"]
    names = ("commands", "events", "sessions", "silences", "violations")
    assert mine == [Acl("dashboard", "topic", f"leadline.{name}", "Read") for name in names]
    more = set(acls("workers", acting=True)) - set(WANTED)
    assert more == {Acl("dashboard", "topic", f"leadline.{name}", "Write") for name in ("events", "silences")}


def test_operators_read_everything_and_the_admin_only_creates() -> None:
    assert {one.operation for one in WANTED if one.role == "operators"} == {"Read", "DescribeConfigs"}
    assert {one.operation for one in WANTED if one.role == "admin"} == {"Create", "Describe", "DescribeConfigs"}
    assert {one.name for one in WANTED if one.role == "admin"} == {topic.name for topic in TOPICS}


def test_the_group_is_the_workers_alone_and_nothing_is_said_twice() -> None:
    assert [one for one in WANTED if one.resource == "group"] == [Acl("monitor", "group", "workers", "Read")]
    assert len(set(WANTED)) == len(WANTED)
    assert {one.role for one in WANTED} == ROLES.keys()
