"""What people do by hand: the same life as any other command, with who and why; and silences."""

from __future__ import annotations

from typing import Any

import pytest

from leadline.contracts.manual import Manual, Silence
from leadline.contracts.orders import Parameters
from leadline.contracts.times import format_ms
from leadline.detection.condition import condition
from leadline.detection.policy import FleetPolicy, Policy
from tests.support.core import START, WHO, Monitor, ack, end, policy, round_


def by_hand(action: str = "halt", number: int = 1, **changes: Any) -> Manual:
    said = {"event_id": f"m{number}", "action": action, "who": "ada", "why": "it deletes things"}
    return Manual(**WHO | said | changes)


def inverted(monitor: Monitor) -> None:
    """Two rounds, the second of which inverts."""
    monitor.send(round_(1, 0.60, distinct_source_spans=200, query_cosine_retained=0.5, summary_depth_max=2))
    monitor.send(round_(2, 0.24, distinct_source_spans=150, query_cosine_retained=0.6, summary_depth_max=2))


def test_a_halt_by_hand_is_told_commanded_and_says_who_and_why() -> None:
    monitor = Monitor()
    monitor.send(round_(1))
    violation, command = monitor.send(by_hand())
    assert monitor.told() == ["manual!", "halt#1"]
    assert violation.message == "halted by hand by ada: it deletes things"  # type: ignore[union-attr]
    assert violation.evidence == {"who": "ada"}  # type: ignore[union-attr]
    assert violation.caused_by.event_id == "m1"
    assert command.reason == "halted by hand by ada: it deletes things"
    assert command.parameters == Parameters()  # type: ignore[union-attr]


def test_it_stands_whatever_the_rounds_say_until_somebody_releases_it() -> None:
    monitor = Monitor()
    monitor.send(round_(1))
    monitor.send(by_hand())
    monitor.send(ack(monitor.commands[-1]))
    assert condition(monitor.state()) == "halted"
    for number in range(2, 8):
        monitor.send(round_(number))
    assert condition(monitor.state()) == "halted"
    (resume,) = monitor.send(by_hand("resume", 2, who="bob", why="it was a drill"))
    assert resume.reason == "released by hand by bob: it was a drill"
    monitor.send(ack(monitor.commands[-1], "done"))
    assert monitor.state().incidents == ()
    assert monitor.told() == ["manual!", "halt#1", "resume#1"]


def test_an_agent_that_does_not_answer_is_told_again_and_stopped() -> None:
    """The lifecycle is the same: three attempts a minute apart, then the agent is stopped."""
    monitor = Monitor()
    monitor.send(round_(1))
    monitor.send(by_hand())
    for _ in range(3):
        monitor.tick(60_000)
    assert monitor.told() == ["manual!", "halt#1", "halt#2", "halt#3", "unheeded!", "stop-agent#1"]


def test_twice_is_once() -> None:
    monitor = Monitor()
    monitor.send(round_(1))
    monitor.send(by_hand())
    assert monitor.send(by_hand(number=2, who="bob")) == []
    monitor.send(by_hand("resume", 3))
    assert monitor.send(by_hand("resume", 4)) == []


def test_another_halt_after_the_release_is_another_incident() -> None:
    monitor = Monitor()
    monitor.send(round_(1))
    for number in (1, 3):
        monitor.send(by_hand("halt", number))
        monitor.send(by_hand("resume", number + 1))
        monitor.send(ack(monitor.commands[-1], "done"))
    assert len({one.incident_id for one in monitor.violations}) == 2


def test_a_rules_own_incident_is_released_by_naming_it() -> None:
    monitor = Monitor()
    inverted(monitor)
    assert monitor.send(by_hand("resume", 1)) == [], "what a rule halted is not released by releasing what a person did"
    (resume,) = monitor.send(by_hand("resume", 2, rule="inversion"))
    assert (resume.kind, resume.rule) == ("resume", "inversion")  # type: ignore[union-attr]


def test_a_release_that_names_an_incident_releases_no_other() -> None:
    monitor = Monitor()
    monitor.send(round_(1))
    monitor.send(by_hand())
    assert monitor.send(by_hand("resume", 2, incident_id="another")) == []
    (resume,) = monitor.send(by_hand("resume", 3, incident_id=monitor.violations[0].incident_id))
    assert resume.kind == "resume"  # type: ignore[union-attr]


def test_a_copy_of_what_was_done_by_hand_does_nothing() -> None:
    monitor = Monitor()
    monitor.send(round_(1))
    monitor.send(by_hand())
    monitor.send(by_hand("resume", 2))
    monitor.send(ack(monitor.commands[-1], "done"))
    assert monitor.send(by_hand()) == []
    assert (monitor.state().counts.duplicates, monitor.state().incidents) == (1, ())


def test_nobody_was_heard_of_and_nothing_was_measured() -> None:
    monitor = Monitor()
    monitor.send(round_(1))
    seen = monitor.state().last_seen
    monitor.now += 5_000
    monitor.send(by_hand())
    assert monitor.state().last_seen == seen
    assert len(monitor.state().window) == 1


def test_a_session_that_is_not_known_or_has_ended_is_not_halted() -> None:
    monitor = Monitor()
    assert monitor.send(by_hand()) == []
    assert monitor.ignored == {"unknown-session": 1}
    monitor.send(round_(1))
    monitor.send(end())
    assert monitor.send(by_hand(number=2)) == []


def test_a_replay_makes_the_same_ids() -> None:
    monitor, again = Monitor(), Monitor()
    for one in (monitor, again):
        one.send(round_(1))
        one.send(by_hand())
    assert [one.violation_id for one in monitor.violations] == [one.violation_id for one in again.violations]
    assert monitor.read(monitor.log) == [], "applied already"


def silence(**changes: Any) -> Silence:
    said = {"silence_id": "x1", "rule": "inversion", "fleet": "f1", "at": format_ms(START), "who": "ada", "why": "known"}
    return Silence(**said | {"expires_at": format_ms(START + 60_000)} | changes)


def silenced(*silences: Silence, **changes: Any) -> Monitor:
    return Monitor(policy=Policy(default=policy(**changes).default, silences=silences))


@pytest.mark.parametrize("whom", [{"fleet": "f1"}, {"fleet": "", "session_id": "s1", "agent_id": "a1"}], ids=["fleet", "session"])
def test_a_silenced_rule_is_flagged_and_commands_nothing(whom: dict[str, str]) -> None:
    monitor = silenced(silence(**whom))
    inverted(monitor)
    assert [(one.rule, one.mode, one.action) for one in monitor.violations if one.rule == "inversion"] == [
        ("inversion", "shadow", "halt")
    ]
    assert monitor.commands == []


def test_a_silence_of_a_fleet_holds_from_a_sessions_first_event_on() -> None:
    """Which nothing was known of before: its fleet is what the event says."""
    monitor = silenced(silence(rule="provenance-floor"))
    monitor.send(round_(1, 0.60, distinct_source_spans=1, session_start_spans=200, summary_depth_max=2))
    assert [(one.rule, one.mode) for one in monitor.violations if one.rule == "provenance-floor"] == [
        ("provenance-floor", "shadow")
    ]
    assert monitor.commands == []


@pytest.mark.parametrize(
    "changes",
    [
        {"expires_at": format_ms(START)},
        {"expires_at": "tomorrow"},
        {"lifted": True},
        {"fleet": "another"},
        {"fleet": "", "session_id": "s1", "agent_id": "another"},
        {"fleet": "", "session_id": "another", "agent_id": "a1"},
        {"fleet": ""},
        {"rule": "drift"},
    ],
    ids=["expired", "no-end", "lifted", "other-fleet", "other-agent", "other-session", "nobody", "other-rule"],
)
def test_a_silence_that_does_not_hold_changes_nothing(changes: dict[str, Any]) -> None:
    monitor = silenced(silence(**changes))
    inverted(monitor)
    assert [one.kind for one in monitor.commands] == ["halt"]


def test_what_is_halted_when_the_silence_begins_is_released() -> None:
    """As where a policy no longer enforces the rule."""
    monitor = Monitor()
    inverted(monitor)
    monitor.policy = Policy(silences=(silence(),))
    monitor.send(round_(3, 0.24, distinct_source_spans=150, query_cosine_retained=0.6, summary_depth_max=2))
    assert [one.kind for one in monitor.commands] == ["halt", "resume"]


def test_a_silence_does_not_raise_a_rule_that_only_warns_or_is_off() -> None:
    for mode in ("warn", "off"):
        monitor = silenced(silence(), modes={"inversion": mode})
        inverted(monitor)
        assert {one.mode for one in monitor.violations if one.rule == "inversion"} <= {mode}
    assert FleetPolicy().mode("inversion") == "enforce"
