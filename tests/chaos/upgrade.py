"""Three workers replaced one after the other under load by those of the next version, then back: upgrade and rollback."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from leadline.processors import worker
from tests.chaos.arena import Arena
from tests.chaos.lives import Record, life
from tests.support.brokers import ApacheKafka

if TYPE_CHECKING:
    from tests.chaos.scenario import Times

__all__ = ["rolling_upgrade"]

_NAMES = ("worker-0", "worker-1", "worker-2")
_NEWER_LIVES = 6


def rolling_upgrade(arena: Arena, times: Times, _kafka: ApacheKafka) -> None:
    """Stop one in order, start its successor under its name, and so on; agents of the next version come with the first of them.

    The names are stable, as a StatefulSet's are: a worker's partitions wait for its successor.
    """
    for name in _NAMES:
        arena.start(name)
    for name in _NAMES:
        arena.ready(name)
    arena.traffic.run()
    for turn in range(max(1, times.each // 2)):
        for command, what in (("next", "upgraded"), ("monitor", "rolled back")):
            for name in reversed(_NAMES):
                arena.say(f"{name} is {what}, {turn + 1} of {max(1, times.each // 2)}")
                code = arena.stop(name)
                if code != worker.OK:
                    arena.tally.notes.append(f"{name} ended with {code} when it was told to stop")
                    arena.tally.difference.lost.append(f"an orderly end of {name}")
                arena.start(name, command=command)
                arena.ready(name)
                arena.tally.faults[f"worker {what}"] += 1
                for number in range(_NEWER_LIVES):
                    for record in life(f"newer-{turn}-{command}-{name}-{number}", f"{turn} {name} {number}"):
                        arena.traffic.put(_newer(record))
    arena.traffic.pause()


def _newer(record: Record) -> Record:
    """As an agent of the next minor version would write it."""
    raw: dict[str, Any] = orjson.loads(record.value)
    raw["schema"] += ".1"
    raw["of_the_next_version"] = {"hint": [1, "two", None]}
    return Record(record.key, orjson.dumps(raw))
