"""What the embedded broker lacks: a fetch that finds nothing waits, as Kafka's protocol has it, until something comes.

The broker answers such a fetch at once, and its clients ask again at once: each idle consumer then takes half a core, and the
broker as much. :class:`Relay` stands between the two and holds an answer without records for as long as the client said
it would wait (``max_wait_ms``), or until somebody's request has changed something. Everything else passes as it is, but for the
broker's address in the answers that hold it: clients must come back to the relay.

Loaded by the keeper, from its path; needs nothing but the standard library.

::

    client ── request ──> relay ── request ──> broker
           <── answer ──   │    <── answer ──
                           └─ a fetch without records or errors: held
"""

from __future__ import annotations

import asyncio
import socket
import struct
from abc import ABC, abstractmethod
from collections import deque
from typing import Final, NamedTuple

__all__ = ["Fetching", "Relay", "fetching", "nothing_in", "serve"]

_PRODUCE, _FETCH = 0, 1
_TELLS_ADDRESS: Final = frozenset({3, 10, 60})
"""Metadata, FindCoordinator, DescribeCluster."""
_CHANGES: Final = frozenset({_PRODUCE, 19, 20, 21, 26, 27, 37})
"""Produce, CreateTopics, DeleteTopics, DeleteRecords, EndTxn, WriteTxnMarkers, CreatePartitions."""
_FIRST, _LAST = 4, 12
"""Versions of Fetch that are read here; others pass at once."""
_FLEXIBLE: Final = 12
_LEAST_S: Final = 0.002
"""Where much is written, an idle consumer must not be woken by each record of the others."""
_ASKED_MAX: Final = 10_000
"""Requests that are remembered for a connection; a client that wants no acknowledgement may send any number."""
_HEAD: Final = struct.Struct(">hhih")


class Fetching(NamedTuple):
    """A Fetch request: its version, and how long (seconds) the client waits for records."""

    version: int
    wait_s: float


def fetching(frame: bytes) -> Fetching | None:
    """What a request frame (without its length) says, if it is a Fetch of a version that is known here."""
    if len(frame) < _HEAD.size:
        return None
    key, version, _, name = _HEAD.unpack_from(frame)
    if key != _FETCH or not _FIRST <= version <= _LAST:
        return None
    at = _HEAD.size + max(name, 0)
    if version >= _FLEXIBLE:
        if frame[at : at + 1] != b"\0":
            return None  # Tagged fields in the header: none are known.
        at += 1
    if len(frame) < at + 8:
        return None
    _replica, wait_ms = struct.unpack_from(">ii", frame, at)
    return Fetching(version, max(wait_ms, 0) / 1000)


def nothing_in(frame: bytes, version: int) -> bool:
    """Whether an answer (without its length) to a Fetch has neither a record nor an error. False where it can't be read."""
    try:
        return _nothing_in(_Reader(frame, version >= _FLEXIBLE), version)
    except (struct.error, IndexError):
        return False


class _Reader:
    def __init__(self, data: bytes, flexible: bool) -> None:
        self._data, self._at, self._flexible = data, 0, flexible

    def take(self, form: str) -> int:
        (value,) = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return int(value)

    def skip(self, count: int) -> None:
        self._at += max(count, 0)
        if self._at > len(self._data):
            raise IndexError

    def size(self, form: str) -> int:
        """The length of an array, a string or bytes; -1 for none."""
        return self._varint() - 1 if self._flexible else self.take(form)

    def tags(self) -> None:
        if self._flexible:
            for _ in range(self._varint()):
                self._varint()
                self.skip(self._varint())

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return value


def _nothing_in(read: _Reader, version: int) -> bool:
    read.take(">i")  # correlation id
    read.tags()
    read.take(">i")  # throttle time
    if version >= 7:
        if read.take(">h"):
            return False
        read.take(">i")  # session
    for _ in range(read.size(">i")):
        read.skip(read.size(">h"))
        for _ in range(read.size(">i")):
            read.take(">i")
            if read.take(">h"):
                return False
            read.skip(16 if version < 5 else 24)  # high watermark, last stable offset, log start
            for _ in range(read.size(">i")):  # aborted transactions
                read.skip(16)
                read.tags()
            if version >= 11:
                read.take(">i")
            if read.size(">i") > 0:
                return False
            read.tags()
        read.tags()
    return True


class Relay:
    """Serves a listening socket for a broker on the same host. Belongs to one event loop, and ends with it."""

    def __init__(self, listening: socket.socket, broker_port: int) -> None:
        self._listening = listening
        self.host, self.port = listening.getsockname()[:2]
        self.broker_port = broker_port
        address = self.host.encode()
        self._theirs = address + struct.pack(">i", broker_port)
        self._ours = address + struct.pack(">i", self.port)
        self._held: set[_Link] = set()
        self.changes = 0
        """Counts what may have brought records."""

    async def start(self) -> None:
        """Take connections from now on."""
        await asyncio.get_running_loop().create_server(lambda: _Client(self), sock=self._listening)

    def own_address(self, frame: bytes) -> bytes:
        """``frame`` with the relay's port in place of the broker's, wherever it follows the host."""
        return frame.replace(self._theirs, self._ours)

    def hold(self, link: _Link) -> None:
        self._held.add(link)

    def let_go(self, link: _Link) -> None:
        self._held.discard(link)

    def changed(self) -> None:
        """Something was written: whoever waits may ask again."""
        self.changes += 1
        for link in list(self._held):
            link.wake()


class _Frames(asyncio.Protocol, ABC):
    """Bytes to frames; a side that can't take more makes the other wait."""

    other: _Frames | None = None
    transport: asyncio.Transport

    def __init__(self) -> None:
        self._rest = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        rest = self._rest
        rest += data
        at = 0
        while len(rest) >= at + 4:
            end = at + 4 + int.from_bytes(rest[at : at + 4], "big")
            if len(rest) < end:
                break
            self.frame(bytes(rest[at + 4 : end]))
            at = end
        del rest[:at]

    @abstractmethod
    def frame(self, frame: bytes) -> None:
        """A whole frame has come, without its length."""

    def send(self, frame: bytes) -> None:
        self.transport.write(len(frame).to_bytes(4, "big") + frame)

    def pause_writing(self) -> None:
        if self.other is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None:
            self.other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.other is not None:
            self.other.transport.close()


class _Client(_Frames):
    """A client's connection, to which belongs one to the broker."""

    def __init__(self, relay: Relay) -> None:
        super().__init__()
        self._relay = relay
        self._dialling: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.transport.pause_reading()
        self._dialling = asyncio.get_running_loop().create_task(self._dial())

    async def _dial(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            _, link = await loop.create_connection(lambda: _Link(self._relay, self), self._relay.host, self._relay.broker_port)
        except OSError:
            self.transport.abort()
            return
        self.other = link
        if self.transport.is_closing():
            link.transport.close()
        else:
            self.transport.resume_reading()

    def frame(self, frame: bytes) -> None:
        link = self.other
        assert isinstance(link, _Link)
        link.ask(frame)


class _Asked(NamedTuple):
    number: int
    key: int
    fetch: Fetching | None
    changes: int


class _Link(_Frames):
    """A connection to the broker, for one client. Answers come in the order of the requests."""

    def __init__(self, relay: Relay, client: _Client) -> None:
        super().__init__()
        self._relay = relay
        self.other: _Frames | None = client
        self._asked: deque[_Asked] = deque(maxlen=_ASKED_MAX)
        self._waiting: deque[bytes] = deque()
        """Answers that can't pass: the first is held, the others came after it."""
        self._since = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def ask(self, frame: bytes) -> None:
        """Send a request, and remember what its answer will need."""
        key, _, number, _ = _HEAD.unpack_from(frame.ljust(_HEAD.size, b"\0"))
        self._asked.append(_Asked(number, key, fetching(frame), self._relay.changes))
        self.send(frame)

    def _answered(self, frame: bytes) -> _Asked | None:
        """The request of this answer; those before it had none (a Produce without acknowledgement)."""
        number = int.from_bytes(frame[:4], "big", signed=True)
        while self._asked:
            asked = self._asked.popleft()
            if asked.number == number:
                return asked
        return None

    def frame(self, frame: bytes) -> None:
        self._waiting.append(frame)
        if self._timer is None:
            self._pass()

    def _pass(self) -> None:
        """Hand on what may pass, up to an answer that is to be held."""
        client = self.other
        assert client is not None
        while self._waiting:
            frame = self._waiting[0]
            asked = self._answered(frame)
            fetch = None if asked is None else asked.fetch
            if asked is not None and fetch is not None and fetch.wait_s > 0 and nothing_in(frame, fetch.version):
                loop = asyncio.get_running_loop()
                self._since = loop.time()
                self._timer = loop.call_later(fetch.wait_s, self._over)
                self._relay.hold(self)
                if asked.changes != self._relay.changes:
                    self.wake()  # What was written meanwhile it may have missed.
                return
            self._waiting.popleft()
            client.send(self._relay.own_address(frame) if asked is not None and asked.key in _TELLS_ADDRESS else frame)
            if asked is not None and asked.key in _CHANGES:
                self._relay.changed()

    def wake(self) -> None:
        """Let the held answer go: soon, where it has hardly been held yet."""
        assert self._timer is not None
        self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_at(max(self._since + _LEAST_S, loop.time()), self._over)
        self._relay.let_go(self)

    def _over(self) -> None:
        self._relay.let_go(self)
        self._timer = None
        client = self.other
        assert client is not None
        client.send(self._waiting.popleft())
        self._pass()

    def connection_lost(self, exc: Exception | None) -> None:
        self._relay.let_go(self)
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)


def serve(listening: socket.socket, broker_port: int) -> None:
    """Relay until the process ends. Blocks; has an event loop of its own."""

    async def forever() -> None:
        await Relay(listening, broker_port).start()
        await asyncio.Event().wait()

    asyncio.run(forever())
