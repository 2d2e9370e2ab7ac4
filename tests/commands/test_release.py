"""What ends an incident, and what does not: a clean call over other input, another clock, a number used twice."""

from __future__ import annotations

from typing import Any

import pytest

from leadline.commands.fold import Incoming, fold
from leadline.contracts import limits
from leadline.contracts.codec import encode
from leadline.contracts.events import Summary
from leadline.contracts.ids import state_key
from leadline.contracts.orders import Command, Mode
from leadline.contracts.session_state import encode_state
from leadline.contracts.times import parse_ms
from leadline.detection.policy import DEFAULT_POLICY
from leadline.detection.rules import RULE_NAMES, UNHEEDED
from tests.commands.support import inverted, only, sink
from tests.support.core import START, Monitor, ack, checkpoint, declared, policy, round_, start

WHOLE: dict[str, Any] = {"declared_input_tokens": 8_000, "consumed_input_tokens": 8_000, "source_spans": None, "seen_spans": None}
CUT = WHOLE | {"consumed_input_tokens": 5_000}


def cut() -> Monitor:
    """A session whose level 1 lost the tail of 8,000 tokens."""
    monitor = Monitor(only("budget-open"))
    monitor.send(checkpoint(1, **CUT))
    assert monitor.told() == ["budget-open!", "retry-level#1"]
    return monitor


def test_a_clean_call_over_less_input_does_not_close_the_level() -> None:
    monitor = cut()
    monitor.send(checkpoint(1, event_id="c2", **WHOLE | {"declared_input_tokens": 3_000, "consumed_input_tokens": 3_000}))
    assert monitor.told() == ["budget-open!", "retry-level#1"]


def test_the_same_input_consumed_whole_closes_it() -> None:
    monitor = cut()
    monitor.send(checkpoint(1, event_id="c2", **WHOLE))
    assert monitor.told() == ["budget-open!", "retry-level#1", "resume#1"]


def test_a_call_that_says_which_command_it_obeys_closes_it_whatever_its_size() -> None:
    """A retry may be split into several calls."""
    monitor = cut()
    half = WHOLE | {"declared_input_tokens": 4_000, "consumed_input_tokens": 4_000}
    monitor.send(checkpoint(1, event_id="c2", retry_of=monitor.commands[0].command_id, **half))
    assert monitor.told() == ["budget-open!", "retry-level#1", "resume#1"]


def test_a_call_over_other_facts_does_not_bring_back_those_that_were_lost() -> None:
    monitor = Monitor(only("recall-floor"))
    monitor.send(start(declared("f1", "f2", floor=1.0)), checkpoint(1, {"f1": "verbatim", "f2": "absent"}))
    monitor.send(checkpoint(1, {"f1": "verbatim"}, event_id="c2", input_facts=["f1"]))
    assert monitor.told() == ["recall-floor!", "retry-level#1"]
    monitor.send(checkpoint(1, {"f2": "abstracted"}, event_id="c3", input_facts=["f2"]))
    assert monitor.told() == ["recall-floor!", "retry-level#1", "resume#1"]


def test_a_failed_round_done_again_under_its_number_is_measured() -> None:
    monitor = Monitor(only("inversion"))
    monitor.send(sink(1, 0.26), sink(2, 0.26, outcome="failed"), sink(2, 0.20, 99, 0.51, event_id="r2-again"))
    assert monitor.told() == ["inversion!", "halt#1"]
    assert monitor.state().counts.superseded == 1


def test_a_round_that_measured_nothing_and_comes_twice_is_a_duplicate() -> None:
    monitor = Monitor()
    empty = round_(1, raw_tokens=0, summary_tokens=0)
    monitor.send(empty, empty)
    assert (monitor.state().counts.unknown, monitor.state().counts.duplicates) == (1, 1)


def test_a_depth_limit_of_zero_is_no_limit() -> None:
    monitor = Monitor(only("depth-pin"))
    monitor.send(*(sink(number, 0.9, max_depth=0) for number in range(1, 12)))
    assert monitor.told() == []


def test_levels_without_number_leave_room_for_an_inversion() -> None:
    monitor = Monitor(only("budget-open", "inversion"))
    monitor.send(*(checkpoint(level, event_id=f"c{level}", seen_spans=0) for level in range(limits.MAX_OPEN_INCIDENTS)))
    monitor.send(sink(1, 0.26), sink(2, 0.20, 99, 0.51))
    assert monitor.incident("inversion").command is not None


def test_a_halt_that_is_issued_again_plans_over_the_summaries_of_now() -> None:
    monitor = inverted()
    newest = [Summary(id="S9", depth=1, tokens=50, fan_out=4, reachable=4)]
    monitor.send(sink(3, 0.19, 98, 0.52, summaries=newest))
    monitor.tick(monitor.policy.default.command_ttl_ms)
    again = monitor.commands[-1]
    assert (again.kind, again.attempt) == ("halt", 2)
    assert [target.summary_id for target in again.parameters.plan or ()] == ["S9"]


@pytest.mark.parametrize("mode", ["off", "shadow", "warn"])
def test_what_is_withdrawn_after_it_was_escalated_is_released_once(mode: Mode) -> None:
    """The rule, and what came of its being unheeded: each release has an id and a number of its own, and stays in flight."""
    monitor = inverted(attempts=1)
    monitor.tick(monitor.policy.default.command_ttl_ms)
    assert monitor.told() == ["inversion!", "halt#1", "unheeded!", "stop-agent#1"]
    monitor.policy = policy(modes=dict.fromkeys([*RULE_NAMES, UNHEEDED], mode), attempts=1)
    monitor.send(sink(3, 0.19, 98, 0.52))
    halt, stop, *resumes = monitor.commands
    assert [(item.seq, item.parameters.releases) for item in resumes] == [(3, halt.command_id), (4, stop.command_id)]
    monitor.send(*(ack(item, "done") for item in resumes))
    assert [one.rule for one in monitor.state().incidents if one.command is not None] == []


def test_an_accepted_stop_is_not_sent_again() -> None:
    monitor = inverted()
    for command in range(3):
        monitor.send(ack(monitor.commands[command], "refused"))
    stop = monitor.commands[-1]
    assert stop.kind == "stop-agent"
    monitor.send(ack(stop))
    sent = len(monitor.sent)
    for _ in range(20):
        monitor.tick(monitor.policy.default.effect_ttl_ms)
    assert [item for item in monitor.sent[sent:] if isinstance(item, Command) and item.kind == "stop-agent"] == []


def test_the_state_comes_from_the_records_alone() -> None:
    """Read an hour later the same log ends in the same bytes; what goes out is stamped with the time of sending."""
    events = [sink(1, 0.26), sink(2, 0.20, 99, 0.51)]
    log = [Incoming(b"s1", encode(event), 0, at, START + at) for at, event in enumerate(events)]
    soon, late = (fold(log, lambda key: None, DEFAULT_POLICY, START + delay) for delay in (10, 3_600_000))
    assert [encode_state(state) for state in soon.states.values() if state] == [
        encode_state(state) for state in late.states.values() if state
    ]
    expiries = [[parse_ms(item.expires_at) for item in one.outputs if isinstance(item, Command)] for one in (soon, late)]
    ttl = DEFAULT_POLICY.default.command_ttl_ms
    assert expiries == [[START + 10 + ttl], [START + 3_600_000 + ttl]]


def test_rounds_of_an_epoch_that_is_over_are_no_healthy_session() -> None:
    """A clock set back: the restarted agent counts a lower epoch, and everything that it says is ignored."""
    monitor = Monitor(only("inversion", "unobserved"))
    monitor.send(round_(1, epoch=9), *(sink(number, 0.3 - number / 100, 100 - number, epoch=8) for number in range(2, 12)))
    assert monitor.told() == ["unobserved!"]
    assert "epoch 8" in monitor.violations[0].message
    assert monitor.state().counts.stale_epoch == 10


def test_an_epoch_that_rises_with_every_round_is_told() -> None:
    """No rule that compares rounds can judge such a session."""
    monitor = Monitor(only("inversion", "unobserved"))
    monitor.send(*(sink(1, 0.3 - number / 100, 100 - number, epoch=number, event_id=f"e{number}") for number in range(8)))
    assert set(monitor.told()) == {"unobserved!"}


def test_an_event_id_that_an_agent_uses_twice_does_not_make_one_id_for_two_incidents() -> None:
    monitor = Monitor(only("budget-open"))
    for turn in range(2):
        monitor.send(checkpoint(1, event_id="same", **CUT))
        monitor.send(checkpoint(1, event_id=f"whole{turn}", **WHOLE))
        monitor.send(*(checkpoint(2, event_id=f"{turn}-{n}") for n in range(limits.RECENT_EVENTS)))
    assert monitor.told() == ["budget-open!", "retry-level#1", "resume#1"] * 2
    assert len({violation.incident_id for violation in monitor.violations}) == 2


def test_a_state_that_cannot_be_read_stops_nobody() -> None:
    monitor = Monitor()
    monitor.send(round_(1))
    monitor.stored[state_key("s1", "a1")] = b"garbage"
    monitor.send(round_(2), round_(1, session_id="s2"))
    assert monitor.ignored == {"unreadable-state": 1}
    assert (monitor.state().last_round, monitor.state("s2").last_round) == (2, 1)
