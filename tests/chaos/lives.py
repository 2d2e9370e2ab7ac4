"""Sessions' lives as an agent would report them, made by a seeded dice: the same seed makes the same records."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any, Final, NamedTuple

import orjson

__all__ = ["POISON", "Record", "duplicated_and_reordered", "life", "poison"]


class Record(NamedTuple):
    """What an agent gives to the producer."""

    key: bytes | None
    value: bytes


KINDS: Final = ("healthy", "inverting", "pinned", "truncating", "gappy", "restarting", "silent")
POISON: Final[tuple[bytes, ...]] = (
    b"",
    b"\xff\xfe not UTF-8",
    b"null",
    b"[1, 2]",
    b"{",
    b'{"schema": "leadline.round/1"}',
    b'{"schema": "leadline.round/9", "session_id": "x", "agent_id": "a"}',
    b'{"schema": "leadline.unheard-of/1", "session_id": "x", "agent_id": "a"}',
    b"[" * 2000,
    b'{"schema": "leadline.round/1", "session_id": "x", "agent_id": "a", "round": "three"}',
    b'{"schema": "leadline.session-start/1", "pad": "' + b"x" * 300_000 + b'"}',
)
"""What can't be read, in many ways. The key of a record is another way."""


def life(name: str, seed: str) -> Iterator[Record]:
    """One session from its start to its end; one in five falls silent without an end."""
    dice = Random(seed)
    kind = dice.choice(KINDS)
    agent = f"agent-{dice.randrange(4)}"
    session = _Session(name, agent, dice)
    yield session.record("session-start", session_start_spans=200, facts=_declared(dice), policy={"max_depth": 4})
    for number in range(1, dice.randint(12, 40)):
        if kind == "gappy" and dice.random() < 0.2:
            continue
        if kind == "restarting" and dice.random() < 0.08:
            session.epoch += 1
            session.healthy()
            yield session.record("session-start", session_start_spans=200)
        if kind == "truncating" and dice.random() < 0.3:
            yield session.checkpoint(number)
        session.move(kind, number)
        yield session.round(number)
    if kind != "silent" and dice.random() < 0.8:
        yield session.record("session-end")


def _declared(dice: Random) -> list[dict[str, Any]]:
    return [{"fact_id": f"C{n}", "fact_class": "constraint"} for n in range(dice.randrange(4))]


class _Session:
    def __init__(self, name: str, agent: str, dice: Random) -> None:
        self.name = name
        self.agent = agent
        self.dice = dice
        self.epoch = 0
        self.sent = 0
        self.healthy()

    def healthy(self) -> None:
        self.raw, self.summary, self.spans, self.salience, self.depth = 60_000, 40_000, 200, 0.5, 1

    def move(self, kind: str, number: int) -> None:
        """Towards trouble for a while, and back out of it."""
        if kind not in ("inverting", "pinned", "silent"):
            self.spans = 200 + self.dice.randint(-3, 3)
            return
        if kind == "pinned":
            self.depth = 4 if number % 14 > 4 else 1
            return
        phase = number % 12
        if phase == 0:
            self.healthy()
        elif phase < 8:
            self.raw = int(self.raw * 0.7)
            self.summary += 9_000
            self.spans = max(8, int(self.spans * 0.8))
            self.salience = min(0.99, self.salience + 0.04)
            self.depth = min(4, 1 + phase // 2)

    def round(self, number: int) -> Record:
        return self.record(
            "round",
            event_id=f"{self.name}/{self.epoch}/{number}",
            round=number,
            trigger="budget",
            raw_tokens=self.raw,
            summary_tokens=self.summary,
            distinct_source_spans=self.spans,
            query_cosine_retained=self.salience,
            summary_depth_max=self.depth,
            max_depth=4,
            session_start_spans=200,
            token_budget=180_000,
        )

    def checkpoint(self, number: int) -> Record:
        seen = self.dice.choice((40, 40, 33))
        facts = [{"fact_id": f"C{n}", "status": self.dice.choice(("verbatim", "verbatim", "absent"))} for n in range(3)]
        return self.record(
            "checkpoint",
            event_id=f"{self.name}/{self.epoch}/c{number}",
            level=1,
            declared_input_tokens=8000,
            consumed_input_tokens=200 * seen,
            source_spans=40,
            seen_spans=seen,
            output_tokens=self.dice.randint(300, 700),
            output_cap=4096,
            stop_reason="stop",
            facts=facts,
        )

    def record(self, schema: str, **more: Any) -> Record:
        who = {
            "schema": f"leadline.{schema}/1",
            "session_id": self.name,
            "agent_id": self.agent,
            "fleet": "f",
            "epoch": self.epoch,
        }
        self.sent += 1
        return Record(self.name.encode(), orjson.dumps({"event_id": f"{self.name}/{self.sent}", **who, "ts": "", **more}))


def poison(name: str, dice: Random) -> Record:
    """A record that can't be read, keyed by a session that may be sound; or a sound one under a wrong key."""
    if dice.random() < 0.2:
        stranger = next(life(f"{name}-stranger", name))
        return Record(dice.choice((None, b"another", b"\xff")), stranger.value)
    return Record(name.encode(), dice.choice(POISON))


def duplicated_and_reordered(records: Iterator[Record], dice: Random, share: float) -> Iterator[Record]:
    """The same records, ``share`` of them sent twice (the second time a little later), and as many behind a later one."""
    held: list[Record] = []
    for record in records:
        luck = dice.random()
        if luck < share:
            held.append(record)  # Comes late.
            continue
        yield record
        if luck < 2 * share:
            held.append(record)  # Comes twice.
        if held and dice.random() < 0.5:
            yield held.pop(0)
    yield from held
