"""What leaves a worker: records with explicit key and partition, and their delivery, confirmed one by one."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple

from leadline.commands.fold import DeadLetter
from leadline.contracts import topics
from leadline.contracts.codec import encode
from leadline.contracts.orders import Command, Tick, Violation
from leadline.contracts.text import plural, safe
from leadline.contracts.times import format_ms
from leadline.errors import BrokerError, LeadlineError
from leadline.processors.logs import with_fields

__all__ = ["Delivery", "Outgoing", "Sent", "Undeliverable", "dead_letter", "outgoing", "tick"]

log = logging.getLogger(__name__)

MAX_ERROR: Final = 1000
"""Characters of the error text in a dead letter's header."""
_PAUSES: Final = (0.1, 0.25, 0.5, 1.0, 2.0)


class Outgoing(NamedTuple):
    """One record to be sent. ``partition`` absent: the producer picks one by the key."""

    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()


class Sent(NamedTuple):
    """Where the broker put a record."""

    partition: int
    offset: int


class Undeliverable(LeadlineError):
    """The broker refuses a record for good: going on would lose it. The message says which and why."""


def outgoing(record: Violation | Command, partition: int) -> Outgoing:
    """A violation or command, on the partition of the event that led to it, keyed by its session."""
    topic = topics.VIOLATIONS if isinstance(record, Violation) else topics.COMMANDS
    return Outgoing(topic.name, partition, _key(record.session_id), encode(record), _headers(record))


def tick(record: Tick, partition: int) -> Outgoing:
    """A tick, into the session's own events partition."""
    return Outgoing(topics.EVENTS.name, partition, _key(record.session_id), encode(record), _headers(record))


def dead_letter(letter: DeadLetter, now: int) -> Outgoing:
    """The original key and bytes untouched; the headers say what was wrong and where it came from."""
    source = letter.source
    headers = (
        ("reason", letter.reason.encode()),
        ("error", safe(letter.error, MAX_ERROR).encode()),
        ("source-topic", topics.EVENTS.name.encode()),
        ("source-partition", str(source.partition).encode()),
        ("source-offset", str(source.offset).encode()),
        ("time", format_ms(now).encode()),
    )
    return Outgoing(topics.DEAD_LETTERS.name, None, source.key, source.value, headers)


def _key(session_id: str) -> bytes:
    return session_id.encode("utf-8", "surrogatepass")


def _headers(record: Violation | Command | Tick) -> tuple[tuple[str, bytes], ...]:
    config = type(record).__struct_config__
    headers = [("schema", str(config.tag).encode()), ("content-type", b"application/json")]
    for name in ("traceparent", "tracestate"):
        value = getattr(record, name, "")
        if value:
            headers.append((name, value.encode()))
    return tuple(headers)


Send = Callable[[Sequence[Outgoing], float], Awaitable[list[Sent | BaseException]]]
"""Hands all over in order and waits for their confirmation, at most so many seconds; an exception stands for each that failed."""


class Delivery:
    """Sends records and returns only when every one is confirmed. Made for one event loop; not thread-safe.

    ``send`` raises errors with a true ``retriable`` attribute for what may work later; ``reachable`` asks whether any
    broker answers at all. ``away_s``: how long to keep trying.
    """

    def __init__(
        self,
        send: Send,
        reachable: Callable[[], Awaitable[bool]],
        away_s: float,
        dead_letter_s: float,
        counts: Counter[str],
        sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
    ) -> None:
        self._send = send
        self._reachable = reachable
        self._away_s = away_s
        self._dead_letter_s = dead_letter_s
        self._counts = counts
        self._sleep = sleep
        self._dead_letters_down = False
        self._stuck: set[object] = set()
        """Deliveries under way of which the last attempt confirmed nothing."""

    async def confirm(self, records: Sequence[Outgoing], before: Callable[[], Awaitable[None]] | None = None) -> list[Sent]:
        """Deliver all, in flight together, in order within a partition.

        A record that fails is sent again, and with it those behind it on the same partition, so that the last copies are
        in order (all carry derived ids, so a second copy changes nothing). ``before`` is awaited before each attempt; what it
        raises ends the delivery. Raises :class:`BrokerError` when the broker stays away past the limit and
        :class:`Undeliverable` when it refuses a record for good.
        """
        me = object()
        try:
            return await self._confirm(records, before, me)
        finally:
            self._stuck.discard(me)

    async def _confirm(self, records: Sequence[Outgoing], before: Callable[[], Awaitable[None]] | None, me: object) -> list[Sent]:
        done: dict[int, Sent] = {}
        todo = list(range(len(records)))
        deadline = asyncio.get_running_loop().time() + self._away_s
        attempt = 0
        while todo:
            if before is not None:
                await before()
            results = await self._send([records[i] for i in todo], self._away_s)
            if all(isinstance(result, BaseException) for result in results):
                self._stuck.add(me)
            else:
                self._stuck.discard(me)
            failed: set[tuple[str, int | None]] = set()
            again = []
            error: BaseException | None = None
            for i, result in zip(todo, results, strict=True):
                lane = records[i].topic, records[i].partition
                if isinstance(result, BaseException):
                    if not _retriable(result):
                        raise Undeliverable(_sentence(records[i], result)) from result
                    error = result
                    failed.add(lane)
                if lane in failed:
                    again.append(i)
                elif isinstance(result, Sent):
                    done[i] = result
            if len(again) < len(todo):
                deadline = asyncio.get_running_loop().time() + self._away_s  # Slow is not away.
            todo = again
            if error is not None:
                if asyncio.get_running_loop().time() >= deadline:
                    unsent = f"{plural(len(todo), 'record')} for {_topics_of([records[i] for i in todo])}"
                    raise BrokerError(
                        f"the broker did not confirm {unsent} within {self._away_s:g} s "
                        f"({type(error).__name__}: {safe(str(error), 200)}); nothing was committed past them. "
                        "Check the brokers and that these topics are there, then start the worker again."
                    ) from error
                self._counts["delivery_retries"] += len(todo)
                log.warning(
                    "delivery is being retried",
                    extra=with_fields(records=len(todo), attempt=attempt + 1, error=type(error).__name__, detail=error),
                )
                await self._sleep(_PAUSES[min(attempt, len(_PAUSES) - 1)])
                attempt += 1
        return [done[i] for i in range(len(records))]

    async def bury(self, letters: Sequence[Outgoing]) -> None:
        """Deliver dead letters as well as can be: a few attempts, then each is logged and counted, and work goes on.

        While no broker answers at all it waits like :meth:`confirm`. After a failure the topic is tried once a batch and
        briefly, until it works again.
        """
        if not letters:
            return
        loop = asyncio.get_running_loop()
        budget = min(1.0, self._dead_letter_s) if self._dead_letters_down else self._dead_letter_s
        give_up, away = loop.time() + budget, loop.time() + self._away_s
        todo = list(letters)
        attempt = 0
        while True:
            results = await self._send(todo, max(0.05, give_up - loop.time()))
            error = next((result for result in results if isinstance(result, BaseException)), None)
            todo = [record for record, result in zip(todo, results, strict=True) if isinstance(result, BaseException)]
            if error is None:
                self._dead_letters_down = False
                self._counts["dead_letters"] += len(letters)
                return
            # Where nothing else is confirmed either, it is not this topic that is in trouble.
            if _retriable(error) and loop.time() < away and (self._stuck or not await self._reachable()):
                give_up = loop.time() + budget
                await self._sleep(0.5)
                continue
            attempt += 1
            if attempt > 3 or self._dead_letters_down or loop.time() >= give_up or not _retriable(error):
                break
            await self._sleep(_PAUSES[attempt])
        self._dead_letters_down = True
        self._counts["dead_letters"] += len(letters) - len(todo)
        self._counts["dead_letters_lost"] += len(todo)
        for record in todo:
            headers = {name: value.decode() for name, value in record.headers}
            log.error(
                "a dead letter could not be delivered; the record stays where it came from",
                extra=with_fields(
                    reason=headers["reason"],
                    partition=headers["source-partition"],
                    offset=headers["source-offset"],
                    error=f"{type(error).__name__}: {error}",
                ),
            )


def _topics_of(records: Sequence[Outgoing]) -> str:
    return ", ".join(sorted({record.topic for record in records}))


def _retriable(error: BaseException) -> bool:
    return isinstance(error, TimeoutError) or bool(getattr(error, "retriable", False))


def _sentence(record: Outgoing, error: BaseException) -> str:
    return (
        f"the broker refuses a record for {record.topic} ({type(error).__name__}: {safe(str(error))}); nothing was committed "
        "past it. Check the topic, its size limit and this client's rights, then start the worker again."
    )
