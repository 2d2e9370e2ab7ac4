"""What the embedded broker cannot do, each by name; ``leadline broker`` says it at its start."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

__all__ = ["CAPABILITIES", "Capabilities", "Feature"]


class Feature(enum.StrEnum):
    """Things that somebody may need from a broker and that not every one has."""

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
