"""One embedded broker for the whole folder; every test has topics of its own through its own broker or its own sessions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from leadline.broker.embedded import EmbeddedBroker


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """Address of a fresh embedded broker; one a test module, as the topics have fixed names."""
    with EmbeddedBroker() as broker:
        yield broker.address
