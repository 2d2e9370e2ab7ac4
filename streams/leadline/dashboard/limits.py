"""How much is served at once: pages that are open, connections, and how long one may say nothing.

The probes' requests must pass whatever people and programs keep open: else a page that many look at is restarted for that.
"""

from __future__ import annotations

import asyncio
import resource
from typing import Any, Final

from sse_starlette import EventSourceResponse
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.auto import AutoHTTPProtocol

__all__ = ["MOST_CONNECTIONS", "MOST_STREAMS", "Impatient", "Streams", "allow_files"]

MOST_STREAMS: Final = 2_000
"""Pages that are open at once; whoever comes after is told so (503)."""
MOST_CONNECTIONS: Final = 5 * MOST_STREAMS
"""Of all kinds. Far above, so that only connections that nobody needs could reach it."""
_PING_S: Final = 15


class Streams:
    """Answers with server-sent events, as long as no more than ``most`` are open."""

    def __init__(self, most: int = MOST_STREAMS) -> None:
        self.most = most
        self.open = 0

    def answer(self, content: Any) -> Response:
        if self.open < self.most:
            return _Counted(self, content)
        said = f"{self.open} pages are open here, which is as many as are served at once: close some, or come again later"
        return JSONResponse({"error": said}, status_code=503, headers={"retry-after": "30"})


class _Counted(EventSourceResponse):
    def __init__(self, streams: Streams, content: Any) -> None:
        super().__init__(content, ping=_PING_S)
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._streams.open += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._streams.open -= 1


class Impatient(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """Closes a connection on which nothing was ever asked, as one that was kept alive."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)


def allow_files(number: int) -> None:
    """Raise this process's limit of open files, where it is lower than ``number``, as far as that is allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = number if hard == resource.RLIM_INFINITY else min(number, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
