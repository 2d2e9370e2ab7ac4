"""The conversations of a process: one session each, whatever instance of a framework's class serves them."""

from __future__ import annotations

import atexit
import hashlib
import logging
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Self, Unpack

from leadline.agent.adapters.conversation import Conversation
from leadline.agent.adapters.entries import ArchiveFactory, MemoryArchive
from leadline.agent.client import Client, connect
from leadline.agent.options import Options
from leadline.contracts import limits
from leadline.errors import Halted

__all__ = ["Conversations", "short_id"]

_log = logging.getLogger("leadline.agent")

UNLIMITED_DEPTH: Final = 1024
"""As deep as the contract counts: frameworks know no limit of their own."""
_MOST: Final = 4_096


def short_id(name: str) -> str:
    """``name`` as an id that a record can carry: a digest of it where it is empty or too long."""
    return name if 0 < len(name) <= limits.MAX_ID else hashlib.sha256(name.encode(errors="replace")).hexdigest()


class Conversations:
    """Thread safe. Conversations past ``most`` end, those unused longest first; all end with :meth:`close` or the interpreter.

    ``client``: a :class:`~leadline.agent.client.Client`, or the address of a Kafka cluster. ``token_budget``: what the working
    set may hold; ``options``: those of every session. ``archive``: makes where a conversation's originals are kept; left out,
    they are kept in memory.
    """

    def __init__(
        self,
        client: Client | str,
        *,
        agent_id: str,
        token_budget: int,
        max_depth: int = UNLIMITED_DEPTH,
        archive: ArchiveFactory | None = None,
        most: int = _MOST,
        **options: Unpack[Options],
    ) -> None:
        self.client = connect(client) if isinstance(client, str) else client
        self.token_budget = token_budget
        self.failures = 0
        """How often Leadline itself failed in here, unseen by the agent."""
        self._agent_id = short_id(agent_id)
        self._max_depth = max_depth
        self._archive = archive or (lambda _session_id: MemoryArchive())
        self._most = most
        self._options = options
        self._open: OrderedDict[str, Conversation] = OrderedDict()
        self._lock = threading.Lock()
        atexit.register(_close_at_exit, weakref.ref(self))

    def of(self, session_id: str) -> Conversation:
        """The conversation of this id; begun if it is new."""
        session_id = short_id(session_id)
        ended = []
        with self._lock:
            found = self._open.get(session_id)
            if found is None:
                found = self._open[session_id] = self._begin(session_id)
                while len(self._open) > self._most:
                    ended.append(self._open.popitem(last=False)[1])
            self._open.move_to_end(session_id)
        for one in ended:
            one.session.end("not used for long")
        return found

    def end(self, session_id: str, detail: str = "") -> None:
        """The conversation is over. One that is not open is none of our business."""
        with self._lock:
            found = self._open.pop(short_id(session_id), None)
        if found is not None:
            found.session.end(detail)

    def close(self) -> None:
        """All conversations are over; the client stays as it is."""
        with self._lock:
            ended, self._open = list(self._open.values()), OrderedDict()
        for one in ended:
            one.session.end()

    def __len__(self) -> int:
        return len(self._open)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def harmless(self, what: str) -> Iterator[None]:
        """Whatever Leadline does wrong in this block is logged and counted, and the agent goes on as without it.

        Only what the local guard raises on the agent's own wish (``guard="raise"``) comes through.
        """
        try:
            yield
        except Halted:
            if self._options.get("guard") == "raise":
                raise
            self._failed(what)
        except Exception:
            self._failed(what)

    def _failed(self, what: str) -> None:
        self.failures += 1
        if self.failures <= 3 or self.failures % 1000 == 0:
            _log.warning("leadline failed at %s (%d so far); the agent goes on without it", what, self.failures, exc_info=True)

    def _begin(self, session_id: str) -> Conversation:
        session = self.client.session(
            session_id,
            agent_id=self._agent_id,
            token_budget=self.token_budget,
            max_depth=self._max_depth,
            **self._options,
        )
        session.start()
        return Conversation(session, self._archive(session_id))


def _close_at_exit(conversations: weakref.ref[Conversations]) -> None:
    alive = conversations()
    if alive is not None:
        alive.close()
