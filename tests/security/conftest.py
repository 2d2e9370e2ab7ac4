"""One secured Apache Kafka node for this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from leadline.contracts.acls import acls
from leadline.processors import topics
from leadline.settings import Settings
from tests.security.secure_kafka import SecureKafka
from tests.support import brokers


@pytest.fixture(scope="session")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKafka]:
    """Users, topics and exactly the generated permissions; skipped unless Apache Kafka was chosen."""
    if "kafka" not in brokers.chosen():
        pytest.skip("needs Apache Kafka: set LEADLINE_TEST_BROKERS=kafka")
    with SecureKafka(tmp_path_factory.mktemp("secure")) as node:
        node.add_users()
        node.allow(list(acls("leadline", acting=True)))
        topics.create(Settings(bootstrap=node.bootstrap, partitions=4))
        yield node
