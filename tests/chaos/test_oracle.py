"""The comparison that the chaos suite rests on: it sees each way in which something can be lost, doubled or left behind."""

from __future__ import annotations

import json
from typing import Any

import pytest

from leadline.commands.fold import Incoming
from leadline.contracts.codec import encode
from leadline.contracts.ids import state_key
from leadline.contracts.session_state import encode_state
from leadline.contracts.topics import COMMANDS, VIOLATIONS
from tests.support.core import START, Monitor, round_, start
from tests.support.oracle import Found, Oracle, compare, explain

KEY = state_key("s1", "a1")


@pytest.fixture
def run() -> tuple[Oracle, Found]:
    """A session that inverts in its second round, a record that cannot be read, and what a monitor without faults leaves."""
    monitor = Monitor()
    monitor.send(start())
    monitor.send(round_(1, 0.4, summary_depth_max=2))
    monitor.send(round_(2, 0.2, summary_depth_max=2, distinct_source_spans=150, query_cosine_retained=0.6))
    monitor.send(b"{", key=b"s1")
    oracle = Oracle(now=lambda: START)
    oracle.feed(monitor.log)
    found = Found()
    for violation in monitor.violations:
        found.output(VIOLATIONS.name, encode(violation))
    for command in monitor.commands:
        found.output(COMMANDS.name, encode(command))
    for key, value in monitor.stored.items():
        found.state(key.encode(), value, 3)
    for letter in monitor.dead:
        found.dead_letter(_headers(letter.source))
    assert len(found.violations) == len(found.commands) == len(found.dead) == 1
    return oracle, found


def _headers(source: Incoming) -> list[tuple[str, bytes | None]]:
    return [("source-partition", str(source.partition).encode()), ("source-offset", str(source.offset).encode())]


def _again(contents: set[str], **changes: Any) -> bytes:
    return json.dumps(json.loads(next(iter(contents))) | changes).encode()


def test_an_undisturbed_run_differs_in_nothing(run: tuple[Oracle, Found]) -> None:
    assert not compare(*run)
    assert str(compare(*run)) == "none"


def test_fed_in_two_parts_the_oracle_says_the_same(run: tuple[Oracle, Found]) -> None:
    """It follows a growing log; where one look ends does not matter."""
    oracle, _ = run
    monitor = Monitor()
    for event in (start(), round_(1, 0.4, summary_depth_max=2)):
        monitor.append(event)
    monitor.append(round_(2, 0.2, summary_depth_max=2, distinct_source_spans=150, query_cosine_retained=0.6))
    parts = Oracle(now=lambda: START)
    parts.feed(monitor.log[:2])
    assert parts.violations == {}
    parts.feed(monitor.log[2:])
    assert parts.violations == oracle.violations


def test_what_was_never_sent_is_lost(run: tuple[Oracle, Found]) -> None:
    oracle, found = run
    (lost,) = found.violations
    found.violations.clear()
    assert compare(oracle, found).lost == [lost]
    assert lost in explain(oracle, found, compare(oracle, found))


def test_the_same_record_sent_again_is_no_difference_but_counted(run: tuple[Oracle, Found]) -> None:
    """Also with another time of sending: a replay sends it later."""
    oracle, found = run
    (contents,) = found.violations.values()
    found.output(VIOLATIONS.name, _again(contents, detected_at="2030-01-01T00:00:00.000Z"))
    assert not compare(oracle, found)
    assert found.repeats == 1


def test_one_id_with_two_contents_is_doubled(run: tuple[Oracle, Found]) -> None:
    oracle, found = run
    ((id_, contents),) = found.commands.items()
    found.output(COMMANDS.name, _again(contents, seq=7))
    assert compare(oracle, found).doubled == [id_]


def test_a_command_sent_anew_under_another_id_is_doubled(run: tuple[Oracle, Found]) -> None:
    oracle, found = run
    (contents,) = found.commands.values()
    found.output(COMMANDS.name, _again(contents, command_id="cmd-another"))
    assert compare(oracle, found).doubled == ["cmd-another"]


def test_an_older_state_behind_a_newer_one_differs(run: tuple[Oracle, Found]) -> None:
    """As a worker leaves it that was given up, wakes, and still writes."""
    oracle, found = run
    state = oracle.states[KEY].working_copy()
    state.offset -= 1
    found.state(KEY.encode(), encode_state(state), 3)
    assert compare(oracle, found).states == [KEY]
    found.state(KEY.encode(), None, 3)
    assert compare(oracle, found).states == [KEY]


def test_poison_without_a_dead_letter_differs_unless_excused(run: tuple[Oracle, Found]) -> None:
    oracle, found = run
    (place,) = found.dead
    found.dead.clear()
    assert compare(oracle, found).letters == [place]
    assert not compare(oracle, found, frozenset({place}))
    found.dead[3, 99] = 1
    assert (3, 99) in compare(oracle, found).letters


def test_a_heartbeat_is_no_command(run: tuple[Oracle, Found]) -> None:
    oracle, found = run
    found.output(COMMANDS.name, b'{"schema": "leadline.heartbeat/1", "partition": 0, "at": "", "every_ms": 5000, "through": 4}')
    assert not compare(oracle, found)
