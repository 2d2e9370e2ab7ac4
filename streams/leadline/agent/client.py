"""What an agent process holds: one emitter and one listener, shared by its sessions."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, Unpack

from leadline.agent import checks
from leadline.agent.asynchronous import AsyncSession
from leadline.agent.emitter import Emitted, Emitter
from leadline.agent.ending import close_at_the_end
from leadline.agent.listener import COMMAND_TTL_MS, CommandListener, Heard
from leadline.agent.options import Options
from leadline.agent.session import Session
from leadline.agent.signed import SignedTransport, signed
from leadline.agent.spool import Spool, default_directory
from leadline.agent.transport import Transport
from leadline.errors import Refused
from leadline.security import Security

__all__ = ["Client", "connect"]


def connect(
    bootstrap: str,
    *,
    fleet: str = "",
    security: Security | None = None,
    config: Mapping[str, Any] | None = None,
    idempotence: bool = True,
    command_ttl_ms: int = COMMAND_TTL_MS,
    spool: bool | str | os.PathLike[str] = True,
    spool_bytes: int = 64 * 1024 * 1024,
) -> Client:
    """A client for the Kafka cluster at ``bootstrap`` (``host:port``, several separated by commas).

    Returns at once, whether the cluster is there or not. ``security``: TLS, SASL and keys, the same settings as the monitor's
    (``Security.load(os.environ)`` reads them from the environment); ``config``: further librdkafka settings. Make one per
    process; ``fleet`` is the sessions' default. ``command_ttl_ms``: how far back commands are read when a session begins; to
    be raised where the monitor's policy has a longer ``command_ttl_ms`` than these ten minutes.

    ``spool``: the directory for what cannot be sent now, at most ``spool_bytes`` of it for each process. ``True`` is a directory
    of this user's below the machine's directory for temporary files, ``False`` is none. A machine's processes may share it.
    """
    checks.text("bootstrap", bootstrap, most=8 * 1024)
    if not isinstance(spool, bool | str | os.PathLike):
        raise Refused(f"spool must be True, False or a directory, not {ascii(spool)[:80]}")
    directory = default_directory() if isinstance(spool, bool) else _directory(spool)
    spool_bytes = checks.whole("spool_bytes", spool_bytes, 1)
    # Here, so that only those who talk to Kafka load its client.
    from leadline.agent.kafka import KafkaTransport

    if security is None:
        transport: Transport = KafkaTransport(bootstrap, config, idempotence=idempotence)
    else:
        security.check(bootstrap)
        transport = KafkaTransport(bootstrap, {**security.librdkafka(), **(config or {})}, idempotence=idempotence)
        transport = signed(transport, security)
    kept = None if spool is False else Spool(directory, bootstrap, max_bytes=spool_bytes)
    return Client(transport, fleet=fleet, command_ttl_ms=command_ttl_ms, spool=kept)


class Client:
    """Owns the emitter and the listener. Thread safe. As a context manager it closes itself.

    At the interpreter's exit, and on SIGTERM where nobody else handles it, it sends what is left for at most 2 seconds. What then
    is left waits in the ``spool``.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        fleet: str = "",
        max_queued: int = 10_000,
        command_ttl_ms: int = COMMAND_TTL_MS,
        spool: Spool | None = None,
    ) -> None:
        self.listener = CommandListener(transport, lifetime_ms=command_ttl_ms)
        self.emitter = Emitter(
            transport,
            max_queued=max_queued,
            on_delivered=self.listener.learn,
            on_placed=self.listener.presence.placed,
            spool=spool,
        )
        self._fleet = fleet
        self._refused = transport.refused if isinstance(transport, SignedTransport) else Counter[str]()
        close_at_the_end(self)

    def session(
        self, session_id: str, *, agent_id: str, token_budget: int, max_depth: int, **options: Unpack[Options]
    ) -> Session:
        """A session, to be entered with ``with``. Options: :class:`leadline.agent.options.Options`."""
        options.setdefault("fleet", self._fleet)
        return Session(
            self.emitter,
            session_id,
            agent_id=agent_id,
            token_budget=token_budget,
            max_depth=max_depth,
            listener=self.listener,
            presence=self.listener.presence,
            **options,
        )

    def async_session(
        self, session_id: str, *, agent_id: str, token_budget: int, max_depth: int, **options: Unpack[Options]
    ) -> AsyncSession:
        """The same for an agent that runs in an event loop, to be entered with ``async with``."""
        return AsyncSession(
            self.session(session_id, agent_id=agent_id, token_budget=token_budget, max_depth=max_depth, **options)
        )

    def counters(self) -> tuple[Emitted, Heard]:
        """What was sent and dropped, and what was heard."""
        return self.emitter.counters(), self.listener.heard()

    def refused(self) -> Counter[str]:
        """Commands that were not taken because of their signature, by reason (:class:`leadline.agent.signed.SignedTransport`)."""
        return Counter(self._refused)

    def flush(self, timeout: float = 5.0) -> int:
        """Wait at most ``timeout`` seconds for every event to be delivered; returns how many are left."""
        return self.emitter.flush(timeout)

    def close(self, timeout: float = 3.0) -> int:
        """Stop listening, flush for at most ``timeout`` seconds, let the clients go; returns how many events were lost.

        What waits in the spool is not lost.
        """
        self.listener.close()
        return self.emitter.close(timeout)

    async def flush_async(self, timeout: float = 5.0) -> int:
        """:meth:`flush` without blocking the event loop."""
        import asyncio  # Here and below: an agent without an event loop does not pay for one.

        return await asyncio.to_thread(self.flush, timeout)

    async def close_async(self, timeout: float = 3.0) -> int:
        """:meth:`close` without blocking the event loop."""
        import asyncio

        return await asyncio.to_thread(self.close, timeout)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close_async()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _directory(spool: str | os.PathLike[str]) -> Path:
    """A path that a file system can take. Raises :class:`Refused`."""
    try:
        encoded = os.fsencode(spool)
    except UnicodeEncodeError:
        raise Refused(f"spool must be a path that can be encoded, not {ascii(spool)[:80]}") from None
    if b"\0" in encoded:
        raise Refused(f"spool must be a path without NUL characters, not {ascii(spool)[:80]}")
    return Path(os.fsdecode(encoded))
