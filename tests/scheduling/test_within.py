"""A plan within some minutes: its cases, its launches, what is left out, and what is refused."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.builders import FUNCTIONAL, PROTOCOL, healthy_events, limited, verdict_of
from support.observed import an_observed_case
from support.planned_suites import place, plan_inputs, planned, suite, suite_case

from appliance.cli.progress import default_sentence
from appliance.errors import UsageError
from appliance.planning.coverage import gaps
from appliance.planning.criterion_scope import planned_bounds
from appliance.planning.plan import make_plan
from appliance.records.criteria import Criterion
from appliance.records.json import from_json, to_json
from appliance.records.plan import Plan
from appliance.records.qualified import ObservedCase
from appliance.records.workload import Work
from appliance.scheduling import build_times, forecast, references, step_rates
from appliance.scheduling.rows import grouped
from appliance.scheduling.suite_times import amount
from appliance.scheduling.within import plan_whole, plan_within
from appliance.scheduling.words import table
from appliance.storage import qualified_file, suite_file

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

import write_suite_times

LONG = suite(
    replace(suite_case("gemm"), expected_seconds=30.0, reference_seconds=60.0),
    replace(suite_case("bert"), expected_seconds=60.0, reference_seconds=120.0),
    replace(suite_case("llama"), expected_seconds=600.0, reference_seconds=600.0),
    limit=1e6,
)


def within(minutes: int, observed: Sequence[ObservedCase] = ()) -> Plan:
    return plan_within(plan_inputs(LONG), minutes, observed)


def launches(plan: Plan) -> dict[str, int | None]:
    assert plan.schedule is not None
    return {row.name: row.launches for row in plan.schedule.rows}


def observed(
    workload: str, seconds: float, *, recorded: str = "2026-11-22T00:00:00Z"
) -> ObservedCase:
    (case,) = [case for case in planned(LONG).cases if case.workload == workload]
    return an_observed_case(case, "M", seconds=seconds, recorded=recorded)


def test_a_plan_within_minutes_holds_them_and_names_what_has_no_room() -> None:
    plan = within(5)
    assert launches(plan) == {"gemm-1": 2, "bert-1": 1, "llama-1": None}
    assert [(case.id, case.launches) for case in plan.cases] == [
        ("gemm-1@cpu:0", 2),
        ("bert-1@cpu:0", 1),
    ]
    assert plan.longest_seconds == 300.0
    assert [(one.case, one.reason) for one in plan.not_planned] == [
        (
            "llama-1",
            "it needs 20.0 min at least, by an allowance, and 5 min have no room for it",
        )
    ]
    assert sorted(launch.id for launch in plan.launches if launch.is_timed) == [
        "bert-1@cpu:0/1",
        "gemm-1@cpu:0/1",
        "gemm-1@cpu:0/2",
    ]


def test_a_plan_with_room_for_all_is_the_plan_of_the_suite() -> None:
    plan = within(10_000)
    assert replace(plan, schedule=None) == planned(LONG)
    assert gaps(plan, FUNCTIONAL) == ()


def test_a_plan_within_minutes_comes_back_from_its_file_and_is_the_same_again() -> None:
    assert from_json(Plan, to_json(within(5)), name="plan.json") == within(5)


def test_devices_share_the_time_of_a_row_unless_it_works_alone() -> None:
    both = plan_within(plan_inputs(LONG, places=(place(0), place(1))), 5, ())
    assert launches(both) == {"gemm-1": 5, "bert-1": None, "llama-1": None}  # bert works alone
    assert len(both.cases) == 2
    assert both.longest_seconds == 60.0 + 5 * 30.0


def test_recorded_times_stand_in_the_place_of_allowances() -> None:
    old = observed("llama", 1000.0, recorded="2026-11-20T00:00:00Z")
    plan = within(5, (observed("llama", 20.0), old))
    assert plan.schedule is not None
    times = {row.name: row.is_recorded for row in plan.schedule.rows}
    assert times == {"gemm-1": False, "bert-1": False, "llama-1": True}
    (llama,) = [case for case in plan.cases if case.workload == "llama"]
    assert (llama.expected_seconds, llama.reference_seconds) == (20.0, 20.0)
    assert launches(plan)["llama-1"] is not None
    assert launches(within(5, (replace(observed("llama", 20.0), model="N"),)))["llama-1"] is None


FULL = replace(LONG, case=tuple(replace(item, small=False) for item in LONG.case))


def timed_step(workload: str, seconds: float) -> ObservedCase:
    """A step of the same work at full size by another version, of which no launch was timed."""
    known = observed(workload, 1.0)
    return replace(
        known, size="full", version=known.version + 1, launch_seconds=None, step_seconds=seconds
    )


def test_step_that_was_timed_makes_an_estimate_of_the_parts_of_a_launch() -> None:
    steps = (timed_step("llama", 0.5), timed_step("gemm", 0.0001))
    plan = plan_within(plan_inputs(FULL), 60, steps)
    assert plan.schedule is not None
    times = {row.name: row.times for row in plan.schedule.rows}
    assert times == {"gemm-1": "estimated", "bert-1": "allowance", "llama-1": "estimated"}
    (llama,) = [case for case in plan.cases if case.workload == "llama"]
    reference = references.load().seconds("llama", {}, llama.work.flops, 16) or 0.0
    parts = [
        forecast.SETUP_SECONDS + build_times.load().model_seconds + forecast.FIRST_STEPS * 0.5,
        PROTOCOL.calibration_seconds,
        reference,
        max(PROTOCOL.warmup_seconds, PROTOCOL.warmup_steps * 0.5),
        PROTOCOL.blocks * max(PROTOCOL.block_seconds, PROTOCOL.block_steps * 0.5),
    ]
    assert llama.expected_seconds == round(sum(parts), 1)
    assert llama.reference_seconds == round(sum(parts[:3]), 1)  # it times nothing
    assert "0 are recorded, 2 estimated, the other is an allowance" in table(plan)[0]


@pytest.mark.parametrize(
    "other",
    [
        {"model": "N"},
        {"workload": "another"},
        {"size": "small"},
        {"parameters": {"dtype": "another"}},
    ],
)
def test_steps_of_other_work_or_devices_make_no_estimate(other: dict[str, Any]) -> None:
    step = replace(timed_step("gemm", 0.5), **other)
    plan = plan_within(plan_inputs(FULL), 60, (step,))
    assert plan.schedule is not None
    assert {row.times for row in plan.schedule.rows} == {"allowance"}


H100 = "NVIDIA H100 80GB HBM3"


def on_an_h100(minutes: int, observed: Sequence[ObservedCase] = ()) -> Plan:
    """A row of 1e15 operations a step, beside two that count none."""
    device = replace(place(0), device=replace(place(0).device, model=H100))
    inputs = plan_inputs(FULL, places=(device,))
    counted = Work(flops=1e15, precision="bfloat16")
    first, *others = inputs.answer.resolved
    answer = replace(inputs.answer, resolved=(replace(first, work=counted), *others))
    return plan_within(replace(inputs, answer=answer), minutes, observed)


def test_step_that_nobody_has_timed_is_assumed_of_its_operations_and_stated_so() -> None:
    plan = on_an_h100(60)
    assert plan.schedule is not None
    times = {row.name: row.times for row in plan.schedule.rows}
    assert times == {"gemm-1": "step assumed", "bert-1": "allowance", "llama-1": "allowance"}
    (gemm,) = [case for case in plan.cases if case.workload == "gemm"]
    step = step_rates.assumed_step_seconds(gemm, H100) or 0.0
    wanted = forecast.estimate(gemm, H100, step, PROTOCOL, "assumed")
    assert (gemm.expected_seconds, gemm.reference_seconds) == (
        wanted.seconds,
        wanted.untimed_seconds,
    )
    assert "1 estimated of an assumed step, the others" in table(plan)[0]


def test_row_with_an_assumed_step_is_assured_its_fewest_launches() -> None:
    plan = on_an_h100(240)
    counts = {case.workload: (case.launches, case.assured) for case in plan.cases}
    assert counts["gemm"] == (5, 1)
    assert counts["bert"] == (5, None)
    assert any("up to 5 launches where time is left" in line for line in table(plan))


def test_whole_suite_is_planned_with_what_is_known_of_its_full_sizes() -> None:
    suite, observed = suite_file.load_suite("acceptance")[0], qualified_file.load_observed()
    inputs = write_suite_times.inputs_of(suite, write_suite_times.device_of(H100))
    plan = plan_whole(inputs, observed)
    shown = write_suite_times.time_of(suite, H100, observed)
    assert shown is not None
    assert plan.expected_seconds == pytest.approx(60 * shown.minutes, abs=1.0)
    assert plan.expected_seconds < 0.5 * make_plan(inputs).expected_seconds
    assert f"planned time about {amount(shown.minutes)};" in default_sentence(plan)


def test_others_are_named_where_there_are_some() -> None:
    all_known = [observed(name, 1.0) for name in ("gemm", "bert", "llama")]
    assert table(within(10, all_known))[0].endswith("the times of 3 are recorded")


def test_small_rows_of_a_whole_suite_keep_their_allowances() -> None:
    assert plan_whole(plan_inputs(LONG), (observed("gemm", 1.0),)) == planned(LONG)


def test_step_that_was_timed_counts_more_than_an_assumed_one() -> None:
    step = replace(timed_step("gemm", 0.5), model=H100)
    plan = on_an_h100(60, (step,))
    assert plan.schedule is not None
    assert [row.times for row in plan.schedule.rows if row.name == "gemm-1"] == ["estimated"]


def test_recorded_launch_counts_more_than_an_estimate() -> None:
    plan = plan_within(plan_inputs(FULL), 60, (timed_step("gemm", 0.5), observed("gemm", 20.0)))
    assert plan.schedule is not None
    assert [row.times for row in plan.schedule.rows if row.name == "gemm-1"] == ["recorded"]


def test_bounds_and_checked_launches_are_of_the_launches_that_are_planned() -> None:
    criteria = limited(1.0, cases="gemm-1")
    given = replace(LONG, protocol=replace(PROTOCOL, interim_analyses=(2, 4, 8)))
    plan = plan_within(plan_inputs(given, criteria=criteria), 4, ())
    (gemm,) = [case for case in plan.cases if case.workload == "gemm"]
    assert (gemm.launches, gemm.assured) == (8, 4)
    assert gemm.checked_launch in range(1, 3)
    wanted = planned_bounds(criteria, plan.cases, (2, 4, 8))
    assert (plan.num_limits, plan.bounds) == wanted
    assert {one.interim_analyses for one in plan.bounds} == {(2, 4, 8)}  # risk of all of them


@pytest.mark.parametrize(("minutes", "least"), [(1, 2), (1, 3)])
def test_too_few_minutes_are_refused_with_the_smallest_number_that_works(
    minutes: int, least: int
) -> None:
    first = replace(LONG.case[0], reference_seconds=60.0 * (least - 1))
    inputs = plan_inputs(replace(LONG, case=(first, *LONG.case[1:])))
    with pytest.raises(
        UsageError, match=rf"--minutes {minutes} is too few .* {least} is the small"
    ):
        plan_within(inputs, minutes, ())
    assert plan_within(inputs, least, ()).cases


def test_minutes_that_keep_no_sustained_stage_are_too_few() -> None:
    drift = Criterion(
        id="heat",
        kind="drift",
        title="No drift",
        metric="drift",
        at_most=0.05,
        sustained_seconds=0.4,
    )
    criteria = replace(FUNCTIONAL, criterion=(*FUNCTIONAL.criterion, drift))
    with pytest.raises(UsageError, match=r"under load for 0.4 s.*--minutes 4 is the smallest"):
        plan_within(plan_inputs(LONG, criteria=criteria), 2, ())
    assert plan_within(plan_inputs(LONG, criteria=criteria), 4, ()).cases


def test_minutes_and_sessions_exclude_each_other() -> None:
    with pytest.raises(UsageError, match="one session"):
        plan_within(plan_inputs(LONG, sessions=2), 30, ())


def test_what_was_left_out_for_want_of_time_is_never_what_a_node_may_lack() -> None:
    plan = within(5)
    assert [one.case for one in gaps(plan, replace(FUNCTIONAL, may_lack=("*",)))] == ["llama-1"]


def test_a_healthy_run_with_rows_left_out_is_inconclusive_and_names_them() -> None:
    plan = within(5)
    verdict = verdict_of(plan, healthy_events(plan), replace(FUNCTIONAL, may_lack=("*",)))
    assert verdict.verdict == "INCONCLUSIVE"
    assert "Planned within 5 min: 1 of 3 rows of the suite were not run" in verdict.scope
    (gap,) = [one for one in verdict.rulings if one.reason == "coverage"]
    assert (gap.ruling, gap.required) == ("inconclusive", True)
    assert gap.explanation.startswith("1 case of the suite is not planned (llama-1: it needs 20.0")
    assert gap.action == "Run it within more minutes, or without --minutes."
    assert "so nothing is shown of them: llama-1." in verdict.scope
    assert "the node lacks room" not in verdict.scope


def test_a_healthy_run_of_every_row_is_accepted_and_says_its_minutes() -> None:
    plan = within(30)
    assert all(launches(plan).values())
    verdict = verdict_of(plan, healthy_events(plan))
    assert verdict.verdict == "ACCEPTED"
    assert "Planned within 30 min: every row of the suite" in verdict.scope


def test_speeds_that_are_compared_bring_their_rows_together() -> None:
    ratio = Criterion(
        id="ratio",
        kind="perf",
        title="As fast",
        cases="gemm-1",
        against="llama-1",
        metric="throughput_ratio",
        at_least=0.9,
    )
    criteria = replace(FUNCTIONAL, criterion=(*FUNCTIONAL.criterion, ratio))
    names = ("gemm-1", "bert-1", "llama-1")
    assert grouped(names, criteria) == {"gemm-1": "gemm-1", "bert-1": "bert-1", "llama-1": "gemm-1"}
    assert grouped(names, FUNCTIONAL) == {name: name for name in names}


def test_the_table_names_every_row_with_its_launches_or_why_there_are_none() -> None:
    first, heads, *rows = table(within(5))
    assert first == (
        "within 5 min: 2 of 3 rows and variants of mine, planned for 5.0 min at most; 1 left out "
        "for want of time; the times of 0 are recorded, the others are allowances"
    )
    assert heads.split() == ["row", "timed", "launches", "min", "times"]
    assert rows[0].split() == ["gemm-1", "2", "2.0", "allowance"]
    assert rows[2].split(maxsplit=4)[:4] == ["llama-1", "left", "out", "-"]
    assert rows[2].endswith("5 min have no room for it")
    assert table(planned(LONG)) == ()
