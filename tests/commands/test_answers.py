"""What an agent answers, does and leaves undone: acknowledgements, effect, deadlines, release."""

from __future__ import annotations

from typing import Any

import pytest

from leadline.contracts.session_state import Stage
from leadline.contracts.times import parse_ms
from leadline.detection.condition import condition
from tests.commands.support import EFFECT, TTL, inverted, only, sink, stage
from tests.support.core import START, Monitor, ack, tick

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
