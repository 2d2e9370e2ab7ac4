"""The silences in force, followed from their topic while the worker runs: every worker reads all of it, without a group.

As with the policy file, what a silence changes holds from the next batch on, and ids do not depend on it.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition
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


class SilenceSource:
    """``counts`` gets ``silences_refused``. :meth:`poll` blocks: call it off the event loop; one caller at a time."""

    topic: Final = SILENCES.name

    def __init__(self, settings: Settings, now: Callable[[], int], counts: Counter[str]) -> None:
        self._settings = settings
        self._now = now
        self._counts = counts
        self._known: dict[str, Silence] = {}
        self._client: Any = None
        self._complaint = ""
        self._given: tuple[Policy, Policy] | None = None
        self.in_force: tuple[Silence, ...] = ()

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
            self._refuse(f"more than {MOST} silences are in force")
            return
        self._known[silence.silence_id] = silence
        self._settle()

    def poll(self) -> None:
        """Read what is new. A broker or topic that is away is told once, and what was in force stays so. Never raises."""
        try:
            client = self._connected()
            while message := client.poll(0):
                if message.error() is None:
                    self.take(message.value())
            self._complaint = ""
        except KafkaException as error:
            self._complain(error.args[0].str())
        self._settle()

    async def watch(self) -> None:
        """Poll once a second, off the event loop, for ever."""
        try:
            while True:
                await asyncio.to_thread(self.poll)
                await asyncio.sleep(_EVERY_S)
        finally:
            if self._client is not None:
                self._client.close()

    def _connected(self) -> Any:
        if self._client is None:
            group = {"group.id": f"{self._settings.app_id}-silences-{uuid.uuid4().hex}", "enable.auto.commit": False}
            config = client_configs(self._settings).confluent
            client = Consumer({**config, **group, "auto.offset.reset": "earliest", "log_level": 0})
            try:
                listed = client.list_topics(timeout=_ASK_S).topics
            except KafkaException:
                client.close()
                raise
            numbers = sorted(listed[self.topic].partitions) if self.topic in listed else []
            client.assign([TopicPartition(self.topic, number, OFFSET_BEGINNING) for number in numbers])
            self._client = client
        return self._client

    def _settle(self) -> None:
        now = self._now()
        self._known = {name: each for name, each in self._known.items() if in_force(each, now)}
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
            log.error("the silences cannot be read (%s): those in force stay so", why)
