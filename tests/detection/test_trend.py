"""Robust trends and the forecast drawn from them."""

from __future__ import annotations

import random
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline.detection.trend import MIN_ROUNDS, Trend, ends, forecast, trend

Points = list[tuple[int, float]]
values = st.lists(st.integers(-1000, 1000).map(float), min_size=MIN_ROUNDS, max_size=16)


def line(slope: float, start: float = 1000.0, rounds: int = 10) -> Points:
    return [(n, start + slope * n) for n in range(rounds)]


def of(points: Points) -> Trend:
    found = trend(points)
    assert found is not None
    return found


@pytest.mark.parametrize("rounds", range(MIN_ROUNDS))
def test_few_rounds_make_no_trend(rounds: int) -> None:
    assert trend(line(-1, rounds=rounds)) is None


@pytest.mark.parametrize(("rounds", "sure"), [(5, False), (6, True), (16, True)])
def test_a_perfect_order_is_significant_from_six_rounds_on(rounds: int, sure: bool) -> None:
    assert of(line(-1, rounds=rounds)).falling is sure
    assert of(line(1, rounds=rounds)).rising is sure


def test_a_level_series_neither_falls_nor_rises() -> None:
    flat = of(line(0))
    assert (flat.slope, flat.z, flat.falling, flat.rising) == (0, 0, False, False)


@given(values)
def test_mirrored_values_mirror_the_trend(given: list[float]) -> None:
    up, down = of(list(enumerate(given))), of(list(enumerate(-value for value in given)))
    assert (up.slope, up.low, up.high, up.z) == (-down.slope, -down.high, -down.low, -down.z)


@given(values, st.integers(-500, 500), st.integers(1, 50), st.integers(0, 10**6))
def test_shift_scale_and_later_rounds_change_nothing_but_the_units(given: list[float], by: int, times: int, later: int) -> None:
    plain = of(list(enumerate(given)))
    moved = of([(number + later, by + times * value) for number, value in enumerate(given)])
    assert moved.z == plain.z
    assert moved.slope == pytest.approx(times * plain.slope)
    assert moved.level == pytest.approx(by + times * plain.level)


@given(st.integers(1, 50), st.integers(0, 15), st.floats(-1e6, 1e6))
def test_one_outlier_neither_turns_nor_bends_a_line(pace: int, where: int, value: float) -> None:
    """Of 16 rounds one says anything at all: the slope stays, and the fall stays significant."""
    points = line(-pace, rounds=16)
    points[where] = (where, value)
    found = of(points)
    assert found.slope == pytest.approx(-pace)
    assert found.level == pytest.approx(1000 - 15 * pace)
    assert found.falling


@given(values, st.integers(1, 100))
def test_a_steeper_fall_is_a_greater_slope_and_never_less_significant(given: list[float], pace: int) -> None:
    plain = of(list(enumerate(given)))
    steeper = of([(number, value - pace * number) for number, value in enumerate(given)])
    assert steeper.slope == pytest.approx(plain.slope - pace)
    assert steeper.z <= plain.z + 1e-9 or len(set(given)) < len(given)


@given(values)
def test_the_interval_holds_its_slope(given: list[float]) -> None:
    found = of(list(enumerate(given)))
    assert found.low <= found.slope <= found.high


@given(st.integers(1, 40), st.integers(1, 400))
def test_the_forecast_of_an_exact_fall_is_exact(pace: int, gap: int) -> None:
    points = line(-pace)
    now = points[-1][1]
    assert forecast(now, now - gap, of(points)) == (ceil(gap / pace),) * 3


def test_the_forecast_of_an_exact_ratio_is_not_a_round_late() -> None:
    """0.50, 0.48, ... 0.32 is 0.25 in 4 rounds (0.24), though no float says so exactly; 0.30 in one."""
    points = [(n, 0.50 - 0.02 * n) for n in range(10)]
    for level, rounds in ((0.25, 4), (0.30, 1), (0.28, 2)):
        assert forecast(points[-1][1], level, of(points)) == (rounds,) * 3


def test_nothing_is_forecast_of_what_is_there_or_does_not_fall() -> None:
    assert forecast(10, 10, of(line(-1))) is None
    assert forecast(9, 10, of(line(-1))) is None
    assert forecast(1000, 10, of(line(0))) is None
    assert forecast(1000, 10, of(line(1))) is None


def test_what_is_ages_away_is_not_forecast() -> None:
    assert forecast(1000, 0, of(line(-0.01))) is None


def test_a_fall_that_may_be_none_has_no_latest_round() -> None:
    noisy = of([(0, 10.0), (1, 5.0), (2, 12.0), (3, 4.0), (4, 11.0), (5, 3.0)])
    found = forecast(3, 0, noisy)
    assert found is not None
    assert found.latest is None
    assert found.earliest <= found.rounds


def test_the_interval_is_honest() -> None:
    """90 % intervals of falling lines under noise hold the true slope in about 9 of 10 cases."""
    held, cases = 0, 400
    for seed in range(cases):
        dice = random.Random(seed)
        found = of([(n, 0.6 - 0.02 * n + dice.gauss(0, 0.03)) for n in range(12)])
        held += found.low <= -0.02 <= found.high
    assert 0.86 <= held / cases <= 0.96


def test_noise_alone_is_seldom_a_trend() -> None:
    fell = 0
    for seed in range(1000):
        dice = random.Random(seed)
        fell += of([(n, 0.4 + dice.gauss(0, 0.05)) for n in range(16)]).falling
    assert fell <= 20, "1 % of independent windows, and some luck"


def test_the_ends_of_a_series_are_medians() -> None:
    assert ends([9.0, 1.0, 1.0, 5.0, 2.0, 2.0, 99.0]) == (1.0, 2.0)
