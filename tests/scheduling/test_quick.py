"""`--quick`: what a minute has room for, and which options it leaves open."""

from dataclasses import replace

import pytest
from support.large_nodes import FEATURES, SEED, _answer, _system
from support.recorded_runs import CRITERIA

from appliance.errors import UsageError
from appliance.planning import workload_manifest
from appliance.planning.plan import Place, PlanInputs
from appliance.records.plan import Plan
from appliance.scheduling.within import plan_within
from appliance.storage.criteria_file import load_criteria
from appliance.storage.suite_file import load_suite
from appliance.verbs.run_options import QUICK_MINUTES, QUICK_SUITE, PlanOptions


def quick(num_devices: int, *, is_functional: bool = False) -> Plan:
    """The plan where nothing is known of the devices: every time is the suite's allowance."""
    suite, _ = load_suite(QUICK_SUITE)
    system = _system(num_devices)
    inputs = PlanInputs(
        suite=suite,
        answer=_answer(suite, system),
        places=[
            Place(device=one, features=FEATURES, available_datasets=frozenset())
            for one in system.identity.devices
        ],
        criteria=load_criteria("functional")[0] if is_functional else CRITERIA,
        digests={},
        seed=SEED,
        run_id="quick",
        created_utc="2026-01-01T00:00:00Z",
        bench_version="0",
        manifest=workload_manifest.load(),
    )
    return plan_within(inputs, QUICK_MINUTES, ())


@pytest.mark.parametrize("num_devices", [1, 8])
@pytest.mark.parametrize("is_functional", [False, True])
def test_every_row_fits_into_the_minute_by_its_allowance(
    num_devices: int, *, is_functional: bool
) -> None:
    plan = quick(num_devices, is_functional=is_functional)
    suite, _ = load_suite(QUICK_SUITE)
    assert len(plan.cases) == num_devices * len(suite.case)
    assert not plan.not_planned
    assert plan.longest_seconds <= 60 * QUICK_MINUTES + 1e-6


def test_its_rows_are_rows_of_smoke_as_they_stand_there() -> None:
    smoke = {item.id: item for item in load_suite("smoke")[0].case}
    quick_suite, _ = load_suite(QUICK_SUITE)
    assert all(smoke[item.id] == item for item in quick_suite.case)
    assert quick_suite.protocol == load_suite("smoke")[0].protocol


def test_it_is_the_suite_quick_within_a_minute_unless_another_suite_is_named() -> None:
    options = PlanOptions(quick=True)
    assert (options.suite_for("cpu"), options.suite_for("cuda")) == (QUICK_SUITE, QUICK_SUITE)
    assert options.within_minutes == QUICK_MINUTES
    named = options.of_suite("smoke")
    assert (named.suite_for("cpu"), named.within_minutes) == ("smoke", QUICK_MINUTES)
    assert replace(options, quick=False).within_minutes is None


def test_a_minute_and_other_minutes_are_one_too_many() -> None:
    with pytest.raises(UsageError, match="leave one of --quick and --minutes out"):
        PlanOptions(quick=True, minutes=30)
