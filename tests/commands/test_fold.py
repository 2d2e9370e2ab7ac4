"""Records in, decisions out: what is done with each record of a partition, good or bad."""

from __future__ import annotations

from typing import Any

import pytest

from leadline.commands.fold import Removed, fold
from leadline.contracts import limits
from leadline.contracts.codec import decode_violation, encode
from leadline.contracts.ids import state_key
from leadline.contracts.orders import Command, Violation
from leadline.contracts.reasons import Reason
from leadline.contracts.session_state import Counts, SessionState
from leadline.contracts.times import format_ms
from leadline.detection.policy import FleetPolicy, Policy
from tests.support.core import START, Monitor, ack, checkpoint, declared, end, policy, round_, start, tick

DAY = 24 * 3600 * 1000
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def sunk(number: int = 1, **changes: Any) -> Any:
    """A round that breaks the provenance floor by itself."""
    return round_(number, **{"summary_depth_max": 2, "distinct_source_spans": 5} | changes)


def ids(outputs: list[Violation | Command]) -> list[str]:
    return [item.violation_id if isinstance(item, Violation) else item.command_id for item in outputs]


@pytest.mark.parametrize(
    ("key", "reason"),
    [(None, Reason.KEY_MISMATCH), (b"", Reason.KEY_MISMATCH), (b"s2", Reason.KEY_MISMATCH), (b"\xa2\x01", Reason.BAD_UTF8)],
)
def test_a_key_that_is_not_the_session_id_is_refused_and_its_neighbours_are_not(key: bytes | None, reason: Reason) -> None:
    monitor = Monitor()
    monitor.read([monitor.append(round_(1), key=key), *(monitor.append(round_(n)) for n in range(1, 11))])
    assert [letter.reason for letter in monitor.dead] == [reason]
    assert monitor.state().last_round == 10
    assert monitor.dead[0].source.key == key, "key and value stay untouched"
    assert monitor.dead[0].source.value == encode(round_(1))


def test_a_key_from_elsewhere_is_shown_on_one_line() -> None:
    monitor = Monitor()
    monitor.send(round_(1), key=b"\x1b[31m\n<!channel>" * 50)
    assert monitor.dead[0].error.isprintable()
    assert len(monitor.dead[0].error) < 600


@pytest.mark.parametrize(
    "bad",
    [
        b"null",
        b"",
        b"[]",
        b'"x"',
        b"0",
        b"[" * 10_000 + b"]" * 10_000,
        b"\xff",
        b'{"schema":"leadline.round/2","session_id":"s1"}',
    ],
)
def test_one_bad_record_never_stops_its_neighbours(bad: bytes) -> None:
    monitor = Monitor()
    monitor.read([monitor.append(round_(1)), monitor.append(bad, key=b"s1"), *(monitor.append(round_(n)) for n in range(2, 102))])
    assert len(monitor.dead) == 1
    assert monitor.state().counts == Counts()
    assert monitor.state().last_round == 101


def test_102_good_ones_and_a_string_for_a_count() -> None:
    monitor = Monitor()
    wrong = encode(round_(3)).replace(b'"raw_tokens":60000', b'"raw_tokens":"a string"')
    batch = (
        [monitor.append(round_(n)) for n in (1, 2)] + [monitor.append(wrong)] + [monitor.append(round_(n)) for n in range(3, 103)]
    )
    for first in range(0, len(batch), 5):
        monitor.read(batch[first : first + 5])
    assert [letter.reason for letter in monitor.dead] == [Reason.WRONG_TYPE]
    assert monitor.state().last_round == 102


@pytest.mark.parametrize("number", [b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-1e999", b"327267367867168100000"])
def test_numbers_that_are_none_leave_the_session_working(number: bytes) -> None:
    """Nothing that goes out ever holds one of them either."""
    monitor = Monitor()
    monitor.send(round_(1), encode(round_(2)).replace(b'"query_cosine_retained":0.5', b'"query_cosine_retained":' + number))
    assert len(monitor.dead) == 1
    assert [item.rule for item in monitor.violations] == []
    monitor.send(sunk(2))
    assert "provenance-floor" in {item.rule for item in monitor.violations}
    for item in monitor.sent:
        assert b"NaN" not in encode(item)
        assert b"Infinity" not in encode(item)


def test_a_tombstone_is_ignored_and_counted() -> None:
    monitor = Monitor()
    monitor.send(round_(1))
    before = monitor.state()
    monitor.send(None, key=b"s1")
    assert monitor.ignored == {"tombstone": 1}
    assert monitor.dead == []
    assert monitor.state() == before


def test_a_time_far_ahead_is_refused_alone() -> None:
    """One event two days ahead, then 100 of other sessions."""
    monitor = Monitor()
    ahead = round_(1, ts=format_ms(START + 2 * DAY))
    monitor.read([monitor.append(ahead), *(monitor.append(round_(1, session_id=f"o{n}")) for n in range(100))])
    assert [letter.reason for letter in monitor.dead] == [Reason.FUTURE_TIMESTAMP]
    assert len(monitor.stored) == 100


@pytest.mark.parametrize(("ahead", "refused"), [(DAY, False), (DAY + 1, True), (-400 * DAY, False)])
def test_a_time_may_lie_a_day_ahead_and_any_way_back(ahead: int, refused: bool) -> None:
    monitor = Monitor()
    monitor.send(round_(1, ts=format_ms(START + ahead)))
    assert bool(monitor.dead) == refused


@pytest.mark.parametrize("timestamp", [-1, 0, START + 2 * DAY])
def test_a_broker_time_that_is_none_gives_way_to_the_receive_time(timestamp: int) -> None:
    monitor = Monitor()
    monitor.send(round_(1), timestamp=timestamp)
    assert monitor.state().last_seen == START


@pytest.mark.parametrize("ts", [1_800_000_000, "2027-01-15T08:00:00"])
def test_a_wrong_unit_or_a_missing_zone_is_flagged_and_stops_nothing(ts: Any) -> None:
    monitor = Monitor()
    value = encode(sunk()).replace(b'"ts":""', b'"ts":"%s"' % ts.encode() if isinstance(ts, str) else b'"ts":%d' % ts)
    assert value != encode(sunk())
    monitor.send(value)
    assert monitor.tolerated == {"bad-time": 1}
    assert monitor.state().counts.bad_time == 1
    assert monitor.state().last_seen == START
    assert [item.rule for item in monitor.violations][:1] == ["provenance-floor"]


def test_what_is_new_is_read_and_counted() -> None:
    monitor = Monitor()
    monitor.send(
        encode(round_(1)).replace(b"round/1", b"round/1.3").replace(b'"round":1', b'"round":1,"new":[1],"newer":{"a":1}')
    )
    assert monitor.tolerated == {"unknown-fields": 2, "newer-minor": 1}
    assert monitor.state().last_round == 1


def test_two_agents_that_share_a_session_id_are_two_states() -> None:
    """X at 0.8, Y at 0.1: only Y is alarmed and halted."""
    monitor = Monitor()
    for number in range(1, 6):
        low = {"summary_depth_max": 2, "distinct_source_spans": 100 - number, "query_cosine_retained": 0.5 + number / 100}
        monitor.send(round_(number, 0.8, agent_id="X"), round_(number, 0.1, agent_id="Y", **low))
    assert {item.agent_id for item in monitor.sent} == {"Y"}
    assert monitor.state("s1", "X").last_round == monitor.state("s1", "Y").last_round == 5
    assert len(monitor.stored) == 2


def test_a_record_without_an_agent_belongs_to_nobody() -> None:
    monitor = Monitor()
    monitor.send(encode(round_(1)).replace(b'"agent_id":"a1",', b""), key=b"s1")
    assert [letter.reason for letter in monitor.dead] == [Reason.MISSING_FIELD]


def test_answers_ticks_and_ends_of_unknown_sessions_make_no_state() -> None:
    """They may be of a session that was removed: a record made for them would never go away."""
    monitor = Monitor()
    monitor.send(sunk())
    command = monitor.commands[0]
    monitor.stored.clear()
    monitor.send(ack(command), tick(), end())
    assert monitor.ignored == {"unknown-session": 3}
    assert monitor.stored == {}


def test_what_was_applied_before_is_dropped_by_its_offset_yet_written_again() -> None:
    """The first write may not have reached the changelog."""
    monitor = Monitor()
    monitor.send(round_(1), sunk(2))
    sent, state = len(monitor.sent), monitor.state()
    folded = monitor.fold(monitor.log)
    assert folded.outputs == []
    assert folded.ignored == {"replayed": 2}
    assert folded.states == {state_key("s1", "a1"): state}
    assert len(monitor.sent) == sent


def test_events_of_a_session_that_was_removed_begin_nothing_when_they_come_again() -> None:
    """Removed at offset 2 before the offsets were committed: 0 to 2 are known, also a second time in the batch; what comes behind
    them begins the session anew, and what has no session to speak of stays ignored."""
    monitor = Monitor()
    batch = [monitor.append(record) for record in (round_(1), sunk(2), tick(), end(), round_(1, epoch=1), round_(2, epoch=1))]
    monitor.load = lambda key: Removed(2)  # type: ignore[assignment,method-assign,return-value]
    before = monitor.fold(batch[:3])
    assert before.outputs == []
    assert before.ignored == {"replayed": 3}
    assert before.states == {state_key("s1", "a1"): None}, "its tombstone may not have reached the changelog"
    assert monitor.fold(batch[3:4]).ignored == {"unknown-session": 1}
    anew = monitor.fold(batch)
    assert anew.ignored == {"replayed": 3, "unknown-session": 1}
    assert anew.states == fold(batch[4:], lambda key: None, monitor.policy, monitor.now).states


def test_the_watermark_is_each_sessions_own() -> None:
    """A replay applies again what one session had lost and drops what another had kept."""
    monitor = Monitor()
    first = [monitor.append(round_(1)), monitor.append(round_(1, session_id="s2"))]
    monitor.read(first)
    del monitor.stored[state_key("s2", "a1")]
    monitor.read(first)
    assert monitor.ignored == {"replayed": 1}
    assert monitor.state("s2").last_round == 1


def test_a_crash_before_the_state_was_written_makes_the_same_ids_again() -> None:
    """The halt goes out once more, as the same command: it acts once."""
    monitor = Monitor()
    monitor.send(round_(1))
    batch = [monitor.append(sunk(2)), monitor.append(round_(3))]
    once = monitor.fold(batch)
    monitor.now += 5000
    again = monitor.fold(batch)
    assert ids(once.outputs) == ids(again.outputs)
    assert len(ids(once.outputs)) == 3


def test_each_state_is_loaded_once_and_one_that_is_not_touched_is_not_listed() -> None:
    asked: list[str] = []

    class Counting(Monitor):
        def load(self, key: str) -> SessionState | None:
            asked.append(key)
            return super().load(key)

    monitor = Counting()
    monitor.read([monitor.append(round_(n, session_id=name)) for n in (1, 2, 3) for name in ("s1", "s2")])
    assert sorted(asked) == sorted({state_key("s1", "a1"), state_key("s2", "a1")})


@pytest.mark.parametrize(
    "value",
    [
        b"00-" + b"0" * 32 + b"-00f067aa0ba902b7-01",
        TRACE.upper().encode(),
        b"x" * 10,
        b"ff" + TRACE[2:].encode(),
        b"\xff\xfe",
        None,
    ],
)
def test_a_bad_trace_context_never_costs_the_event(value: bytes | None) -> None:
    monitor = Monitor()
    monitor.send(sunk(), headers=[("traceparent", value)])
    assert monitor.tolerated == {"bad-trace-context": 1}
    assert {item.traceparent for item in monitor.sent} == {""}
    assert len(monitor.sent) == 2


def test_a_violation_and_its_command_carry_the_trace_and_the_cause() -> None:
    monitor = Monitor()
    monitor.send(round_(1), round_(2))
    violation, command = monitor.send(sunk(3), headers=[("traceparent", TRACE.encode()), ("tracestate", b"v=1")])
    for item in (violation, command):
        assert (item.traceparent, item.tracestate) == (TRACE, "v=1")
        assert (item.caused_by.event_id, item.caused_by.partition, item.caused_by.offset) == ("r3", 3, 2)
        assert (item.session_id, item.agent_id, item.fleet, item.epoch) == ("s1", "a1", "f1", 0)
    assert decode_violation(encode(violation)) == violation


def test_an_ended_session_lingers_and_is_then_removed() -> None:
    """So that late and doubled events are still recognized; afterwards the state's size falls back."""
    monitor = Monitor()
    monitor.send(start(), round_(1), end())
    ends = monitor.state().deadline
    assert ends == START + FleetPolicy().ended_linger_ms
    monitor.tick(FleetPolicy().ended_linger_ms - 1)
    assert monitor.ignored == {"tick-early": 1}
    monitor.send(round_(1))
    assert monitor.state().counts.after_end == 1
    monitor.tick(1)
    assert monitor.stored == {}
    assert monitor.sent == []


def test_a_removal_is_told_again_when_its_tick_comes_again() -> None:
    """The local store may have forgotten the session before the changelog was told."""
    monitor = Monitor(policy(idle_ms=1000))
    monitor.send(round_(1))
    monitor.now += 1000
    removal = monitor.append(tick(monitor.now))
    key = state_key("s1", "a1")
    assert monitor.fold([removal]).states == {key: None}
    monitor.read([removal])
    assert monitor.fold([removal]).states == {key: None}
    assert monitor.fold([monitor.append(end())]).states == {}


def test_a_long_idle_session_is_removed_and_begins_anew() -> None:
    monitor = Monitor(policy(idle_ms=1000))
    monitor.send(round_(1))
    monitor.tick(999)
    assert monitor.stored
    monitor.tick(1)
    assert monitor.stored == {}
    monitor.send(round_(2))
    assert monitor.state().last_round == 2


def test_100_sessions_that_ended_leave_nothing_behind() -> None:
    monitor = Monitor()
    for number in range(100):
        who: dict[str, Any] = {"session_id": f"s{number}"}
        monitor.send(round_(1, **who), end(**who))
    assert len(monitor.stored) == 100
    monitor.now += FleetPolicy().ended_linger_ms
    monitor.send(*(tick(session_id=f"s{number}") for number in range(100)))
    assert monitor.stored == {}


def test_the_policy_of_the_events_fleet_holds() -> None:
    """Also for later events that do not name it."""
    loose = FleetPolicy(modes={"provenance-floor": "off"})
    monitor = Monitor(Policy(fleets={"loose": loose}))
    monitor.send(sunk(fleet="loose", session_id="s2"), sunk(fleet="other"))
    assert {item.session_id for item in monitor.sent} == {"s1"}
    monitor.send(sunk(2, fleet="", session_id="s2"))
    assert {item.session_id for item in monitor.sent} == {"s1"}


def test_a_bad_release_halts_each_of_its_sessions() -> None:
    """500 sessions of one fleet break the floor at once: one violation and one halt for each, all of one fleet and rule."""
    monitor = Monitor()
    monitor.send(*(sunk(session_id=f"s{n}", fleet="release-7") for n in range(500)))
    assert [item.session_id for item in monitor.violations] == [item.session_id for item in monitor.commands]
    assert len({item.session_id for item in monitor.commands}) == len({item.command_id for item in monitor.commands}) == 500
    assert {(item.fleet, item.rule) for item in monitor.violations} == {("release-7", "provenance-floor")}


def test_a_state_that_holds_all_a_session_can_have_fits_a_record() -> None:
    """A broker takes 1,048,588 bytes unless told otherwise; a state, command or violation past that would stop the monitor."""
    monitor = Monitor(policy(command_ttl_ms=10, attempts=1))
    name = "\x01" * 230
    facts = [f"{n:03}{name}" for n in range(256)]
    monitor.send(*(start(declared(*facts[at : at + 64], fact_class=f"{at}{name}")) for at in range(0, 256, 64)))
    for level in range(60, 0, -1):
        who = {"event_id": f"{level}{name}", "stop_reason": name}
        monitor.send(
            checkpoint(level, {}, seen_spans=1, **who), headers=[("traceparent", TRACE.encode()), ("tracestate", b"x" * 500)]
        )
    for number in range(1, 20):
        monitor.send(sunk(number, event_id=f"{number}{name}"))
        monitor.tick(20)
    assert monitor.dead == []
    assert len(monitor.state().incidents) > limits.MAX_OPEN_INCIDENTS
    assert max(map(len, monitor.stored.values())) < 1_000_000
    assert max(len(encode(item)) for item in monitor.sent) < 200_000
