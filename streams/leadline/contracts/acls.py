"""Who may do what on the cluster, worked out from THE table of topics: agents write events and read commands, and nothing else;
only the monitor writes violations and commands."""

from __future__ import annotations

from typing import Final, NamedTuple

from leadline.contracts.topics import TOPICS

__all__ = ["ROLES", "Acl", "acls"]

ROLES: Final = {
    "monitor": "the monitor's workers",
    "agents": "the agents, or a fleet of them",
    "operators": "people and pages that look, and write nothing: `leadline tail`, `leadline topics check`, `leadline top`",
    "dashboard": "the dashboard, which also writes what people do on it, where acting is turned on",
    "admin": "who creates the topics: `leadline topics create`",
}
"""The parties that a cluster tells apart, each by a principal of its own."""


class Acl(NamedTuple):
    """One permission: ``operation`` as Kafka names it, on the ``resource`` (``topic`` or ``group``) of exactly that name."""

    role: str
    resource: str
    name: str
    operation: str


def acls(group: str, *, acting: bool = False) -> tuple[Acl, ...]:
    """Every permission that is needed, and none that is not. ``group``: the consumer group of the monitor's workers. ``acting``:
    people act on the dashboard, which otherwise writes nothing."""
    found = [Acl("monitor", "group", group, "Read")]
    for topic in TOPICS:
        found += [Acl(role, "topic", topic.name, "Write") for role in topic.writers if acting or role != "dashboard"]
        anyone = {"dashboard"} if "anyone" in topic.readers else set()
        readers = ({"operators", *topic.readers} & ROLES.keys()) | anyone
        found += [Acl(role, "topic", topic.name, "Read") for role in readers]
        found += [Acl(role, "topic", topic.name, "DescribeConfigs") for role in ("monitor", "operators", "admin")]
        found += [Acl("admin", "topic", topic.name, operation) for operation in ("Create", "Describe")]
    return tuple(sorted(found, key=lambda one: (list(ROLES).index(one.role), one.resource, one.name, one.operation)))
