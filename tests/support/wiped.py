"""A broker without Leadline's topics: their names are fixed, so tests that use them take turns."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka.admin import AdminClient

from leadline.broker import EmbeddedBroker
from tests.support.brokers import Broker

__all__ = ["emptied", "group", "wipe"]

_OURS = "leadline."
_wipes = 0
_mine: set[str] = set()


@contextmanager
def emptied(broker: Broker) -> Iterator[str]:
    """The address of a broker of this kind on which nothing of Leadline's is left.

    An embedded one is started anew. A cluster that somebody else runs must have held nothing of Leadline's to begin with.
    """
    if broker.kind == "embedded":
        with EmbeddedBroker() as fresh:
            yield fresh.address
        return
    if broker.kind == "external" and broker.bootstrap not in _mine:
        found = _topics(_admin(broker.bootstrap))
        if found:
            raise RuntimeError(f"{broker.bootstrap} has topics that the tests would delete: {', '.join(sorted(found))}")
        _mine.add(broker.bootstrap)
    wipe(broker.bootstrap)
    yield broker.bootstrap


def wipe(bootstrap: str, limit_s: float = 30.0) -> None:
    """Delete Leadline's topics. Workers that are started from now on belong to another group: the old one remembers offsets,
    and gives a member that comes back under its name the partitions that it had, whether they exist or not."""
    global _wipes
    _wipes += 1
    admin = _admin(bootstrap)
    found = _topics(admin)
    if found:
        for future in admin.delete_topics(sorted(found)).values():
            future.result(limit_s)
    deadline = time.monotonic() + limit_s
    while _topics(admin):
        if time.monotonic() > deadline:
            raise RuntimeError(f"topics of Leadline's are still at {bootstrap} after {limit_s:g} s")
        time.sleep(0.05)


def group() -> str:
    """The consumer group of the workers that are to be started now."""
    return f"leadline-{os.getpid()}-{_wipes}"


def _admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})


def _topics(admin: AdminClient) -> set[str]:
    return {name for name in admin.list_topics(timeout=20).topics if name.startswith(_OURS)}
