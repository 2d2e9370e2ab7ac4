"""The page behind a gate that can say 502, for tests in a browser: no broker, an empty fleet, a server in this process."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse

from leadline.dashboard.access import Access
from leadline.dashboard.api import Parts, make_app
from leadline.dashboard.hub import Hub
from leadline.dashboard.reader import Reading
from leadline.dashboard.view import FleetView
from leadline.detection.policy import DEFAULT_POLICY

__all__ = ["Gate", "gated"]


def wall() -> int:
    return time.time_ns() // 1_000_000


class Gate:
    """``down``: whatever is asked for below ``/api`` is answered with 502, and counted in ``refused``."""

    def __init__(self, access: Access) -> None:
        view, lock = FleetView(), threading.Lock()
        self.hub = Hub(view, lock, self._reading, wall)
        parts = Parts(view, lock, self.hub, None, self._reading, wall, lambda: DEFAULT_POLICY, access)  # type: ignore[arg-type]
        self._app = make_app(parts, None, self._lifespan)
        self._loop: asyncio.AbstractEventLoop | None = None
        self.address = ""
        self.down = False
        self.refused = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if self.down and scope["type"] == "http" and scope["path"].startswith("/api/"):
            self.refused += 1
            await PlainTextResponse("bad gateway", 502)(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def cut(self) -> None:
        """End every stream that is open."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self.hub.close)

    @contextlib.asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        self._loop = asyncio.get_running_loop()
        running = asyncio.create_task(self.hub.run())
        yield
        running.cancel()

    @staticmethod
    def _reading() -> Reading:
        return Reading(wall(), 0, 1.0)


@contextlib.contextmanager
def gated(access: Access) -> Iterator[Gate]:
    """It is served on loopback meanwhile."""
    gate = Gate(access)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        gate.address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        server = uvicorn.Server(uvicorn.Config(gate, log_level="error", access_log=False, timeout_graceful_shutdown=1))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            yield gate
        finally:
            server.should_exit = True
            thread.join(10)
