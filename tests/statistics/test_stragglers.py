"""Stragglers: healthy nodes flag nobody, a slow device is named, and doubt names no one."""

import math
from itertools import permutations

import numpy as np
import pytest
from scipy import stats

from appliance.statistics.stragglers import FAMILY_RISK, Launches, find

Node = dict[str, dict[str, Launches]]


def node(
    random: np.random.Generator,
    *,
    num_devices: int = 8,
    num_workloads: int = 20,
    num_launches: int = 6,
    slow: tuple[float, float] = (0.0, 0.0),
) -> Node:
    """A node as methods describe it: sd 0.5 % of devices, 0.8 % of device and workload.

    `slow` is what the last device loses in its first and its second half of launches. Launches
    differ by 0.4 %; workload number w takes (w + 1) * 10 ms.
    """
    shape = (num_devices, num_workloads, num_launches)
    logs = np.log(0.01 * np.arange(1, num_workloads + 1))[:, np.newaxis]
    logs = logs + random.normal(0, 0.005, (num_devices, 1, 1))
    logs = logs + random.normal(0, 0.008, (num_devices, num_workloads, 1))
    logs = logs + random.normal(0, 0.004, shape)
    logs[-1, :, : num_launches // 2] += math.log1p(slow[0])
    logs[-1, :, num_launches // 2 :] += math.log1p(slow[1])
    return {
        f"gpu:{device}": {
            f"workload{workload}": list(enumerate(launches))
            for workload, launches in enumerate(rows)
        }
        for device, rows in enumerate(logs.tolist())
    }


def flagged(values: Node) -> list[str]:
    return [item.device for item in find(values) if item.is_flagged]


def test_a_healthy_node_has_a_device_flagged_in_one_percent_at_most() -> None:
    random = np.random.default_rng(40)
    num_flagged = sum(bool(flagged(node(random))) for _ in range(1000))
    assert stats.binomtest(num_flagged, 1000, FAMILY_RISK, "greater").pvalue > 1e-6


@pytest.mark.parametrize("num_devices", [4, 8, 16])
def test_the_statistic_alone_errs_in_one_percent_of_healthy_nodes(num_devices: int) -> None:
    random = np.random.default_rng(41)
    num_over = 0
    for _ in range(1500):
        values = node(random, num_devices=num_devices, num_workloads=3, num_launches=1)
        num_over += any(item.t >= item.critical for item in find(values))
    assert stats.binomtest(num_over, 1500, FAMILY_RISK).pvalue > 1e-6
    assert num_over > 0


@pytest.mark.parametrize(("slow", "power"), [(0.05, 0.985), (0.03, 0.62)])
def test_a_slow_device_is_named_as_often_as_was_published(slow: float, power: float) -> None:
    random = np.random.default_rng(42)
    result = [flagged(node(random, slow=(slow, slow))) for _ in range(400)]
    named = sum(devices == ["gpu:7"] for devices in result)
    assert stats.binomtest(named, 400, power).pvalue > 1e-6
    assert sum("gpu:7" not in devices and bool(devices) for devices in result) == 0


def test_every_device_is_told_with_its_figures() -> None:
    result = find(node(np.random.default_rng(43), slow=(0.10, 0.10)))
    assert [item.device for item in result] == [f"gpu:{number}" for number in range(8)]
    assert [item.is_flagged for item in result] == [False] * 7 + [True]
    slow = result[-1]
    assert slow.effect == pytest.approx(0.10, abs=0.02)
    assert slow.first_half == pytest.approx(0.10, abs=0.02)
    assert slow.second_half == pytest.approx(0.10, abs=0.02)
    assert slow.critical == pytest.approx(stats.t.ppf(1 - 0.01 / 8, 6))
    assert slow.num_workloads == 20


def test_the_statistic_is_that_of_a_new_value_against_the_others() -> None:
    means = {"a": 0.00, "b": 0.01, "c": -0.01, "d": 0.06}
    values: Node = {
        name: {"short": [(0, mean - 9.0), (1, mean - 9.0)], "long": [(0, mean + 1), (1, mean + 1)]}
        for name, mean in means.items()
    }
    slow = find(values)[-1]
    expected = stats.ttest_ind([0.06], [0.0, 0.01, -0.01]).statistic
    assert slow.t == pytest.approx(expected, rel=1e-9)
    assert slow.effect == pytest.approx(math.expm1(0.06))


@pytest.mark.parametrize("halves", [(0.10, 0.0), (0.0, 0.10), (0.08, 0.02)])
def test_what_one_half_of_the_run_does_not_show_is_not_flagged(
    halves: tuple[float, float],
) -> None:
    values = node(np.random.default_rng(44), slow=halves)
    slow = find(values)[-1]
    assert slow.t >= slow.critical
    assert slow.effect >= 0.02
    assert not slow.is_flagged


def test_halves_are_of_the_order_in_which_launches_ran() -> None:
    values = node(np.random.default_rng(45), slow=(0.10, 0.0))
    values["gpu:7"] = {name: list(reversed(runs)) for name, runs in values["gpu:7"].items()}
    slow = find(values)[-1]
    assert slow.first_half == pytest.approx(0.10, abs=0.02)
    assert slow.second_half == pytest.approx(0.0, abs=0.02)


def test_a_certain_but_small_effect_is_not_flagged() -> None:
    logs = {"a": 0.0, "b": 0.0001, "c": -0.0001, "d": 0.0, "e": 0.0001, "f": 0.019}
    values: Node = {name: {"w": [(0, log), (1, log)]} for name, log in logs.items()}
    slow = find(values)[-1]
    assert slow.t >= slow.critical
    assert not slow.is_flagged
    values["f"] = {"w": [(0, 0.021), (1, 0.021)]}
    assert find(values)[-1].is_flagged


def test_a_fast_device_is_not_flagged() -> None:
    assert flagged(node(np.random.default_rng(46), slow=(-0.10, -0.10))) == []


def test_one_launch_of_each_has_no_first_half_and_flags_nobody() -> None:
    result = find(node(np.random.default_rng(47), num_launches=1, slow=(0.10, 0.10)))
    slow = result[-1]
    assert slow.t >= slow.critical
    assert math.isnan(slow.first_half)
    assert not slow.is_flagged


def test_workloads_that_a_device_lacks_or_that_are_no_numbers_are_not_counted() -> None:
    values = node(np.random.default_rng(48), slow=(0.10, 0.10))
    del values["gpu:2"]["workload0"]
    values["gpu:3"]["workload1"] = []
    values["gpu:4"]["workload2"] = [(0, -4.6), (1, math.nan)]
    values["gpu:5"]["workload3"] = [(0, math.inf)]
    result = find(values)
    assert {item.num_workloads for item in result} == {16}
    rest = {
        device: {name: runs for name, runs in cases.items() if int(name[8:]) > 3}
        for device, cases in values.items()
    }
    assert result == find(rest)
    assert result[-1].is_flagged


@pytest.mark.parametrize("num_devices", [0, 1, 2])
def test_fewer_than_three_devices_cannot_be_compared(num_devices: int) -> None:
    values = node(np.random.default_rng(49), num_devices=8)
    assert find(dict(list(values.items())[:num_devices])) == ()


def test_devices_without_a_workload_in_common_cannot_be_compared() -> None:
    assert find({"a": {"x": [(0, 1.0)]}, "b": {"y": [(0, 1.0)]}, "c": {"z": [(0, 1.0)]}}) == ()
    assert find({"a": {}, "b": {}, "c": {}}) == ()


def test_others_that_are_all_the_same_name_nobody() -> None:
    values: Node = {name: {"w": [(0, 0.1), (1, 0.1)]} for name in "abcdefg"}
    values["h"] = {"w": [(0, 0.3), (1, 0.3)]}
    assert math.isnan(find(values)[-1].t)
    assert flagged(values) == []


def test_the_order_of_devices_and_workloads_makes_no_difference() -> None:
    values = node(np.random.default_rng(50), num_devices=4, num_workloads=3)
    expected = {item.device: item for item in find(values)}
    for order in permutations(values):
        turned = {name: dict(reversed(values[name].items())) for name in order}
        for item in find(turned):
            assert item.t == pytest.approx(expected[item.device].t, rel=1e-9)


def test_an_absurdly_slow_device_is_named_without_a_crash() -> None:
    values = node(np.random.default_rng(51))
    values["gpu:7"] = {name: [(0, 900.0), (1, 900.0)] for name in values["gpu:7"]}
    assert find(values)[-1].effect == math.inf
    assert flagged(values) == ["gpu:7"]
