"""Fixtures for tests that need a broker; tests/conftest.py imports them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support import brokers

__all__ = ["broker", "kafka"]


@pytest.fixture(scope="session", params=brokers.chosen())
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[brokers.Broker]:
    """A running broker, shared by the whole session: use topic and group names of your own.

    Runs once for each kind that was chosen; skips, with the reason, a kind that cannot run here.
    """
    if request.param == "kafka" and (reason := brokers.unavailable()):
        pytest.skip(reason)
    seen, ours = brokers.start(request.param, tmp_path_factory.mktemp("broker"))
    try:
        yield seen
    finally:
        if ours is not None:
            ours.__exit__(None, None, None)


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[brokers.ApacheKafka]:
    """One Apache Kafka node for tests that claim something of the real broker; skipped unless it was chosen."""
    if "kafka" not in brokers.chosen():
        pytest.skip("needs Apache Kafka: set LEADLINE_TEST_BROKERS=kafka")
    if reason := brokers.unavailable():
        pytest.skip(reason)
    with brokers.ApacheKafka(tmp_path_factory.mktemp("kafka")) as node:
        yield node
