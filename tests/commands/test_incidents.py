"""Incidents and their commands: opened once, updated while they stand, ended by measurements, modes, restarts, bounds."""

from __future__ import annotations

import pytest

from leadline.contracts import limits
from leadline.contracts.events import Summary
from leadline.contracts.orders import Command, Mode, Violation
from leadline.contracts.times import parse_ms
from leadline.detection.condition import condition
from tests.commands.support import TTL, inverted, only, sink
from tests.support.core import START, Monitor, ack, checkpoint, end, round_, start

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
