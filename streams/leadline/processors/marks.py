"""What of a stored state a worker looks at without decoding all of it, and what a restored store holds."""

from __future__ import annotations

from collections import Counter

import msgspec

from leadline.contracts.session_state import Incident

__all__ = ["Mark", "Tally", "Times", "mark_of", "times_of"]


class Mark(msgspec.Struct, gc=False):
    """The fields of a stored state that restoring and the clock need; the rest is skipped unread."""

    session_id: str
    agent_id: str
    offset: int = -1
    deadline: int | None = None
    fleet: str = ""
    incidents: tuple[Incident, ...] = ()


class Times(msgspec.Struct, gc=False):
    """What restoring needs of each record, also where the rest of it cannot be read."""

    offset: int = -1
    deadline: int | None = None


_decoder = msgspec.json.Decoder(Mark)
_times = msgspec.json.Decoder(Times)


def mark_of(body: bytes) -> Mark | None:
    """``None`` where the bytes are no state."""
    try:
        return _decoder.decode(body)
    except msgspec.MsgspecError:
        return None


def times_of(body: bytes) -> Times | None:
    """``None`` where not even these can be read."""
    try:
        return _times.decode(body)
    except msgspec.MsgspecError:
        return None


class Tally:
    """What a store holds that was empty when its restore began: to go over all of it once more is spared."""

    __slots__ = ("fleets", "incidents", "sessions", "watermark")

    def __init__(self) -> None:
        self.sessions = 0
        self.watermark = -1
        """The highest event offset that any of its states, also of those that were replaced since, has seen."""
        self.incidents: dict[bytes, tuple[Incident, ...]] = {}
        """What is open, by state key; only of sessions in which something is."""
        self.fleets: Counter[str] = Counter()

    def came(self, key: bytes, mark: Mark | None) -> None:
        """A session that was not there. ``mark`` absent: its state cannot be read."""
        self.sessions += 1
        if mark is not None:
            self.fleets[mark.fleet] += 1
            if mark.offset > self.watermark:
                self.watermark = mark.offset
            if mark.incidents:
                self.incidents[key] = mark.incidents

    def went(self, key: bytes, mark: Mark | None) -> None:
        """A session that was there, with this mark."""
        self.sessions -= 1
        if mark is not None:
            self.fleets[mark.fleet] -= 1
            if mark.incidents:
                self.incidents.pop(key, None)
