"""An embedded Kafka broker for the demo, development and single-worker tests.

Not for production, and not a faithful Apache Kafka: :data:`CAPABILITIES` says by name what it cannot do.

::

    with EmbeddedBroker() as broker:
        Producer({"bootstrap.servers": broker.address})
"""

from __future__ import annotations

from leadline.broker.capabilities import CAPABILITIES, Capabilities, Feature
from leadline.broker.embedded import BrokerFailed, BrokerUnavailable, EmbeddedBroker
from leadline.broker.serve import serve

__all__ = [
    "CAPABILITIES",
    "BrokerFailed",
    "BrokerUnavailable",
    "Capabilities",
    "EmbeddedBroker",
    "Feature",
    "serve",
]
