"""The demo on somebody's cluster: it takes nothing from a monitor that works there, and makes no topics unasked."""

from __future__ import annotations

from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from leadline.contracts.text import plural
from leadline.errors import BrokerError, Refused
from leadline.processors import topics
from leadline.settings import Settings, client_configs, suggested

__all__ = ["WAITS_S", "admit"]

WAITS_S: Final = 10.0
"""How long the cluster may take to answer."""


def admit(settings: Settings, *, create_topics: bool) -> None:
    """Make sure that a demo may run at ``settings.bootstrap``.

    The demo's worker joins the monitor's group and reads its topics, under the default policy: where the group has members it
    would take partitions from them. Missing topics are created only when asked for. Raises :class:`Refused`, or
    :class:`BrokerError` when the cluster cannot be asked.
    """
    found = topics.check(settings, WAITS_S)
    count = _members(settings)
    if count:
        raise Refused(
            f"the consumer group {settings.app_id} at {settings.bootstrap} has {plural(count, 'member')}: the demo's "
            "worker would take partitions from a monitor that runs there; stop it first, or leave --bootstrap out"
        )
    missing = [finding.topic for finding in found if finding.partitions is None]
    if missing and not create_topics:
        raise Refused(
            f"no topic {', '.join(missing)} at {settings.bootstrap}: run {suggested('topics create', settings)} with the "
            "partitions and replicas that you want, for good, or give --create-topics for "
            f"{settings.partitions} and {settings.replication}"
        )


def _members(settings: Settings) -> int:
    """How many members the monitor's group has now."""
    admin = AdminClient({**client_configs(settings).confluent, "log_level": 0})
    try:
        asked = admin.describe_consumer_groups([settings.app_id], request_timeout=WAITS_S)
        return len(asked[settings.app_id].result(WAITS_S + 5).members)
    except KafkaException as error:
        raise BrokerError(
            f"the members of the consumer group {settings.app_id} at {settings.bootstrap} cannot be told: {error.args[0].str()}"
        ) from None
