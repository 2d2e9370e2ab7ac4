"""A worker as users start it, whose collector hangs or answers too late: one warning, verdicts all the same, an end in time."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any
from urllib.request import urlopen

import pytest

from leadline.contracts.codec import encode
from leadline.telemetry.setup import EXPORT_S
from tests.processors.running import MONITOR, RunningWorker, Topics, bodies, until
from tests.support.ports import free_ports
from tests.telemetry.watched import sunk

pytestmark = [pytest.mark.broker, pytest.mark.e2e]

WARNING = "do not reach the collector"


class _Server(ThreadingHTTPServer):
    """Answers each request a second after its sender has given it up."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Late)
        self.over = Event()
        self.asked = 0

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever asked is gone."""


class _Late(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        server = self.server
        assert isinstance(server, _Server)
        self.rfile.read(int(self.headers["Content-Length"]))
        server.asked += 1
        server.over.wait(EXPORT_S + 1)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


@pytest.fixture
def hanging() -> Iterator[int]:
    """A port that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listening:
        yield listening.getsockname()[1]


@pytest.fixture
def late() -> Iterator[int]:
    server = _Server()
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server.server_address[1]
    assert server.asked, "nothing was sent to it"
    server.over.set()
    server.shutdown()
    server.server_close()
    thread.join(20)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("collector", ["hanging", pytest.param("late", marks=pytest.mark.long)])
def test_verdicts_come_one_warning_is_told_and_the_end_is_in_time(
    collector: str, bootstrap: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Past its drain deadline a worker ends itself by force, and says so."""
    endpoint = f"http://127.0.0.1:{request.getfixturevalue(collector)}"
    topics = Topics(bootstrap)
    (port,) = free_ports(1)
    options = {"otlp_endpoint": endpoint, "otlp_metrics": True, "http_port": port}
    worker = RunningWorker(bootstrap, tmp_path / "worker", MONITOR, **options).ready()

    def failures() -> float:
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as page:
            lines = page.read().decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith("leadline_export_failures_total{"))

    def judged(session: str) -> bool:
        return session in {body["session_id"] for body in bodies(topics.read("leadline.violations"))}

    def verdict(session: str) -> None:
        topics.send(session, encode(sunk(1, session_id=session)))
        topics.flush()
        until(f"a verdict on {session}", lambda: judged(session))

    try:
        verdict("before")
        until("the warning", lambda: WARNING in worker.log)
        verdict("after")
        until("another export that failed", lambda: failures() >= 2)
    finally:
        topics.close()
        code = worker.stop()
    assert code == 0, worker.log
    assert "stopping took longer" not in worker.log, worker.log
    assert worker.log.count(WARNING) == 1, worker.log
    assert endpoint in worker.log
    assert "Traceback" not in worker.log
    assert "opentelemetry" not in worker.log, "what its exporters say of each attempt is left out"
