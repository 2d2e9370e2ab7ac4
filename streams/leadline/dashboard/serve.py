"""The process: settings in, a listening server until it is told to stop. ``python -m leadline.dashboard.serve`` for the demo."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import uvicorn
from starlette.applications import Starlette
from starlette.routing import Route

from leadline.dashboard.access import access_from
from leadline.dashboard.acting import Acting
from leadline.dashboard.api import Parts, make_app
from leadline.dashboard.history import History
from leadline.dashboard.hub import Hub
from leadline.dashboard.limits import MOST_CONNECTIONS, Impatient, allow_files
from leadline.dashboard.reader import Reader
from leadline.dashboard.view import FleetView
from leadline.detection.policy import DEFAULT_POLICY
from leadline.errors import SettingsError
from leadline.processors.policy_source import PolicySource, read_policy
from leadline.settings import Settings, load_settings

__all__ = ["configured", "run", "wall_clock"]

_STOP_S: Final = 3
_OTHER_FILES: Final = 1_000
"""Besides connections: what clients of the broker and the page's own files may have open."""


def wall_clock() -> int:
    return time.time_ns() // 1_000_000


def run(settings: Settings, ready: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM. ``ready`` is told the page's address once it answers.

    Raises :class:`SettingsError` (also for a port that is taken), :class:`leadline.errors.BrokerError` where no broker answers.
    """
    access = access_from(settings)
    policy = read_policy(settings.policy_file) if settings.policy_file else DEFAULT_POLICY
    policies = PolicySource(policy, settings.policy_file)
    listener = _listen(settings)
    view, lock = FleetView(), threading.Lock()
    history = History(settings)
    try:
        reader = Reader(settings, view, lock, wall_clock, history.forget)
    except BaseException:
        listener.close()
        raise
    hub = Hub(view, lock, reader.reading, wall_clock)
    parts = Parts(
        view, lock, hub, history, reader.reading, wall_clock, lambda: policies.policy, access, settings.dashboard_trace_url
    )

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(hub.run()), asyncio.create_task(policies.watch())]
        host, port = listener.getsockname()[:2]
        ready(f"http://{f'[{host}]' if ':' in host else host}:{port}/")
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()

    config = configured(
        make_app(parts, [Route("/api/acts", Acting(settings, parts, wall_clock).act, methods=["POST"])], lifespan)
    )
    allow_files(MOST_CONNECTIONS + _OTHER_FILES)
    # The server raises the signal that stopped it anew: being told to stop is no failure.
    signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        _Server(config, hub).run(sockets=[listener])
    finally:
        reader.close()
        history.close()


def configured(app: Starlette) -> uvicorn.Config:
    """How the server serves."""
    return uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=_STOP_S,
        limit_concurrency=MOST_CONNECTIONS,
        http=Impatient,
    )


class _Server(uvicorn.Server):
    """Lets the open pages go first: their streams would never end by themselves."""

    def __init__(self, config: uvicorn.Config, hub: Hub) -> None:
        super().__init__(config)
        self._hub = hub

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._hub.close()
        await super().shutdown(sockets)


def _listen(settings: Settings) -> socket.socket:
    host, port = settings.dashboard_host, settings.dashboard_port
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(128)  # Who is told the address may connect at once.
    except OSError as error:
        raise SettingsError(
            f"the dashboard cannot listen on {host}:{port} ({(error.strerror or 'unknown error').lower()}): "
            "choose another --port, or 0 for any that is free"
        ) from None
    return listener


def main(argv: list[str]) -> int:
    """For a parent process: settings from the environment, the address on the first line of standard output."""

    def say(address: str) -> None:
        sys.stdout.write(f"{address}\n")
        sys.stdout.flush()

    overrides: dict[str, Any] = {"dashboard_port": int(argv[1])} if len(argv) > 1 else {}
    run(load_settings(**overrides), say)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
