"""The fold asks of each round only the rules whose signs it shows: nothing may come of that but speed.

The same log through the fold as it runs, and with ``explain``, which asks every rule of everything: the outputs and every byte of
the states are the same. The fuzzer checks it on sequences of other kinds.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import fuzz
from leadline.commands import fold as folding
from leadline.commands.fold import Incoming, fold
from leadline.contracts.codec import encode
from leadline.contracts.events import Measures, Summary
from leadline.contracts.orders import Command, Violation
from leadline.contracts.session_state import decode_state, encode_state
from leadline.detection import observe as observing
from leadline.detection import quiet
from leadline.detection.policy import FleetPolicy, Policy
from leadline.detection.rules import MAY_FIRE, ROUND_RULES
from leadline.detection.signs import ALL
from tests.commands.test_properties import RULES, Era, log_of
from tests.support.core import START, round_

POLICIES = (
    RULES,
    Policy(),
    Policy(
        default=FleetPolicy(
            raw_ratio_floor=0.4,
            raw_ratio_exit=0.5,
            erosion_ratio=0.9,
            span_floor_fraction=0.45,
            pin_rounds=0,
            masked_span_fall=0.0,
        )
    ),
    Policy(
        default=FleetPolicy(erosion_ratio=0.2, erosion_horizon=500, masked_span_fall=0.02, stall_rounds=1, stall_halt_rounds=1)
    ),
    Policy(default=FleetPolicy(modes={"inversion": "off", "erosion": "shadow", "masked": "off", "unobserved": "warn"})),
)


def play(eras: list[Era], policy: Policy, explain: bool) -> tuple[list[Violation | Command], dict[str, bytes]]:
    outputs: list[Violation | Command] = []
    states: dict[str, bytes] = {}
    for era in eras:
        folded = fold(
            era.records, lambda key: decode_state(states[key]) if key in states else None, policy, era.now, explain=explain
        )
        outputs += folded.outputs
        for key, state in folded.states.items():
            if state is None:
                states.pop(key, None)
            else:
                states[key] = encode_state(state)
    return outputs, states


def trending(seed: int) -> list[Era]:
    """A session of 40 rounds that sinks, rises, hovers or jumps, in each measurement for itself."""
    pick = Random(seed)
    ratio, spans, salience = pick.uniform(0.2, 0.9), pick.uniform(50, 220), 0.4
    steps = [pick.choice((-0.012, -0.004, 0.0, 0.004)), pick.choice((-6.0, -2.0, 0.0, 1.0)), pick.choice((-0.01, 0.0, 0.01))]
    noise = pick.choice((0.0, 0.3, 3.0))
    records = []
    for number in range(1, 41):
        ratio = min(0.97, max(0.0, ratio + steps[0] * (1 + noise * pick.uniform(-1, 1))))
        spans = max(0.0, spans + steps[1] * (1 + noise * pick.uniform(-1, 1)))
        salience += steps[2] * (1 + noise * pick.uniform(-1, 1))
        total = pick.choice((100_000, 100_000, 170_000, 181_000))
        before = Measures(
            raw_tokens=int(total * ratio) + pick.choice((0, 0, 5_000)),
            summary_tokens=int(total * (1 - ratio)),
            distinct_source_spans=210,
        )
        changes: dict[str, Any] = {
            "raw_tokens": int(total * ratio),
            "summary_tokens": total - int(total * ratio),
            "distinct_source_spans": int(spans),
            "query_cosine_retained": pick.choice((salience, salience, salience, None)) if noise else salience,
            "summary_depth_max": pick.choice((1, 2, 3)),
            "max_depth": 3,
            "token_budget": pick.choice((180_000, 180_000, 0)),
            "fixed_tokens": pick.choice((None, 8_000, 8_000, 180_000)) if pick.random() < 0.1 else 8_000,
            "before": pick.choice((before, None)),
            "summaries": pick.choice((None, [Summary(id="n1", depth=1, tokens=9, reachable=pick.choice((None, 0, 1, 1)))])),
            "ungrounded_summaries": 0,
        }
        event = round_(number, **changes)
        records.append(Incoming(b"s1", encode(event), 0, number, START + number * 20_000))
    return [Era(START, records)]


logs = st.integers(0, 2**64 - 1).map(log_of) | st.integers(0, 2**64 - 1).map(trending)


@settings(max_examples=60)
@given(logs, st.sampled_from(POLICIES))
def test_to_ask_every_rule_changes_nothing(eras: list[Era], policy: Policy) -> None:
    quick, full = play(eras, policy, False), play(eras, policy, True)
    assert quick[0] == full[0]
    assert quick[1] == full[1]


def test_the_logs_make_every_rule_of_rounds_fire() -> None:
    """Guards the test above against comparing nothing with nothing."""
    missing = {rule.name for rule in ROUND_RULES}
    for number in range(200):
        outputs, _ = play(trending(number), POLICIES[number % len(POLICIES)], False)
        missing -= {item.rule for item in outputs if isinstance(item, Violation)}
        if not missing:
            break
    assert not missing


@pytest.mark.parametrize("rule", [rule for rule in ROUND_RULES if rule.needs], ids=lambda rule: rule.name)
def test_a_rule_that_needs_too_much_is_found_out(rule: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if ``rule`` were ruled out whatever a round shows: the comparison must see it."""
    without = tuple(tuple(one for one in MAY_FIRE[shown] if one.name != rule.name) for shown in range(ALL + 1))
    monkeypatch.setattr(quiet, "MAY_FIRE", without)
    several = ((trending(number), POLICIES[number % len(POLICIES)]) for number in range(200))
    assert any(play(eras, policy, False) != play(eras, policy, True) for eras, policy in several)


def test_the_fuzzer_finds_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    without = tuple(tuple(one for one in MAY_FIRE[shown] if one.name != "inversion") for shown in range(ALL + 1))
    monkeypatch.setattr(quiet, "MAY_FIRE", without)
    with pytest.raises(fuzz.Broken, match="with every rule asked"):
        fuzz.run(0, 400, seed=1)


def test_of_a_round_that_shows_nothing_no_rule_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the speed would be gone, and no other test would say so."""
    asked: list[str] = []
    monkeypatch.setattr(observing, "ask", lambda rule, *_: asked.append(rule.name))
    calm = [
        round_(number, 0.7, summary_depth_max=1, distinct_source_spans=200 + number, before=None, ungrounded_summaries=0)
        for number in range(1, 20)
    ]
    records = [Incoming(b"s1", encode(event), 0, event.round, START) for event in calm]
    states = folding.fold(records, lambda _key: None, Policy(), START).states
    assert asked == []
    (state,) = states.values()
    assert state is not None
    assert state.last_round == 19
