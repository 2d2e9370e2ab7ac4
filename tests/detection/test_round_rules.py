"""``no-progress`` and ``ungrounded-summary``: tables that reach every reason."""

from __future__ import annotations

from typing import Any

import pytest

from leadline.contracts.codec import Event
from leadline.contracts.events import Measures, Round, Summary
from leadline.detection.observe import Finding
from leadline.detection.policy import FleetPolicy
from leadline.detection.rules import no_progress, ungrounded_summary
from leadline.detection.rules.base import Decision
from tests.detection.seen import Seen, watch
from tests.support.core import round_, start

BUDGET = 100_000


def pass_(
    number: int,
    before: int | None,
    after: int,
    *,
    raw_before: int | None = None,
    spans_before: int = 200,
    budget: int = BUDGET,
    raw: int = 40_000,
    **changes: Any,
) -> Round:
    """A pass over ``before`` tokens that left ``after``, of which ``raw`` are raw."""
    measures = None
    if before is not None:
        raw_then = min(before, raw if raw_before is None else raw_before)
        measures = Measures(raw_tokens=raw_then, summary_tokens=before - raw_then, distinct_source_spans=spans_before)
    given: dict[str, Any] = {
        "raw_tokens": min(raw, after),
        "summary_tokens": after - min(raw, after),
        "before": measures,
        "token_budget": budget,
    }
    return round_(number, **given | changes)


def spinning(count: int, first: int = 2, **changes: Any) -> list[Event]:
    """Passes from 98,000 to 95,000 tokens with nothing raw coming in between."""
    return [
        pass_(1, 120_000, 95_000, raw_before=65_000, **changes),
        *(pass_(first + n, 98_000, 95_000, **changes) for n in range(count)),
    ]


STALL: list[tuple[str, list[Event], str]] = [
    ("a pass that frees what came", [pass_(1, 110_000, 95_000)], "progress"),
    ("before not reported, within the budget", [pass_(1, None, 95_000)], "progress"),
    ("neither before nor a budget", [pass_(1, None, 95_000, budget=0)], "before-not-reported"),
    ("skipped", [pass_(1, 95_000, 95_000, outcome="skipped")], "no-pass-ran"),
    ("a hold", [pass_(1, 95_000, 95_000, trigger="hold")], "no-pass-ran"),
    ("a rehydration grows the context, as it should", [pass_(1, 60_000, 101_000, trigger="rehydrate")], "no-pass-ran"),
    ("a hold after which the context is smaller", [pass_(1, None, 95_000), pass_(2, None, 90_000, trigger="hold")], "progress"),
    # It grew.
    ("grew past the budget", [pass_(1, 100_500, 101_000)], "context-grew!"),
    ("grew within the budget: a summary was added", [pass_(1, 60_000, 66_000)], "progress"),
    ("more than doubled", [pass_(1, 30_029, 197_548, budget=200_000)], "context-grew!"),
    ("more than doubled far below the budget", [pass_(1, 1_000, 3_000)], "progress"),
    ("grew, budget not known", [pass_(1, 50_000, 50_001, budget=0)], "context-grew!"),
    ("from nothing", [pass_(1, 0, 48_573)], "progress"),
    # It frees nothing.
    ("over the budget, frees 1 %, once", [pass_(1, 104_000, 103_000)], "stalled-within-allowance"),
    ("twice", [pass_(1, 104_000, 103_000), pass_(2, 104_000, 103_000)], "frees-nothing!"),
    ("over the budget without a before, thrice", [pass_(n, None, 103_000) for n in (1, 2, 3)], "frees-nothing!"),
    ("over the budget but on its way down", [pass_(1, None, 120_000), pass_(2, None, 110_000)], "progress"),
    ("frees 2 % though over the budget", [pass_(n, 106_000, 103_500, raw_before=43_000) for n in (1, 2, 3)], "progress"),
    (
        "small steps at the budget are continuous eviction",
        [pass_(n, 100_600, 100_000, raw_before=40_600, spans_before=200 + n) for n in range(1, 9)],
        "progress",
    ),
    ("nothing to do within the budget", [pass_(n, 50_000, 50_000) for n in range(1, 9)], "progress"),
    (
        "a pass that got somewhere in between",
        [*[pass_(n, 104_000, 103_000) for n in (1, 2)], pass_(3, 104_000, 90_000)],
        "progress",
    ),
    # It repeats at once.
    ("nothing came, once", spinning(1), "stalled-within-allowance"),
    ("nothing came, twice", spinning(2), "repeats-at-once!"),
    ("raw text came in between", [pass_(n, 98_000, 95_000, raw_before=43_000) for n in range(1, 6)], "progress"),
    ("spans came in between", [pass_(n, 98_000, 95_000, spans_before=201) for n in range(1, 6)], "progress"),
    (
        "idle work that makes it smaller each time",
        [pass_(n, 98_000 - 3000 * n, 95_000 - 3000 * n) for n in range(1, 6)],
        "progress",
    ),
    (
        "a skipped round neither counts nor ends it",
        [*spinning(1), pass_(3, 95_000, 95_000, outcome="skipped"), pass_(4, 98_000, 95_000)],
        "repeats-at-once!",
    ),
    # It fails.
    ("failed once", [pass_(1, 90_000, 90_000), pass_(2, None, 0, outcome="failed")], "stalled-within-allowance"),
    ("failed three times", [pass_(n, None, 0, outcome="failed") for n in (1, 2, 3)], "compaction-failed!"),
    ("done, then failed", [pass_(1, 120_000, 90_000), pass_(1, None, 0, outcome="failed")], "compaction-failed!"),
    # It cannot.
    ("the fixed part fills the budget", [pass_(1, 7_884, 7_884, budget=131_072, fixed_tokens=131_072)], "no-headroom!"),
    ("the fixed part is over the budget", [pass_(1, 7_884, 7_884, budget=131_072, fixed_tokens=140_000)], "no-headroom!"),
    ("the fixed part leaves room", [pass_(1, 7_884, 7_884, budget=131_072, fixed_tokens=100_000)], "progress"),
    ("a new epoch begins at none", [*spinning(1), pass_(1, 98_000, 95_000, epoch=1)], "progress"),
]


def listed(*reachable: int | None) -> list[Summary]:
    return [Summary(id=f"n{n}", depth=n + 1, tokens=10, fan_out=3, reachable=value) for n, value in enumerate(reachable)]


UNGROUNDED: list[tuple[str, list[Event], str]] = [
    ("counted none", [round_(1, ungrounded_summaries=0)], "all-summaries-grounded"),
    ("counted one", [round_(1, ungrounded_summaries=1)], "summary-without-leaf!"),
    ("listed with a leaf", [round_(1, summaries=listed(1))], "all-summaries-grounded"),
    ("listed without", [round_(1, summaries=listed(3, 0), summary_depth_max=2)], "summary-without-leaf!"),
    ("counted none yet listed one", [round_(1, ungrounded_summaries=0, summaries=listed(0))], "summary-without-leaf!"),
    ("listed without saying", [round_(1, summaries=listed(None))], "not-reported"),
    ("nothing said", [round_(1)], "not-reported"),
    ("nothing said, and there is no summary", [round_(1, 1.0, summary_depth_max=0)], "all-summaries-grounded"),
]
TABLES = {"no-progress": STALL, "ungrounded-summary": UNGROUNDED}
CASES = [pytest.param(rule, events, said, id=f"{rule}: {name}") for rule, table in TABLES.items() for name, events, said in table]


@pytest.mark.parametrize(("rule", "events", "said"), CASES)
def test_the_rule_says(rule: str, events: list[Event], said: str) -> None:
    assert watch(*events).reasons.get(rule, "") == said


@pytest.mark.parametrize("module", [no_progress, ungrounded_summary], ids=lambda module: module.RULE.name)
def test_the_tables_reach_every_reason(module: Any) -> None:
    known = {item.reason + "!" * item.fired for item in vars(module).values() if isinstance(item, Decision)}
    assert known == {said for _, _, said in TABLES[module.RULE.name]}


def finding(seen: Seen, rule: str = "no-progress") -> Finding:
    (found,) = [item for item in seen.last.findings if item.rule == rule]
    return found


def test_the_alarm_gives_before_after_and_the_thresholds() -> None:
    found = finding(watch(pass_(1, 104_000, 103_000), pass_(2, 104_000, 103_000)))
    assert found.message == (
        "compaction frees nothing and stays over its budget: 104000 -> 103000 tokens (budget 100000), 2 times in a row"
    )
    assert found.evidence == {
        "stalled_rounds": 2,
        "tokens_before": 104_000,
        "tokens_after": 103_000,
        "token_budget": 100_000,
    }
    assert found.threshold == {
        "stall_freed_fraction": 0.01,
        "stall_rounds": 2,
        "stall_halt_rounds": 3,
        "budget_tolerance": 0.04,
    }


@pytest.mark.parametrize(
    ("events", "action"),
    [
        (spinning(2), "none"),
        (spinning(3), "halt"),
        ([pass_(n, 104_000, 103_000) for n in range(1, 7)], "none"),
        ([pass_(n, 106_000, 105_500) for n in range(1, 3)], "none"),
        ([pass_(n, 106_000, 105_500) for n in range(1, 4)], "halt"),
        ([pass_(n, 104_000 + n, 105_000) for n in range(1, 3)], "none"),
        ([pass_(n, 104_000 + n, 105_000) for n in range(1, 4)], "halt"),
        ([pass_(n, None, 0, outcome="failed") for n in range(1, 9)], "none"),
        ([pass_(n, 9_000, 9_000, budget=8_000, fixed_tokens=8_000) for n in range(1, 3)], "none"),
    ],
    ids=["spins twice", "spins on", "held within 4 %", "over twice", "over on", "grew twice", "grew on", "fails", "no headroom"],
)
def test_it_halts_past_a_count_and_only_where_stopping_helps(events: list[Event], action: str) -> None:
    found = finding(watch(*events))
    assert found.action == action
    assert found.parameters.plan is None
    assert found.parameters.target_raw_ratio is None, "putting text back would feed the loop"


def test_growth_is_measured_and_a_divergence_of_the_counters_is_shown() -> None:
    """190,000 after the last pass, 30,029 before this one, 197,548 after it."""
    found = finding(watch(pass_(1, None, 190_000, budget=200_000), pass_(2, 30_029, 197_548, budget=200_000)))
    assert found.decision.reason == "context-grew"
    assert (found.evidence["tokens_before"], found.evidence["tokens_after"]) == (30_029, 197_548)
    assert found.evidence["counters_differ_by"] == 159_971


def test_no_headroom_is_told_as_configuration() -> None:
    seen = watch(pass_(1, 7_884, 7_884, budget=131_072, fixed_tokens=131_072, summary_depth_max=2))
    assert "configuration" in finding(seen).message
    assert seen.reasons["inversion"] != "boundary-crossed!"


def test_failures_are_told_for_their_own_round() -> None:
    found = finding(watch(pass_(1, 120_000, 90_000), *(pass_(n, None, 0, outcome="failed") for n in (2, 3, 4))))
    assert found.round == 4
    assert "failed 3 times in a row" in found.message


def test_the_allowance_is_the_fleets_own() -> None:
    assert "no-progress" in watch(*spinning(1), policy=FleetPolicy(stall_rounds=1)).fired
    assert "no-progress" not in watch(*spinning(9), policy=FleetPolicy(stall_rounds=10)).fired


def test_an_ungrounded_summary_is_to_be_rehydrated_or_dropped() -> None:
    found = finding(watch(start(), round_(1, summaries=listed(3, 0, 0), summary_depth_max=3)), "ungrounded-summary")
    assert found.action == "halt"
    assert found.evidence == {"ungrounded_summaries": 2, "summary_ids": ["n1", "n2"]}
    assert [target.summary_id for target in found.parameters.plan or ()] == ["n1", "n2"]
    assert found.parameters.drop_ungrounded
    assert found.message.startswith("2 retained summaries have no reachable source span")


def test_a_count_alone_names_no_summary() -> None:
    found = finding(watch(round_(1, ungrounded_summaries=1)), "ungrounded-summary")
    assert found.parameters.plan is None
    assert found.message.startswith("1 retained summary has no reachable source span")
