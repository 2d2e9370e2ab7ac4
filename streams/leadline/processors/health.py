"""The worker's own pages over HTTP, for probes and for whoever looks at one worker. Off unless a port is set.

``/ready``: 200 while partitions are assigned, restored and read, else 503. A worker to which no partition fell is ready too.
``/live``: 200 unless there are records to process and none was committed for ``LEADLINE_STALL_S``. The pages are served by the
very event loop that does the work: where that hangs, no page answers, and the probe's own timeout tells.
``/``: what this worker does, as JSON.

**A further page** is an ``async`` function that returns a :class:`Page`, given a path before the server starts::

    async def metrics() -> Page:
        return Page(200, "text/plain; version=0.0.4", render())

    monitor.pages.add("/metrics", metrics)

It runs on the event loop between batches, so it must not block. Whatever it raises is a 500 and a line in the log.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import orjson
from aiohttp import web

from leadline.errors import SettingsError

__all__ = ["Page", "Pages", "json_page"]

log = logging.getLogger(__name__)


class Page(NamedTuple):
    """What is answered. ``content_type`` as the header has it, parameters included."""

    status: int
    content_type: str
    body: bytes


Render = Callable[[], Awaitable[Page]]


def json_page(status: int, **fields: object) -> Page:
    return Page(status, "application/json", orjson.dumps(fields) + b"\n")


class Pages:
    """Pages by path, and the server that shows them. ``GET`` and ``HEAD`` only; anything else is 404 or 405."""

    def __init__(self) -> None:
        self._pages: dict[str, Render] = {}
        self._runner: web.AppRunner | None = None

    def add(self, path: str, render: Render) -> None:
        """Before :meth:`start`. Raises ``ValueError`` for a path that is taken."""
        if path in self._pages:
            raise ValueError(f"there is a page at {path} already")
        self._pages[path] = render

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port (of use where ``port`` is 0, which picks a free one).

        Raises :class:`SettingsError` where the address cannot be listened on.
        """
        app = web.Application()
        for path, render in self._pages.items():
            app.router.add_get(path, _handler(path, render))
        runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=0.5)
        await runner.setup()
        site = web.TCPSite(runner, host, port)
        try:
            await site.start()
        except OSError as error:
            await runner.cleanup()
            raise SettingsError(
                f"LEADLINE_HTTP_PORT {port} on {host} cannot be listened on: {error.strerror}. Choose a free port, or 0 for none."
            ) from None
        self._runner = runner
        found: int = runner.addresses[0][1]
        return found

    async def stop(self) -> None:
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()


def _handler(path: str, render: Render) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handle(_: web.Request) -> web.Response:
        try:
            page = await render()
        except Exception:
            log.exception("page %s could not be made", path)
            page = json_page(500, error="this page could not be made; the worker's log says why")
        return web.Response(
            status=page.status,
            body=page.body,
            headers={"Content-Type": page.content_type, "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"},
        )

    return handle
