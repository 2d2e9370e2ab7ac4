"""``leadline topics acls``: one set of permissions in three shapes."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
import yaml

from leadline.contracts.acls import acls
from leadline.contracts.topics import TOPICS
from tests.cli.run import leadline


def of_lines(text: str) -> set[tuple[str, str, str, str]]:
    """Principal, resource, name and operation of each permission that the lines would add."""
    found = set()
    for line in text.splitlines():
        words = shlex.split(line)
        assert words[:6] == ["kafka-acls.sh", "--bootstrap-server", "k:9093", "--command-config", "admin.properties", "--add"]
        pairs = list(zip(words[6::2], words[7::2], strict=True))
        principal = dict(pairs)["--allow-principal"]
        [(resource, name)] = [(option[2:], value) for option, value in pairs if option in ("--topic", "--group")]
        found |= {(principal, resource, name, value) for option, value in pairs if option == "--operation"}
    return found


def of_users(text: str) -> set[tuple[str, str, str, str]]:
    users = [one for one in yaml.safe_load_all(text) if one["kind"] == "KafkaUser"]
    return {
        (f"User:{user['metadata']['name']}", rule["resource"]["type"], rule["resource"]["name"], operation)
        for user in users
        for rule in user["spec"]["authorization"]["acls"]
        for operation in rule["operations"]
    }


def wanted(group: str) -> set[tuple[str, str, str, str]]:
    return {(f"User:leadline-{one.role}", one.resource, one.name, one.operation) for one in acls(group)}


def test_the_three_shapes_say_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEADLINE_APP_ID", "workers")
    monkeypatch.setenv("LEADLINE_BOOTSTRAP", "k:9093")
    lines = leadline("topics", "acls")
    assert lines.code == 0
    assert of_lines(lines.out) == wanted("workers")
    objects: list[dict[str, Any]] = leadline("topics", "acls", "--format", "json").json["acls"]
    said = {(one["principal"], one["resource_type"], one["resource_name"], one["operation"]) for one in objects}
    assert said == wanted("workers")
    assert {(one["host"], one["permission"], one["pattern_type"]) for one in objects} == {("*", "Allow", "literal")}
    strimzi = leadline("topics", "acls", "--format", "strimzi")
    assert of_users(strimzi.out) == {one for one in wanted("workers") if one[0] != "User:leadline-admin"}


def test_strimzi_gets_the_topics_as_the_table_has_them() -> None:
    shown = leadline("topics", "acls", "--format", "strimzi", "--cluster", "main", "--partitions", "32", "--replication", "3")
    topics = [one for one in yaml.safe_load_all(shown.out) if one["kind"] == "KafkaTopic"]
    assert [one["spec"] for one in topics] == [
        {"topicName": topic.name, "partitions": 32, "replicas": 3, "config": topic.config} for topic in TOPICS
    ]
    assert {one["metadata"]["labels"]["strimzi.io/cluster"] for one in topics} == {"main"}


def test_a_dashboard_on_which_people_act_may_write() -> None:
    found = {one for one in of_users(leadline("topics", "acls", "--format", "strimzi", "--acting").out) if one[3] == "Write"}
    assert {one[2] for one in found if one[0] == "User:leadline-dashboard"} == {"leadline.events", "leadline.silences"}


@pytest.mark.parametrize(
    "principal", ["User:CN=fleet-A,O=x", "User:Fleet", "User:a_b", "User:-a", "Group:fleet", f"User:{'a' * 254}"]
)
def test_strimzi_refuses_a_principal_that_it_would_make_another_of(principal: str) -> None:
    shown = leadline("topics", "acls", "--format", "strimzi", "--agents", principal)
    assert (shown.code, shown.out) == (2, "")
    assert "--agents" in shown.err
    assert "cannot be a KafkaUser" in shown.err
    assert leadline("topics", "acls", "--agents", principal).code == 0


@pytest.mark.parametrize(("options", "version"), [((), "v1"), (("--api-version", "kafka.strimzi.io/v1beta2"), "v1beta2")])
def test_strimzis_resources_are_of_the_version_that_is_asked_for(options: tuple[str, ...], version: str) -> None:
    shown = leadline("topics", "acls", "--format", "strimzi", "--agents", "User:fleet.a-1", *options)
    documents = list(yaml.safe_load_all(shown.out))
    assert {one["apiVersion"] for one in documents} == {f"kafka.strimzi.io/{version}"}
    assert "fleet.a-1" in {one["metadata"]["name"] for one in documents}


def test_principals_are_told_and_everybody_is_none() -> None:
    shown = leadline("topics", "acls", "--agents", "User:CN=fleet a,O=x", "--bootstrap", "k:9093")
    assert shown.code == 2
    shown = leadline("topics", "acls", "--agents", "User:CN=fleet,O=x", "--bootstrap", "k:9093")
    assert {one[0] for one in of_lines(shown.out) if one[2] == "leadline.events" and one[3] == "Write"} == {
        "User:CN=fleet,O=x",
        "User:leadline-monitor",
    }
    everybody = leadline("topics", "acls", "--agents", "User:*")
    assert (everybody.code, "names nobody" in everybody.err) == (2, True)
