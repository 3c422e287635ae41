"""Which rows a qualification makes, and in which order."""

from __future__ import annotations

import pytest
from support.builders import a_case, a_plan

from appliance.errors import UsageError
from appliance.planning import workload_manifest
from appliance.planning.plan import fresh_controls
from appliance.qualifying import rows, schedule
from appliance.scheduling import launch_kinds
from appliance.verbs.qualify import shipped


def test_small_rows_are_every_workload_with_two_seeds() -> None:
    known = shipped()
    suite = rows.small(known, (), {"cora", "cifar-10-python", "shakespeare"})
    names = {rows.row_of(item.id) for item in suite.case}
    assert {seed for _, seed in names} == {1, 2}
    data = rows.lacking_data(known, (), ())
    assert {item.workload for item in suite.case} | data.keys() == set(workload_manifest.load())
    assert all(item.small for item in suite.case)
    first = [item.workload for item in suite.case][:1]
    assert first == ["resnet50_jpeg"]  # the first case of acceptance


def test_full_rows_begin_with_those_of_acceptance() -> None:
    known = shipped()
    suite = rows.full(known, ())
    expected = [item.id for item in known.large[0].case]
    assert [item.id for item in suite.case][: len(expected)] == expected
    assert len({item.id for item in suite.case}) == len(suite.case)


def test_chosen_workloads_alone_are_made() -> None:
    suite = rows.small(shipped(), ("bert",), ())
    assert {item.workload for item in suite.case} == {"bert"}
    with pytest.raises(UsageError, match='there is no workload "brt"'):
        rows.check_names(shipped(), ["brt"])


CASES = [a_case(f"{name}-seed{seed}") for seed in (1, 2) for name in ("bert", "gemm")]


def names(stage: str) -> list[str]:
    groups = schedule.scheduled(a_plan(*CASES), stage).groups
    return [name.replace("@cpu:0", "") for group in groups for name in group]


def test_first_seed_comes_before_the_second_and_repeats_follow() -> None:
    assert names("small") == ["bert-seed1/1", "gemm-seed1/1", "bert-seed2/1", "gemm-seed2/1"]
    assert names("again") == [
        *("bert-seed1/r2", "bert-seed1/r3", "gemm-seed1/r2", "gemm-seed1/r3"),
        *("bert-seed1/2", "gemm-seed1/2"),
    ]


def test_what_is_done_is_left_out() -> None:
    plan = schedule.scheduled(a_plan(*CASES), "small")
    done = {launch.id for launch in plan.launches} - {"gemm-seed2@cpu:0/1"}
    left = schedule.scheduled(a_plan(*CASES), "small", done)
    assert [case.id for case in left.cases] == ["gemm-seed2@cpu:0"]
    assert [launch.number for launch in left.launches] == [1]


def test_pairs_are_neighbours_and_each_kind_is_as_often_the_first() -> None:
    numbers = [int(name.rpartition("/")[2]) for name in names("pairs") if "bert-seed1" in name]
    assert numbers[:4] == [1, 2, 4, 3]
    pairs = list(zip(numbers[::2], numbers[1::2], strict=True))
    assert {(max(pair) - min(pair), sum(n % 2 for n in pair)) for pair in pairs} == {(1, 1)}
    first_fresh = sum(first % 2 == 0 for first, _ in pairs)
    assert 2 * first_fresh == len(pairs) == launch_kinds.rule().pairs
    plan = schedule.scheduled(a_plan(*CASES), "pairs")
    fresh = fresh_controls(plan.launches, rows.PAIRS.fresh_every)
    assert {name.rpartition("/")[2] for name in fresh} == {str(n) for n in range(2, 17, 2)}
