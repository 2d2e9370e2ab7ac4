"""Incidents of summarizer calls, and what agents report that obey: retries, levels, caps."""

from __future__ import annotations

from typing import Any

import pytest

from leadline.contracts.orders import Command, Violation
from leadline.contracts.session_state import Stage
from tests.commands.support import EFFECT, TTL, only, sink, stage
from tests.support.core import Monitor, ack, checkpoint, declared, round_, start

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
