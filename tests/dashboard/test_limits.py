"""What many open pages and idle connections may cost: never the probes."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import httpx
import pytest
import uvicorn

from leadline.dashboard.api import Parts, make_app
from leadline.dashboard.history import History
from leadline.dashboard.hub import Hub
from leadline.dashboard.reader import Reading
from leadline.dashboard.serve import configured
from leadline.dashboard.view import FleetView
from leadline.detection.policy import DEFAULT_POLICY
from leadline.settings import load_settings
from tests.support.core import START

pytestmark = pytest.mark.timeout(60)


@contextlib.contextmanager
def served(keep_alive_s: int, most_streams: int = 2) -> Iterator[str]:
    """The app behind the real server, without a broker: its address."""
    view, lock = FleetView(), threading.Lock()
    hub = Hub(view, lock, lambda: Reading(START, 0, 1.0), lambda: START)
    history = History(load_settings({}))
    parts = Parts(
        view, lock, hub, history, lambda: Reading(START, 0, 1.0), lambda: START, lambda: DEFAULT_POLICY, most_streams=most_streams
    )
    config = configured(make_app(parts))
    config.timeout_keep_alive = keep_alive_s
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            hub.close()
            server.should_exit = True
            thread.join(30)
            history.close()


def test_pages_past_the_most_are_told_so_and_the_probes_are_answered() -> None:
    with served(5) as address, httpx.Client(base_url=address, timeout=20) as client:
        kept = []
        with contextlib.ExitStack() as open_pages:
            for path in ("/api/stream", "/api/session/stream?session=s1"):
                page = open_pages.enter_context(client.stream("GET", path))
                assert page.status_code == 200
                lines = page.iter_lines()
                next(lines)
                kept.append(lines)  # One that is let go closes its connection.
            for path in ("/api/stream", "/api/session/stream"):
                refused = client.get(path)
                assert (refused.status_code, refused.headers["retry-after"]) == (503, "30")
                assert refused.json()["error"].startswith("2 pages are open here, which is as many as are served at once")
            assert [client.get(path).status_code for path in ("/livez", "/healthz")] == [200, 200]
        for _ in range(1_000):
            with client.stream("GET", "/api/stream") as page:
                if page.status_code == 200:
                    break
        assert page.status_code == 200, "those that were closed make room"


def test_a_connection_on_which_nothing_is_asked_is_closed() -> None:
    """Else whoever opens enough of them keeps everybody else away, the probes too."""
    with served(1) as address:
        url = httpx.URL(address)
        with socket.create_connection((url.host, url.port), timeout=30) as idle:
            assert idle.recv(1) == b""
        assert httpx.get(f"{address}/livez").status_code == 200
