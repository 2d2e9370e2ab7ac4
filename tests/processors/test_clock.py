"""Deadlines on a real store, without a broker."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from leadline.contracts.codec import decode_event
from leadline.contracts.ids import state_key
from leadline.contracts.orders import Tick
from leadline.contracts.session_state import SessionState, encode_state
from leadline.processors.app import make_app
from leadline.processors.clock import RETRY_MS, Clock, Deadline, run_clock
from leadline.processors.outputs import Outgoing, Sent
from leadline.processors.sessions import Sessions
from leadline.processors.table import Change, Row, SessionsTable
from leadline.processors.topology import make_table
from leadline.settings import Settings

KEY = state_key("s", "a")


def state(deadline: int | None, session: str = "s") -> SessionState:
    return SessionState(session, "a", deadline=deadline)


class Made(NamedTuple):
    table: SessionsTable
    sessions: Sessions
    clock: Clock

    def applied(self, partition: int, states: dict[str, SessionState | None], offset: int, now: int) -> None:
        """As the fold and a flush do it."""
        load = self.sessions.loader(partition)
        for key in states:
            load(key)
        self.sessions.apply(partition, states, offset)
        self.sessions.store(self.sessions.take())
        self.clock.applied(partition, states, offset, now)

    def placed(self, partition: int) -> list[tuple[int, bytes]]:
        return list(self.table.placed_before(partition, 1 << 60))


@pytest.fixture(params=[10, 0], ids=["cached", "uncached"])
async def made(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Made]:
    app = make_app(Settings(data_dir=tmp_path, instance_id="w"))
    app.conf.tabledir.mkdir(parents=True)
    table = make_table(app)
    sessions = Sessions(table, cache_size=request.param)
    yield Made(table, sessions, Clock(table, sessions))
    await table.data.stop()


async def test_one_tick_for_a_deadline_until_it_was_handled(made: Made) -> None:
    """Due once; while its tick is on the way it is not due again, whatever other events of the session come by."""
    made.applied(3, {KEY: state(100)}, offset=5, now=10)
    assert made.clock.due(99) == []
    (due,) = made.clock.due(100)
    assert (due.partition, due.key, due.deadline) == (3, KEY.encode(), Deadline("s", "a", 100))
    assert made.clock.due(10**9) == []
    made.clock.sent(due, offset=8)
    made.applied(3, {KEY: state(100)}, offset=7, now=200)
    assert made.clock.due(10**9) == []


async def test_a_tick_that_came_too_early_is_repeated_later(made: Made) -> None:
    """The broker's clock may be behind: the fold leaves the deadline in force, and the next tick waits a little."""
    made.applied(0, {KEY: state(100)}, offset=5, now=10)
    (due,) = made.clock.due(100)
    made.clock.sent(due, offset=6)
    made.applied(0, {KEY: state(100)}, offset=6, now=100)
    assert made.clock.due(100 + RETRY_MS - 1) == []
    assert len(made.clock.due(100 + RETRY_MS)) == 1


async def test_ticks_are_found_by_their_offsets_in_any_order(made: Made) -> None:
    """Each is taken as handled by the batch that held it and by none before; what came to be in between is left alone."""
    made.applied(0, {f"k{n}": state(50, f"s{n}") for n in range(4)}, offset=1, now=0)
    due = {one.key: one for one in made.clock.due(50)}
    for key, offset in ((b"k2", 12), (b"k0", 10), (b"k3", 13), (b"k1", 11)):
        made.clock.sent(due[key], offset)
    made.applied(0, {"k0": None}, offset=9, now=60)
    made.applied(0, {}, offset=11, now=70)
    assert [one.key for one in made.clock.due(70 + RETRY_MS)] == [b"k1"], "k0 is gone, k2 and k3 are still on their way"
    made.applied(0, {}, offset=12, now=80)
    assert [one.key for one in made.clock.due(80 + RETRY_MS)] == [b"k2"]


async def test_a_moved_deadline_counts_instead(made: Made) -> None:
    made.applied(0, {KEY: state(100)}, offset=5, now=10)
    made.applied(0, {KEY: state(300)}, offset=6, now=20)
    assert made.placed(0) == [(100, KEY.encode())], "it is not moved for each event"
    assert made.clock.due(200) == []
    assert made.placed(0) == [(300, KEY.encode())], "but when its old time has come"
    assert [due.deadline.at for due in made.clock.due(300)] == [300]
    made.applied(0, {KEY: state(400)}, offset=7, now=310)
    assert made.clock.due(399) == []
    assert [due.deadline.at for due in made.clock.due(400)] == [400], "an outstanding tick is for its own deadline only"


async def test_a_deadline_that_moves_forward_is_found_in_time(made: Made) -> None:
    made.applied(0, {KEY: state(300)}, offset=5, now=10)
    made.applied(0, {KEY: state(100)}, offset=6, now=20)
    assert made.placed(0) == [(100, KEY.encode())]
    assert [due.deadline.at for due in made.clock.due(100)] == [100]


async def test_no_deadline_no_tick(made: Made) -> None:
    """And nothing is left in the index; a deadline that comes later is found all the same."""
    made.applied(0, {KEY: state(100)}, offset=5, now=10)
    made.applied(0, {KEY: state(None)}, offset=6, now=10)
    made.applied(0, {"other": None}, offset=7, now=10)
    assert made.clock.due(10**9) == []
    assert made.placed(0) == []
    made.applied(0, {KEY: state(200)}, offset=8, now=10)
    assert [due.deadline.at for due in made.clock.due(200)] == [200]


async def test_a_session_that_is_gone_leaves_nothing(made: Made) -> None:
    made.applied(0, {KEY: state(100)}, offset=5, now=10)
    made.applied(0, {KEY: None}, offset=6, now=10)
    assert made.placed(0) == []
    assert made.table.get_bytes(0, KEY.encode()) is None


async def test_after_a_restart_the_deadlines_are_there(made: Made) -> None:
    """From the local store or from the changelog, also those of a store from before there was an index."""
    made.applied(0, {KEY: state(50)}, offset=5, now=10)
    old = state(60, "t")
    made.table.restore(1, [Change(0, b"k1", encode_state(state(70, "u"))), Change(1, b"k2", encode_state(state(None, "v")))])
    made.table.put_all(1, [Row(b"k3", encode_state(old))])
    fresh = Sessions(made.table, 10)
    clock = Clock(made.table, fresh)
    assert [(await fresh.survey(partition)).sessions for partition in (0, 1)] == [1, 3]
    assert fresh.number() == 4
    assert [(due.partition, due.deadline.at) for due in clock.due(10**9)] == [(0, 50), (1, 60), (1, 70)]
    clock.drop([0, 1])
    fresh.forget([0])
    assert [due.partition for due in clock.due(10**9)] == [1, 1], "another worker's are not looked at"


async def test_a_restored_deadline_stands_once_in_the_index(made: Made) -> None:
    made.table.restore(0, [Change(0, b"k", encode_state(state(70))), Change(1, b"k", encode_state(state(90)))])
    made.table.restore(0, [Change(2, b"k", encode_state(state(80)))])
    assert made.placed(0) == [(80, b"k")]
    made.table.restore(0, [Change(3, b"k", None)])
    assert made.placed(0) == []


async def test_a_failed_tick_is_due_again(made: Made) -> None:
    made.applied(0, {KEY: state(100)}, offset=5, now=10)
    (due,) = made.clock.due(100)
    made.clock.failed(due, now=100)
    assert made.clock.due(100) == []
    assert len(made.clock.due(100 + RETRY_MS)) == 1


async def test_nothing_is_placed_anew_while_states_are_on_their_way_to_the_store(made: Made) -> None:
    made.applied(0, {KEY: state(100)}, offset=5, now=10)
    made.sessions.apply(0, {KEY: state(200)}, 6)
    taken = made.sessions.take()
    assert made.clock.due(150) == []
    made.sessions.store(taken)
    assert made.clock.due(150) == []
    assert made.placed(0) == [(200, KEY.encode())]


async def test_a_burst_is_spread(made: Made) -> None:
    made.applied(0, {f"k{n}": state(50, f"s{n}") for n in range(2500)}, offset=1, now=0)
    assert [len(made.clock.due(60)) for _ in range(4)] == [1000, 1000, 500, 0]


async def test_ticks_are_written_to_the_sessions_own_partition(made: Made) -> None:
    counts = Counter[str]()
    written: list[Outgoing] = []
    time = 0
    ready = False

    async def confirm(records: Sequence[Outgoing]) -> list[Sent]:
        written.extend(records)
        return [Sent(record.partition or 0, 40 + i) for i, record in enumerate(records)]

    made.applied(2, {KEY: state(100)}, offset=5, now=10)
    task = asyncio.create_task(run_clock(made.clock, confirm, lambda: ready, lambda: time, counts, poll_s=0.005))
    time = 100
    await asyncio.sleep(0.03)
    assert not written, "not while partitions change hands"
    ready = True
    async with asyncio.timeout(5):
        while not counts["ticks"]:
            await asyncio.sleep(0.005)
    task.cancel()
    (record,) = written
    assert (record.topic, record.partition, record.key) == ("leadline.events", 2, b"s")
    decoded = decode_event(record.value).event
    assert isinstance(decoded, Tick)
    assert (decoded.session_id, decoded.agent_id, decoded.due_at) == ("s", "a", "1970-01-01T00:00:00.100Z")
