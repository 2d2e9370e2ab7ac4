"""Signatures at the edge to the broker: what leaves is signed, and of the commands only those that the monitor signed come in.

It wraps a transport and is one itself; the emitter and the listener notice nothing.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from leadline.agent.transport import Consumer, Headers, OnDelivery, Producer, Received, Transport
from leadline.contracts.codec import decode_command
from leadline.contracts.signatures import HEADER, read_signature
from leadline.contracts.times import parse_ms
from leadline.contracts.topics import COMMANDS, EVENTS
from leadline.errors import Malformed
from leadline.security import Security
from leadline.security.keys import KeyRing, SigningKey

__all__ = ["SignedTransport", "signed"]

_log = logging.getLogger("leadline.agent")
_REMEMBERED: Final = 4_096


class SignedTransport:
    """``key`` signs events; with ``trusted`` only commands that one of its keys signed are passed on.

    ``refused`` counts, by reason: ``unsigned``, ``foreign-key`` (signed, with a key that is not trusted), ``bad-signature``,
    ``replayed`` (a signed command that came before, at another place of the log) and ``stale`` (a signed one past its end: the
    session is told, and answers that it has expired, without acting).
    """

    def __init__(
        self,
        inner: Transport,
        *,
        key: SigningKey | None = None,
        trusted: KeyRing | None = None,
        now: Callable[[], int] | None = None,
    ) -> None:
        self._inner = inner
        self._key = key
        self._trusted = trusted
        self._now = now or (lambda: time.time_ns() // 1_000_000)
        self.refused: Counter[str] = Counter()

    def producer(self) -> Producer:
        client = self._inner.producer()
        return client if self._key is None else _SigningProducer(client, self._key)

    def consumer(self, topic: str) -> Consumer:
        client = self._inner.consumer(topic)
        if self._trusted is None or topic != COMMANDS.name:
            return client
        return _CheckingConsumer(client, self._trusted, self._now, self.refused)


def signed(inner: Transport, security: Security) -> Transport:
    """``inner`` with the keys that ``security`` names; itself where it names none. Raises
    :class:`leadline.errors.SettingsError` where a key cannot be read."""
    if not (security.event_key_file or security.command_keys_file):
        return inner
    own, trusted = security.event_key_file, security.command_keys_file
    return SignedTransport(
        inner,
        key=SigningKey.read(own, "LEADLINE_EVENT_KEY_FILE") if own else None,
        trusted=KeyRing.read(trusted, "LEADLINE_COMMAND_KEYS_FILE") if trusted else None,
    )


class _SigningProducer:
    def __init__(self, inner: Producer, key: SigningKey) -> None:
        self._inner = inner
        self._key = key

    def produce(self, topic: str, key: bytes, value: bytes, headers: Headers, on_delivery: OnDelivery) -> None:
        signature = self._key.sign(EVENTS.name, value)
        self._inner.produce(topic, key, value, [*headers, (HEADER, signature)], on_delivery)

    def poll(self, timeout: float) -> None:
        self._inner.poll(timeout)

    def flush(self, timeout: float) -> None:
        self._inner.flush(timeout)

    def close(self) -> None:
        self._inner.close()


class _CheckingConsumer:
    def __init__(self, inner: Consumer, trusted: KeyRing, now: Callable[[], int], refused: Counter[str]) -> None:
        self._inner = inner
        self._trusted = trusted
        self._now = now
        self._refused = refused
        self._seen: dict[str, tuple[int, int]] = {}
        """Where each command was read first, oldest first."""

    def start_offset(self, partition: int, since: int) -> int:
        return self._inner.start_offset(partition, since)

    def assign(self, positions: Mapping[int, int]) -> None:
        self._inner.assign(positions)

    def poll(self, timeout: float) -> list[Received]:
        return [record for record in self._inner.poll(timeout) if self._admits(record)]

    def close(self) -> None:
        self._inner.close()

    def _admits(self, record: Received) -> bool:
        fault = self._trusted.fault(COMMANDS.name, record.value or b"", read_signature(record.headers)) or self._replay(record)
        if fault:
            if fault not in self._refused:
                _log.warning("a command was refused: %s, partition %d, offset %d", fault, record.partition, record.offset)
            self._refused[fault] += 1
        return not fault or fault == "stale"

    def _replay(self, record: Received) -> str:
        try:
            command = decode_command(record.value)
        except Malformed:
            return ""  # Signed, and of a kind that this reader does not know: the listener's to judge.
        place = (record.partition, record.offset)
        # Read again from the same place, as after a reconnect, it is the same record and not a copy.
        if self._seen.setdefault(command.command_id, place) != place:
            return "replayed"
        if len(self._seen) > _REMEMBERED:
            del self._seen[next(iter(self._seen))]
        expires = parse_ms(command.expires_at)
        return "stale" if expires is not None and expires <= self._now() else ""
