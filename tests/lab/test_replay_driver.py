"""The replay driver: the monitor's decisions, with a clock that the recording moves."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from leadline.commands.fold import Folded, Incoming
from leadline.contracts.events import Ack
from leadline.contracts.ids import state_key
from leadline.contracts.orders import Tick
from leadline.contracts.session_state import SessionState
from leadline.detection.policy import Policy
from leadline.lab import Line, ReplayDriver, read_lines, replay, report
from leadline.lab.report import session_names
from tests.lab.recordings import START, at, compaction, inverting, lines, start

DAY = 24 * 3600


def value(record: dict[str, Any]) -> bytes:
    return json.dumps(record).encode()


def run(records: Sequence[dict[str, Any] | str]) -> ReplayDriver:
    driver = ReplayDriver()
    for _ in replay(driver, read_lines(io.BytesIO(lines(records).encode()))):
        pass
    return driver


def kinds(driver: ReplayDriver) -> list[str]:
    return [command.kind for command in driver.commands]


def test_an_inversion_is_found_and_halted_at_its_round() -> None:
    driver = run(inverting())
    (violation,) = [one for one in driver.violations if one.rule == "inversion"]
    assert violation.round == 2
    assert violation.caused_by.offset == 3
    assert violation.detected_at == at(40)
    assert kinds(driver) == ["halt"]


def test_the_clock_follows_the_records_and_never_goes_back() -> None:
    driver = ReplayDriver()
    driver.feed(value(compaction(1, seconds=100)))
    assert driver.now == START + 100_000
    driver.feed(value(compaction(2, seconds=50)))
    driver.feed(b"not json")
    assert driver.now == START + 100_000


def test_a_deadline_between_two_records_fires_at_its_own_time_before_the_second() -> None:
    """The halt is not acknowledged within its minute: it is issued again then, although the next record comes much later."""
    driver = run([*inverting(), start("other", seconds=110)])
    assert [(one.kind, one.attempt, one.issued_at) for one in driver.commands] == [("halt", 1, at(40)), ("halt", 2, at(100))]
    assert driver.now == START + 110_000


def test_silence_after_the_last_record_escalates_when_time_is_made_to_pass() -> None:
    driver = run(inverting())
    steps = driver.advance(600_000)
    assert all(isinstance(step.event, Tick) for step in steps)
    assert "unheeded" in [violation.rule for violation in driver.violations]
    assert kinds(driver)[:3] == ["halt", "halt", "halt"]
    assert "stop-agent" in kinds(driver)


def test_an_event_right_after_a_tick_is_not_taken_for_applied() -> None:
    """A tick has no line of its own; it must not swallow the line that follows."""
    driver = run([*inverting(), compaction(3, seconds=300, ratio=0.5, distinct_source_spans=205)])
    state = driver.states[state_key("s", "a")]
    assert state.last_round == 3
    assert state.offset == 4
    assert driver.ignored == {}


def test_an_acknowledged_command_is_not_issued_again() -> None:
    driver = run(inverting())
    halt = driver.commands[0]
    driver.feed(Ack(session_id="s", agent_id="a", ts=at(60), command_id=halt.command_id, seq=halt.seq, outcome="accepted"))
    driver.advance(120_000)
    assert kinds(driver) == ["halt"]


def test_a_replay_twice_gives_the_same_records() -> None:
    records = [*inverting("s"), *inverting("t")]
    assert report(run(records)) == report(run(records))


def test_a_broken_clock_two_days_ahead_moves_nothing() -> None:
    """One record with a time that the next line does not confirm is refused; its neighbours are judged at their own time."""
    driver = run([*inverting(), compaction(3, "late", seconds=2 * DAY), start("u", seconds=50)])
    assert driver.now == START + 50_000
    assert [letter.reason for letter in driver.dead_letters] == ["future-timestamp"]
    assert kinds(driver) == ["halt"]


def test_a_broken_clock_on_the_first_line_moves_nothing() -> None:
    driver = run([compaction(1, "late", seconds=2 * DAY), "garbage", *inverting()])
    assert [letter.source.offset for letter in driver.dead_letters] == [1, 2]
    assert driver.now == START + 40_000


def test_a_pause_of_two_days_that_the_next_line_confirms_is_a_pause() -> None:
    driver = run([start(), compaction(1, seconds=2 * DAY), compaction(2, seconds=2 * DAY + 20)])
    assert driver.dead_letters == []
    assert driver.now == START + (2 * DAY + 20) * 1000


def test_records_without_any_time_are_still_judged() -> None:
    driver = run([record | {"ts": ""} for record in inverting()])
    assert "inversion" in [violation.rule for violation in driver.violations]


def test_a_deadline_that_stays_is_fired_once() -> None:
    """A fold that leaves a due deadline in place cannot make the driver spin."""
    ticks: list[Incoming] = []

    def stuck(batch: Sequence[Incoming], load: Callable[[str], SessionState | None], policy: Policy, now: int) -> Folded:
        (record,) = batch
        if b"leadline.tick/1" in (record.value or b""):
            ticks.append(record)
        state = SessionState(session_id="s", agent_id="a", offset=record.offset, deadline=START + 1)
        return Folded(states={state_key("s", "a"): state})

    driver = ReplayDriver(fold=stuck, start=START)
    driver.feed(value(start()))
    driver.advance(10_000)
    driver.advance(10_000)
    assert len(ticks) == 1


def test_a_session_that_was_removed_is_still_reported() -> None:
    end = {"schema": "leadline.session-end/1", "session_id": "s", "agent_id": "a", "ts": at(10)}
    driver = run([start(), end, start("later", seconds=3600)])
    assert state_key("s", "a") not in driver.states
    assert report(driver)["sessions"]["s"]["state"] == "ended"


def test_a_session_id_that_several_agents_use_is_named_with_the_agent() -> None:
    driver = run([start("s", agent_id="x"), start("s", agent_id="y"), start("t")])
    assert sorted(report(driver)["sessions"]) == ["s/x", "s/y", "t"]


def test_names_are_unique_whatever_the_ids() -> None:
    pairs = [("s", "x"), ("s", "y"), ("s/x", "z")]
    states = {state_key(*pair): SessionState(session_id=pair[0], agent_id=pair[1]) for pair in pairs}
    assert len(set(session_names(states).values())) == 3


def test_the_report_counts_duplicates_and_gaps() -> None:
    driver = run([start(), compaction(1), compaction(1), compaction(4)])
    session = report(driver)["sessions"]["s"]
    assert session["last_round"] == 4
    assert session["counts"]["duplicates"] == 1
    assert session["counts"]["gaps"] == 2
    assert session["counts"]["reordered"] == 0


def test_an_open_incident_is_reported_with_its_command() -> None:
    (incident,) = [one for one in report(run(inverting()))["sessions"]["s"]["open_incidents"] if one["rule"] == "inversion"]
    assert incident["opened_round"] == 2
    assert incident["command"]["kind"] == "halt"
    assert incident["command"]["stage"] == "issued"


def test_lines_are_counted_with_the_blank_ones_and_cut_when_too_long() -> None:
    stream = io.BytesIO(b"one\r\n\n  \n" + b"x" * 100 + b"\nlast")
    assert list(read_lines(stream, limit=10)) == [Line(1, b"one"), Line(4, b"x" * 12), Line(5, b"last")]


def test_an_over_long_line_is_refused_and_the_next_is_read() -> None:
    driver = run(["x" * 300_000, start()])
    assert [(letter.source.offset, letter.reason) for letter in driver.dead_letters] == [(1, "over-size")]
    assert list(report(driver)["sessions"]) == ["s"]


def test_a_time_at_the_end_of_the_calendar_is_refused() -> None:
    driver = run([compaction(1, ts="9999-12-31T23:59:59.000Z"), compaction(1, "t")])
    assert [letter.reason for letter in driver.dead_letters] == ["future-timestamp"]
    assert list(report(driver)["sessions"]) == ["t"]


EVENTS = st.sampled_from([start(), compaction(1), compaction(2, ratio=0.1), compaction(9, "t"), *inverting("u")])
CHANGES = st.dictionaries(
    st.sampled_from([*compaction(1), "extra"]),
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=300) | st.lists(st.integers(), max_size=3),
    max_size=2,
)
LINES = st.binary(max_size=60) | st.builds(lambda event, change: value(event | change), EVENTS, CHANGES)


@given(st.lists(LINES, max_size=12))
def test_no_line_raises_and_each_is_judged_or_refused(values: list[bytes]) -> None:
    """Whatever the bytes: one step a line, in order, and the good event after them is still observed."""
    driver = ReplayDriver()
    stream = [Line(number, each) for number, each in enumerate(values, 1)]
    last = Line(len(values) + 1, value(compaction(1, "good")))
    fed = [(line.number, step) for line, step in replay(driver, [*stream, last]) if not isinstance(step.event, Tick)]
    assert [number for number, _ in fed] == list(range(1, len(values) + 2))
    assert all(step.event is not None or step.dead_letters for _, step in fed)
    assert state_key("good", "a") in driver.last_states
