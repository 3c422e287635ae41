"""A schedule that does not follow from its times, its minutes and its criteria does not verify."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.builders import FUNCTIONAL, a_plan, healthy_events
from support.bundles import SYSTEM, Draft, analysed, as_drawn, healthy, sealed
from support.observed import an_observed_case

from appliance.errors import EvidenceError
from appliance.records.plan import Plan, Schedule
from appliance.records.workload import Work
from appliance.scheduling.allocation import allocated
from appliance.scheduling.rows import rows_of
from appliance.scheduling.within import left_out
from appliance.signing.keys import development_key
from appliance.verification.schedule_checks import check_schedule
from appliance.verification.suite_checks import check_suite
from appliance.verification.terms import Terms
from appliance.verification.verify import verify
from appliance.version import VERSION

LEFT_OUT = "llama"
H100 = "NVIDIA H100 80GB HBM3"


def scheduled(minutes: int = 1) -> Plan:
    """The healthy plan as within a minute, beside a row that has no room in it."""
    plan = healthy().plan
    cases = tuple(replace(one, launches=5 if one.is_timed else 0) for one in plan.cases)
    made = rows_of(cases, plan.protocol, FUNCTIONAL, {})
    large = replace(made[0], name=LEFT_OUT, group=LEFT_OUT, fixed_seconds=600.0)
    made = tuple(replace(row, most=min(row.most, 2)) for row in (*made, large))
    launches = allocated(made, minutes, plan.protocol.interim_analyses)
    rows = tuple(replace(row, launches=launches[row.name]) for row in made)
    schedule = Schedule(minutes=minutes, rows=rows)
    counted = tuple(replace(one, launches=launches[one.workload] or 0) for one in cases)
    return with_launches(replace(plan, cases=counted, schedule=schedule))


def with_launches(plan: Plan) -> Plan:
    """The plan with the launches of its cases, and what its schedule leaves out."""
    again = a_plan(*plan.cases, protocol=plan.protocol)
    assert plan.schedule is not None
    return as_drawn(
        replace(
            plan,
            launches=again.launches,
            groups=again.groups,
            not_planned=left_out(plan.schedule),
        )
    )


def check(plan: Plan) -> str:
    return check_schedule(plan, SYSTEM, FUNCTIONAL, ())


def rows_with(plan: Plan, name: str, **changed: Any) -> Plan:
    assert plan.schedule is not None
    rows = tuple(replace(row, **changed) if row.name == name else row for row in plan.schedule.rows)
    return replace(plan, schedule=replace(plan.schedule, rows=rows))


def test_a_schedule_that_follows_is_said_beside_the_launches() -> None:
    assert check(scheduled()) == (
        "; planned within 1 min, 3 of 4 rows of the suite, as its times say"
    )
    assert check(healthy().plan) == ""


def test_a_bundle_of_a_schedule_verifies_and_accepts_nothing(tmp_path: Path) -> None:
    plan = scheduled()
    draft = Draft(plan=plan, events=tuple(analysed(plan, healthy_events(plan))))
    verification = verify(
        sealed(tmp_path / "run", draft, development_key()), Terms(allow_development=True)
    )
    assert verification.faults == ()
    assert (verification.verdict, verification.exit_code) == ("INCONCLUSIVE", 3)


def test_a_bundle_whose_schedule_spares_a_launch_does_not_verify(tmp_path: Path) -> None:
    plan = scheduled()
    cases = tuple(replace(one, launches=1) if one.workload == "gemm" else one for one in plan.cases)
    spared = with_launches(rows_with(replace(plan, cases=cases), "gemm", launches=1))
    draft = Draft(plan=spared, events=tuple(analysed(spared, healthy_events(spared))))
    verification = verify(
        sealed(tmp_path / "run", draft, development_key()), Terms(allow_development=True)
    )
    assert verification.exit_code == 4
    assert "gives gemm 1 launches, and by its times 2 launches follow" in verification.faults[0]


SPOILED: dict[str, tuple[Callable[[Plan], Plan], str]] = {
    "a row left out": (
        lambda plan: rows_with(plan, "gemm", launches=None),
        "other rows than its cases",
    ),
    "fewer minutes": (
        lambda plan: replace(plan, schedule=Schedule(minutes=0, rows=plan.schedule.rows)),
        "minutes or sessions that no run can have",
    ),
    "a time that is not the case's": (
        lambda plan: rows_with(plan, "gemm", launch_seconds=0.5),
        "other times or launches of gemm",
    ),
    "a limit on how few": (
        lambda plan: rows_with(plan, "bert", least=2),
        "other times or launches of bert",
    ),
    "a weight": (
        lambda plan: rows_with(plan, "bert", weight=0.5),
        "other times or launches of bert",
    ),
    "a comparison that nobody makes": (
        lambda plan: rows_with(plan, LEFT_OUT, group="gemm"),
        "compares llama with another row",
    ),
    "a row that has room": (
        lambda plan: rows_with(plan, LEFT_OUT, fixed_seconds=1.0),
        "gives llama no launches",
    ),
    "silence on what is left out": (
        lambda plan: replace(plan, not_planned=()),
        "does not name the rows",
    ),
    "a row twice": (
        lambda plan: replace(
            plan, schedule=replace(plan.schedule, rows=(*plan.schedule.rows, plan.schedule.rows[0]))
        ),
        "a row twice",
    ),
    "an estimate that there is none of": (
        lambda plan: replace(rows_with(plan, "gemm", is_estimated=True), bench_version=VERSION),
        "goes by 1 s for a launch of gemm@cpu:0, and the records of .* have none",
    ),
    "an assumed step that spares launches": (
        lambda plan: rows_with(plan, "gemm", is_estimated=True, is_assumed=True),
        "gives gemm 2 launches, and by its times 1 launches follow",
    ),
    "a record that there is none of": (
        lambda plan: replace(rows_with(plan, "gemm", is_recorded=True), bench_version=VERSION),
        "goes by 1 s for a launch of gemm@cpu:0, and the records of .* have none",
    ),
}


@pytest.mark.parametrize("defect", SPOILED)
def test_a_schedule_that_does_not_follow_is_a_fault(defect: str) -> None:
    spoil, sentence = SPOILED[defect]
    with pytest.raises(EvidenceError, match=sentence):
        check(spoil(scheduled()))


def test_times_are_those_of_the_records_that_this_bench_has() -> None:
    plan = replace(scheduled(), bench_version=VERSION)
    (gemm,) = [case for case in plan.cases if case.workload == "gemm"]
    known = an_observed_case(gemm, SYSTEM.identity.devices[0].model, seconds=3.0)
    with pytest.raises(EvidenceError, match=r"goes by 1 s .* gemm@cpu:0, .* have 3 s"):
        check_schedule(plan, SYSTEM, FUNCTIONAL, (known,))
    assert check_schedule(replace(plan, bench_version="0.4.9"), SYSTEM, FUNCTIONAL, (known,))
    assert check_schedule(plan, SYSTEM, FUNCTIONAL, (replace(known, model="Another"),))


def test_times_of_an_assumed_step_are_estimated_once_more() -> None:
    (device,) = SYSTEM.identity.devices
    system = replace(
        SYSTEM,
        identity=replace(SYSTEM.identity, devices=(replace(device, model=H100),)),
    )
    plan = replace(scheduled(), bench_version=VERSION)
    cases = tuple(
        replace(one, small=False, work=Work(flops=1e13, precision="float16"))
        if one.workload == "gemm"
        else one
        for one in plan.cases
    )
    with pytest.raises(EvidenceError, match=r"goes by 1 s .* gemm@cpu:0, .* \(assumed\)"):
        check_schedule(replace(plan, cases=cases), system, FUNCTIONAL, ())


def test_a_schedule_is_not_the_suite_that_a_reader_expects() -> None:
    suite: Any = type("Suite", (), {"name": "mine"})
    with pytest.raises(EvidenceError, match="what of suite mine there was time for in 1 min"):
        check_suite(scheduled(), SYSTEM, FUNCTIONAL, suite, {})
