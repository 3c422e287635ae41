"""Ratios of two cases: how often chance decides wrongly, what the judge says, what is refused."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.builders import (
    FUNCTIONAL,
    NO_BASELINES,
    NO_PEAKS,
    PROTOCOL,
    RUN,
    STEP_NS,
    SYSTEM,
    a_case,
    a_plan,
    bare_lines,
    ended,
    launch_events,
    verdict_of,
    with_bounds,
    with_end,
)
from support.planned_suites import description, planned, suite, suite_case

from appliance.errors import UsageError
from appliance.judging import ratios
from appliance.judging.decision_rule import decide
from appliance.judging.verdict import Judge
from appliance.planning.criterion_scope import is_judged, num_limits, other_of
from appliance.records.criteria import Criteria, Criterion
from appliance.records.journal import Block, Checked, Event, RunEnded, RunStarted
from appliance.records.json import sha256, to_json
from appliance.records.plan import Case, Plan
from appliance.records.request import Answer
from appliance.records.verdict import Ruling
from appliance.records.workload import Resolved, Work
from appliance.statistics.group_sequential import group_bounds
from appliance.statistics.run_levels import Sessions, sessions_of
from appliance.storage import criteria_file

ANALYSES = (5, 10, 20, 40)
NODES = 2000
NODE, DEVICE = "loader@cpu:0", "plain@cpu:0"


# ------------------------------------------------------------------ risks, by simulation


def decided(
    *,
    ratio: float,
    limit: float,
    spreads: tuple[float, float],
    seed: int,
    shared: float = 0.0,
    alphas: tuple[float, float] = (0.01, 0.008),
    margin: float = 0.03,
) -> tuple[int, int]:
    """Of NODES simulated nodes, how many pass and how many fail at any of the interim analyses.

    `shared` is the spread of what slows both cases' launches of one round alike.
    """
    rng = np.random.default_rng(seed)
    shape = (NODES, ANALYSES[-1])
    common = shared * rng.standard_normal(shape)
    times = spreads[0] * rng.standard_normal(shape) + common - math.log(ratio)
    others = spreads[1] * rng.standard_normal(shape) + common
    bounds = list(zip(*(group_bounds(alpha, ANALYSES) for alpha in alphas), strict=True))
    counts = [0, 0]
    for one, other in zip(times, others, strict=True):
        for interim_analysis, at in zip(ANALYSES, bounds, strict=True):
            result = ratios.contrast(
                one[:interim_analysis].tolist(),
                other[:interim_analysis].tolist(),
                floor=math.log1p(margin) / 3,
            )
            assert result is not None
            tested = ratios.tested_at(result, math.log(limit), at)
            if tested.is_pass or tested.is_fail:
                counts[bool(tested.is_fail)] += 1
                break
    return counts[0], counts[1]


@pytest.mark.parametrize(
    ("spreads", "shared"),
    [((0.02, 0.02), 0.0), ((0.03, 0.003), 0.0), ((0.003, 0.03), 0.0), ((0.02, 0.02), 0.02)],
)
def test_of_nodes_at_the_limit_at_most_12_in_a_thousand_pass_or_fail(
    spreads: tuple[float, float], shared: float
) -> None:
    passed, failed = decided(ratio=0.9, limit=0.9, spreads=spreads, shared=shared, seed=1)
    assert passed / NODES <= 0.012
    assert failed / NODES <= 0.012


def test_three_sessions_whose_means_agree_by_chance_are_not_sure() -> None:
    """160,000 ratios at their limit, levels of runs 0.5 % and launches 0.3 %: a risk of 0.2 %.

    With the freedom of launches where means agree it was 0.29 %, at all analyses together.
    """
    rng = np.random.default_rng(12)
    total, earlier, in_all = 160_000, (5, 5), (15, 20, 30, 50)
    sides = [
        [
            0.005 * rng.standard_normal((total, 1)) + 0.003 * rng.standard_normal((total, count))
            for count in (*earlier, ANALYSES[-1])
        ]
        for _ in range(2)
    ]
    wrong = np.zeros(total, dtype=np.bool_)
    for count, z in zip(ANALYSES, group_bounds(0.002, in_all, earlier), strict=True):
        case, other = (sessions_of([*side[:2], side[2][:, :count]], 0.0) for side in sides)
        differences = Sessions(
            means=case.means - other.means,
            within=case.within + other.within,
            counts=(*earlier, count),
        )
        decision = decide(differences, None, log_limit=0.0, floor=0.0, z_pass=z, z_fail=z)
        wrong |= decision.tested.is_fail
    assert wrong.mean() <= 0.0023


def test_nodes_far_from_the_limit_are_told_from_it() -> None:
    good, _ = decided(ratio=1.0, limit=0.9, spreads=(0.01, 0.01), seed=2)
    _, bad = decided(ratio=0.8, limit=0.9, spreads=(0.01, 0.01), seed=3)
    assert good >= 0.99 * NODES
    assert bad >= 0.99 * NODES


def test_interval_covers_the_ratio_as_often_as_it_says() -> None:
    rng = np.random.default_rng(4)
    hits = 0
    for _ in range(NODES):
        result = ratios.contrast(
            (0.02 * rng.standard_normal(5) - math.log(0.93)).tolist(),
            (0.01 * rng.standard_normal(5)).tolist(),
        )
        assert result is not None
        low, high = result.interval()
        hits += low <= 0.93 <= high
    assert hits >= 0.945 * NODES


def test_contrast_needs_five_launches_and_numbers() -> None:
    fine = [0.0, 0.1, 0.2, 0.1, 0.0]
    assert ratios.contrast(fine[:4], fine) is None
    assert ratios.contrast(fine, [*fine[:4], math.nan]) is None
    assert ratios.contrast(fine, fine) is not None


# ------------------------------------------------------------------ the judge


def at_least(limit: float, *, cases: str = "loader", against: str = "plain") -> Criteria:
    ratio = Criterion(
        id="node-to-device",
        kind="perf",
        title="Node to device",
        cases=cases,
        metric="throughput_ratio",
        at_least=limit,
        against=against,
    )
    return replace(FUNCTIONAL, criterion=(*FUNCTIONAL.criterion, ratio))


def two_cases(launches: int = 5, **fields: object) -> Plan:
    node = replace(a_case("loader", launches=launches), **fields)  # type: ignore[arg-type]
    protocol = replace(PROTOCOL, interim_analyses=tuple(n for n in (5, 10) if n <= launches))
    return a_plan(node, a_case("plain", launches=launches), protocol=protocol)


def events(plan: Plan, factors: Mapping[str, float]) -> list[Event]:
    """A healthy run without interim analyses, whose cases take so many times the usual step."""
    begun = RunStarted(run_id=RUN, plan=sha256(to_json(plan)), system="0" * 64, pid=1)
    cases = {case.id: case for case in plan.cases}
    launches = {launch.id: launch for launch in plan.launches}
    made = [
        event
        for (name,) in plan.groups
        for event in launch_events(
            plan,
            cases[launches[name].case],
            launches[name],
            step_ns=round(STEP_NS * factors[launches[name].case]),
        )
    ]
    return [begun, *made, RunEnded(launches=len(plan.launches))]


def ruling(plan: Plan, criteria: Criteria, given: list[Event]) -> Ruling:
    verdict = verdict_of(plan, given, criteria)
    (result,) = [one for one in verdict.rulings if one.criterion == "node-to-device"]
    return result


def test_ratio_above_its_limit_passes_with_an_interval() -> None:
    plan = two_cases()
    result = ruling(plan, at_least(0.9), events(plan, {NODE: 1.0, DEVICE: 1.0}))
    assert (result.case, result.ruling, result.reason) == (NODE, "pass", "")
    statistic = result.statistic
    assert statistic is not None
    assert statistic.low is not None
    assert statistic.high is not None
    assert statistic.value == pytest.approx(1.0)
    assert statistic.low < statistic.value < statistic.high
    assert (statistic.limit, statistic.limit_source, statistic.count) == (0.9, f"of {DEVICE}", 5)


def test_ratio_below_its_limit_fails_and_near_it_is_open() -> None:
    plan = two_cases()
    slow = ruling(plan, at_least(0.9), events(plan, {NODE: 1.3, DEVICE: 1.0}))
    assert (slow.ruling, slow.reason) == ("fail", "over_limit")
    near = ruling(plan, at_least(0.9), events(plan, {NODE: 1.11, DEVICE: 1.0}))
    assert (near.ruling, near.reason) == ("inconclusive", "noise")


def test_speed_is_in_units_per_second() -> None:
    """Twice the step time with twice the units and operations is the same speed."""
    work = a_case().work
    doubled = Work(units=2 * work.units, unit=work.unit, flops=2 * (work.flops or 0.0))
    plan = two_cases(work=doubled)
    result = ruling(plan, at_least(0.9), events(plan, {NODE: 2.0, DEVICE: 1.0}))
    assert result.ruling == "pass"


def test_a_failed_check_of_the_other_case_leaves_the_ratio_open() -> None:
    plan = two_cases()
    given = events(plan, {NODE: 1.0, DEVICE: 1.0})
    crashed = with_end(given, f"{DEVICE}/0", "crashed", "SIGSEGV")
    wrong = [
        replace(event, check=replace(event.check, error=1.0))
        if isinstance(event, Checked) and event.launch == f"{DEVICE}/1"
        else event
        for event in crashed
    ]
    result = ruling(plan, at_least(0.9), wrong)
    assert (result.ruling, result.reason) == ("inconclusive", "coverage")
    assert DEVICE in result.explanation


def test_too_few_launches_of_the_other_case_leave_the_ratio_open() -> None:
    plan = two_cases()
    kept = [
        event
        for event in events(plan, {NODE: 1.0, DEVICE: 1.0})
        if getattr(event, "launch", "") != f"{DEVICE}/5"
    ]
    missing = [*kept[:-1], ended(f"{DEVICE}/5", "crashed", "SIGSEGV"), kept[-1]]
    result = ruling(plan, at_least(0.9), missing)
    assert (result.ruling, result.reason) == ("inconclusive", "coverage")


def test_launches_to_the_last_digit_alike_are_a_clock_fault() -> None:
    plan = two_cases()
    given = [
        replace(event, wall_ns=(10**7,) * 3, block_wall_ns=3 * 10**7, block_raw_ns=3 * 10**7)
        if isinstance(event, Block) and event.launch.startswith(NODE)
        else event
        for event in events(plan, {NODE: 1.0, DEVICE: 1.0})
    ]
    assert ruling(plan, at_least(0.9), given).reason == "clock"


def test_interim_analysis_waits_for_the_other_case_and_decides_both() -> None:
    criteria = at_least(0.8)
    plan = with_bounds(two_cases(10), criteria)
    judge = Judge(
        plan=plan,
        criteria=criteria,
        baselines=NO_BASELINES,
        peaks=NO_PEAKS,
        system=SYSTEM,
    )
    answers: dict[str, tuple[bool, str]] = {}
    for line in bare_lines(events(plan, {NODE: 1.0, DEVICE: 1.0})):
        judge.take(line)
        if line.event == ended(f"{NODE}/5"):
            answers["first"] = judge.interim_analysis(NODE)
        if line.event == ended(f"{DEVICE}/5"):
            answers["both"] = judge.interim_analysis(DEVICE)
            answers["again"] = judge.interim_analysis(NODE)
    assert answers["first"][0] is False
    assert "4 of plain@cpu:0 launches are too few to compare" in answers["first"][1]
    assert answers["both"] == answers["again"] == (True, "decided: within every limit")


# ------------------------------------------------------------------ beside a case


def test_estimates_beside_a_case_of_the_node_and_one_with_company() -> None:
    node = replace(a_case("same"), id="node@cpu:0", scope="node")
    plain = replace(a_case("same"), id="plain@cpu:0")
    alone = replace(a_case("same", alone=True), id="alone@cpu:0")
    factors = {node.id: 1.25, plain.id: 1.0, alone.id: 0.8}
    for cases, name, value in (
        ((node, plain), "ratio_to_device", 0.8),
        ((plain, alone), "ratio_to_alone", 0.8),
    ):
        plan = a_plan(*cases)
        results = {one.case: one for one in verdict_of(plan, events(plan, factors)).cases}
        reported = {one.name: one for one in results[cases[0].id].estimates}
        assert reported[name].value == pytest.approx(value, rel=1e-3)
        low, high = reported[name].low, reported[name].high
        assert low is not None
        assert high is not None
        assert low < reported[name].value < high
        others = {one.name for one in results[cases[1].id].estimates}
        assert not {"ratio_to_device", "ratio_to_alone"} & others


def test_nothing_stands_beside_a_case_of_other_parameters() -> None:
    node = replace(a_case("same", parameters={"batch": 2}), id="node@cpu:0", scope="node")
    plan = a_plan(node, replace(a_case("same"), id="plain@cpu:0"))
    results = verdict_of(plan, events(plan, {"node@cpu:0": 1.0, "plain@cpu:0": 1.0})).cases
    assert not any(one.name.startswith("ratio_") for case in results for one in case.estimates)


# ------------------------------------------------------------------ what is planned and refused


def test_case_that_others_are_held_against_makes_as_many_launches() -> None:
    criteria = at_least(0.9)
    assert is_judged(criteria, NODE)
    assert is_judged(criteria, DEVICE)
    assert not is_judged(criteria, "else@cpu:0")
    assert num_limits(criteria, two_cases().cases) == 1


def test_the_other_case_on_the_same_device_is_meant() -> None:
    criterion = at_least(0.9).criterion[-1]
    cases = [a_case(name, device=f"cpu:{n}") for name in ("loader", "plain") for n in range(3)]
    other = other_of(criterion, cases[1], cases)
    assert isinstance(other, Case)
    assert other.id == "plain@cpu:1"


@pytest.mark.parametrize(
    ("others", "sentence"),
    [
        ((), 'no timed cases besides loader@cpu:0 are called "plain"'),
        ((a_case("plain", device="cpu:1"), a_case("plain", device="cpu:2")), "2 timed cases"),
        ((a_case("plain", work=Work(units=4.0, unit="samples", flops=3e9)),), "do other work"),
        ((a_case("plain", work=Work(units=4.0, unit="images", flops=2e9)),), "do other work"),
        ((a_case("plain", launches=7),), "other numbers of launches"),
        ((a_case("plain", is_timed=False),), "no timed cases"),
    ],
)
def test_a_case_that_cannot_be_compared_has_a_reason(
    others: tuple[Case, ...], sentence: str
) -> None:
    case = a_case("loader")
    result = other_of(at_least(0.9).criterion[-1], case, (case, *others))
    assert isinstance(result, str)
    assert sentence in result


def test_plan_with_nothing_to_compare_with_is_refused() -> None:
    with pytest.raises(UsageError, match='"node-to-device" cannot be judged: no timed cases'):
        planned(criteria=at_least(0.9, cases="gemm*"))
    both = at_least(0.9, cases="gemm-1", against="bert-1")
    assert {case.launches for case in planned(criteria=both).cases if case.is_timed} == {5}


def test_suite_says_whether_a_case_runs_alone() -> None:
    together, alone = (replace(suite_case("gemm"), id=name) for name in ("together", "alone"))
    given = suite(together, replace(alone, alone=True))
    resolved = Resolved(
        parameters={}, work=Work(), num_parameters=None, steps=None, scenario="", ranks=1
    )
    answer = Answer(descriptions=(description("gemm"),), resolved=(resolved, resolved), software={})
    plan = planned(given, answer=answer)
    assert {case.id: case.alone for case in plan.cases} == {
        "together@cpu:0": False,
        "alone@cpu:0": True,
    }


CRITERIA = """
schema = "bench/criteria/1"
name = "mine"
version = 1
summary = "tests"
[[criterion]]
id = "ratio"
kind = "perf"
title = "Node to device"
cases = "loader"
metric = "throughput_ratio"
at_least = 0.9
against = "plain"
"""


def test_ratio_is_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(CRITERIA)
    criteria, _ = criteria_file.load_criteria(str(path))
    assert criteria.criterion[0].against == "plain"


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('against = "plain"', "", 'needs "against"'),
        ('metric = "throughput_ratio"', 'metric = "units_per_second"', 'takes no "against"'),
        ("at_least", "at_most", 'its limit must be "at_least"'),
        ("at_least = 0.9", "within_of_baseline = 0.1", "has no baseline"),
        ("at_least = 0.9", "fraction_of_peak = 0.1", "no peak to be compared with"),
        ("at_least = 0.9", "at_least = -1.0", "nothing can meet"),
    ],
)
def test_ratio_that_cannot_be_judged_is_refused(
    tmp_path: Path, old: str, new: str, sentence: str
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(CRITERIA.replace(old, new))
    with pytest.raises(UsageError, match=sentence):
        criteria_file.load_criteria(str(path))
