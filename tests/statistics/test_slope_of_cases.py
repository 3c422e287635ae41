"""Heating: a slope over all cases of a device, whose interval knows what launches share."""

import math
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from appliance.statistics.heating import Series, Slope, slope

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

import heating_trial

Values = npt.NDArray[np.float64]
LIMIT, RISK = 0.02, 0.01


def one(values: Values, times: Values | None = None) -> Series:
    return Series(times_s=np.arange(float(len(values))) if times is None else times, values=values)


def seen(*cases: Series) -> Slope:
    result = slope(cases)
    assert result is not None
    return result


def test_of_one_case_it_is_that_of_theil_and_sen() -> None:
    random = np.random.default_rng(1)
    values = 0.01 * np.arange(40) + random.normal(0, 0.05, 40)
    times = np.cumsum(random.uniform(1, 9, 40))
    actual = seen(one(values, times))
    expected = stats.theilslopes(values, times)
    assert actual.value == pytest.approx(expected.slope, rel=1e-12)
    assert actual.span_s == times[-1] - times[0]


def test_its_interval_of_independent_launches_is_about_that_of_sen() -> None:
    """What 100 launches may share all the same makes it somewhat wider, never narrower."""
    random = np.random.default_rng(2)
    ratios = []
    for _ in range(50):
        values = random.normal(0, 1, 100)
        expected = stats.theilslopes(values, alpha=0.98)
        actual = seen(one(values))
        ratios.append((actual.end(RISK) - actual.begin(RISK)) / (expected[3] - expected[2]))
    assert min(ratios) > 0.99
    assert np.median(ratios) < 1.7


def test_cases_of_other_times_and_one_that_was_decided_early_bend_nothing() -> None:
    times = np.arange(40.0)
    slow = one(3.0 + 0.001 * times, times)
    early = one(-5.0 + 0.001 * times[:5], times[:5] + 0.5)
    noisy = one(0.001 * times + np.tile([1e-9, -1e-9], 20), times)
    assert seen(slow, early, noisy).value == pytest.approx(0.001, rel=1e-6)


@pytest.mark.parametrize(
    "cases",
    [
        (one(np.arange(7.0)),),
        (one(np.array([1.0, math.nan] * 5)),),
        (one(np.arange(9.0), np.zeros(9)),),
        (one(np.zeros(9)),),
        tuple(one(np.array([float(number)])) for number in range(20)),
        (),
    ],
)
def test_what_shows_no_slope_is_none(cases: tuple[Series, ...]) -> None:
    assert slope(cases) is None


@pytest.mark.parametrize("gap", [0.0, 1e-9, 1e-3])
def test_moments_that_show_no_bend_are_no_fault(gap: float) -> None:
    """Who edits a journal may let all cases end at the same two moments, or at next to none."""
    random = np.random.default_rng(4)
    pairs = [one(random.normal(0, 1, 2), np.array([0.0, 1.0])) for _ in range(10)]
    assert math.isfinite(seen(*pairs).value)
    times = np.append(np.zeros(9), gap) + 1e9
    actual = slope([one(random.normal(0, 1, 10), times)])
    assert actual is None or actual.end(RISK) >= actual.begin(RISK)


def test_so_few_that_share_so_much_have_no_interval() -> None:
    actual = seen(one(np.sin(np.arange(10) / 3.0)))
    assert (actual.begin(RISK), actual.end(RISK)) == (-math.inf, math.inf)


@pytest.mark.parametrize("correlation", [0.0, 0.6, 0.9])
@pytest.mark.parametrize(("cases", "rounds"), [(26, 5), (8, 5), (1, 40)])
def test_at_the_limit_a_device_seldom_passes_or_fails(
    correlation: float, cases: int, rounds: int
) -> None:
    """Six of 150 would contradict 1 % at a risk of 0.4 %; 11 passed as 0.4 estimated it, at 0.9."""
    device = heating_trial.Device(correlation=correlation, cases=cases, rounds=rounds)
    for rate in heating_trial.ruled(device, LIMIT, 150, seed=3):
        assert rate.number <= 5


def test_half_of_the_noise_may_be_a_slow_process() -> None:
    """Its first correlation is then 0.45 and hides it: 8 % passed by the sum of correlations."""
    device = heating_trial.Device(correlation=0.9, share=0.5)
    for rate in heating_trial.ruled(device, LIMIT, 150, seed=3):
        assert rate.number <= 5


def test_healthy_devices_pass_and_those_that_heat_by_twice_the_limit_fail() -> None:
    device = heating_trial.Device(correlation=0.6)
    assert heating_trial.ruled(device, 0.0, 100)[0].number > 70
    passes, fails = heating_trial.ruled(device, 2 * LIMIT, 100)
    assert (passes.number, fails.number > 60) == (0, True)
    alone = heating_trial.Device(correlation=0.0)
    assert heating_trial.ruled(alone, 0.0, 100)[0].number > 95
    assert heating_trial.ruled(alone, 2 * LIMIT, 100)[1].number > 95


@pytest.mark.parametrize(
    "course",
    [lambda part: 0.06 * (1.0 - np.exp(-2.0 * part)), lambda part: 0.05 * part**2],
    ids=["fast at first", "faster and faster"],
)
def test_heating_that_bends_is_no_excuse_for_itself(course: Callable[[Values], Values]) -> None:
    """The curve that it leaves around a straight line was taken for what launches share."""
    random = np.random.default_rng(3)
    device = heating_trial.Device(correlation=0.0)
    for _ in range(20):
        cases = device.drawn(random, 0.0)
        last = max(one.times_s.max() for one in cases)
        actual = seen(
            *(one(case.values + course(case.times_s / last), case.times_s) for case in cases)
        )
        assert actual.begin(RISK) * actual.span_s > LIMIT


def test_no_healthy_device_fails_whatever_its_launches_share() -> None:
    for correlation in (0.0, 0.6, 0.9):
        device = heating_trial.Device(correlation=correlation)
        assert heating_trial.ruled(device, 0.0, 100)[1].number == 0


def test_many_launches_are_averaged_and_give_the_same_answer() -> None:
    """1,040 launches: as wide as it should be by the process that they share, and quick."""
    random = np.random.default_rng(5)
    for correlation, low, high in ((0.0, 1.0, 1.6), (0.9, 3.0, 9.0)):
        device = heating_trial.Device(correlation=correlation, rounds=40)
        got = seen(*device.drawn(random, 0.0)).dependence
        assert low <= math.sqrt(got.mean_factor) <= high
