"""The sessions table on a real RocksDB, without a broker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from faust.types import TP

from leadline.commands.fold import Removed
from leadline.contracts.session_state import Incident, SessionState, encode_state
from leadline.contracts.topics import SESSIONS
from leadline.processors.app import make_app
from leadline.processors.outputs import Outgoing, Sent
from leadline.processors.sessions import Sessions, Survey
from leadline.processors.table import Change, Row, SessionsTable
from leadline.processors.topology import make_table
from leadline.settings import Settings


class Made(NamedTuple):
    table: SessionsTable
    sessions: Sessions
    changelog: list[Outgoing]

    def write(self, changes: dict[int, dict[str, SessionState | None]]) -> None:
        """As a flush does it, without a broker."""
        for partition, states in changes.items():
            self.sessions.apply(partition, states, 7)
        taken = self.sessions.take()
        self.sessions.store(taken)
        before = len(self.changelog)
        self.changelog.extend(taken.records())
        self.sessions.note(taken, [Sent(record.partition or 0, n) for n, record in enumerate(taken.records(), before)])


@pytest.fixture
async def made(tmp_path: Path) -> AsyncIterator[Made]:
    app = make_app(Settings(data_dir=tmp_path, instance_id="w"))
    app.conf.tabledir.mkdir(parents=True)
    table = make_table(app)
    yield Made(table, Sessions(table, cache_size=2), [])
    await table.data.stop()


def state(name: str, offset: int, deadline: int | None = None) -> SessionState:
    return SessionState(name, "a", offset=offset, deadline=deadline)


def changelog_event(partition: int, offset: int, key: bytes, value: bytes | None) -> Any:
    tp = TP(SESSIONS.name, partition)
    return SimpleNamespace(message=SimpleNamespace(tp=tp, partition=partition, offset=offset, key=key, value=value))


async def test_written_states_are_read_back_also_past_the_cache(made: Made) -> None:
    states: dict[str, SessionState | None] = {f"k{n}": state(f"s{n}", n) for n in range(5)}
    made.write({3: states})
    load = made.sessions.loader(3)
    assert [load(f"k{n}") for n in range(5)] == list(states.values())
    assert made.sessions.loader(2)("k1") is None, "partitions are apart"
    made.sessions.forget([3])
    assert made.sessions.loader(3)("k4") == states["k4"]


async def test_the_changelog_has_the_records_on_the_same_partition(made: Made) -> None:
    one = state("s", 1)
    made.write({3: {"k": one, "gone": None}, 1: {}})
    assert made.changelog == [
        Outgoing(SESSIONS.name, 3, b"k", encode_state(one)),
        Outgoing(SESSIONS.name, 3, b"gone", None, (("offset", b"7"),)),
    ]
    assert made.table.persisted_offset(TP(SESSIONS.name, 3)) == 1


async def test_a_removed_state_is_gone(made: Made) -> None:
    made.write({0: {"k": state("s", 1)}})
    made.sessions.apply(0, {"k": None}, 7)
    assert made.sessions.loader(0)("k") == Removed(7), "at once"
    made.write({})
    assert made.table.get_bytes(0, b"k") is None
    assert made.sessions.loader(0)("k") == Removed(7)


async def test_of_a_session_that_is_gone_the_store_knows_up_to_where(made: Made) -> None:
    """Its events below that offset come again where they were not committed, and must not begin it anew; also after a restart."""
    made.write({0: {"k": state("s", 1)}})
    assert made.sessions.loader(0)("k") == state("s", 1)
    made.sessions.apply(0, {"k": None}, 9)
    made.write({})
    assert made.sessions.loader(0)("k") == Removed(9)
    assert made.sessions.loader(0)("never heard of") == Removed(9)
    made.sessions.apply(0, {"k": None}, 4)
    assert made.sessions.loader(0)("k") == Removed(9), "it is to be removed again, and the next batch is still below"
    made.write({})
    assert made.sessions.loader(1)("k") is None, "partitions are apart"
    again = Sessions(made.table, cache_size=2)
    assert again.loader(0)("k") == Removed(9)
    assert (await again.survey(0)).watermark == 9, (
        "an events topic that was made anew is noticed also where all sessions are gone"
    )
    assert list(made.table.placed_before(0, 1 << 62)) == []
    assert list(made.table.items_of(0)) == []


async def test_where_the_store_was_lost_the_tombstones_say_it(made: Made) -> None:
    """Each for its own session: of the others nothing is known, and they begin anew. A replay that ends before that offset does
    not bring it down."""
    made.table.restore(0, [Change(0, b"k", encode_state(state("s", 1))), Change(1, b"k", None, 60)])
    assert made.sessions.loader(0)("k") == Removed(60)
    assert made.sessions.loader(0)("other") is None
    assert (await made.sessions.survey(0)).watermark == 60
    made.sessions.apply(0, {"k": None, "other": None}, 40)
    made.write({})
    assert made.changelog[-2:] == [
        Outgoing(SESSIONS.name, 0, b"k", None, (("offset", b"60"),)),
        Outgoing(SESSIONS.name, 0, b"other", None, (("offset", b"40"),)),
    ]
    assert made.sessions.loader(0)("k") == Removed(60)
    assert made.sessions.loader(0)("other") == Removed(40)


async def test_a_removal_that_only_the_changelog_tells_of_is_read_again_until_the_store_has_its_events(made: Made) -> None:
    """The worker that restored it may be killed before it has committed anything, and the next one keeps that store: it must not
    go on behind the tombstone as if it knew."""
    tp = TP(SESSIONS.name, 0)
    made.table.restore(0, [Change(0, b"a", encode_state(state("a", 1))), Change(1, b"k", None, 60), Change(2, b"l", None, 70)])
    assert made.table.persisted_offset(tp) == 0
    assert made.table.gap(0, 3) is None, "it was read all the same"
    made.sessions.apply(0, {"a": state("a", 65)}, 65)
    taken = made.sessions.take()
    made.sessions.store(taken)
    made.sessions.note(taken, [Sent(0, 3)])
    assert made.table.persisted_offset(tp) == 1, "events up to 65 are stored: the removal at 60 is accounted for"
    made.sessions.apply(0, {"a": state("a", 80)}, 80)
    taken = made.sessions.take()
    made.sessions.store(taken)
    made.sessions.note(taken, [Sent(0, 4)])
    assert made.table.persisted_offset(tp) == 4
    made.table.restore(0, [Change(5, b"m", None, 60)])
    assert made.table.persisted_offset(tp) == 5


async def test_a_late_write_of_a_session_that_the_store_has_seen_removed_does_not_bring_it_back(made: Made) -> None:
    made.write({0: {"k": state("s", 1)}})
    made.sessions.apply(0, {"k": None}, 9)
    made.write({})
    made.table.restore(0, [Change(7, b"k", encode_state(state("s", 5)))])
    assert made.table.get_bytes(0, b"k") is None
    assert made.table.regressed[0] == {b"k": 7}
    made.table.restore(0, [Change(8, b"k", None, 6)])
    assert made.table.regressed[0] == {}
    made.table.restore(0, [Change(9, b"k", encode_state(state("s", 20)))])
    assert made.table.get_bytes(0, b"k") is not None, "begun anew behind that"


async def test_what_is_taken_is_as_it_was_then(made: Made) -> None:
    """What is folded during a flush is for the next one, and the cache keeps it whatever its size."""
    one, two = state("s", 1), state("s", 2)
    made.sessions.apply(0, {"k": one}, 7)
    taken = made.sessions.take()
    made.sessions.apply(0, {"k": two, "l": one, "m": one, "n": one}, 7)
    assert made.sessions.unwritten == 4
    made.sessions.store(taken)
    assert made.table.get_bytes(0, b"k") == encode_state(one)
    assert [made.sessions.loader(0)(key) for key in "klmn"] == [two, one, one, one]
    made.write({})
    assert made.table.get_bytes(0, b"k") == encode_state(two)
    assert made.sessions.unwritten == 0


async def test_a_partition_that_changes_hands_is_forgotten_with_what_was_not_written(made: Made) -> None:
    made.sessions.apply(0, {"k": state("s", 1)}, 7)
    made.sessions.apply(1, {"k": state("s", 1)}, 7)
    made.sessions.forget([0])
    assert made.sessions.unwritten == 1
    made.write({})
    assert made.sessions.loader(0)("k") is None
    assert made.sessions.loader(1)("k") is not None


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
    assert made.table.regressed[0] == {b"k": 11}
    assert made.table.persisted_offset(TP(SESSIONS.name, 0)) == 10, "until it is written again, it is to be read again"
    made.table.apply_changelog_batch([changelog_event(0, 13, b"k", late)])
    assert made.table.get_bytes(0, b"k") == new, "also against what an earlier batch stored"
    made.table.apply_changelog_batch([changelog_event(0, 14, b"k", None), changelog_event(0, 15, b"k", late)])
    assert made.table.get_bytes(0, b"k") == late, "a tombstone that does not say when it was written is taken at its word"
    assert made.table.persisted_offset(TP(SESSIONS.name, 0)) == 15


async def test_what_was_set_back_is_written_again(made: Made) -> None:
    new, late = (encode_state(state("s", offset)) for offset in (50, 30))
    made.table.restore(0, [Change(0, b"k", new), Change(1, b"k", late), Change(2, b"gone", None, 60), Change(3, b"gone", late)])
    assert made.table.regressed[0] == {b"k": 1, b"gone": 3}
    made.sessions.again(0, list(made.table.regressed[0]))
    taken = made.sessions.take()
    made.sessions.store(taken)
    assert taken.records() == [
        Outgoing(SESSIONS.name, 0, b"k", new),
        Outgoing(SESSIONS.name, 0, b"gone", None, (("offset", b"60"),)),
    ]
    made.sessions.note(taken, [Sent(0, 4), Sent(0, 5)])
    assert not made.table.regressed[0]
    assert made.table.persisted_offset(TP(SESSIONS.name, 0)) == 1, "the events up to 60 are not known to be stored"


async def test_a_late_removal_does_not_remove_a_session_that_began_anew(made: Made) -> None:
    anew = encode_state(state("s", 70))
    made.table.restore(0, [Change(0, b"k", None, 60), Change(1, b"k", anew), Change(2, b"k", None, 55)])
    assert made.table.get_bytes(0, b"k") == anew
    assert made.table.regressed[0] == {b"k": 2}


async def test_somebody_elses_records_between_ones_own_are_found(made: Made) -> None:
    """The note of the changelog stops before them until they were looked at, and goes on over one's own behind them."""
    made.sessions.apply(0, {"k": state("s", 50), "l": state("t", 50)}, 50)
    taken = made.sessions.take()
    made.sessions.store(taken)
    made.sessions.note(taken, [Sent(0, 0), Sent(0, 1)])
    assert made.table.gap(0, 2) is None
    assert made.table.gap(0, 3) == (2, 3), "one more than what was written"
    made.sessions.apply(0, {"k": state("s", 60)}, 60)
    taken = made.sessions.take()
    made.sessions.store(taken)
    made.sessions.note(taken, [Sent(0, 4)])
    assert made.table.persisted_offset(TP(SESSIONS.name, 0)) == 1
    assert made.table.gap(0, 5) == (2, 4)
    theirs = [Change(2, b"l", encode_state(state("t", 40))), Change(3, b"k", encode_state(state("s", 60)))]
    assert made.table.inspect(0, theirs, 4) == [b"l"]
    assert made.table.gap(0, 5) is None
    assert made.table.persisted_offset(TP(SESSIONS.name, 0)) == 1, "what was set back is not written again yet"
    made.sessions.again(0, [b"l"])
    taken = made.sessions.take()
    made.sessions.store(taken)
    made.sessions.note(taken, [Sent(0, 5)])
    assert taken.records() == [Outgoing(SESSIONS.name, 0, b"l", encode_state(state("t", 50)))]
    assert made.table.persisted_offset(TP(SESSIONS.name, 0)) == 5


async def test_the_number_and_the_highest_watermark_come_from_the_store(made: Made) -> None:
    made.write({0: {"k": state("s", 1, 99), "n": state("t", 2)}})
    assert await made.sessions.survey(0) == Survey(sessions=2, watermark=7, incidents=[], fleets=frozenset({""}))
    assert await made.sessions.survey(1) == Survey(sessions=0, watermark=-1, incidents=[])


async def test_the_fleets_that_are_restored_come_from_the_store(made: Made) -> None:
    """Telemetry makes their series before a timer tells of one of their sessions."""
    first, second = state("s", 1), state("t", 2)
    first.fleet, second.fleet = "f1", "f2"
    made.write({0: {"k": first, "n": second}})
    assert (await made.sessions.survey(0)).fleets == {"f1", "f2"}


def troubled(name: str, offset: int, fleet: str, *rules: str) -> bytes:
    one = state(name, offset, 99)
    one.fleet, one.incidents = fleet, tuple(Incident(f"{name}-{rule}", rule) for rule in rules)
    return encode_state(one)


async def test_what_a_restore_from_nothing_counted_is_what_the_store_holds(made: Made) -> None:
    """In batches, states that are replaced, removed, back again or older than what is there."""
    restored = [
        [Change(0, b"a", troubled("a", 5, "f1", "drift")), Change(1, b"b", troubled("b", 6, "f1"))],
        [Change(2, b"b", troubled("b", 8, "f2", "inversion")), Change(3, b"c", troubled("c", 9, "f3", "masked"))],
        [Change(4, b"c", None, 10), Change(5, b"a", troubled("a", 11, "f1")), Change(6, b"d", b"no state")],
        [Change(7, b"b", troubled("b", 7, "f4")), Change(8, b"e", troubled("e", 12, "f5")), Change(9, b"e", None, 13)],
        [Change(10, b"c", troubled("c", 14, "f6", "erosion")), Change(11, b"c", None, None), Change(12, b"d", None, None)],
        [Change(13, b"c", troubled("c", 15, "f6", "erosion"))],
    ]
    for changes in restored:
        made.table.restore(0, changes)
    counted = await made.sessions.survey(0)
    assert (counted.sessions, counted.watermark, counted.fleets) == (3, 15, frozenset({"f1", "f2", "f6"}))
    assert {key: [one.rule for one in found] for key, found in counted.incidents} == {"b": ["inversion"], "c": ["erosion"]}
    assert made.sessions.number() == 3
    again = await made.sessions.survey(0)
    assert again == counted._replace(incidents=sorted(counted.incidents)), "the second time the store itself is gone over"


async def test_what_was_there_before_a_restore_or_is_written_after_it_counts_too(made: Made) -> None:
    made.write({0: {"k": state("s", 1)}})
    made.table.restore(0, [Change(1, b"n", troubled("t", 8, "f1"))])
    assert (await made.sessions.survey(0)).sessions == 2
    made.table.restore(1, [Change(0, b"n", troubled("t", 8, "f1"))])
    made.write({1: {"k": state("s", 9)}})
    assert (await made.sessions.survey(1)).sessions == 2


async def test_a_wiped_partition_is_empty_and_usable(made: Made) -> None:
    made.write({0: {"k": state("s", 1)}, 1: {"k": state("s", 1)}})
    made.table.wipe(0)
    assert made.table.get_bytes(0, b"k") is None
    assert made.table.persisted_offset(TP(SESSIONS.name, 0)) is None
    assert made.table.get_bytes(1, b"k") is not None
    made.table.put_all(0, [Row(b"k", b"v")])
    assert made.table.get_bytes(0, b"k") == b"v"
