"""Whole stories: an agent in trouble, what it is told, what it does, and how it ends."""

from __future__ import annotations

from typing import Any

from leadline.contracts.orders import Mode
from leadline.detection.condition import condition
from leadline.detection.policy import FleetPolicy, Policy
from leadline.detection.rules import RULE_NAMES, UNHEEDED
from tests.scenarios.timeline import At, Timeline, Want
from tests.support.core import declared

BAD: dict[str, Any] = {"summary_depth_max": 2, "distinct_source_spans": 90, "query_cosine_retained": 0.6}
GOOD: dict[str, Any] = {"summary_depth_max": 2, "distinct_source_spans": 150, "query_cosine_retained": 0.5}


def only(*rules: str) -> Policy:
    """Command times of a minute and five, three attempts; just ``rules`` and escalation."""
    modes: dict[str, Mode] = dict.fromkeys(sorted({*RULE_NAMES} - {*rules, UNHEEDED}), "off")
    return Policy(default=FleetPolicy(modes=modes, command_ttl_ms=60_000, effect_ttl_ms=300_000, attempts=3))


def test_halted_rehydrated_resumed() -> None:
    """The loop closes: halt, accepted, a round after the rehydration, resume, and its acknowledgement."""
    monitor = Timeline(
        At(0).start(),
        At(20).round(1, 0.5),
        At(40).round(2, 0.2, **BAD),
        Want("inversion", at=2, command="halt"),
        At(41).ack("halt", "accepted"),
        At(50).ack("halt", "done"),
        At(60).round(3, 0.35, trigger="rehydrate", **GOOD),
        Want(command="resume"),
        At(61).ack("resume", "done"),
        At(80).round(4, 0.34, **GOOD),
        At(3600).silence(),
        policy=only("inversion"),
    ).play()
    assert monitor.state().incidents == ()
    assert condition(monitor.state()) == "healthy"


def test_rehydrated_by_half_then_by_enough() -> None:
    """In between the incident stands and no second command is sent."""
    Timeline(
        At(20).round(1, 0.5),
        At(40).round(2, 0.2, **BAD),
        Want("inversion", at=2, command="halt"),
        At(41).ack("halt"),
        At(60).round(3, 0.27, **GOOD),
        At(80).round(4, 0.29, **GOOD),
        At(100).round(5, 0.30, **GOOD),
        Want(command="resume"),
        At(101).ack("resume"),
        policy=only("inversion"),
    ).play()


def test_an_agent_that_never_answers_is_stopped_after_three_minutes() -> None:
    Timeline(
        At(20).round(1, 0.5),
        At(40).round(2, 0.2, **BAD),
        Want("inversion", at=2, command="halt"),
        At(99).silence(),
        Want(command="halt", attempt=2),
        At(159).silence(),
        Want(command="halt", attempt=3),
        At(219).silence(),
        Want("unheeded", at=2, command="stop-agent"),
        At(221).ack("stop-agent", "done"),
        At(230).end(),
        At(100_000).silence(),
        policy=only("inversion"),
    ).play()


def test_an_agent_that_says_yes_and_does_nothing_is_stopped() -> None:
    """Acknowledged without effect: three measurements each time."""
    bad = dict(BAD, distinct_source_spans=89)
    rounds = iter(range(3, 12))
    steps: list[Any] = [At(20).round(1, 0.5), At(40).round(2, 0.2, **BAD), Want("inversion", at=2, command="halt")]
    for attempt in (2, 3, 4):
        now = 40 * attempt - 30
        steps += [At(now).ack("halt", "done"), *(At(now + 10 * n).round(next(rounds), 0.2, **bad) for n in range(1, 4))]
        steps.append(Want(command="halt", attempt=attempt) if attempt < 4 else Want("unheeded", at=11, command="stop-agent"))
    Timeline(*steps, policy=only("inversion")).play()


def test_a_level_is_retried_with_the_lost_fact_named_and_kept() -> None:
    """The credential constraint of the truncation-collapse document: gone at L3, summarized again, kept."""
    monitor = Timeline(
        At(0).start(declared("no-rotation", fact_class="constraint", floor=1.0)),
        At(10).checkpoint(1, {"no-rotation": "verbatim"}),
        At(20).checkpoint(2, {"no-rotation": "abstracted"}),
        At(30).checkpoint(3, {"no-rotation": "absent"}),
        Want("recall-floor", command="retry-level"),
        At(31).ack("retry-level"),
        At(40).checkpoint(3, {"no-rotation": "verbatim"}),
        Want(command="resume"),
        At(41).ack("resume", "done"),
        At(3600).silence(),
        policy=only("recall-floor"),
    ).play()
    retry = monitor.commands[0]
    assert (retry.parameters.level, retry.parameters.facts) == (3, ["no-rotation"])


def test_a_capped_agent_pays_the_tokens_and_goes_on() -> None:
    deep: dict[str, Any] = {"summary_depth_max": 3, "max_depth": 3}
    Timeline(
        *(At(20 * n).round(n, 0.5, **deep) for n in range(1, 7)),
        Want("depth-pin", at=6, command="cap-depth"),
        At(121).ack("cap-depth"),
        At(140).round(7, 0.5, summary_depth_max=2, max_depth=3),
        Want(command="resume"),
        At(141).ack("resume"),
        *(At(20 * n).round(n, 0.5, summary_depth_max=2, max_depth=2) for n in range(8, 30)),
        policy=only("depth-pin"),
    ).play()


def test_a_crash_and_a_new_epoch_leave_the_old_trouble_behind() -> None:
    Timeline(
        At(20).round(1, 0.5),
        At(40).round(2, 0.2, **BAD),
        Want("inversion", at=2, command="halt"),
        At(50).start(epoch=1),
        At(60).round(1, 0.5, epoch=1),
        At(3600).silence(),
        policy=only("inversion"),
    ).play()
