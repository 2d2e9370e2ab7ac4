"""Many records to the broker at once, each confirmed: librdkafka's producer, behind one awaitable a call."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from leadline.processors.outputs import Outgoing, Sent
from leadline.settings import Settings, client_configs

__all__ = ["SendError", "Sender", "producer_config"]

_AGAIN: Final = {
    KafkaError._MSG_TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._PURGE_QUEUE,
    KafkaError._PURGE_INFLIGHT,
    # A topic that is made anew comes back; one that is gone for good is told with the limit.
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.KAFKA_STORAGE_ERROR,
}
_FULL_PAUSE_S: Final = 0.005


def producer_config(settings: Settings) -> dict[str, Any]:
    """Acknowledged by all replicas in sync, in order within a partition also when the client repeats something.

    What could not be sent expires well within the session timeout: a worker that was frozen and wakes up finds its queue stale.
    """
    return {
        **client_configs(settings).confluent,
        "acks": "all",
        "enable.idempotence": settings.idempotence,
        "max.in.flight.requests.per.connection": 5 if settings.idempotence else 1,
        "linger.ms": 0,
        "batch.size": 512 * 1024,
        "batch.num.messages": 10_000,
        "message.max.bytes": settings.max_request_bytes,
        "message.timeout.ms": round(1000 * min(15.0, settings.session_timeout_s * 0.6)),
        "retry.backoff.ms": 50,
        "queue.buffering.max.kbytes": 64 * 1024,
        "log_level": 3,
    }


class SendError(Exception):
    """The client or the broker refuses a record. ``retriable``: it may be taken later."""

    def __init__(self, error: KafkaError) -> None:
        super().__init__(f"{error.name()}: {error.str()}")
        self.retriable = not error.fatal() and (error.code() in _AGAIN or error.retriable())


class Sender:
    """Made and used in one event loop; a thread of its own serves the confirmations."""

    def __init__(self, config: Mapping[str, Any], heard: Callable[[], object] = lambda: None) -> None:
        """``heard`` is called, in that thread, with each confirmation."""
        self._config = dict(config)
        self._heard = heard
        self._producer: Any = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="confirmations", daemon=True)

    def _serve(self) -> None:
        while not self._stopped.is_set():
            self._producer.poll(0.1)

    def _open(self) -> Any:
        if self._producer is None:
            self._producer = Producer(self._config)
            self._thread.start()
        return self._producer

    async def send_all(self, records: Sequence[Outgoing], timeout_s: float) -> list[Sent | BaseException]:
        """Hand all over in order, wait until each is confirmed or refused; an exception stands for each that failed.

        :class:`SendError` is a refusal, ``TimeoutError`` says that nothing is known: the record may still arrive.
        """
        if not records:
            return []
        loop = asyncio.get_running_loop()
        limit = loop.time() + timeout_s
        answers = _Answers(len(records), loop, self._heard)
        produce = self._open().produce
        handed = 0
        for number, record in enumerate(records):
            while True:
                try:
                    produce(
                        record.topic,
                        record.value,
                        record.key,
                        -1 if record.partition is None else record.partition,
                        partial(answers.take, number),
                        headers=list(record.headers) if record.headers else None,
                    )
                except BufferError:
                    if loop.time() < limit:
                        await asyncio.sleep(_FULL_PAUSE_S)
                        continue
                    answers.results[number] = TimeoutError("the producer's buffer is full and is not drained")
                except KafkaException as error:
                    answers.results[number] = _refusal(error.args[0])
                else:
                    handed += 1
                break
        answers.expect(handed)
        try:
            async with asyncio.timeout_at(limit):
                await answers.complete
        except TimeoutError:
            pass
        late = TimeoutError("the broker has not confirmed the record in time")
        return [late if answer is None else answer for answer in answers.results]

    async def close(self, limit_s: float) -> None:
        """Wait for what is on its way, at most ``limit_s``, and let go."""
        if self._producer is None:
            return
        await asyncio.to_thread(self._producer.flush, limit_s)
        self._stopped.set()
        await asyncio.to_thread(self._thread.join, 1.0)


class _Answers:
    """Gathers the confirmations of one call; :meth:`take` runs in the thread that serves them."""

    __slots__ = ("_got", "_handed", "_heard", "_loop", "complete", "results")

    def __init__(self, number: int, loop: asyncio.AbstractEventLoop, heard: Callable[[], object]) -> None:
        self.results: list[Sent | BaseException | None] = [None] * number
        self.complete: asyncio.Future[None] = loop.create_future()
        self._loop = loop
        self._heard = heard
        self._got = 0
        self._handed = -1

    def expect(self, handed: int) -> None:
        self._handed = handed
        if self._got >= handed:
            self._end()

    def take(self, number: int, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.results[number] = Sent(message.partition(), message.offset())
            self._heard()
        else:
            self.results[number] = _refusal(error)
        self._got += 1
        # Whichever of this and `expect` comes last sees that all is there.
        if self._got == self._handed:
            self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        if not self.complete.done():
            self.complete.set_result(None)


def _refusal(error: KafkaError) -> BaseException:
    if error.code() == KafkaError._MSG_TIMED_OUT:
        return TimeoutError("the record was not sent in time")
    return SendError(error)
