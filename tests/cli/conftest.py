"""An embedded broker of the command line's own: the verbs use Leadline's topics, which other tests use differently."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from leadline.broker import EmbeddedBroker


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """The address of a broker without topics."""
    with EmbeddedBroker() as broker:
        yield broker.address
