"""Fixtures for tests that need a broker; tests/conftest.py imports them, and marks what uses them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support import brokers
from tests.support.wiped import emptied

__all__ = ["bootstrap", "broker", "fresh_bootstrap", "kafka"]


@pytest.fixture(scope="session", params=brokers.chosen())
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[brokers.Broker]:
    """A running broker, shared by the whole session: use topic and group names of your own.

    Runs once for each kind that was chosen. A kind that cannot run here fails: whoever asked for it must not take a run
    without it for a good one.
    """
    if request.param == "kafka":
        node: brokers.ApacheKafka = request.getfixturevalue("kafka")
        yield brokers.Broker(node.bootstrap, "kafka")
        return
    seen, ours = brokers.start(request.param, tmp_path_factory.mktemp("broker"))
    try:
        yield seen
    finally:
        if ours is not None:
            ours.__exit__(None, None, None)


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[brokers.ApacheKafka]:
    """One Apache Kafka node for the whole session; skipped unless it was chosen. Who kills it starts it again."""
    if "kafka" not in brokers.chosen():
        pytest.skip("needs Apache Kafka: set LEADLINE_TEST_BROKERS=kafka")
    if reason := brokers.unavailable():
        pytest.fail(reason, pytrace=False)
    with brokers.ApacheKafka(tmp_path_factory.mktemp("kafka")) as node:
        yield node


@pytest.fixture(scope="module")
def bootstrap(broker: brokers.Broker) -> Iterator[str]:
    """Address of a broker on which Leadline's topics are this module's alone; there are none at first."""
    with emptied(broker) as address:
        yield address


@pytest.fixture
def fresh_bootstrap(broker: brokers.Broker) -> Iterator[str]:
    """As ``bootstrap``, for one test. A module uses either."""
    with emptied(broker) as address:
        yield address
