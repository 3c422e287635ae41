"""The deterministic phase in real processes: a planted flip, what is recorded and the ruling."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from faulty.many_tensors import TENSORS
from support.builders import FUNCTIONAL, NO_BASELINES, NO_PEAKS, SYSTEM, records
from support.launching import TESTS, Bench, case, plan

from appliance.judging.verdict import judge
from appliance.records.journal import (
    Block,
    Calibrated,
    Checked,
    LaunchStarted,
    MismatchExamined,
    Repeated,
)
from appliance.records.plan import Plan
from appliance.records.verdict import Ruling
from appliance.verification import launch_checks

FLIP = "flip@cpu:0"


@pytest.fixture(scope="module", autouse=True)
def result() -> Iterator[None]:
    """Children find the workload that flips bits."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(TESTS))
        yield


def made(folder: Path, **parameters: bool | int) -> Bench:
    """A run with three repeats of a workload that flips a bit as the parameters say."""
    given = {"counter": str(folder / "counter"), **parameters}
    one = case("flip", workload="faulty.flipping", is_timed=False, launches=0, parameters=given)
    bench = Bench(folder / "run", plan(one, repeats=3))
    bench.run()
    return bench


def ruled(bench: Bench, plan: Plan) -> Ruling:
    verdict = judge(
        plan=plan,
        criteria=FUNCTIONAL,
        lines=bench.journal.lines,
        baselines=NO_BASELINES,
        peaks=NO_PEAKS,
        system=SYSTEM,
        qualified=records(plan),
    )
    return next(one for one in verdict.rulings if one.criterion == "repeatability")


def test_three_processes_give_their_bits_one_of_them_fresh(tmp_path: Path) -> None:
    bench = made(tmp_path)
    names = [f"{FLIP}/r{number}" for number in (1, 2, 3)]
    modes = [event.mode for name in names for event in bench.of(name, LaunchStarted)]
    assert modes == ["fresh", "forked", "forked"]
    reported = [bench.of(name, Repeated) for name in names]
    assert [len(events) for events in reported] == [1, 1, 1]
    assert len({tuple(events[0].digests.items()) for events in reported}) == 1
    for name in names:  # it neither times nor checks
        assert not bench.of(name, Block | Calibrated | Checked | MismatchExamined)
        assert bench.ended(name).outcome == "completed"
    assert ruled(bench, bench.plan).ruling == "pass"
    launch_checks.check_launches(bench.plan, bench.journal.lines)


def test_a_bit_that_is_flipped_once_is_transient(tmp_path: Path) -> None:
    bench = made(tmp_path, first=2)
    (examined,) = bench.of(f"{FLIP}/r2", MismatchExamined)
    assert len(examined.answers) == 100
    assert examined.difference is not None
    assert not bench.of(f"{FLIP}/r3", MismatchExamined)
    result = ruled(bench, bench.plan)
    assert (result.ruling, result.reason) == ("inconclusive", "transient")
    assert f"launch {FLIP}/r2 gave other bits than the others" in result.explanation
    assert "few numbers or high bits" in result.explanation


def test_bits_that_are_flipped_each_time_fail(tmp_path: Path) -> None:
    bench = made(tmp_path, first=2, always=True)
    result = ruled(bench, bench.plan)
    assert (result.ruling, result.reason) == ("fail", "disagreement")
    assert "of 200 repeats of the same operands" in result.explanation


@pytest.mark.parametrize("workload", ["many_tensors", "many_tensors_unforkable"])
def test_ranks_may_have_thousands_of_tensors(tmp_path: Path, workload: str) -> None:
    one = case(
        "many",
        workload=f"faulty.{workload}",
        is_timed=False,
        launches=0,
        ranks=2,
        parameters={"ranks": 2},
    )
    bench = Bench(tmp_path / "run", plan(one, repeats=3))
    bench.run()
    for number in (1, 2, 3):
        name = f"many@cpu:0/r{number}"
        ended = bench.ended(name)
        assert ended.outcome == "completed", (ended.reason, ended.detail)
        assert [len(event.digests) for event in bench.of(name, Repeated)] == [TENSORS] * 2
