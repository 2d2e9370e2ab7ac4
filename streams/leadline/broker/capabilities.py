"""What the embedded broker can and cannot do, each by name."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from leadline.errors import Refused

__all__ = ["CAPABILITIES", "Capabilities", "Feature", "UnsupportedByBroker"]


class UnsupportedByBroker(Refused):
    """The broker at hand cannot do what was asked; the message names it and says what to use instead."""


class Feature(enum.StrEnum):
    """Things that somebody may need from a broker."""

    IDEMPOTENT_PRODUCER = "idempotent producer"
    TIME_LOOKUP = "offsets for times"
    RETENTION = "retention by time"
    SINGLE_WORKER = "one worker"
    STATIC_RESTART = "restart of a static group member"
    SEVERAL_WORKERS = "several workers"
    MEMBER_EXPIRY = "expiry of a killed group member"
    COMPACTION = "compaction"
    REPLICATION = "replication"
    DURABILITY = "durability"
    LONG_RUNS = "long runs"
    SASL = "SASL"
    TLS = "TLS"
    ACL = "ACL"


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The record of one kind of broker.

    ``cannot`` maps each missing feature to the reason and the way out, as one clause for a person to read.
    """

    name: str
    cannot: Mapping[Feature, str]

    def can(self, feature: Feature) -> bool:
        """Say whether ``feature`` may be relied on. Never blocks, never raises."""
        return feature not in self.cannot

    def require(self, *features: Feature) -> None:
        """Refuse the first of ``features`` that is missing.

        Called by whoever is about to rely on one. Never blocks.

        Raises:
            UnsupportedByBroker: with the feature's name, why it is missing and what to do.
        """
        for feature in features:
            if not self.can(feature):
                raise UnsupportedByBroker(f"The {self.name} cannot do {feature.value}: {self.cannot[feature]}.")


_USE_KAFKA = "point --bootstrap at an Apache Kafka cluster instead"

CAPABILITIES: Final = Capabilities(
    name="embedded broker",
    cannot=MappingProxyType(
        {
            Feature.SEVERAL_WORKERS: (
                f"partitions are left without an owner when a group has more than one member; {_USE_KAFKA}"
            ),
            Feature.MEMBER_EXPIRY: (
                "a killed member keeps its partitions for ever; give the worker a static id that stays the same "
                f"across restarts, or {_USE_KAFKA}"
            ),
            Feature.COMPACTION: f"compacted topics keep every record; {_USE_KAFKA}",
            Feature.REPLICATION: f"it is a single node; {_USE_KAFKA}",
            Feature.DURABILITY: (f"records live in memory, and reach the disk, if at all, about a second later; {_USE_KAFKA}"),
            Feature.LONG_RUNS: (
                "it keeps all records in memory and goes over all of them about once a second, which takes most "
                f"of a core from 200,000 records on; give its topics a short retention, or {_USE_KAFKA}"
            ),
            Feature.SASL: f"anybody on this machine may connect; {_USE_KAFKA}",
            Feature.TLS: f"it speaks plain text on the loopback address only; {_USE_KAFKA}",
            Feature.ACL: f"every client may do everything; {_USE_KAFKA}",
        }
    ),
)
