"""Kafka for the verbs that need it: options, clients made from the settings, errors as sentences."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

import click
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import KafkaException
from confluent_kafka import Producer as ConfluentProducer

from leadline.errors import Refused
from leadline.security.refusals import Refusals
from leadline.settings import Settings, client_configs, load_settings, no_broker, suggested

__all__ = ["Producer", "bootstrap_option", "consumer", "partitions_of", "producer", "settings_for", "waiting"]

F = TypeVar("F", bound=Callable[..., Any])

_QUIET_S: Final = 2.0
"""A healthy broker answers within it."""


class Producer(ConfluentProducer):  # type: ignore[misc]
    """Remembers why a broker refused it."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.refusals = Refusals()
        super().__init__({**config, "log_level": 0, "error_cb": self.refusals})


class KafkaConsumer(ConfluentConsumer):  # type: ignore[misc]
    """Remembers why a broker refused it."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.refusals = Refusals()
        super().__init__({**config, "log_level": 0, "error_cb": self.refusals})


def bootstrap_option(function: F) -> F:
    """``--bootstrap``; without it ``LEADLINE_BOOTSTRAP`` counts, then 127.0.0.1:9092."""
    return click.option("--bootstrap", metavar="HOST:PORT,...", help="Brokers to ask first. [env: LEADLINE_BOOTSTRAP]")(function)


def settings_for(bootstrap: str | None, **overrides: Any) -> Settings:
    """Settings from the environment, with what the command line says on top."""
    return load_settings(bootstrap=bootstrap, **overrides)


@contextlib.contextmanager
def waiting(settings: Settings, most_s: float) -> Iterator[None]:
    """Where the broker takes long to answer, a line on standard error says which one, and that this ends after ``most_s``."""

    def say() -> None:
        click.echo(f"leadline: waiting for an answer of {settings.bootstrap}, for {most_s:g} s at most", err=True)

    timer = threading.Timer(_QUIET_S, say)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def producer(settings: Settings, timeout_s: float) -> Producer:
    """A producer that keeps the order and gives a record up after ``timeout_s``; failures are reported, not logged."""
    ordered = {"enable.idempotence": settings.idempotence, "max.in.flight.requests.per.connection": 1}
    times = {"linger.ms": 20, "message.timeout.ms": round(timeout_s * 1000)}
    return Producer({**client_configs(settings).confluent, **ordered, **times})


def consumer(settings: Settings) -> KafkaConsumer:
    """A consumer without a group: it is told its partitions and commits nothing."""
    config = client_configs(settings).confluent
    # librdkafka wants a group's name even where none is joined.
    group = {"group.id": f"{settings.app_id}-tail", "enable.auto.commit": False, "enable.auto.offset.store": False}
    return KafkaConsumer({**config, **group, "auto.offset.reset": "earliest", "enable.partition.eof": False})


def partitions_of(client: Any, topic: str, settings: Settings, timeout_s: float = 10.0) -> list[int]:
    """The topic's partitions. Raises ``BrokerError`` when no broker answers, :class:`Refused` without such a topic."""
    try:
        # All topics: asking for one by name may create it.
        with waiting(settings, timeout_s):
            listed = client.list_topics(timeout=timeout_s).topics
    except KafkaException as error:
        raise no_broker(settings, timeout_s, client.refusals.why(client, error.args[0].str())) from None
    if topic not in listed or not listed[topic].partitions:
        raise Refused(f"topic {topic} does not exist at {settings.bootstrap}; run {suggested('topics create', settings)} first")
    return sorted(listed[topic].partitions)
