"""``erosion`` and ``masked``: what the window says, as tables that reach every reason."""

from __future__ import annotations

import random
from typing import Any

import pytest

from leadline.contracts.codec import Event
from leadline.contracts.events import Policy as Stated
from leadline.contracts.events import Scorer
from leadline.detection.observe import Finding
from leadline.detection.policy import FleetPolicy
from leadline.detection.rules import erosion, masked
from leadline.detection.rules.base import Decision
from tests.detection.seen import watch
from tests.support.core import round_, start


def falling(
    count: int = 8,
    *,
    ratio: tuple[float, float] = (0.48, -0.02),
    spans: tuple[float, float] = (200, -8),
    salience: tuple[float, float] = (0.5, 0.0),
    **changes: Any,
) -> list[Event]:
    """Rounds in which ratio, spans and salience run straight: (first value, change a round)."""
    return [
        round_(
            number + 1,
            ratio[0] + ratio[1] * number,
            distinct_source_spans=round(spans[0] + spans[1] * number),
            query_cosine_retained=salience[0] + salience[1] * number,
            **changes,
        )
        for number in range(count)
    ]


def outlier(at: int, **changes: Any) -> list[Event]:
    """Twelve falling rounds, one of which is odd."""
    rounds = falling(12, ratio=(0.56, -0.02))
    rounds[at] = round_(at + 1, **changes)
    return rounds


UNMEASURED = {"raw_tokens": 0, "summary_tokens": 0}

EROSION: list[tuple[str, list[Event], str]] = [
    ("ratio and spans fall", falling(), "eroding!"),
    ("depth does not matter", falling(summary_depth_max=5), "eroding!"),
    ("above one half", falling(ratio=(0.80, -0.02)), "raw-ratio-at-or-above-entry"),
    ("exactly one half", falling(ratio=(0.64, -0.02)), "raw-ratio-at-or-above-entry"),
    ("below the floor it is past warning", falling(ratio=(0.38, -0.02)), "raw-ratio-below-floor"),
    ("four rounds", falling(4), "too-few-rounds"),
    ("five rounds in order may be chance", falling(5), "raw-ratio-not-falling"),
    ("six are not", falling(6), "eroding!"),
    ("the ratio is level", falling(ratio=(0.40, 0)), "raw-ratio-not-falling"),
    ("the ratio rises", falling(ratio=(0.30, 0.02)), "raw-ratio-not-falling"),
    ("spans are level", falling(spans=(200, 0)), "spans-not-falling"),
    ("spans rise", falling(spans=(100, 8)), "spans-not-falling"),
    ("so slowly that the floors are far", falling(ratio=(0.48, -0.002), spans=(200, -1)), "floors-beyond-horizon"),
    ("the ratio is slow, the spans are near their floor", falling(ratio=(0.48, -0.002), spans=(120, -8)), "eroding!"),
    ("one odd round high", outlier(4, ratio=0.95, distinct_source_spans=214), "eroding!"),
    ("one odd round low", outlier(2, ratio=0.01, distinct_source_spans=1), "eroding!"),
    ("the first round odd", outlier(0, ratio=0.05, distinct_source_spans=10), "eroding!"),
    ("an unmeasured round in between", [*falling(7), round_(8, **UNMEASURED), *falling(9)[8:]], "eroding!"),
    ("gaps in between", [event for n, event in enumerate(falling(14, ratio=(0.48, -0.01))) if n % 2 == 0], "eroding!"),
    ("a new epoch begins without a window", [*falling(), *falling(3, epoch=1)], "too-few-rounds"),
]

PARTING: dict[str, Any] = {"ratio": (0.70, 0.0), "salience": (0.40, 0.02)}
MASKED: list[tuple[str, list[Event], str]] = [
    ("salience up, spans down", falling(**PARTING), "salience-up-spans-down!"),
    ("whatever the ratio is", falling(salience=(0.40, 0.02), ratio=(0.05, 0)), "salience-up-spans-down!"),
    (
        "a scorer that penalizes depth",
        [start(policy=Stated(scorer=Scorer(penalizes_depth=True))), *falling(**PARTING)],
        "salience-up-spans-down!",
    ),
    ("eviction at overflow only", [start(policy=Stated(eviction="overflow")), *falling(**PARTING)], "salience-up-spans-down!"),
    ("no salience", [*falling(7), round_(8, query_cosine_retained=None)], "salience-not-reported"),
    ("four rounds", falling(4, **PARTING), "too-few-rounds"),
    ("salience is level", falling(salience=(0.4, 0)), "salience-not-rising"),
    ("salience falls", falling(salience=(0.6, -0.02)), "salience-not-rising"),
    ("spans are level", falling(spans=(200, 0), salience=(0.4, 0.02)), "spans-not-falling"),
    ("spans rise", falling(spans=(100, 5), salience=(0.4, 0.02)), "spans-not-falling"),
    ("spans fall by less than a tenth", falling(spans=(200, -2), salience=(0.4, 0.02)), "spans-fell-slightly"),
    (
        "one odd round",
        [
            *falling(5, **PARTING),
            round_(6, 0.7, distinct_source_spans=214, query_cosine_retained=0.1),
            *falling(10, **PARTING)[6:],
        ],
        "salience-up-spans-down!",
    ),
]
TABLES = {"erosion": EROSION, "masked": MASKED}
CASES = [pytest.param(rule, events, said, id=f"{rule}: {name}") for rule, table in TABLES.items() for name, events, said in table]


@pytest.mark.parametrize(("rule", "events", "said"), CASES)
def test_the_rule_says(rule: str, events: list[Event], said: str) -> None:
    assert watch(*events).reasons.get(rule, "") == said


@pytest.mark.parametrize("module", [erosion, masked], ids=lambda module: module.RULE.name)
def test_the_tables_reach_every_reason(module: Any) -> None:
    known = {item.reason + "!" * item.fired for item in vars(module).values() if isinstance(item, Decision)}
    assert known - {said for _, _, said in TABLES[module.RULE.name]} <= {"no-tokens"}, "no tokens: such a round asks no rule"


def eroding(*events: Event, policy: FleetPolicy | None = None) -> Finding:
    (found,) = [item for item in watch(*events, policy=policy).last.findings if item.rule == "erosion"]
    return found


def test_the_forecast_of_a_straight_fall_is_exact() -> None:
    """0.48, 0.46, ... 0.34 in eight rounds: 0.24 five rounds on. Spans 200, 192, ... 144: below 42 after 13 more (40)."""
    found = eroding(*falling(8))
    assert found.evidence == {
        "window_rounds": 8,
        "rounds_to_raw_ratio": 5,
        "rounds_to_raw_ratio_earliest": 5,
        "rounds_to_raw_ratio_latest": 5,
        "rounds_to_span_floor": 13,
        "rounds_to_span_floor_earliest": 13,
        "rounds_to_span_floor_latest": 13,
    }
    assert "raw ratio 0.25 in about 5 rounds (5 to 5)" in found.message
    assert found.threshold["raw_ratio_floor"] == 0.25
    assert found.threshold["span_floor"] == 42
    assert found.action == "none"


@pytest.mark.parametrize("seed", range(20))
def test_the_forecast_under_noise_has_an_interval_around_it(seed: int) -> None:
    dice = random.Random(seed)
    events = [
        round_(n, 0.62 - 0.02 * n + dice.gauss(0, 0.01), distinct_source_spans=round(220 - 6 * n + dice.gauss(0, 3)))
        for n in range(1, 15)
    ]
    evidence = eroding(*events).evidence
    earliest, rounds, latest = (int(str(evidence[f"rounds_to_raw_ratio{end}"])) for end in ("_earliest", "", "_latest"))
    assert earliest <= rounds <= latest
    assert abs(rounds - 5) <= 2, "0.34 now, 0.25 in four and a half rounds"


def test_thresholds_are_the_fleets_own() -> None:
    assert (
        watch(*falling(ratio=(0.80, -0.02)), policy=FleetPolicy(erosion_ratio=0.7)).reasons["erosion"] == "floors-beyond-horizon"
    )
    wide = FleetPolicy(erosion_ratio=0.7, erosion_horizon=30)
    assert watch(*falling(ratio=(0.80, -0.02)), policy=wide).reasons["erosion"] == "eroding!"
    few = falling(spans=(200, -2), salience=(0.4, 0.02))
    assert watch(*few, policy=FleetPolicy(masked_span_fall=0.03)).reasons["masked"] == "salience-up-spans-down!"


def noisy(seed: int, rounds: int = 100) -> list[Event]:
    """A healthy session near the entry ratio: everything level, with noise."""
    dice = random.Random(seed)
    return [
        round_(
            n,
            min(0.99, max(0.3, 0.45 + dice.gauss(0, 0.03))),
            distinct_source_spans=round(150 + dice.gauss(0, 8)),
            query_cosine_retained=0.5 + dice.gauss(0, 0.02),
        )
        for n in range(1, rounds + 1)
    ]


@pytest.mark.parametrize("rule", ["erosion", "masked"])
def test_noise_around_a_level_is_nothing(rule: str) -> None:
    """Of 40 healthy sessions of 100 rounds at most one is warned about."""
    warned = 0
    for seed in range(40):
        seen, fired = watch(), False
        for event in noisy(seed):
            seen = watch(event, state=seen.state)
            fired = fired or rule in seen.fired
        warned += fired
    assert warned <= 1
