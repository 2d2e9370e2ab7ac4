"""The silences in force, followed from their topic while the worker runs: every worker reads all of it, without a group.

What is on the topic when the worker starts is read to its end before anything is judged: what people silenced must not be halted
because a worker was restarted. From then on a silence holds from the next batch after it was read; ids do not depend on it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition
from msgspec.structs import replace

from leadline.commands.fold import Folded, Incoming, Load
from leadline.contracts.codec import decode_silence
from leadline.contracts.manual import Silence
from leadline.contracts.topics import SILENCES
from leadline.detection.policy import Policy
from leadline.detection.silences import in_force
from leadline.errors import Malformed
from leadline.processors.watch import Fold
from leadline.settings import Settings, client_configs

__all__ = ["MOST", "SilenceSource"]

log = logging.getLogger(__name__)

MOST: Final = 1_000
"""Silences that are looked at; further ones are refused, loudly, rather than slow every event down."""
_EVERY_S: Final = 1.0
_ASK_S: Final = 5.0
_READ_S: Final = 5.0
"""How long one attempt to read the topic to its end may take; while it gets on, the next one goes on where it was."""


class SilenceSource:
    """``counts`` gets ``silences_refused``. :meth:`poll` blocks: call it off the event loop; one caller at a time."""

    topic: Final = SILENCES.name

    def __init__(self, settings: Settings, now: Callable[[], int], counts: Counter[str]) -> None:
        self._settings = settings
        self._now = now
        self._counts = counts
        self._known: dict[str, Silence] = {}
        self._client: Any = None
        self._unread: set[int] = set()
        """Partitions not read to their end since the client was made; until they are, what is in force stays."""
        self._complaint = ""
        self._turn = asyncio.Lock()
        self._given: tuple[Policy, Policy] | None = None
        self.in_force: tuple[Silence, ...] = ()
        self.complete = False
        """Whether the topic has been read to its end once."""

    def around(self, fold: Fold) -> Fold:
        """``fold``, under the policy with the silences of the moment."""

        def silenced(batch: Sequence[Incoming], load: Load, policy: Policy, now: int) -> Folded:
            return fold(batch, load, self.over(policy), now)

        return silenced

    def over(self, policy: Policy) -> Policy:
        """``policy`` with the silences that are in force."""
        silences = self.in_force
        if not silences:
            return policy
        if self._given is None or self._given[0] is not policy or self._given[1].silences is not silences:
            self._given = policy, replace(policy, silences=silences)
        return self._given[1]

    def take(self, value: bytes | None) -> None:
        """One record of the topic. What cannot be read, or is too many, is counted and told."""
        try:
            silence = decode_silence(value)
        except Malformed as error:
            self._refuse(str(error))
            return
        if silence.silence_id not in self._known and len(self._known) >= MOST:
            self._prune()
        if silence.silence_id not in self._known and len(self._known) >= MOST:
            self._refuse(f"more than {MOST} silences are in force")
            return
        self._known[silence.silence_id] = silence
        if not self._unread:
            self._settle()

    def poll(self, limit_s: float = 0.0) -> None:
        """Read what is new; up to ``limit_s``, wait until the topic has been read to its end. A broker or topic that cannot be
        read is told once, and what was in force stays so. Never raises for that."""
        deadline = time.monotonic() + limit_s
        try:
            client, came = self._connected(), 0
            while True:
                message = client.poll(min(0.1, max(0.0, deadline - time.monotonic())) if self._unread else 0)
                if message is not None:
                    came += 1
                    self._look_at(message)
                elif not self._unread or time.monotonic() >= deadline:
                    break
            if self._unread and limit_s and not came:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"nothing came of it within {limit_s:g} s"))
        except KafkaException as error:
            self._complain(error.args[0].str())
            self._drop()
            return
        self._complaint = ""
        if not self._unread:
            self.complete = True
            self._settle()

    async def read_first(self, tell: Callable[[str], None], stopped: Callable[[], bool]) -> None:
        """Return when everything that was on the topic has been read, at once where it has been before. ``tell`` gets a sentence
        for as long as it cannot be read, and in the end an empty one; ``stopped`` ends the waiting."""
        async with self._turn:
            while not self.complete and not stopped():
                await asyncio.to_thread(self.poll, _READ_S)
                if not self.complete:
                    tell(f"nothing is judged before the silences have been read: {self._complaint or 'there are many'}")
                    await asyncio.sleep(_EVERY_S if self._complaint else 0)
            tell("")

    async def watch(self) -> None:
        """Poll once a second, off the event loop, for ever."""
        try:
            while True:
                async with self._turn:
                    await asyncio.to_thread(self.poll)
                await asyncio.sleep(_EVERY_S)
        finally:
            self._drop()

    def _connected(self) -> Any:
        if self._client is None:
            # No member of the group; its name is demanded, looked up, and the only one that this client may use.
            group = {"group.id": self._settings.app_id, "enable.auto.commit": False, "enable.auto.offset.store": False}
            reads = {"auto.offset.reset": "earliest", "enable.partition.eof": True, "fetch.wait.max.ms": 100, "log_level": 0}
            client = Consumer({**client_configs(self._settings).confluent, **group, **reads})
            try:
                # All topics: asking for one by name may create it.
                listed = client.list_topics(timeout=_ASK_S).topics
                numbers = sorted(listed[self.topic].partitions) if self.topic in listed else []
                if not numbers:
                    said = f"topic {self.topic} does not exist, or may not be read by this client"
                    raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, said))
                places = [TopicPartition(self.topic, number, OFFSET_BEGINNING) for number in numbers]
                # Nothing tells the end of a partition at once where there is nothing to read.
                marks = {place.partition: client.get_watermark_offsets(place, timeout=_ASK_S) for place in places}
                client.assign(places)
            except KafkaException:
                client.close()
                raise
            self._client, self._known = client, {}
            self._unread = {number for number, mark in marks.items() if mark is None or mark[0] < mark[1]}
        return self._client

    def _look_at(self, message: Any) -> None:
        """One record, or what the client says of a partition. Raises :class:`KafkaException` where that is no good news."""
        error = message.error()
        if error is None:
            self.take(message.value())
        elif error.code() == KafkaError._PARTITION_EOF:
            self._unread.discard(message.partition())
        elif message.topic() is not None:
            # What the client says of its group and of that one's coordinator is not about what is read.
            raise KafkaException(error)

    def _drop(self) -> None:
        """The next poll begins from the start of the topic, with a client of its own."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _prune(self) -> None:
        now = self._now()
        self._known = {name: each for name, each in self._known.items() if in_force(each, now)}

    def _settle(self) -> None:
        self._prune()
        current = tuple(self._known.values())
        if current != self.in_force:
            self.in_force = current
            log.warning("%d silences are in force", len(current))

    def _refuse(self, why: str) -> None:
        self._counts["silences_refused"] += 1
        log.error("a silence was left out: %s", why)

    def _complain(self, why: str) -> None:
        if why != self._complaint:
            self._complaint = why
            then = "those in force stay so" if self.complete else "nothing is judged before they have been"
            log.error("the silences cannot be read (%s): %s. Check the brokers, and the right to read %s.", why, then, self.topic)
