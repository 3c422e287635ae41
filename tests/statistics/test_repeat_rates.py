"""What clean repeats bound, and how many differences a healthy device is not believed."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from appliance.statistics.repeat_rates import (
    LEAST_PROBABILITY,
    is_believable,
    rate_bound,
    tail_probability,
)


@pytest.mark.parametrize("num_clean", [10, 100, 3000])
def test_no_rate_above_the_bound_gives_so_many_clean_repeats(num_clean: int) -> None:
    exact = -math.expm1(math.log(0.05) / num_clean)  # (1 - p)^N = 0.05
    assert exact < rate_bound(num_clean) < 1.2 * exact


def test_few_repeats_bound_nothing() -> None:
    assert [rate_bound(number) for number in (1, 2, 3)] == [1.0, 1.0, 1.0]
    assert is_believable(100, 100, num_clean=3)


def exact_tail(num_differing: int, num_repeats: int, rate: Fraction) -> Fraction:
    return sum(
        (
            math.comb(num_repeats, k) * rate**k * (1 - rate) ** (num_repeats - k)
            for k in range(num_differing, num_repeats + 1)
        ),
        Fraction(0),
    )


@pytest.mark.parametrize(("num_differing", "num_repeats"), [(1, 1), (1, 100), (5, 100), (100, 100)])
def test_the_tail_is_the_binomial_one(num_differing: int, num_repeats: int) -> None:
    exact = float(exact_tail(num_differing, num_repeats, Fraction(3, 1000)))
    assert tail_probability(num_differing, num_repeats, 0.003) == pytest.approx(exact, rel=1e-9)


def test_no_difference_is_certain() -> None:
    assert tail_probability(0, 100, 0.003) == tail_probability(0, 0, 0.003) == 1.0


@pytest.mark.parametrize(("num_clean", "fewest"), [(100, 12), (1000, 5), (100_000, 2)])
def test_what_is_not_believed_is_just_beyond_the_probability(num_clean: int, fewest: int) -> None:
    rate = Fraction(3, num_clean)
    assert exact_tail(fewest, 100, rate) < LEAST_PROBABILITY <= exact_tail(fewest - 1, 100, rate)
    assert not is_believable(fewest, 100, num_clean)
    assert is_believable(fewest - 1, 100, num_clean)
