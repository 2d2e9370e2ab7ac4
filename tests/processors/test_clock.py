from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

from leadline.contracts.codec import decode_event
from leadline.contracts.ids import state_key
from leadline.contracts.orders import Tick
from leadline.contracts.session_state import SessionState
from leadline.processors.clock import RETRY_MS, Clock, Deadline, run_clock
from leadline.processors.outputs import Outgoing, Sent

KEY = state_key("s", "a")


def state(deadline: int | None) -> SessionState:
    return SessionState("s", "a", deadline=deadline)


def test_one_tick_for_a_deadline_until_it_was_handled() -> None:
    """Due once; while its tick is on the way it is not due again, whatever other events of the session come by."""
    clock = Clock()
    clock.applied(3, {KEY: state(100)}, offset=5, now=10)
    assert clock.next() == 100
    assert clock.due(99) == []
    (due,) = clock.due(100)
    assert (due.partition, due.key, due.deadline) == (3, KEY, Deadline("s", "a", 100))
    assert clock.due(10**9) == []
    clock.sent(due, offset=8)
    clock.applied(3, {KEY: state(100)}, offset=7, now=200)
    assert clock.due(10**9) == []


def test_a_tick_that_came_too_early_is_repeated_later() -> None:
    """The broker's clock may be behind: the fold leaves the deadline in force, and the next tick waits a little."""
    clock = Clock()
    clock.applied(0, {KEY: state(100)}, offset=5, now=10)
    (due,) = clock.due(100)
    clock.sent(due, offset=6)
    clock.applied(0, {KEY: state(100)}, offset=6, now=100)
    assert clock.due(100 + RETRY_MS - 1) == []
    assert len(clock.due(100 + RETRY_MS)) == 1


def test_ticks_are_found_by_their_offsets_in_any_order() -> None:
    """Each is taken as handled by the batch that held it and by none before; what came to be in between is left alone."""
    clock = Clock()
    clock.load(0, [(f"k{n}", Deadline(f"s{n}", "a", 50)) for n in range(4)])
    due = {one.key: one for one in clock.due(50)}
    for key, offset in (("k2", 12), ("k0", 10), ("k3", 13), ("k1", 11)):
        clock.sent(due[key], offset)
    clock.applied(0, {"k0": None}, offset=9, now=60)
    clock.applied(0, {}, offset=11, now=70)
    assert [one.key for one in clock.due(70 + RETRY_MS)] == ["k1"], "k0 is gone, k2 and k3 are still on their way"
    clock.applied(0, {}, offset=12, now=80)
    assert [one.key for one in clock.due(80 + RETRY_MS)] == ["k2"]
    assert clock._partitions[0].confirmed == [(13, "k3")]


def test_a_moved_deadline_counts_instead() -> None:
    clock = Clock()
    clock.applied(0, {KEY: state(100)}, offset=5, now=10)
    clock.applied(0, {KEY: state(300)}, offset=6, now=20)
    assert clock.due(200) == []
    assert [due.deadline.at for due in clock.due(300)] == [300]
    clock.applied(0, {KEY: state(400)}, offset=7, now=310)
    assert [due.deadline.at for due in clock.due(400)] == [400], "an outstanding tick is for its own deadline only"


def test_no_deadline_no_tick() -> None:
    clock = Clock()
    clock.applied(0, {KEY: state(100)}, offset=5, now=10)
    clock.applied(0, {KEY: state(None)}, offset=6, now=10)
    clock.applied(0, {"other": None}, offset=7, now=10)
    assert clock.due(10**9) == []


def test_dropped_and_loaded_partitions() -> None:
    clock = Clock()
    clock.applied(0, {KEY: state(100)}, offset=5, now=10)
    clock.drop([0, 7])
    assert clock.due(10**9) == []
    clock.load(0, [(KEY, Deadline("s", "a", 50)), ("k2", Deadline("t", "a", 60))])
    assert clock.next() == 50
    assert [due.key for due in clock.due(10**9)] == [KEY, "k2"]


def test_a_failed_tick_is_due_again() -> None:
    clock = Clock()
    clock.applied(0, {KEY: state(100)}, offset=5, now=10)
    (due,) = clock.due(100)
    clock.failed(due, now=100)
    assert clock.due(100) == []
    assert len(clock.due(100 + RETRY_MS)) == 1


def test_a_session_that_reports_all_the_time_keeps_the_heap_small() -> None:
    clock = Clock()
    for number in range(5000):
        clock.applied(0, {KEY: state(1000 + number)}, offset=number, now=number)
    assert len(clock._partitions[0].heap) < 100
    assert [due.deadline.at for due in clock.due(10**9)] == [5999]


def test_a_burst_is_spread() -> None:
    clock = Clock()
    clock.load(0, [(f"k{n}", Deadline(f"s{n}", "a", 50)) for n in range(2500)])
    assert [len(clock.due(60)) for _ in range(4)] == [1000, 1000, 500, 0]


async def test_ticks_are_written_to_the_sessions_own_partition() -> None:
    clock, counts = Clock(), Counter[str]()
    written: list[Outgoing] = []
    time = 0
    ready = False

    async def confirm(records: Sequence[Outgoing]) -> list[Sent]:
        written.extend(records)
        return [Sent(record.partition or 0, 40 + i) for i, record in enumerate(records)]

    clock.applied(2, {KEY: state(100)}, offset=5, now=10)
    task = asyncio.create_task(run_clock(clock, confirm, lambda: ready, lambda: time, counts, poll_s=0.005))
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
