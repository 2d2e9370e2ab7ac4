"""OTLP receivers to measure against: a good one, and those that trouble their senders."""

from __future__ import annotations

import contextlib
import http.server
import socket
import threading
from collections.abc import Iterator
from typing import Any, Final

__all__ = ["TROUBLES", "collector"]

TROUBLES: Final = ("closed", "hanging", "slow")
"""Nobody listens; takes connections and never answers; answers each request after two seconds."""
_SLOW_S: Final = 2.0


@contextlib.contextmanager
def collector(kind: str) -> Iterator[str]:
    """The address of a receiver on loopback, ``taking`` everything and forgetting it, or one of :data:`TROUBLES`."""
    if kind in ("closed", "hanging"):
        with socket.socket() as bound:
            bound.bind(("127.0.0.1", 0))
            if kind == "hanging":
                bound.listen(64)
            # A bound port that does not listen refuses, and nobody else gets it meanwhile.
            yield f"http://127.0.0.1:{bound.getsockname()[1]}"
        return
    ended = threading.Event()

    class Taking(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if kind == "slow":
                ended.wait(_SLOW_S)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Says nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Taking)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        ended.set()
        server.shutdown()
        server.server_close()
