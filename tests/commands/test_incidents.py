"""Incidents and their commands: opened once, updated while they stand, judged by measurements, released when they are over."""

from __future__ import annotations

from typing import Any

import pytest

from leadline.contracts import limits
from leadline.contracts.events import Round, Summary
from leadline.contracts.orders import Command, Mode, Violation
from leadline.contracts.session_state import Stage
from leadline.contracts.times import parse_ms
from leadline.detection.condition import condition
from leadline.detection.policy import FleetPolicy, Policy
from leadline.detection.rules import RULE_NAMES, UNHEEDED
from tests.support.core import START, Monitor, ack, checkpoint, declared, end, policy, round_, start, tick

TTL, EFFECT = FleetPolicy().command_ttl_ms, FleetPolicy().effect_ttl_ms


def only(*rules: str, **changes: Any) -> Policy:
    """A policy in which just ``rules`` (and ``unheeded``) are on."""
    modes: dict[str, Mode] = dict.fromkeys(sorted({*RULE_NAMES} - {*rules, UNHEEDED}), "off")
    return policy(modes=modes | changes.pop("modes", {}), **changes)


def sink(number: int, ratio: float, spans: int = 100, salience: float = 0.5, **changes: Any) -> Round:
    """A deep round."""
    given: dict[str, Any] = {"summary_depth_max": 2, "distinct_source_spans": spans, "query_cosine_retained": salience}
    return round_(number, ratio, **given | changes)


def inverted(monitor: Monitor | None = None, **changes: Any) -> Monitor:
    """A session halted at round 2 for an inversion, at raw ratio 0.20 with 99 spans."""
    monitor = monitor or Monitor(only("inversion", **changes))
    monitor.send(sink(1, 0.26), sink(2, 0.20, 99, 0.51))
    assert monitor.told() == ["inversion!", "halt#1"]
    return monitor


def stage(monitor: Monitor, rule: str = "inversion") -> Stage:
    command = monitor.incident(rule).command
    assert command is not None
    return command.stage


# One incident, one command -----------------------------------------------------------------------------------------------


def test_an_incident_sends_one_violation_and_one_command_however_often_its_rule_fires() -> None:
    monitor = inverted()
    for number in range(3, 12):
        monitor.send(sink(number, 0.19, 100 - number, 0.5 + number / 100))
    assert monitor.told() == ["inversion!", "halt#1"]
    assert monitor.incident("inversion").firings == 10


def test_the_violation_says_what_was_measured_and_what_is_done() -> None:
    violation, command = inverted().sent
    assert isinstance(violation, Violation)
    assert isinstance(command, Command)
    assert (violation.rule, violation.reason, violation.severity, violation.mode) == (
        "inversion",
        "boundary-crossed",
        "critical",
        "enforce",
    )
    assert (violation.round, violation.action) == (2, "halt")
    assert violation.before is not None
    assert violation.now is not None
    assert (violation.before.raw_ratio, violation.now.raw_ratio) == (0.26, 0.20)
    assert violation.threshold["raw_ratio_floor"] == 0.25
    for part in ("0.20", "0.25", "100 -> 99", "0.50 -> 0.51"):
        assert part in violation.message
    assert (command.kind, command.attempt, command.seq, command.rule) == ("halt", 1, 1, "inversion")
    assert (command.incident_id, command.reason) == (violation.incident_id, violation.message)
    assert (parse_ms(command.issued_at), parse_ms(command.expires_at)) == (START, START + TTL)
    assert command.parameters.target_raw_ratio == 0.30
    assert command.parameters.target_spans == 42


def test_the_plan_expands_the_lowest_depth_first_then_the_highest_fan_out_and_fits_the_budget() -> None:
    listed = [
        Summary(id="deep", depth=3, tokens=10, fan_out=99, reachable=9),
        Summary(id="wide", depth=1, tokens=10, fan_out=8, reachable=8),
        Summary(id="gone", depth=1, tokens=10, fan_out=9, reachable=0),
        Summary(id="narrow", depth=1, tokens=10, fan_out=2, reachable=2),
        Summary(id="unknown", depth=2, tokens=10, fan_out=2),
    ]
    monitor = Monitor(only("inversion"))
    monitor.send(sink(1, 0.26), sink(2, 0.20, 99, 0.51, summaries=listed, fixed_tokens=20_000, token_budget=130_000))
    parameters = monitor.commands[0].parameters
    assert [target.summary_id for target in parameters.plan or ()] == ["wide", "narrow", "unknown", "deep"]
    assert parameters.max_restore_tokens == 130_000 - 20_000 - 100_000 + 40


def test_headroom_below_zero_restores_nothing() -> None:
    monitor = Monitor(only("inversion"))
    listed = [Summary(id="n", depth=1, tokens=10, fan_out=8)]
    monitor.send(sink(1, 0.26), sink(2, 0.20, 99, 0.51, token_budget=131_072, fixed_tokens=131_072, summaries=listed))
    assert monitor.commands[0].parameters.max_restore_tokens == 0


def test_a_growing_summary_share_is_one_inversion_with_its_growth_shown() -> None:
    """Summary tokens 3500 .. 30500 over 8000 raw: alarm at the first ratio below 0.25 (8000 of 38500), once."""
    monitor = Monitor(only("inversion"))
    for number, summary in enumerate((3500, 6200, 12_000, 20_000, 30_500, 31_000), 1):
        tokens = {"raw_tokens": 8000, "summary_tokens": summary}
        monitor.send(sink(number, 0, 200 - number, 0.65 + number / 20, **tokens))
    assert [item.round for item in monitor.violations] == [5]
    assert monitor.violations[0].evidence["summary_growth"] == 1.525


def test_a_ratio_of_exactly_zero_keeps_the_alarm_and_no_tokens_never_ends_it() -> None:
    """0.50, 0.20, 0.0, 0.0, then 0 of 0: alarm at 0.20, still open."""
    monitor = Monitor(only("inversion"))
    for number, ratio in enumerate((0.50, 0.20, 0.0, 0.0), 1):
        monitor.send(sink(number, ratio, 100 - number, 0.5 + number / 100))
    monitor.send(sink(5, 0, raw_tokens=0, summary_tokens=0))
    assert [item.round for item in monitor.violations] == [2]
    assert monitor.incident("inversion").opened_round == 2
    assert monitor.state().counts.unknown == 1


def test_no_tokens_alone_is_unknown_without_an_alarm() -> None:
    monitor = Monitor()
    monitor.send(sink(1, 0, raw_tokens=0, summary_tokens=0, distinct_source_spans=0))
    assert monitor.sent == []
    assert condition(monitor.state()) == "unknown"


def test_wrapped_summaries_are_no_raw_text_to_the_floor() -> None:
    """The agent reports a raw ratio of 0.9 while 14 source spans remain: the floor is breached in spite of it, once."""
    monitor = Monitor(only("inversion", "provenance-floor"))
    for number in range(1, 11):
        monitor.send(sink(number, 0.9, 14))
    assert monitor.told() == ["provenance-floor!", "halt#1"]


def test_a_session_that_recovered_and_falls_again_has_a_new_incident() -> None:
    monitor = inverted()
    monitor.send(sink(3, 0.5), sink(4, 0.2, 98, 0.52))
    assert monitor.told() == ["inversion!", "halt#1", "resume#1", "inversion!", "halt#1"]
    first, second = monitor.violations
    assert first.incident_id != second.incident_id
    assert len({item.command_id for item in monitor.commands}) == 3
    assert [item.seq for item in monitor.commands] == [1, 2, 3]


# Entry and exit ----------------------------------------------------------------------------------------------------------


def test_a_value_that_hovers_does_not_flap() -> None:
    """0.24, 0.26, 0.24, ... with spans falling and salience rising throughout: one alarm, no recovery."""
    monitor = Monitor(only("inversion"))
    for number in range(1, 61):
        monitor.send(sink(number, 0.26 if number % 2 else 0.24, 200 - number, 0.3 + number / 100))
    assert monitor.told() == ["inversion!", "halt#1"]


@pytest.mark.parametrize(
    ("ratio", "spans", "over"), [(0.29999, 99, False), (0.30, 99, True), (0.30, 42, True), (0.30, 41, False), (0.99, 41, False)]
)
def test_an_inversion_is_over_at_the_exit_ratio_with_spans_at_the_floor(ratio: float, spans: int, over: bool) -> None:
    monitor = inverted()
    monitor.send(sink(3, ratio, spans))
    assert ("resume#1" in monitor.told()) == over


def test_a_breach_of_the_floor_is_over_well_above_it_at_once() -> None:
    """Floor 42, exit 51."""
    monitor = Monitor(only("provenance-floor"))
    monitor.send(sink(1, 0.5, 41), sink(2, 0.5, 51))
    assert monitor.told() == ["provenance-floor!", "halt#1", "resume#1"]


def test_a_breach_of_the_floor_is_over_after_several_good_rounds_in_a_row() -> None:
    monitor = Monitor(only("provenance-floor"))
    monitor.send(sink(1, 0.5, 41), sink(2, 0.5, 42), sink(3, 0.5, 50), sink(4, 0.5, 41), sink(5, 0.5, 42), sink(6, 0.5, 42))
    assert monitor.told() == ["provenance-floor!", "halt#1"]
    monitor.send(sink(7, 0.5, 42))
    assert monitor.told() == ["provenance-floor!", "halt#1", "resume#1"]


def test_drift_is_recorded_without_a_command_and_becomes_an_inversion() -> None:
    monitor = Monitor(only("inversion", "drift"))
    monitor.send(sink(1, 0.26), sink(2, 0.24), sink(3, 0.24))
    assert monitor.told() == ["drift!"]
    assert monitor.violations[0].action == "none"
    monitor.send(sink(4, 0.24, 99, 0.6))
    assert monitor.told() == ["drift!", "inversion!", "halt#1"]
    assert [item.rule for item in monitor.state().incidents] == ["inversion"]


def test_a_pause_in_an_inversion_is_no_drift() -> None:
    monitor = Monitor(only("inversion", "drift"))
    monitor.send(sink(1, 0.26), sink(2, 0.20, 99, 0.6), sink(3, 0.20, 99, 0.6))
    assert monitor.told() == ["inversion!", "halt#1"]


# Acknowledgements and effect ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", ["accepted", "done"])
def test_an_acknowledgement_proves_receipt_never_effect(outcome: Any) -> None:
    """Acknowledged and restored, it says; the rounds say raw 0: not recovered, escalated in the end."""
    monitor = inverted(attempts=1)
    monitor.send(ack(monitor.commands[0], outcome, raw_tokens_restored=50_000))
    assert stage(monitor) is Stage.ACCEPTED
    monitor.send(sink(3, 0.0, 1), sink(4, 0.0, 1))
    assert monitor.told() == ["inversion!", "halt#1"]
    monitor.send(sink(5, 0.0, 1))
    assert monitor.told() == ["inversion!", "halt#1", "unheeded!", "stop-agent#1"]
    assert monitor.violations[-1].reason == "acknowledged-without-effect"


def test_no_effect_is_commanded_again_before_it_is_escalated() -> None:
    monitor = inverted()
    for attempt in (1, 2, 3):
        monitor.send(ack(monitor.commands[-1]))
        for number in range(3):
            monitor.send(sink(3 * attempt + number, 0.0, 1))
    assert monitor.told() == ["inversion!", "halt#1", "halt#2", "halt#3", "unheeded!", "stop-agent#1"]
    assert len({item.command_id for item in monitor.commands}) == 4
    assert [item.seq for item in monitor.commands] == [1, 2, 3, 4]


def test_measurements_before_the_acknowledgement_do_not_count_against_it() -> None:
    monitor = inverted()
    monitor.send(*(sink(number, 0.0, 1) for number in range(3, 9)))
    assert stage(monitor) is Stage.ISSUED
    assert monitor.told() == ["inversion!", "halt#1"]


def test_effect_is_seen_in_the_measurements_of_the_next_rounds() -> None:
    monitor = inverted()
    monitor.send(ack(monitor.commands[0]), sink(3, 0.27, 99))
    assert stage(monitor) is Stage.EFFECTIVE
    assert condition(monitor.state()) == "recovering"
    monitor.send(sink(4, 0.31, 99))
    assert monitor.told() == ["inversion!", "halt#1", "resume#1"]


def test_more_raw_text_with_fewer_spans_is_no_effect() -> None:
    monitor = inverted()
    monitor.send(ack(monitor.commands[0]), sink(3, 0.27, 98))
    assert stage(monitor) is Stage.ACCEPTED


def test_recovery_counts_although_the_acknowledgement_was_lost() -> None:
    monitor = inverted()
    monitor.send(sink(3, 0.35, 99))
    assert monitor.told() == ["inversion!", "halt#1", "resume#1"]


@pytest.mark.parametrize("first", ["accepted", "done"])
def test_a_refusal_is_answered_with_the_next_attempt_and_the_last_one_is_escalated(first: Any) -> None:
    """A refusal may mean that a later command had overtaken this one: the next attempt has a later number."""
    monitor = inverted()
    monitor.send(ack(monitor.commands[0], "refused", detail="no"))
    assert monitor.told() == ["inversion!", "halt#1", "halt#2"]
    assert monitor.commands[1].seq > monitor.commands[0].seq
    monitor.send(ack(monitor.commands[1], "refused"))
    monitor.send(ack(monitor.commands[2], "refused"))
    assert monitor.told() == ["inversion!", "halt#1", "halt#2", "halt#3", "unheeded!", "stop-agent#1"]
    violation = monitor.violations[-1]
    assert (violation.reason, violation.action, violation.severity) == ("refused", "stop-agent", "critical")
    assert violation.evidence == {"command_id": monitor.commands[2].command_id, "kind": "halt"}
    monitor.send(ack(monitor.commands[2], first))
    assert len(monitor.sent) == 6


def test_an_agent_that_got_it_too_late_is_told_again() -> None:
    monitor = inverted()
    monitor.send(ack(monitor.commands[0], "expired"))
    assert monitor.told() == ["inversion!", "halt#1", "halt#2"]


def test_an_acknowledgement_of_nobody_is_counted_and_does_nothing() -> None:
    monitor = inverted()
    before = monitor.state().incidents
    stray = ack(monitor.commands[0], command_id="cmd-elsewhere")
    monitor.send(stray)
    assert monitor.state().incidents == before
    assert monitor.state().counts.unmatched_acks == 1


def test_an_acknowledgement_of_an_earlier_attempt_or_of_what_was_released_is_late_not_stray() -> None:
    monitor = inverted()
    monitor.tick(TTL)
    monitor.send(ack(monitor.commands[0]))
    assert stage(monitor) is Stage.ISSUED
    monitor.send(sink(3, 0.5), ack(monitor.commands[1], "done"))
    assert monitor.told()[-1] == "resume#1"
    assert monitor.incident("inversion").releasing
    assert monitor.state().counts.unmatched_acks == 0


def test_doubled_acknowledgements_change_nothing() -> None:
    monitor = inverted()
    said = ack(monitor.commands[0])
    monitor.send(said)
    once = monitor.state().incidents
    monitor.send(said, said)
    assert monitor.state().incidents == once


def test_another_agents_acknowledgement_is_not_this_ones() -> None:
    monitor = inverted()
    monitor.send(ack(monitor.commands[0], agent_id="other"))
    assert stage(monitor) is Stage.ISSUED
    assert monitor.ignored == {"unknown-session": 1}


# Deadlines ---------------------------------------------------------------------------------------------------------------


def test_a_command_stays_pending_until_it_is_acknowledged_or_expires_and_is_not_sent_for_ever() -> None:
    """Reissued with the next attempt each time it expires; past the attempts it is alarmed and the agent is stopped."""
    monitor = inverted()
    for _ in range(3):
        assert monitor.state().deadline == monitor.now + TTL
        assert monitor.tick(TTL - 1) == []
        monitor.tick(1)
    assert monitor.told() == ["inversion!", "halt#1", "halt#2", "halt#3", "unheeded!", "stop-agent#1"]
    assert monitor.violations[-1].reason == "no-acknowledgement-or-effect-in-time"
    for _ in range(20):
        monitor.tick(TTL)
    assert monitor.told()[6:] == ["stop-agent#2", "stop-agent#3"]
    assert stage(monitor) is stage(monitor, "unheeded") is Stage.ESCALATED


def test_a_reissued_command_is_the_same_order_under_a_new_id_and_a_later_seq() -> None:
    monitor = inverted()
    monitor.tick(TTL)
    first, second = monitor.commands
    assert (second.kind, second.incident_id, second.parameters, second.reason) == (
        first.kind,
        first.incident_id,
        first.parameters,
        first.reason,
    )
    assert (second.attempt, second.seq) == (2, 2)
    assert second.command_id != first.command_id
    assert parse_ms(second.expires_at) == START + 2 * TTL


def test_an_accepted_command_has_time_to_show_effect() -> None:
    monitor = inverted()
    monitor.now += 10_000
    monitor.send(ack(monitor.commands[0]))
    assert monitor.state().deadline == monitor.now + EFFECT
    monitor.send(sink(3, 0.19, 99))
    assert monitor.tick(EFFECT - 1) == []
    monitor.tick(1)
    assert monitor.told() == ["inversion!", "halt#1", "halt#2"]


@pytest.mark.parametrize("repairs", [0, 1])
def test_an_agent_that_waits_for_a_person_is_halted_as_it_was_told_to_be(repairs: int) -> None:
    """Acknowledged, after one round of repair or none, then silence for a day: nothing shows that the halt was not obeyed."""
    monitor = inverted(modes={"unobserved": "off"})
    monitor.send(ack(monitor.commands[0], "done"), *(sink(3, 0.27, 99),) * repairs)
    for _ in range(24 * 12):
        monitor.tick(EFFECT)
    assert monitor.told() == ["inversion!", "halt#1"]
    assert stage(monitor) is (Stage.EFFECTIVE if repairs else Stage.ACCEPTED)


def test_a_repair_that_takes_long_is_given_its_time_with_each_round_that_is_better() -> None:
    """Raw ratio from 0.20 by 0.002 a round, each 30 seconds: 24 minutes to the exit, with a deadline of five."""
    monitor = inverted()
    monitor.send(ack(monitor.commands[0]))
    for number in range(3, 52):
        monitor.now += 30_000
        monitor.send(tick(monitor.now), sink(number, 0.20 + 0.002 * (number - 2), 99))
    assert monitor.told() == ["inversion!", "halt#1"]
    monitor.send(sink(52, 0.30, 99))
    assert monitor.told() == ["inversion!", "halt#1", "resume#1"]


def test_an_effect_that_is_lost_again_is_commanded_again_in_time() -> None:
    """Better once, then as bad as it was: the deadline counts from the better round."""
    monitor = inverted()
    monitor.send(ack(monitor.commands[0]), sink(3, 0.27, 99))
    monitor.now += EFFECT // 2
    monitor.send(sink(4, 0.18, 99))
    monitor.tick(EFFECT // 2)
    assert monitor.told() == ["inversion!", "halt#1", "halt#2"]


def test_a_tick_before_the_deadline_does_nothing() -> None:
    monitor = inverted()
    before = monitor.stored.copy()
    assert monitor.tick(TTL - 1) == []
    assert monitor.stored == before
    assert monitor.ignored == {"tick-early": 1}


def test_ticks_that_were_doubled_do_their_work_once() -> None:
    monitor = inverted()
    monitor.now += TTL
    monitor.send(*[tick(START + TTL)] * 5)
    assert monitor.told() == ["inversion!", "halt#1", "halt#2"]


def test_a_monitor_that_was_away_finds_the_deadline_passed() -> None:
    """Two hours later: the agent, which may not have been sent it in time, is given its time anew; then one reissue, not 120."""
    monitor = inverted()
    monitor.tick(2 * 3600_000)
    assert monitor.told() == ["inversion!", "halt#1"]
    monitor.tick(TTL)
    assert monitor.told() == ["inversion!", "halt#1", "halt#2"]


def test_silence_never_resolves() -> None:
    """In alarm, then nothing for six days: still open."""
    monitor = inverted()
    for _ in range(6 * 24):
        monitor.tick(3600_000)
    assert monitor.incident("inversion").opened_round == 2
    assert "resume#1" not in monitor.told()
    assert condition(monitor.state()) != "healthy"


def test_two_deadlines_that_pass_together_are_both_seen_to() -> None:
    monitor = Monitor(only("inversion", "provenance-floor"))
    monitor.send(sink(1, 0.26, 50), sink(2, 0.20, 40, 0.6))
    assert monitor.told() == ["inversion!", "halt#1", "provenance-floor!", "halt#1"]
    monitor.tick(TTL)
    assert monitor.told()[4:] == ["halt#2", "halt#2"]


# Release -----------------------------------------------------------------------------------------------------------------


def released() -> Monitor:
    monitor = inverted()
    monitor.send(ack(monitor.commands[0]), sink(3, 0.5, 99))
    assert monitor.told()[2:] == ["resume#1"]
    return monitor


def test_resume_names_what_it_releases_and_the_measurements_that_ended_it() -> None:
    monitor = released()
    halt, resume = monitor.commands
    assert resume.parameters.releases == halt.command_id
    assert resume.incident_id == halt.incident_id
    assert "0.50" in resume.reason
    assert "99" in resume.reason


def test_resume_is_sent_again_until_it_is_acknowledged() -> None:
    monitor = released()
    monitor.tick(TTL)
    assert monitor.told()[2:] == ["resume#1", "resume#2"]
    assert monitor.commands[-1].parameters.releases == monitor.commands[0].command_id
    monitor.send(ack(monitor.commands[-1], "done"))
    assert monitor.state().incidents == ()
    for _ in range(10):
        monitor.tick(TTL)
    assert len(monitor.sent) == 4


def test_an_agent_that_stays_halted_in_spite_of_resume_is_told_to_people_and_not_stopped() -> None:
    """It is sound: to stop it would be to punish the cured."""
    monitor = released()
    for _ in range(5):
        monitor.tick(TTL)
    assert monitor.told()[2:] == ["resume#1", "resume#2", "resume#3", "unheeded!"]
    assert monitor.violations[-1].action == "none"
    assert condition(monitor.state()) == "recovering"


def test_an_agent_that_is_heard_of_after_its_release_went_unanswered_is_told_again_until_it_has_it() -> None:
    """Its listener was away for longer than all attempts: without this it would stay halted for ever, and look healthy here."""
    monitor = released()
    for _ in range(5):
        monitor.tick(TTL)
    monitor.send(sink(4, 0.5, 99))
    assert monitor.told()[5:] == ["unheeded!", "resume#4"]
    for _ in range(3):
        monitor.tick(TTL)
    assert monitor.told()[5:] == ["unheeded!", "resume#4"]
    monitor.send(sink(5, 0.5, 99))
    assert monitor.told()[7:] == ["resume#5"]
    monitor.send(ack(monitor.commands[-1]))
    assert monitor.state().incidents == ()


def test_with_unheeded_off_an_unanswered_resume_is_sent_again_all_the_same() -> None:
    monitor = inverted(modes={"unheeded": "off"})
    monitor.send(sink(3, 0.5, 99))
    for _ in range(5):
        monitor.tick(TTL)
    monitor.send(sink(4, 0.5, 99))
    assert monitor.told() == ["inversion!", "halt#1", "resume#1", "resume#2", "resume#3", "resume#4"]


def test_recovery_releases_the_stopped_agent_too() -> None:
    monitor = inverted(attempts=1)
    monitor.tick(TTL)
    assert monitor.told()[2:] == ["unheeded!", "stop-agent#1"]
    monitor.send(sink(3, 0.5, 99))
    assert monitor.told()[4:] == ["resume#1", "resume#1"]
    halt, stop, *resumes = monitor.commands
    assert {item.parameters.releases for item in resumes} == {halt.command_id, stop.command_id}
    monitor.send(*(ack(item) for item in resumes))
    assert monitor.state().incidents == ()


def test_the_cap_on_depth_stays_after_the_resume() -> None:
    """At the cap is what was asked for: no pin; above it again is one, after six more rounds."""
    monitor = Monitor(only("depth-pin"))
    deep = {"max_depth": 3}
    monitor.send(*(sink(n, 0.5, summary_depth_max=3, **deep) for n in range(1, 7)))
    assert monitor.told() == ["depth-pin!", "cap-depth#1"]
    cap = monitor.commands[0]
    assert cap.parameters.max_depth == 2
    monitor.send(ack(cap), sink(7, 0.5, **deep))
    resume = monitor.commands[-1]
    assert (resume.kind, resume.parameters.max_depth, resume.parameters.releases) == ("resume", 2, cap.command_id)
    assert monitor.state().depth_cap == 2
    monitor.send(ack(resume), *(sink(n, 0.5, max_depth=2) for n in range(8, 30)))
    assert len(monitor.sent) == 3
    monitor.send(*(sink(n, 0.5, summary_depth_max=3, **deep) for n in range(30, 36)))
    assert monitor.told()[3:] == ["depth-pin!", "cap-depth#1"]


def test_a_pin_at_the_cap_itself_is_reported_without_a_command() -> None:
    monitor = Monitor(only("depth-pin"))
    monitor.send(*(sink(n, 0.5, max_depth=2) for n in range(1, 9)))
    assert monitor.told() == ["depth-pin!"]
    assert monitor.violations[0].action == "none"


# Checkpoints -------------------------------------------------------------------------------------------------------------


def test_a_level_that_did_not_close_is_retried_and_released_when_it_closes() -> None:
    monitor = Monitor(only("budget-open"))
    monitor.send(checkpoint(2, seen_spans=10, round=4))
    violation, retry = monitor.sent
    assert isinstance(violation, Violation)
    assert isinstance(retry, Command)
    assert (violation.level, violation.round, violation.action) == (2, 4, "retry-level")
    assert (retry.kind, retry.parameters.level) == ("retry-level", 2)
    monitor.send(ack(retry), checkpoint(2))
    assert monitor.told() == ["budget-open!", "retry-level#1", "resume#1"]


def test_levels_are_incidents_of_their_own() -> None:
    monitor = Monitor(only("budget-open"))
    monitor.send(checkpoint(1, seen_spans=10), checkpoint(2, seen_spans=10), checkpoint(1, seen_spans=10))
    assert monitor.told() == ["budget-open!", "retry-level#1"] * 2
    monitor.send(checkpoint(1))
    assert monitor.incident("budget-open", "L2").releasing is False
    assert monitor.incident("budget-open", "L1").releasing is True


def test_an_open_budget_that_repeats_after_the_retry_halts() -> None:
    monitor = Monitor(only("budget-open"))
    monitor.send(checkpoint(1, seen_spans=10))
    monitor.send(ack(monitor.commands[0]), checkpoint(1, seen_spans=10))
    assert monitor.told() == ["budget-open!", "retry-level#1", "halt#1"]
    assert monitor.commands[-1].parameters.level == 1
    monitor.send(checkpoint(1, seen_spans=10))
    assert len(monitor.sent) == 3


def test_a_retry_that_is_never_made_is_asked_for_again_where_the_agent_goes_on() -> None:
    """Acknowledged and silent: it may be at it. Acknowledged, and another level summarized or a pass run: it is not."""
    for went_on in (checkpoint(2), round_(1)):
        monitor = Monitor(only("budget-open"))
        monitor.send(checkpoint(1, seen_spans=10))
        monitor.send(ack(monitor.commands[0]), round_(0, trigger="hold"))
        monitor.tick(EFFECT)
        assert monitor.told() == ["budget-open!", "retry-level#1"]
        monitor.send(went_on)
        monitor.tick(EFFECT)
        assert monitor.told() == ["budget-open!", "retry-level#1", "retry-level#2"]


@pytest.mark.parametrize("said_again", ["round", "late round", "missing round", "call", "stale call"])
def test_what_comes_twice_or_late_is_no_agent_that_goes_on(said_again: str) -> None:
    """Rounds 2 and 100, a call; the retry is acknowledged; then a copy of one of them comes, or what was overtaken."""
    known = round_(100, epoch=2), checkpoint(2, event_id="c2", epoch=2)
    monitor = Monitor(only("budget-open"))
    monitor.send(round_(98, epoch=2), *known, checkpoint(1, event_id="c1", seen_spans=10, epoch=2))
    monitor.send(ack(monitor.commands[0]))
    again = {
        "round": known[0],
        "late round": round_(2, epoch=2),
        "missing round": round_(99, epoch=2),
        "call": known[1],
        "stale call": checkpoint(2, event_id="c0", epoch=1),
    }
    monitor.send(again[said_again])
    monitor.tick(EFFECT)
    assert monitor.told() == ["budget-open!", "retry-level#1"]
    monitor.send(round_(101, epoch=2))
    monitor.tick(EFFECT)
    assert monitor.told() == ["budget-open!", "retry-level#1", "retry-level#2"]


def test_an_open_budget_that_repeats_unheard_halts_at_the_third_time() -> None:
    monitor = Monitor(only("budget-open"))
    monitor.send(checkpoint(1, seen_spans=10), checkpoint(1, seen_spans=10))
    assert monitor.told() == ["budget-open!", "retry-level#1"]
    monitor.send(checkpoint(1, seen_spans=10))
    assert monitor.told() == ["budget-open!", "retry-level#1", "halt#1"]


def test_counters_that_are_no_longer_reported_do_not_close_a_budget() -> None:
    monitor = Monitor(only("budget-open"))
    monitor.send(checkpoint(1, seen_spans=10), checkpoint(1, declared_input_tokens=None, source_spans=None))
    assert monitor.told() == ["budget-open!", "retry-level#1"]
    assert monitor.incident("budget-open").releasing is False


def lossy() -> Monitor:
    monitor = Monitor(only("recall-floor"))
    monitor.send(start(declared("C1", "C2", "C3")), checkpoint(1, {"C2": "verbatim", "C3": "verbatim"}))
    assert monitor.told() == ["recall-floor!", "retry-level#1"]
    return monitor


def test_the_retry_names_the_facts_that_were_lost() -> None:
    retry = lossy().commands[0]
    assert (retry.parameters.level, retry.parameters.facts) == (1, ["C1"])
    assert retry.parameters.instruction


def test_a_retry_that_loses_others_names_all_that_were_lost() -> None:
    monitor = lossy()
    monitor.send(ack(monitor.commands[0]), checkpoint(1, {"C1": "verbatim", "C3": "verbatim"}))
    assert monitor.told()[2:] == ["retry-level#2"]
    assert monitor.commands[-1].parameters.facts == ["C1", "C2"]


def test_a_retry_that_was_not_heard_names_by_its_second_attempt_what_was_lost_since() -> None:
    monitor = lossy()
    monitor.send(checkpoint(1, {"C2": "verbatim"}))
    assert monitor.told()[2:] == []
    monitor.tick(TTL)
    assert monitor.commands[-1].parameters.facts == ["C1", "C3"]


def test_a_retry_that_keeps_all_facts_is_released() -> None:
    monitor = lossy()
    monitor.send(ack(monitor.commands[0]), checkpoint(1, dict.fromkeys(("C1", "C2", "C3"), "abstracted")))
    assert monitor.told()[2:] == ["resume#1"]


def test_a_retry_that_keeps_failing_stops_the_agent() -> None:
    monitor = lossy()
    for _ in range(3):
        monitor.send(ack(monitor.commands[-1]), checkpoint(1, {"C2": "verbatim", "C3": "verbatim"}))
    assert monitor.told()[2:] == ["retry-level#2", "retry-level#3", "unheeded!", "stop-agent#1"]


def test_six_empty_lists_are_one_alarm() -> None:
    monitor = Monitor(only("recall-floor"))
    names = [f"C{n}" for n in range(9)]
    monitor.send(start(declared(*names)), checkpoint(1, dict.fromkeys(names, "verbatim")))
    for number in range(6):
        monitor.send(checkpoint(2, {}, event_id=f"e{number}"))
    (violation,) = monitor.violations
    assert violation.evidence["lost_facts"] == names


def test_a_hidden_summary_does_not_close_what_is_open() -> None:
    monitor = lossy()
    monitor.send(checkpoint(1, summary_visible=False), checkpoint(1))
    assert monitor.incident("recall-floor").releasing is False


# Modes -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "told", "action"),
    [
        ("off", [], None),
        ("shadow", ["inversion!"], "halt"),
        ("warn", ["inversion!"], "none"),
        ("enforce", ["inversion!", "halt#1"], "halt"),
    ],
)
def test_a_rules_mode(mode: Mode, told: list[str], action: str | None) -> None:
    """Shadow says what enforcement would have done; only enforcement commands."""
    monitor = Monitor(only("inversion", modes={"inversion": mode}))
    monitor.send(sink(1, 0.26), sink(2, 0.20, 99, 0.51))
    assert monitor.told() == told
    assert [(item.mode, item.action) for item in monitor.violations] == ([] if action is None else [(mode, action)])


@pytest.mark.parametrize("mode", ["shadow", "warn"])
def test_without_a_command_an_incident_ends_without_a_resume(mode: Mode) -> None:
    monitor = Monitor(only("inversion", modes={"inversion": mode}))
    monitor.send(sink(1, 0.26), sink(2, 0.20, 99, 0.51), sink(3, 0.5, 99))
    assert monitor.state().incidents == ()
    assert monitor.told() == ["inversion!"]


@pytest.mark.parametrize(
    ("mode", "told"),
    [("off", []), ("shadow", ["unheeded!"]), ("warn", ["unheeded!"]), ("enforce", ["unheeded!", "stop-agent#1"])],
)
def test_the_mode_of_escalation(mode: Mode, told: list[str]) -> None:
    monitor = inverted(attempts=1, modes={"unheeded": mode})
    monitor.tick(TTL)
    assert monitor.told()[2:] == told


# Ends, restarts, bounds --------------------------------------------------------------------------------------------------


def test_a_session_that_ends_takes_its_incidents_along() -> None:
    monitor = inverted()
    monitor.send(end())
    assert monitor.state().incidents == ()
    assert condition(monitor.state()) == "ended"
    monitor.send(ack(monitor.commands[0]))
    monitor.tick(TTL)
    assert monitor.told() == ["inversion!", "halt#1"]


def test_a_new_epoch_takes_the_incidents_of_the_old_one_along() -> None:
    monitor = inverted()
    monitor.send(start(epoch=1))
    assert monitor.state().incidents == ()
    monitor.tick(TTL)
    monitor.send(round_(1, epoch=1), sink(2, 0.26, epoch=1), sink(3, 0.20, 99, 0.51, epoch=1))
    assert monitor.told() == ["inversion!", "halt#1", "inversion!", "halt#1"]
    assert len({item.incident_id for item in monitor.violations}) == 2


def test_a_new_epoch_takes_an_incident_along_that_a_lone_checkpoint_had_opened() -> None:
    """Nothing else was known of the old epoch: no start, no round, no fact."""
    monitor = Monitor(only("budget-open"))
    monitor.send(checkpoint(1, seen_spans=10), round_(1, epoch=1))
    assert monitor.state().incidents == ()


def test_the_same_round_of_two_epochs_has_two_ids() -> None:
    monitor = inverted()
    monitor.send(*(event for epoch in (1, 2) for event in (sink(1, 0.26, epoch=epoch), sink(2, 0.20, 99, 0.51, epoch=epoch))))
    assert len({item.violation_id for item in monitor.violations}) == 3


def test_replaying_everything_after_a_restart_sends_nothing() -> None:
    """The alarm was sent, the monitor restarts and reads the same events again."""
    monitor = inverted()
    monitor.send(ack(monitor.commands[0]), sink(3, 0.5, 99))
    sent = len(monitor.sent)
    monitor.read(monitor.log)
    assert len(monitor.sent) == sent


def test_a_monitor_that_was_down_while_the_threshold_was_crossed_sends_the_alarm() -> None:
    monitor = Monitor(only("inversion"))
    missed = [monitor.append(sink(1, 0.26)), monitor.append(sink(2, 0.20, 99, 0.51))]
    monitor.now += 3600_000
    monitor.read(missed)
    assert monitor.told() == ["inversion!", "halt#1"]
    assert parse_ms(monitor.commands[0].expires_at) == monitor.now + TTL, "the command's time begins when it is sent"


def test_a_failed_round_leaves_the_session_as_it_was() -> None:
    """An input of 1.9 times the limit failed: state and incident survive, the next round is judged as ever."""
    monitor = inverted()
    before = monitor.incident("inversion")
    call = checkpoint(1, declared_input_tokens=1_751_400, consumed_input_tokens=922_000)
    monitor.send(sink(3, 0.9, outcome="failed"), call)
    assert monitor.incident("inversion") == before
    assert monitor.state().counts.failed == 1
    monitor.send(sink(4, 0.5, 99))
    assert monitor.told()[-1] == "resume#1"


def test_a_success_that_was_a_failure_does_not_resolve_what_follows() -> None:
    """Reported ok at 0.5 and released; then failed: the next round below the boundary is a new incident."""
    monitor = inverted()
    monitor.send(sink(3, 0.5, 99), sink(3, 0.5, 99, outcome="failed"), sink(4, 0.2, 98, 0.52))
    assert monitor.told() == ["inversion!", "halt#1", "resume#1", "inversion!", "halt#1"]
    assert monitor.violations[-1].before is not None
    assert monitor.violations[-1].before.round == 2


def test_incidents_past_the_bound_are_counted_not_opened() -> None:
    monitor = Monitor(only("budget-open"))
    monitor.send(*(checkpoint(level, seen_spans=0) for level in range(limits.MAX_OPEN_INCIDENTS + 5)))
    state = monitor.state()
    assert len(state.incidents) == limits.MAX_LEVEL_INCIDENTS
    assert state.counts.overflow == limits.MAX_OPEN_INCIDENTS + 5 - limits.MAX_LEVEL_INCIDENTS
    assert len(monitor.violations) == limits.MAX_LEVEL_INCIDENTS


def test_the_condition_of_a_session_is_its_gravest_trouble() -> None:
    monitor = inverted()
    assert condition(monitor.state()) == "inverted"
    monitor.send(ack(monitor.commands[0]))
    assert condition(monitor.state()) == "halted"
    monitor.send(sink(3, 0.27, 99))
    assert condition(monitor.state()) == "recovering"
    monitor.send(sink(4, 0.5, 99))
    assert condition(monitor.state()) == "recovering"
    monitor.send(ack(monitor.commands[-1]))
    assert condition(monitor.state()) == "healthy"


# What obeying agents report -----------------------------------------------------------------------------------------------


def test_an_agent_that_drops_its_deep_summaries_is_released_though_its_sources_are_gone() -> None:
    """Spans 30 under a floor of 42: at depth 1 the invariant no longer applies, and three such rounds end it."""
    monitor = Monitor(only("provenance-floor"))
    monitor.send(sink(1, 0.5, 30))
    monitor.send(ack(monitor.commands[0]), *(sink(n, 0.75, 30, summary_depth_max=1, trigger="hold") for n in (2, 3)))
    assert stage(monitor, "provenance-floor") is Stage.EFFECTIVE
    monitor.send(sink(4, 0.75, 30, summary_depth_max=1))
    assert monitor.told() == ["provenance-floor!", "halt#1", "resume#1"]


@pytest.mark.parametrize("idle", [{"outcome": "skipped"}, {"trigger": "hold"}, {"trigger": "rehydrate"}])
def test_rounds_in_which_no_pass_ran_do_not_pin(idle: dict[str, str]) -> None:
    """Six of them at the limit among five passes: the sixth pass is the first that is too many."""
    deep: dict[str, Any] = {"summary_depth_max": 3, "max_depth": 3}
    monitor = Monitor(only("depth-pin"))
    monitor.send(*(sink(n, 0.5, **deep) for n in range(1, 6)), *(sink(n, 0.5, **deep | idle) for n in range(6, 12)))
    assert monitor.sent == []
    monitor.send(sink(12, 0.5, **deep))
    assert monitor.told() == ["depth-pin!", "cap-depth#1"]


def test_a_cap_is_not_judged_while_a_halt_stands() -> None:
    deep: dict[str, Any] = {"summary_depth_max": 3, "max_depth": 3, "session_start_spans": 100}
    monitor = Monitor(only("depth-pin", "provenance-floor"))
    monitor.send(*(sink(n, 0.5, **deep) for n in range(1, 7)))
    monitor.send(ack(monitor.commands[0]), sink(7, 0.5, 10, **deep))
    monitor.send(ack(monitor.commands[1]), *(sink(n, 0.5, 11, trigger="hold", **deep) for n in range(8, 20)))
    assert monitor.told() == ["depth-pin!", "cap-depth#1", "provenance-floor!", "halt#1"]


def test_fewer_ungrounded_summaries_are_an_effect() -> None:
    """2 when it opened, 6 before the halt was heard; then one fewer at a time, with a pause at 1, until none is left."""
    monitor = Monitor(only("ungrounded-summary"))
    monitor.send(sink(1, 0.5, ungrounded_summaries=2), sink(2, 0.5, ungrounded_summaries=6))
    monitor.send(ack(monitor.commands[0]))
    for number, count in enumerate((5, 4, 3, 2, 1, 1, 1, 1, 1), 3):
        monitor.send(sink(number, 0.5, ungrounded_summaries=count, trigger="hold"))
    assert monitor.told() == ["ungrounded-summary!", "halt#1"]
    monitor.send(sink(12, 0.5, ungrounded_summaries=0))
    assert monitor.told() == ["ungrounded-summary!", "halt#1", "resume#1"]


def test_as_many_ungrounded_summaries_as_there_were_are_no_effect() -> None:
    monitor = Monitor(only("ungrounded-summary"))
    monitor.send(sink(1, 0.5, ungrounded_summaries=2))
    monitor.send(ack(monitor.commands[0]), *(sink(n, 0.5, ungrounded_summaries=2) for n in (2, 3, 4)))
    assert monitor.told() == ["ungrounded-summary!", "halt#1", "halt#2"]


def test_counters_that_disagree_are_told_and_command_nothing() -> None:
    """8,350 of 8,000 tokens consumed, twice: two tokenizers, and no sign of a loss."""
    monitor = Monitor(only("budget-open"))
    monitor.send(*(checkpoint(1, consumed_input_tokens=8350, event_id=f"c{n}") for n in range(4)))
    assert monitor.told() == ["budget-open!"]
    (violation,) = monitor.violations
    assert (violation.reason, violation.action) == ("counters-disagree", "none")
    assert "truncation" not in violation.message


def test_a_retry_whose_counters_disagree_is_no_repetition() -> None:
    monitor = Monitor(only("budget-open"))
    monitor.send(checkpoint(1, seen_spans=10))
    monitor.send(ack(monitor.commands[0]), checkpoint(1, consumed_input_tokens=8350))
    monitor.tick(EFFECT)
    assert monitor.told() == ["budget-open!", "retry-level#1"]


@pytest.mark.parametrize("reason", ["MAX_LENGTH", "incomplete", "other", "pause_turn", "content_filtered", "SAFETY"])
def test_a_stop_reason_that_names_no_natural_end_hides_no_cut(reason: str) -> None:
    monitor = Monitor(only("silent-drop"))
    monitor.send(checkpoint(1, output_tokens=512, output_cap=512, stop_reason=reason))
    assert monitor.told() == ["silent-drop!", "retry-level#1"]


@pytest.mark.parametrize("reason", ["stop", "end_turn", "STOP", "completed"])
def test_an_output_at_its_cap_that_ended_of_itself_is_whole(reason: str) -> None:
    monitor = Monitor(only("silent-drop"))
    monitor.send(checkpoint(1, output_tokens=512, output_cap=512, stop_reason=reason))
    assert monitor.sent == []
