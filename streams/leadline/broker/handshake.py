"""One Kafka request by hand, to learn whether a broker answers; needs no client library."""

from __future__ import annotations

import socket
import struct

__all__ = ["answers"]

_API_VERSIONS = 18
_CORRELATION_ID = 1
_CLIENT_ID = b"leadline"


def answers(host: str, port: int, timeout: float) -> bool:
    """Say whether a Kafka broker on ``host:port`` answers an ApiVersions request without an error.

    Blocks for ``timeout`` seconds at most per network step; never raises for network trouble.
    """
    body = struct.pack(f">hhih{len(_CLIENT_ID)}s", _API_VERSIONS, 0, _CORRELATION_ID, len(_CLIENT_ID), _CLIENT_ID)
    try:
        with socket.create_connection((host, port), timeout=timeout) as conn:
            conn.sendall(struct.pack(">i", len(body)) + body)
            with conn.makefile("rb") as reader:
                head = reader.read(10)
    except OSError:
        return False
    if len(head) < 10:
        return False
    _, correlation_id, error = struct.unpack(">iih", head)
    return bool(correlation_id == _CORRELATION_ID and error == 0)
