"""The sessions table on a real RocksDB, without a broker."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from faust.types import TP

from leadline.contracts.session_state import SessionState, encode_state
from leadline.contracts.topics import SESSIONS
from leadline.processors.app import make_app
from leadline.processors.clock import Deadline
from leadline.processors.outputs import Outgoing, Sent
from leadline.processors.table import Sessions, SessionsTable, Survey
from leadline.processors.topology import make_table
from leadline.settings import Settings


class Made(NamedTuple):
    table: SessionsTable
    sessions: Sessions
    changelog: list[Outgoing]


@pytest.fixture
async def made(tmp_path: Path) -> AsyncIterator[Made]:
    changelog: list[Outgoing] = []

    async def confirm(records: Sequence[Outgoing]) -> list[Sent]:
        changelog.extend(records)
        return [Sent(record.partition or 0, len(changelog) - len(records) + i) for i, record in enumerate(records)]

    app = make_app(Settings(data_dir=tmp_path, instance_id="w"))
    app.conf.tabledir.mkdir(parents=True)
    table = make_table(app)
    yield Made(table, Sessions(table, confirm, cache_size=2), changelog)
    await table.data.stop()


def state(name: str, offset: int, deadline: int | None = None) -> SessionState:
    return SessionState(name, "a", offset=offset, deadline=deadline)


def changelog_event(partition: int, offset: int, key: bytes, value: bytes | None) -> Any:
    tp = TP(SESSIONS.name, partition)
    return SimpleNamespace(message=SimpleNamespace(tp=tp, partition=partition, offset=offset, key=key, value=value))


async def test_written_states_are_read_back_also_past_the_cache(made: Made) -> None:
    states: dict[str, SessionState | None] = {f"k{n}": state(f"s{n}", n) for n in range(5)}
    assert await made.sessions.write({3: states}, lambda: True)
    load = made.sessions.loader(3)
    assert [load(f"k{n}") for n in range(5)] == list(states.values())
    assert made.sessions.loader(2)("k1") is None, "partitions are apart"
    made.sessions.forget([3])
    assert made.sessions.loader(3)("k4") == states["k4"]


async def test_the_changelog_has_the_records_on_the_same_partition(made: Made) -> None:
    one = state("s", 1)
    assert await made.sessions.write({3: {"k": one, "gone": None}, 1: {}}, lambda: True)
    assert made.changelog == [
        Outgoing(SESSIONS.name, 3, b"k", encode_state(one)),
        Outgoing(SESSIONS.name, 3, b"gone", None),
    ]
    assert made.table.persisted_offset(TP(SESSIONS.name, 3)) == 1


async def test_a_removed_state_is_gone(made: Made) -> None:
    await made.sessions.write({0: {"k": state("s", 1)}}, lambda: True)
    await made.sessions.write({0: {"k": None}}, lambda: True)
    assert made.sessions.loader(0)("k") is None


async def test_nothing_is_written_once_partitions_have_changed_hands(made: Made) -> None:
    assert not await made.sessions.write({0: {"k": state("s", 1)}}, lambda: False)
    assert made.changelog == []
    assert made.sessions.loader(0)("k") is None


async def test_restoring_never_goes_back_in_time(made: Made) -> None:
    """A late write of a worker that had lost the partition stands behind the newer state in the changelog."""
    new, late, other = (encode_state(state("s", offset)) for offset in (50, 30, 7))
    made.table.apply_changelog_batch(
        [
            changelog_event(0, 10, b"k", new),
            changelog_event(0, 11, b"k", late),
            changelog_event(0, 12, b"o", other),
            changelog_event(1, 4, b"k", late),
        ]
    )
    assert made.table.get_bytes(0, b"k") == new
    assert made.table.get_bytes(0, b"o") == other
    assert made.table.get_bytes(1, b"k") == late
    assert made.table.persisted_offset(TP(SESSIONS.name, 0)) == 12
    made.table.apply_changelog_batch([changelog_event(0, 13, b"k", late)])
    assert made.table.get_bytes(0, b"k") == new, "also against what an earlier batch stored"
    assert made.table.persisted_offset(TP(SESSIONS.name, 0)) == 13
    made.table.apply_changelog_batch([changelog_event(0, 14, b"k", None), changelog_event(0, 15, b"k", late)])
    assert made.table.get_bytes(0, b"k") == late, "a session that was removed may begin anew"


async def test_deadlines_and_the_highest_watermark_come_from_the_store(made: Made) -> None:
    await made.sessions.write({0: {"k": state("s", 1, 99), "n": state("t", 2)}}, lambda: True)
    assert await made.sessions.survey(0) == Survey([("k", Deadline("s", "a", 99))], watermark=2, incidents=[])
    assert await made.sessions.survey(1) == Survey([], watermark=-1, incidents=[])


async def test_a_wiped_partition_is_empty_and_usable(made: Made) -> None:
    await made.sessions.write({0: {"k": state("s", 1)}, 1: {"k": state("s", 1)}}, lambda: True)
    made.table.wipe(0)
    assert made.table.get_bytes(0, b"k") is None
    assert made.table.persisted_offset(TP(SESSIONS.name, 0)) is None
    assert made.table.get_bytes(1, b"k") is not None
    made.table.put_all(0, [(b"k", b"v")])
    assert made.table.get_bytes(0, b"k") == b"v"
