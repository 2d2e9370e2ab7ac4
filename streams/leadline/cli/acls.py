"""The permissions of the table of topics, written for who is to grant them: Kafka's own tool, Strimzi, or a program."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Any, Final

from leadline.contracts.acls import ROLES, Acl
from leadline.contracts.text import safe
from leadline.contracts.topics import TOPICS
from leadline.errors import Refused

__all__ = ["STRIMZI_VERSIONS", "kafka_acls", "permissions", "strimzi"]

STRIMZI_VERSIONS: Final = ("kafka.strimzi.io/v1", "kafka.strimzi.io/v1beta2")
_USER: Final = re.compile(r"User:(?=.{1,253}\Z)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)


def permissions(wanted: Iterable[Acl], principals: Mapping[str, str]) -> list[dict[str, str]]:
    """One object a permission."""
    return [
        {
            "principal": principals[one.role],
            "host": "*",
            "operation": one.operation,
            "permission": "Allow",
            "resource_type": one.resource,
            "resource_name": one.name,
            "pattern_type": "literal",
        }
        for one in wanted
    ]


def kafka_acls(wanted: Iterable[Acl], principals: Mapping[str, str], bootstrap: str) -> list[str]:
    """Lines of shell, one a principal and resource. ``admin.properties`` holds how an administrator comes in."""
    grouped: dict[tuple[str, str, str], list[str]] = {}
    for one in wanted:
        grouped.setdefault((one.role, one.resource, one.name), []).append(one.operation)
    lines = []
    for (role, resource, name), operations in grouped.items():
        words = ["kafka-acls.sh", "--bootstrap-server", bootstrap, "--command-config", "admin.properties", "--add"]
        words += ["--allow-principal", principals[role]]
        words += [word for operation in operations for word in ("--operation", operation)]
        lines.append(shlex.join([*words, f"--{resource}", name]))
    return lines


def strimzi(
    wanted: Iterable[Acl], principals: Mapping[str, str], cluster: str, partitions: int, replicas: int, version: str
) -> str:
    """The topics as ``KafkaTopic`` and the parties as ``KafkaUser`` resources, one YAML document each. ``version``: that of
    Strimzi's API.

    Raises :class:`Refused` for a principal that no ``KafkaUser`` can have: under another name it would be somebody else.
    """
    wanted = list(wanted)
    documents = [_topic(topic.name, topic.config, cluster, partitions, replicas) for topic in TOPICS]
    users = [role for role in ROLES if role != "admin"]  # Strimzi's own operator creates the topics.
    for role in users:
        if not _USER.fullmatch(principals[role]):
            raise Refused(
                f"--{role} {safe(principals[role], 80)!r} cannot be a KafkaUser, whose name is its principal's too: give User: "
                "and lower-case letters, digits, dashes and dots, or print the permissions with --format kafka-acls"
            )
    documents += [_user(principals[role], [one for one in wanted if one.role == role], cluster) for role in users]
    for document in documents:
        document["apiVersion"] = version
    return "".join(f"---\n{_yaml(document)}" for document in documents)


def _topic(name: str, config: Mapping[str, str], cluster: str, partitions: int, replicas: int) -> dict[str, Any]:
    spec = {"topicName": name, "partitions": partitions, "replicas": replicas, "config": dict(config)}
    return _resource("KafkaTopic", name, cluster, spec)


def _user(principal: str, wanted: list[Acl], cluster: str) -> dict[str, Any]:
    grouped: dict[tuple[str, str], list[str]] = {}
    for one in wanted:
        grouped.setdefault((one.resource, one.name), []).append(one.operation)
    rules = [
        {"resource": {"type": resource, "name": name, "patternType": "literal"}, "operations": operations, "host": "*"}
        for (resource, name), operations in grouped.items()
    ]
    spec = {"authentication": {"type": "scram-sha-512"}, "authorization": {"type": "simple", "acls": rules}}
    return _resource("KafkaUser", principal.partition(":")[2], cluster, spec)


def _resource(kind: str, name: str, cluster: str, spec: dict[str, Any]) -> dict[str, Any]:
    labels = {"strimzi.io/cluster": cluster}
    return {"apiVersion": "", "kind": kind, "metadata": {"name": name, "labels": labels}, "spec": spec}


def _yaml(value: Any, indent: int = 0) -> str:
    """Objects, lists, texts and integers as YAML; texts are quoted as in JSON, which is YAML too."""
    pad = " " * indent
    if isinstance(value, Mapping):
        return "".join(f"{pad}{key}:{_nested(one, indent)}" for key, one in value.items())
    return "".join(f"{pad}- {_yaml(one, indent + 2).lstrip() if isinstance(one, Mapping) else _scalar(one)}" for one in value)


def _nested(value: Any, indent: int) -> str:
    if isinstance(value, Mapping | list):
        return "\n" + _yaml(value, indent + 2)
    return f" {_scalar(value)}"


def _scalar(value: Any) -> str:
    plain = isinstance(value, str) and re.fullmatch(r"[A-Za-z][A-Za-z0-9./-]*", value) and value.lower() not in _WORDS
    return (value if plain else json.dumps(value)) + "\n"


_WORDS = ("true", "false", "yes", "no", "on", "off", "null", "y", "n")
