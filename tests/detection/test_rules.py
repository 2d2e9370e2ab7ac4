"""Each rule's decisions as a table: given these events, the rule says this of the last one.

A reason that ends in ``!`` fired. The tables reach every reason that a rule can give.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from leadline.contracts.codec import Event
from leadline.contracts.events import Checkpoint, Policy, Round, Scorer
from leadline.contracts.session_state import Measurement
from leadline.detection.policy import FleetPolicy
from leadline.detection.rules import (
    CHECKPOINT_RULES,
    PRESENCE_RULES,
    ROUND_RULES,
    RULE_NAMES,
    UNHEEDED,
    budget_open,
    depth_pin,
    drift,
    inversion,
    provenance_floor,
    recall_floor,
)
from leadline.detection.rules.base import Decision, RoundView
from tests.detection.seen import watch
from tests.support.core import checkpoint, declared, round_, start

Case = tuple[str, list[Event], str]


def before(**changes: Any) -> Round:
    """Round 1, from which :func:`falling` falls."""
    return round_(1, 0.26, summary_depth_max=2, distinct_source_spans=100, query_cosine_retained=0.50, **changes)


def falling(ratio: float = 0.24, **changes: Any) -> Round:
    """Round 2: deep, little raw text, spans falling, salience rising."""
    return round_(2, ratio, **{"summary_depth_max": 2, "distinct_source_spans": 99, "query_cosine_retained": 0.51} | changes)


def stated(**policy: Any) -> Event:
    return start(policy=Policy(**policy))


INVERSION: list[Case] = [
    ("all conditions", [before(), falling()], "boundary-crossed!"),
    ("ratio exactly at the floor", [before(), falling(0.25)], "raw-ratio-at-or-above-floor"),
    ("ratio just below", [before(), falling(raw_tokens=249_999, summary_tokens=750_001)], "boundary-crossed!"),
    ("ratio exactly 0.0 is a value", [before(), falling(0.0)], "boundary-crossed!"),
    ("depth 1", [before(), falling(summary_depth_max=1)], "depth-below-2"),
    ("spans equal", [before(), falling(distinct_source_spans=100)], "spans-not-falling"),
    ("spans rising", [before(), falling(distinct_source_spans=101)], "spans-not-falling"),
    ("salience equal", [before(), falling(query_cosine_retained=0.50)], "salience-not-rising"),
    ("salience falling", [before(), falling(query_cosine_retained=0.49)], "salience-not-rising"),
    ("salience negative but rising", [before(), falling(query_cosine_retained=0.5 + 1e-12)], "boundary-crossed!"),
    ("no salience now", [before(), falling(query_cosine_retained=None)], "salience-not-reported"),
    (
        "no salience before",
        [round_(1, 0.26, distinct_source_spans=100, query_cosine_retained=None), falling()],
        "salience-not-reported",
    ),
    ("first round", [falling()], "no-previous-round"),
    ("first measured round after an unmeasured one", [round_(1, raw_tokens=0, summary_tokens=0), falling()], "no-previous-round"),
    ("first round of a new epoch", [before(), falling(epoch=1)], "no-previous-round"),
    ("scorer penalizes depth", [stated(scorer=Scorer(penalizes_depth=True)), before(), falling()], "scorer-penalizes-depth"),
    ("scorer does not", [stated(scorer=Scorer(penalizes_depth=False)), before(), falling()], "boundary-crossed!"),
    ("scorer not stated", [stated(scorer=Scorer(kind="bm25")), before(), falling()], "boundary-crossed!"),
    ("eviction at overflow only", [stated(eviction="overflow"), before(), falling()], "eviction-only-at-overflow"),
    ("eviction continuous", [stated(eviction="continuous"), before(), falling()], "boundary-crossed!"),
    ("depth rose only now", [before(), falling(summary_depth_max=5)], "boundary-crossed!"),
    ("a gap in between", [before(), falling(round=9)], "boundary-crossed!"),
]

FLOOR: list[Case] = [
    ("one below", [round_(1, summary_depth_max=2, distinct_source_spans=41)], "spans-below-floor!"),
    ("exactly at the floor", [round_(1, summary_depth_max=2, distinct_source_spans=42)], "spans-at-or-above-floor"),
    ("none left", [round_(1, summary_depth_max=2, distinct_source_spans=0)], "spans-below-floor!"),
    ("depth 1", [round_(1, summary_depth_max=1, distinct_source_spans=0)], "depth-below-2"),
    ("depth 0", [round_(1, summary_depth_max=0, distinct_source_spans=0)], "depth-below-2"),
    (
        "no baseline: at least one",
        [round_(1, summary_depth_max=2, session_start_spans=0, distinct_source_spans=0)],
        "spans-below-floor!",
    ),
    (
        "no baseline: one is enough",
        [round_(1, summary_depth_max=2, session_start_spans=0, distinct_source_spans=1)],
        "spans-at-or-above-floor",
    ),
    (
        "the baseline declared at the start counts",
        [start(session_start_spans=1000), round_(1, summary_depth_max=2, distinct_source_spans=199)],
        "spans-below-floor!",
    ),
    (
        "a later, lower baseline does not lower it",
        [
            start(session_start_spans=1000),
            start(session_start_spans=10),
            round_(1, summary_depth_max=2, distinct_source_spans=199),
        ],
        "spans-below-floor!",
    ),
    (
        "a baseline of none is made good by a round's",
        [start(session_start_spans=0), round_(1, summary_depth_max=2, distinct_source_spans=41)],
        "spans-below-floor!",
    ),
    (
        "a new epoch has its own baseline",
        [start(), round_(1, epoch=1, summary_depth_max=2, session_start_spans=5)],
        "spans-at-or-above-floor",
    ),
    (
        "a scorer that penalizes depth does not lift a hard invariant",
        [stated(scorer=Scorer(penalizes_depth=True)), round_(1, summary_depth_max=2, distinct_source_spans=41)],
        "spans-below-floor!",
    ),
]


def deep(count: int, depth: int = 3, first: int = 1, **changes: Any) -> list[Event]:
    """``count`` rounds at ``depth``, the limit being 3."""
    return [round_(first + n, summary_depth_max=depth, max_depth=3, **changes) for n in range(count)]


PIN: list[Case] = [
    ("five rounds", deep(5), "pinned-within-allowance"),
    ("six rounds", deep(6), "pinned-at-depth-limit!"),
    ("broken once", [*deep(5), *deep(1, 2, 6), *deep(5, 3, 7)], "pinned-within-allowance"),
    ("broken once, then six", [*deep(5), *deep(1, 2, 6), *deep(6, 3, 7)], "pinned-at-depth-limit!"),
    ("below the limit", deep(9, 2), "below-depth-limit"),
    ("limit 1", [round_(n, summary_depth_max=1, max_depth=1) for n in range(1, 9)], "depth-below-2"),
    (
        "above the limit counts as at it",
        [round_(n, summary_depth_max=5, max_depth=3) for n in range(1, 7)],
        "pinned-at-depth-limit!",
    ),
    (
        "an unmeasured round neither counts nor breaks",
        [*deep(5), *deep(1, 3, 6, raw_tokens=0, summary_tokens=0), *deep(1, 3, 7)],
        "pinned-at-depth-limit!",
    ),
    (
        "a failed round neither counts nor breaks",
        [*deep(5), *deep(1, 0, 6, outcome="failed"), *deep(1, 3, 7)],
        "pinned-at-depth-limit!",
    ),
    ("a duplicate does not count", [*deep(5), *deep(1, 3, 5)], ""),
    ("a late round does not count", [*deep(4), *deep(1, 3, 6), *deep(1, 3, 5)], ""),
    ("a new epoch begins at none", [*deep(5), *deep(1, 3, 1, epoch=1)], "pinned-within-allowance"),
]

DRIFT: list[Case] = [
    ("low ratio, spans equal", [before(), falling(distinct_source_spans=100)], "raw-ratio-low-spans-stable!"),
    ("low ratio, spans rising", [before(), falling(distinct_source_spans=150)], "raw-ratio-low-spans-stable!"),
    ("depth does not matter", [before(), falling(distinct_source_spans=100, summary_depth_max=0)], "raw-ratio-low-spans-stable!"),
    ("spans falling", [before(), falling(query_cosine_retained=0.1)], "spans-falling"),
    ("ratio at the floor", [before(), falling(0.25, distinct_source_spans=100)], "raw-ratio-at-or-above-floor"),
    ("first round", [falling()], "no-previous-round"),
]

BUDGET: list[Case] = [
    ("closed", [checkpoint(1)], "budget-closed"),
    ("tokens not consumed", [checkpoint(1, consumed_input_tokens=7999)], "input-not-consumed!"),
    ("one span unseen", [checkpoint(1, seen_spans=39)], "spans-unseen!"),
    ("both: spans are named first", [checkpoint(1, seen_spans=0, consumed_input_tokens=0)], "spans-unseen!"),
    ("unseen although tokens agree", [checkpoint(1, source_spans=1551, seen_spans=1125)], "spans-unseen!"),
    ("more consumed than declared", [checkpoint(1, consumed_input_tokens=8001)], "counters-disagree!"),
    ("more seen than there were", [checkpoint(1, seen_spans=41)], "counters-disagree!"),
    (
        "nothing reported",
        [checkpoint(1, declared_input_tokens=None, consumed_input_tokens=None, source_spans=None, seen_spans=None)],
        "not-reported",
    ),
    ("one half of each reported", [checkpoint(1, consumed_input_tokens=None, seen_spans=None)], "not-reported"),
    ("tokens alone close", [checkpoint(1, source_spans=None)], "budget-closed"),
    ("spans alone close", [checkpoint(1, declared_input_tokens=None)], "budget-closed"),
    ("an empty input closes", [checkpoint(1, declared_input_tokens=0, consumed_input_tokens=0)], "budget-closed"),
]

ALL = start(declared("C1", "C2"))
RECALL: list[Case] = [
    ("all kept", [ALL, checkpoint(1, {"C1": "verbatim", "C2": "abstracted"})], "classes-at-or-above-floor"),
    ("one absent", [ALL, checkpoint(1, {"C1": "verbatim", "C2": "absent"})], "class-below-floor!"),
    ("one not named", [ALL, checkpoint(1, {"C1": "verbatim"})], "class-below-floor!"),
    ("an empty list means that nothing survived", [ALL, checkpoint(1, {})], "class-below-floor!"),
    ("no list means not reported", [ALL, checkpoint(1)], "facts-not-reported"),
    ("opaque", [ALL, checkpoint(1, {}, summary_visible=False)], "summary-not-visible"),
    ("status unknown is no loss", [ALL, checkpoint(1, {"C1": "unknown", "C2": "unknown"})], "classes-at-or-above-floor"),
    ("declared drop", [ALL, checkpoint(1, {"C1": "verbatim"}, drops=["C2"])], "classes-at-or-above-floor"),
    (
        "drop declared at an earlier level",
        [ALL, checkpoint(1, {"C1": "verbatim"}, drops=["C2"]), checkpoint(2, {"C1": "verbatim"})],
        "classes-at-or-above-floor",
    ),
    (
        "superseded",
        [ALL, start(declared("C3", supersedes="C2")), checkpoint(1, {"C1": "verbatim", "C3": "verbatim"})],
        "classes-at-or-above-floor",
    ),
    (
        "what supersedes is itself lost",
        [ALL, start(declared("C3", supersedes="C2")), checkpoint(1, {"C1": "verbatim"})],
        "class-below-floor!",
    ),
    (
        "lost at an earlier level",
        [ALL, checkpoint(1, {"C1": "verbatim"}), checkpoint(2, {"C1": "verbatim"})],
        "lost-at-an-earlier-level",
    ),
    ("another lost at this level", [ALL, checkpoint(1, {"C1": "verbatim"}), checkpoint(2, {})], "class-below-floor!"),
    (
        "exactly at a floor of half",
        [start(declared("C1", "C2", floor=0.5)), checkpoint(1, {"C1": "verbatim"})],
        "classes-at-or-above-floor",
    ),
    (
        "below a floor of half",
        [start(declared("C1", "C2", "C3", floor=0.5)), checkpoint(1, {"C1": "verbatim"})],
        "class-below-floor!",
    ),
    ("a floor of none", [start(declared("C1", "C2", floor=0.0)), checkpoint(1, {})], "classes-at-or-above-floor"),
    (
        "each class by its own floor",
        [
            start([*declared("C1"), *declared("T1", "T2", fact_class="task", floor=0.5)]),
            checkpoint(1, {"T1": "verbatim", "T2": "verbatim"}),
        ],
        "class-below-floor!",
    ),
    ("not in this call's input", [ALL, checkpoint(1, {"C1": "verbatim"}, input_facts=["C1"])], "classes-at-or-above-floor"),
    ("in this call's input", [ALL, checkpoint(1, {"C1": "verbatim"}, input_facts=["C1", "C2"])], "class-below-floor!"),
    ("nothing declared", [checkpoint(1, {})], "classes-at-or-above-floor"),
    (
        "some word for word, the rest gone, room left",
        [ALL, checkpoint(1, {"C1": "verbatim"}, budget_tokens=2000, output_tokens=900)],
        "re-ranked-below-floor!",
    ),
]

TABLES: dict[str, list[Case]] = {
    "inversion": INVERSION,
    "provenance-floor": FLOOR,
    "depth-pin": PIN,
    "drift": DRIFT,
    "budget-open": BUDGET,
    "recall-floor": RECALL,
}
CASES = [pytest.param(rule, events, said, id=f"{rule}: {name}") for rule, table in TABLES.items() for name, events, said in table]


@pytest.mark.parametrize(("rule", "events", "said"), CASES)
def test_the_rule_says(rule: str, events: list[Event], said: str) -> None:
    """An empty expectation: the rule was not asked."""
    assert watch(*events).reasons.get(rule, "") == said


def view(**changes: Any) -> RoundView:
    given: dict[str, Any] = {
        "prev": Measurement(1, 1, 9, 9, 0.1, 2),
        "now": Measurement(2, 0, 0, 1, 0.2, 2),
        "pinned_rounds": 9,
        "baseline_spans": 214,
        "max_depth": 2,
        "penalizes_depth": None,
        "eviction": None,
        "policy": FleetPolicy(),
    }
    return RoundView(**given | changes)


@pytest.mark.parametrize("rule", [rule for rule in ROUND_RULES if rule.name in TABLES], ids=lambda rule: rule.name)
def test_no_tokens_at_all_is_unknown_and_never_a_violation(rule: Any) -> None:
    """0 of 0: neither a ratio of 0 nor a recovery."""
    assert rule.judge(view()) == Decision(False, "no-tokens")


@pytest.mark.parametrize(
    "module", [inversion, provenance_floor, depth_pin, drift, budget_open, recall_floor], ids=lambda m: m.RULE.name
)
def test_the_tables_reach_every_reason(module: ModuleType) -> None:
    known = {item.reason + "!" * item.fired for item in vars(module).values() if isinstance(item, Decision)}
    reached = {said for _, _, said in TABLES[module.RULE.name]} - {""}
    apart = {"no-tokens", "inversion-open"}  # above, and test_a_pause_in_an_inversion_is_no_drift
    assert reached <= known
    assert known - reached <= apart


def test_every_rule_is_in_one_list_under_one_name() -> None:
    names = [rule.name for rule in ROUND_RULES]
    names += [rule.name for rule in CHECKPOINT_RULES]
    names += [rule.name for rule in PRESENCE_RULES]
    assert [*names, UNHEEDED] == list(RULE_NAMES)
    assert len(set(names)) == len(names)
    assert set(TABLES) <= set(names)
    assert names.index("inversion") < names.index("provenance-floor") < names.index("depth-pin")


def test_every_rule_that_was_asked_gives_a_reason_fired_or_not() -> None:
    assert {*(rule.name for rule in PRESENCE_RULES), *(rule.name for rule in ROUND_RULES)} == set(watch(round_(1)).reasons)
    asked = set(watch(checkpoint(1)).reasons)
    assert {rule.name for rule in CHECKPOINT_RULES} == asked


def test_a_rule_that_is_off_is_not_asked() -> None:
    seen = watch(before(), falling(), policy=FleetPolicy(modes={"inversion": "off"}))
    assert "inversion" not in seen.reasons
    assert "drift" in seen.reasons


def test_thresholds_are_the_fleets_own() -> None:
    strict = FleetPolicy(raw_ratio_floor=0.5, span_floor_fraction=0.9, pin_rounds=1)
    assert "inversion" in watch(before(), falling(0.4), policy=strict).fired
    assert "provenance-floor" in watch(round_(1, summary_depth_max=2, distinct_source_spans=191), policy=strict).fired
    assert "depth-pin" in watch(*deep(2), policy=strict).fired
    kind = FleetPolicy(recall_floor=0.5)
    assert "recall-floor" not in watch(ALL, checkpoint(1, {"C1": "verbatim"}), policy=kind).fired


def test_unread_spans_and_overshoot_are_counted_exactly() -> None:
    """426 of 1551 spans missing; 1,751,400 tokens offered to a limit of 922,000 is an overshoot of 1.9."""

    def finding(call: Checkpoint) -> Any:
        (found,) = [item for item in watch(call).last.findings if item.rule == "budget-open"]
        return found

    unseen = finding(checkpoint(1, source_spans=1551, seen_spans=1125))
    assert unseen.evidence["unseen_spans"] == 426
    assert "426 of 1551" in unseen.message
    assert finding(checkpoint(1, source_spans=160, seen_spans=40)).evidence["unseen_spans"] == 120
    silent = finding(checkpoint(1, declared_input_tokens=160_689, consumed_input_tokens=16_387))
    assert silent.evidence["unread_tokens"] == 144_302
    assert finding(checkpoint(1, declared_input_tokens=1_751_400, consumed_input_tokens=922_000)).evidence["overshoot"] == 1.9


def test_numbers_that_are_called_different_look_different() -> None:
    """More digits only where two would not tell them apart."""
    near = falling(raw_tokens=249_999, summary_tokens=750_001, query_cosine_retained=0.501)
    (finding,) = (one for one in watch(before(), near).last.findings if one.rule == "inversion")
    assert "raw ratio 0.249999 is below 0.250000" in finding.message
    assert "salience rose 0.500 -> 0.501" in finding.message
    (finding,) = (one for one in watch(before(), falling()).last.findings if one.rule == "inversion")
    assert "raw ratio 0.24 is below 0.25" in finding.message
    (finding,) = (one for one in watch(before(), falling(0.2464, distinct_source_spans=100)).last.findings if one.rule == "drift")
    assert "raw ratio 0.246 is below 0.250 with source spans stable at 100;" in finding.message
