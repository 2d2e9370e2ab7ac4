"""Stories of the rules that look at more than one round: what is told when, what is commanded, how it ends."""

from __future__ import annotations

from typing import Any

from leadline.contracts.events import Measures, Round
from leadline.contracts.orders import Mode
from leadline.detection.policy import FleetPolicy, Policy
from leadline.detection.rules import RULE_NAMES, UNHEEDED
from tests.scenarios.timeline import At, Entry, Timeline, Want
from tests.support.core import Monitor, declared, round_

BUDGET = 100_000


def only(*rules: str, **changes: Any) -> Policy:
    modes: dict[str, Mode] = dict.fromkeys(sorted({*RULE_NAMES} - {*rules, UNHEEDED}), "off")
    return Policy(default=FleetPolicy(modes=modes | changes.pop("modes", {}), **changes))


def eroding(number: int, **changes: Any) -> Entry:
    """0.56 at round 1, 0.02 less each round; 8 spans less each round."""
    return At(20 * number).round(number, 0.58 - 0.02 * number, distinct_source_spans=208 - 8 * number, **changes)


def pass_(number: int, before: int, after: int, came: int = 0) -> Entry:
    """A pass to ``after`` tokens, of which 40,000 are raw; ``came``: raw tokens that were there before it on top."""
    raw = 40_000 + came
    measures = Measures(raw_tokens=raw, summary_tokens=before - raw, distinct_source_spans=200 + came)
    given: dict[str, Any] = {"raw_tokens": 40_000, "summary_tokens": after - 40_000, "before": measures, "token_budget": BUDGET}
    return At(20 * number).round(number, **given)


def test_erosion_is_told_rounds_before_the_inversion() -> None:
    """Below one half at round 5, in order over six rounds at round 6; below 0.25 at round 17, where it inverts."""
    fallen: dict[str, Any] = {"summary_depth_max": 2}
    monitor = Timeline(
        *(eroding(n, query_cosine_retained=0.4 + n / 100, **fallen) for n in range(1, 7)),
        Want("erosion", at=6),
        *(eroding(n, query_cosine_retained=0.4 + n / 100, **fallen) for n in range(7, 18)),
        Want("inversion", at=17, command="halt"),
        policy=only("erosion", "inversion"),
    ).play()
    warned, inverted = monitor.violations
    assert warned.evidence["rounds_to_raw_ratio"] == inverted.round - warned.round == 11  # type: ignore[operator]


def test_erosion_ends_after_three_rounds_without_a_fall() -> None:
    steady = [At(200 + 20 * n).round(6 + n, 0.60, distinct_source_spans=160) for n in range(1, 4)]
    monitor = Timeline(*(eroding(n) for n in range(1, 7)), Want("erosion", at=6), *steady, policy=only("erosion")).play()
    assert monitor.state().incidents == ()


def test_a_ratio_that_hovers_around_one_half_does_not_flap() -> None:
    hover = [At(200 + 20 * n).round(6 + n, 0.50 if n % 2 else 0.44, distinct_source_spans=160 - n) for n in range(1, 30)]
    Timeline(*(eroding(n) for n in range(1, 7)), Want("erosion", at=6), *hover, policy=only("erosion")).play()


def test_masked_is_told_while_the_raw_ratio_is_fine() -> None:
    rounds = [
        At(20 * n).round(n, 0.7, distinct_source_spans=208 - 8 * n, query_cosine_retained=0.4 + n / 50) for n in range(1, 7)
    ]
    monitor = Timeline(*rounds, Want("masked", at=6), policy=only("masked")).play()
    assert "salience rose 0.42 -> 0.52 while source spans fell 200 -> 160" in monitor.violations[0].message


def test_thrash_is_one_alarm_and_one_halt_without_a_rehydration() -> None:
    """Rounds 7 to 10 at 20 s: 0.98 of the limit before, 0.95 after, nothing in between; then more of the same."""
    monitor = Timeline(
        pass_(6, 130_000, 95_000, came=35_000),
        pass_(7, 98_000, 95_000),
        pass_(8, 98_000, 95_000),
        Want("no-progress", at=8),
        pass_(9, 98_000, 95_000),
        Want(command="halt"),
        *(pass_(n, 98_000, 95_000) for n in range(10, 12)),
        policy=only("no-progress"),
    ).play()
    (halt,) = monitor.commands
    assert halt.parameters.plan is None
    assert halt.parameters.target_raw_ratio is None
    assert halt.parameters.max_restore_tokens is None


THRASH = (
    pass_(1, 120_000, 95_000, came=25_000),
    pass_(2, 98_000, 95_000),
    pass_(3, 98_000, 95_000),
    Want("no-progress", at=3),
    pass_(4, 98_000, 95_000),
    Want(command="halt"),
)


def test_a_halt_for_spinning_is_obeyed_by_silence() -> None:
    """Accepted, and no pass comes: nothing is sent again, nobody is stopped."""
    Timeline(*THRASH, At(81).ack("halt", "done"), At(80_000).silence(), policy=only("no-progress")).play()


def test_holding_is_effect_and_a_smaller_context_is_the_end() -> None:
    holds = [At(80 + 20 * n).round(4 + n, raw_tokens=40_000, summary_tokens=55_000, trigger="hold") for n in range(1, 9)]
    monitor = Timeline(
        *THRASH,
        At(81).ack("halt"),
        *holds,
        At(300).round(13, raw_tokens=30_000, summary_tokens=55_000, trigger="hold"),
        Want(command="resume"),
        At(301).ack("resume", "done"),
        policy=only("no-progress"),
    ).play()
    assert monitor.state().incidents == ()


def test_spinning_on_in_spite_of_the_halt_is_escalated() -> None:
    Timeline(
        *THRASH,
        At(81).ack("halt"),
        *(pass_(n, 98_000, 95_000) for n in (5, 6, 7)),
        Want("unheeded", at=7, command="stop-agent"),
        policy=only("no-progress", attempts=1),
    ).play()


def test_an_ungrounded_summary_is_halted_and_released_once_it_is_gone() -> None:
    Timeline(
        At(20).round(1, ungrounded_summaries=0),
        At(40).round(2, ungrounded_summaries=1),
        Want("ungrounded-summary", at=2, command="halt"),
        At(41).ack("halt", "done"),
        At(60).round(3, ungrounded_summaries=0, trigger="rehydrate"),
        Want(command="resume"),
        At(61).ack("resume"),
        policy=only("ungrounded-summary"),
    ).play()


def test_a_cut_off_summary_is_retried_and_whole_the_second_time() -> None:
    Timeline(
        At(10).checkpoint(1, output_tokens=4096, output_cap=4096, stop_reason="length"),
        Want("silent-drop", command="retry-level"),
        At(11).ack("retry-level"),
        At(20).checkpoint(1, output_tokens=2000, output_cap=4096, stop_reason="stop"),
        Want(command="resume"),
        At(21).ack("resume"),
        policy=only("silent-drop"),
    ).play()


def test_six_empty_summaries_are_one_alarm() -> None:
    """60 tokens, no constraint left of nine, six times within nine minutes."""
    names = [f"C{n}" for n in range(9)]
    whole = At(10).checkpoint(1, dict.fromkeys(names, "verbatim"), output_tokens=900)
    empty = [At(100 + 90 * n).checkpoint(1, {}, output_tokens=60) for n in range(6)]
    monitor = Timeline(
        At(0).start(declared(*names)),
        whole,
        empty[0],
        Want("recall-floor"),
        *empty[1:],
        policy=only("recall-floor", "silent-drop", modes={"recall-floor": "warn"}),
    ).play()
    assert len(monitor.violations[0].evidence["lost_facts"]) == 9  # type: ignore[arg-type]


def test_exactly_the_cap_three_times_is_likely_a_cut() -> None:
    Timeline(
        *(At(10 * n).checkpoint(1, output_tokens=4096) for n in (1, 2, 3)),
        Want("silent-drop", command="retry-level"),
        policy=only("silent-drop"),
    ).play()


def test_silence_is_told_and_the_open_alarm_stays() -> None:
    """In alarm, then nothing: still open, and the session is marked as unobserved."""
    monitor = Timeline(
        At(20).round(1, ungrounded_summaries=1),
        Want("ungrounded-summary", at=1),
        At(20 + 899).silence(),
        Want("unobserved"),
        At(20 + 901).silence(),
        At(100_000).silence(),
        policy=only("ungrounded-summary", "unobserved", modes={"ungrounded-summary": "warn"}),
    ).play()
    assert [item.rule for item in monitor.state().incidents] == ["ungrounded-summary", "unobserved"]


# The policy changes while sessions run -----------------------------------------------------------------------------------


def spins(number: int) -> Round:
    measures = Measures(raw_tokens=40_000, summary_tokens=58_000, distinct_source_spans=200)
    return round_(number, raw_tokens=40_000, summary_tokens=55_000, before=measures, token_budget=BUDGET)


def halted() -> Monitor:
    monitor = Monitor(only("no-progress"))
    monitor.send(*(spins(n) for n in range(1, 5)))
    assert monitor.told() == ["no-progress!", "halt#1"]
    return monitor


def test_what_the_policy_no_longer_enforces_is_released() -> None:
    for mode in ("off", "warn", "shadow"):
        monitor = halted()
        monitor.policy = only("no-progress", modes={"no-progress": mode})
        monitor.send(spins(5))
        assert "resume#1" in monitor.told()
        monitor.send(*(spins(n) for n in range(6, 30)))
        assert monitor.told().count("halt#1") == 1


def test_what_the_policy_enforces_from_now_on_is_commanded() -> None:
    monitor = Monitor(only("no-progress", modes={"no-progress": "warn"}))
    monitor.send(*(spins(n) for n in range(1, 9)))
    assert monitor.told() == ["no-progress!"]
    monitor.policy = only("no-progress")
    monitor.send(spins(9))
    assert monitor.told() == ["no-progress!", "halt#1"]


def test_each_verdict_names_the_policy_it_was_made_under_and_its_id_does_not() -> None:
    ids = set()
    for version in ("2026-11-30", "2026-12-01"):
        monitor = Monitor(Policy(version=version))
        monitor.send(*(spins(n) for n in range(1, 5)))
        assert {item.policy for item in monitor.sent} == {version}
        ids.add(tuple([item.violation_id for item in monitor.violations] + [item.command_id for item in monitor.commands]))
    assert len(ids) == 1
