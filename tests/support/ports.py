"""Ports and listening sockets, read from the kernel."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

__all__ = ["free_ports", "listening", "port_owner"]

_LISTEN = "0A"


def free_ports(count: int) -> list[int]:
    """``count`` different ports on which nobody listens now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def listening(pid: int) -> set[tuple[str, int]]:
    """The (address, port) pairs on which process ``pid`` listens (Linux)."""
    inodes = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            inodes.add(os.readlink(link))
    return {(address, port) for address, port, inode in _listeners() if f"socket:[{inode}]" in inodes}


def port_owner(port: int) -> int | None:
    """The process of this user that listens on ``port``; None if unknown (not Linux, or somebody else's)."""
    wanted = {f"socket:[{inode}]" for _, listener, inode in _listeners() if listener == port}
    for folder in Path("/proc").glob("[0-9]*/fd"):
        with contextlib.suppress(OSError):
            if any(os.readlink(link) in wanted for link in folder.iterdir()):
                return int(folder.parent.name)
    return None


def _listeners() -> list[tuple[str, int, str]]:
    found = []
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        file = Path("/proc/net") / table
        if not file.is_file():
            continue
        for line in file.read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTEN:
                address, port = fields[1].split(":")
                # Each 32-bit word is printed in the machine's byte order; all of ours are little-endian.
                words = bytes.fromhex(address)
                packed = b"".join(words[i : i + 4][::-1] for i in range(0, len(words), 4))
                found.append((socket.inet_ntop(family, packed), int(port, 16), fields[9]))
    return found
