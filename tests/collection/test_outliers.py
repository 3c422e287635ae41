"""Slow nodes are found, chance is not, and what a rack or a driver explains is theirs."""

from __future__ import annotations

import numpy as np
import pytest
from support.fleet_tables import planted_fleet
from support.synthetic_fleet import OTHER, Planted, node_name, planted

from appliance.collection import tables
from appliance.collection.outliers import FEWEST, Analysis, Fences, Series, analyse

SEEDS = range(20)
NODES = 1000


def found(analysis: Analysis) -> set[str]:
    """Nodes with a device beyond a fence."""
    return {
        unit.partition("@")[0]
        for one in analysis.distributions
        for unit, is_beyond in zip(one.series.units, one.is_beyond, strict=True)
        if is_beyond
    }


def names(numbers: tuple[int, ...], faults: Planted) -> set[str]:
    return {node_name(number) for number in numbers if number not in faults.forged}


def normal(count: int, seed: int = 0, sd: float = 0.005) -> np.ndarray:
    return sd * np.random.default_rng(seed).standard_normal(count)


def series(values: np.ndarray, **levels: tuple[str, ...]) -> Series:
    units = tuple(f"n{number}@d" for number in range(len(values)))
    return Series(metric="gemm", units=units, values=values, levels=levels)


def test_planted_faults_are_found_and_little_else() -> None:
    """Of 20 fleets of 1,000: 5 % slow all, 3 % nearly all, and under 1 % of findings by chance."""
    slow, slight, false, total = [], [], 0, 0
    for seed in SEEDS:
        faults = planted(NODES, seed)
        analysis = analyse(tables.series_of(planted_fleet(faults, seed)))
        nodes = found(analysis)
        own, lightly = names(faults.slow, faults), names(faults.slightly_slow, faults)
        slow.append(len(nodes & own) / len(own))
        slight.append(len(nodes & lightly) / len(lightly))
        false += len(nodes - own - lightly)
        total += len(nodes)
        groups = {(one.covariate, one.level) for one in analysis.levels}
        racks = {("rack", f"rack-{number:03d}") for number in faults.hot}
        assert groups == racks | {("device driver", OTHER)}
    assert np.mean(slow) >= 0.99
    assert np.mean(slight) >= 0.9
    assert false / total <= 0.01


def test_fleet_of_chance_alone_has_no_findings_in_most_seeds() -> None:
    findings = [int(analyse([series(normal(NODES, s))]).distributions[0].is_beyond.sum()) for s in SEEDS]  # fmt: skip  # noqa: E501
    assert sum(count > 0 for count in findings) <= 1


def test_half_of_the_fleet_with_another_driver_is_the_driver_and_no_node() -> None:
    values = normal(200)
    values[::2] += 0.05
    drivers = tuple("new" if number % 2 == 0 else "old" for number in range(200))
    analysis = analyse([series(values, driver=drivers)])
    (finding,) = analysis.levels
    assert abs(abs(finding.effect) - 0.05) < 0.005
    assert not analysis.distributions[0].is_beyond.any()


def test_slow_node_in_a_hot_rack_is_found_beside_the_rack() -> None:
    values = normal(400)
    racks = tuple(f"r{number // 40}" for number in range(400))
    values[40:80] += 0.04
    values[50] += 0.05
    analysis = analyse([series(values, rack=racks)])
    assert [(one.covariate, one.level) for one in analysis.levels] == [("rack", "r1")]
    assert np.flatnonzero(analysis.distributions[0].is_beyond).tolist() == [50]


def test_rack_and_driver_of_the_same_devices_are_both_named() -> None:
    values = normal(200)
    values[:40] += 0.04
    racks = tuple(f"r{number // 40}" for number in range(200))
    drivers = tuple("new" if number < 40 else "old" for number in range(200))
    (finding,) = analyse([series(values, driver=drivers, rack=racks)]).levels
    assert (finding.covariate, finding.level) == ("driver", "new")
    assert finding.same_units == ("rack r0",)


def test_a_driver_of_too_few_nodes_explains_nothing() -> None:
    values = normal(100)
    values[:2] += 0.06
    drivers = tuple("new" if number < 2 else "old" for number in range(100))
    analysis = analyse([series(values, driver=drivers)])
    assert not analysis.levels
    assert np.flatnonzero(analysis.distributions[0].is_beyond).tolist() == [0, 1]


def test_difference_too_small_to_matter_is_no_finding() -> None:
    values = normal(1000, sd=0.0005)
    values[7] += 0.008  # sixteen spreads, and below 1 %
    assert not analyse([series(values)]).distributions[0].is_beyond.any()
    (one,) = analyse([series(values)], Fences(least=0.005)).distributions
    assert np.flatnonzero(one.is_beyond).tolist() == [7]


@pytest.mark.parametrize("count", range(FEWEST))
def test_few_devices_are_not_tested(count: int) -> None:
    values = normal(count)
    values[:1] += 1.0
    (one,) = analyse([series(values)]).distributions
    assert not one.is_beyond.any()
    assert (one.low, one.high) == (None, None)


@pytest.mark.parametrize("width", [0.2, 5.0, 50.0])
def test_few_devices_that_differ_much_have_fences_that_a_number_holds(width: float) -> None:
    (one,) = analyse([series(width * np.arange(FEWEST, dtype=float))]).distributions
    assert not one.is_beyond.any()
    assert one.low is not None
    assert one.high is not None
    assert -1.0 <= one.low < -0.2
    assert 0.2 < one.high < 1e9


def test_equal_times_are_no_division_by_nothing() -> None:
    (one,) = analyse([series(np.zeros(50))]).distributions
    assert not one.is_beyond.any()
