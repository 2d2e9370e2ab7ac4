"""The transport over Kafka: the only place in the SDK that knows confluent-kafka."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, Final

import confluent_kafka as ck

from leadline.agent.transport import Blocked, Delivery, Headers, OnDelivery, Received
from leadline.contracts import limits
from leadline.errors import Refused, Retryable

__all__ = ["KafkaTransport", "take"]

_LOOKUP_SECONDS = 5.0
_BATCH: Final = 100

_COMMON: dict[str, Any] = {
    "client.id": "leadline-agent",
    "log_level": 0,
    "socket.keepalive.enable": True,
    "reconnect.backoff.max.ms": 5_000,
}
_PRODUCER: dict[str, Any] = {
    "acks": "all",
    "linger.ms": 5,
    "message.max.bytes": 1_000_000,
    # Never given up here: what cannot be sent now is the spool's, whose bounds count.
    "message.timeout.ms": 0,
    # The emitter's own queue decides what gives way; little waits here.
    "queue.buffering.max.messages": 2_000,
    "queue.buffering.max.kbytes": 4 * limits.MAX_RECORD_BYTES // 1024,
}
_PURGED: Final = (ck.KafkaError._PURGE_QUEUE, ck.KafkaError._PURGE_INFLIGHT)
_BLOCKED: Final = (
    ck.KafkaError.TOPIC_AUTHORIZATION_FAILED,
    ck.KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    ck.KafkaError.SASL_AUTHENTICATION_FAILED,
    ck.KafkaError._AUTHENTICATION,
    ck.KafkaError.UNKNOWN_TOPIC_OR_PART,
    ck.KafkaError._UNKNOWN_TOPIC,
)
"""Nothing can be sent, or read, before somebody has changed something on the cluster, or in this client's settings."""
_REFUSED: Final = (
    ck.KafkaError.MSG_SIZE_TOO_LARGE,
    ck.KafkaError.RECORD_LIST_TOO_LARGE,
    ck.KafkaError.INVALID_RECORD,
    ck.KafkaError.INVALID_TIMESTAMP,
    ck.KafkaError.POLICY_VIOLATION,
    ck.KafkaError._INVALID_ARG,
)
"""Errors of the record that they are reported for; all others are the client's, or the cluster's, and pass."""
_CONSUMER: dict[str, Any] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "earliest",
    "enable.partition.eof": False,
    "fetch.wait.max.ms": 200,
    "queued.max.messages.kbytes": 4_096,
}


class KafkaTransport:
    """Clients for ``bootstrap``. ``config`` adds librdkafka settings to both (TLS, SASL); it goes before the defaults.

    Idempotent production is on (``idempotence``) and is given up for this process when the broker has none (some embedded
    ones): then one request at a time keeps the order.
    """

    def __init__(self, bootstrap: str, config: Mapping[str, Any] | None = None, *, idempotence: bool = True) -> None:
        self.bootstrap = bootstrap
        self._config = {**_COMMON, "bootstrap.servers": bootstrap, **(config or {})}
        self.idempotence = idempotence

    def producer(self) -> _KafkaProducer:
        order = {"enable.idempotence": True} if self.idempotence else {"max.in.flight.requests.per.connection": 1}
        return _KafkaProducer(self, {**_PRODUCER, **order, **self._config})

    def consumer(self, topic: str) -> _KafkaConsumer:
        # A group id is asked for by the client library; nothing joins it and nothing is committed.
        group = {"group.id": f"leadline-agent-{uuid.uuid4().hex}"}
        return _KafkaConsumer(topic, {**_CONSUMER, **group, **self._config})


class _KafkaProducer:
    def __init__(self, transport: KafkaTransport, config: dict[str, Any]) -> None:
        self._transport = transport
        self._fatal = ""
        self._away = False
        self._blocked = ""
        self._client = ck.Producer({**config, "error_cb": self._on_error})

    def _on_error(self, error: ck.KafkaError) -> None:
        if error.code() == ck.KafkaError._ALL_BROKERS_DOWN:
            self._away = True
        if error.code() in _BLOCKED:
            self._blocked = str(error)
        if error.fatal():
            self._fatal = str(error)
            if error.code() == ck.KafkaError._UNSUPPORTED_FEATURE:
                self._transport.idempotence = False

    def produce(self, topic: str, key: bytes, value: bytes, headers: Headers, on_delivery: OnDelivery) -> None:
        self._check()

        def report(error: ck.KafkaError | None, message: ck.Message) -> None:
            if error is None:
                self._away, self._blocked = False, ""
                on_delivery(Delivery(message.partition(), message.offset()))
            else:
                code = error.code()
                on_delivery(Delivery(-1, -1, self._why(error), code not in _REFUSED, code in _BLOCKED))

        try:
            self._client.produce(topic, value, key, headers=headers, on_delivery=report)
        except ck.KafkaException as error:
            code = error.args[0].code()
            if code in _REFUSED:
                raise Refused(str(error)) from None
            raise (Blocked if code in _BLOCKED else Retryable)(str(error)) from None

    def _why(self, error: ck.KafkaError) -> str:
        """Why a record was not delivered, for a person."""
        given_up = error.code() in _PURGED
        if self._away and (given_up or error.code() == ck.KafkaError._MSG_TIMED_OUT):
            return f"no broker answered at {self._transport.bootstrap}"
        return f"{self._transport.bootstrap} did not confirm it before the client was closed" if given_up else str(error)

    def poll(self, timeout: float) -> None:
        self._client.poll(timeout)
        self._check()

    def flush(self, timeout: float) -> None:
        self._client.flush(timeout)
        self._check()

    def close(self) -> None:
        self._client.purge()
        self._client.flush(1.0)

    def _check(self) -> None:
        if self._blocked:
            raise Blocked(self._blocked)
        if self._fatal:
            raise Retryable(self._fatal)


class _KafkaConsumer:
    def __init__(self, topic: str, config: dict[str, Any]) -> None:
        self._topic = topic
        self._client = ck.Consumer(config)

    def start_offset(self, partition: int, since: int) -> int:
        at = ck.TopicPartition(self._topic, partition, since)
        try:
            # The end first: a record that arrives between the two questions is then not missed.
            low, high = self._client.get_watermark_offsets(at, timeout=_LOOKUP_SECONDS)
            try:
                found = self._client.offsets_for_times([at], timeout=_LOOKUP_SECONDS)[0]
            except ck.KafkaException:
                return int(low)
            if found.error is not None:
                return int(low)
            return int(found.offset if found.offset >= 0 else high)
        except ck.KafkaException as error:
            raise Retryable(str(error)) from None

    def assign(self, positions: Mapping[int, int]) -> None:
        self._client.assign([ck.TopicPartition(self._topic, at, offset) for at, offset in positions.items()])

    def poll(self, timeout: float) -> list[Received]:
        try:
            messages = take(self._client, _BATCH, timeout)
        except ck.KafkaException as error:
            raise Retryable(str(error)) from None
        # That it may join no group is told too, and is nothing: it never joins one.
        for wrong in (message.error() for message in messages):
            if wrong is not None and wrong.code() in _BLOCKED:
                raise Blocked(str(wrong))
        return [_received(message) for message in messages if message.error() is None]

    def close(self) -> None:
        self._client.close()


def take(client: ck.Consumer, most: int, timeout: float) -> list[ck.Message]:
    """The first message as soon as it is there, after ``timeout`` seconds at the latest, and what has come with it.

    ``consume`` alone would wait the whole time for ``most`` messages.
    """
    first = client.poll(timeout)
    return [] if first is None else [first, *client.consume(most - 1, 0)]


def _received(message: ck.Message) -> Received:
    kind, timestamp = message.timestamp()
    return Received(
        message.partition(),
        message.offset(),
        -1 if kind == ck.TIMESTAMP_NOT_AVAILABLE else timestamp,
        message.key(),
        message.value(),
        tuple(message.headers() or ()),
    )
