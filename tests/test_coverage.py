"""What a node is too small for, and how fast a variant is beside its case, in the verdict."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from builders import FUNCTIONAL, SYSTEM, a_case, a_plan, healthy_events, verdict_of, with_bounds

from appliance import coverage, placing
from appliance.conduct import check_suite
from appliance.errors import EvidenceError
from appliance.records import Case, Device, NotPlanned, Plan, Suite, SuiteCase, System
from appliance.variants import Contrast

MANY = NotPlanned(case="many-gpus", device="", reason="it needs 2 devices, and this node has 1")
SMALL = NotPlanned(
    case="large", device="cpu:0", reason="it needs 80 GiB of memory, and cpu:0 has 8"
)


def lacking(*found: NotPlanned) -> Plan:
    return replace(a_plan(), not_planned=found)


def test_a_run_that_lacks_a_case_of_its_suite_is_not_accepted() -> None:
    plan = lacking(MANY, SMALL)
    verdict = verdict_of(plan, healthy_events(plan))
    (ruling,) = [item for item in verdict.rulings if item.ruling != "pass"]
    assert (verdict.verdict, ruling.reason, ruling.required) == ("INCONCLUSIVE", "coverage", True)
    assert "2 cases of the suite are not planned (many-gpus: it needs 2" in ruling.explanation
    assert "large@cpu:0: it needs 80 GiB" in ruling.explanation
    assert "2 of the suite's cases are not planned" in verdict.scope


def test_criteria_may_name_what_a_node_may_lack_and_nothing_more() -> None:
    plan = lacking(MANY, SMALL)
    some = replace(FUNCTIONAL, may_lack=("*-gpus",))
    assert coverage.gaps(plan, some) == (SMALL,)
    assert verdict_of(plan, healthy_events(plan), some).verdict == "INCONCLUSIVE"
    both = replace(FUNCTIONAL, may_lack=("*-gpus", "large"))
    assert verdict_of(plan, healthy_events(plan), both).verdict == "ACCEPTED"
    misspelt = replace(FUNCTIONAL, may_lack=("*-gpu", "larg"))
    assert verdict_of(plan, healthy_events(plan), misspelt).verdict == "INCONCLUSIVE"


def test_a_whole_suite_is_accepted_as_before() -> None:
    plan = lacking()
    assert verdict_of(plan, healthy_events(plan)).verdict == "ACCEPTED"


def test_sentences_name_what_is_not_planned_and_what_cannot_run() -> None:
    plan = replace(a_plan(a_case(unsupported="cpu:0 has no float8")), not_planned=(MANY,))
    assert coverage.sentences(plan) == (
        "many-gpus is not planned: it needs 2 devices, and this node has 1",
        "gemm@cpu:0 cannot run: cpu:0 has no float8",
    )


# ------------------------------------------------------------------ variants


def test_a_variant_is_apart_where_its_ratio_is_known_to_be_another() -> None:
    def contrast(ratio: float, reference: float | None) -> Contrast:
        return Contrast(variant="a~b@cpu:0", case="a@cpu:0", ratio=ratio, reference=reference)

    together = [contrast(0.0, None), contrast(0.0, 0.09)]
    apart = [contrast(0.0, -0.11), contrast(math.nan, 0.0)]
    assert [one.is_apart for one in (*together, *apart)] == [False, False, True, True]
    assert all("a~b@cpu:0 runs at " in one.sentence for one in (*together, *apart))


def test_a_variant_of_a_healthy_run_changes_no_verdict_and_has_no_score() -> None:
    base = a_case()
    drawn = replace(base, id="gemm~wide@cpu:0", variant="wide", variant_of=base.id, weight=0.0)
    plan = a_plan(base, drawn)
    verdict = verdict_of(plan, healthy_events(plan))
    assert verdict.verdict == "ACCEPTED"
    assert [item.case for item in verdict.cases] == ["gemm@cpu:0", "gemm~wide@cpu:0"]


# ------------------------------------------------------------------ what is known beforehand


def test_a_run_that_cannot_be_accepted_says_so_before_its_first_launch() -> None:
    assert coverage.foretold(a_plan(), FUNCTIONAL) == ()
    (gap,) = coverage.foretold(lacking(MANY), FUNCTIONAL)
    assert gap.startswith("the run cannot be accepted: 1 case of the suite is not planned (many-")
    assert coverage.foretold(lacking(MANY), replace(FUNCTIONAL, may_lack=("many*",))) == ()
    nowhere = replace(FUNCTIONAL.criterion[0], cases="gmm*")
    (said,) = coverage.foretold(a_plan(), replace(FUNCTIONAL, criterion=(nowhere,)))
    assert "matches no planned case" in said


# ------------------------------------------------------------------ the suite that was expected


def suite_of(plan: Plan, *items: SuiteCase) -> Suite:
    return Suite(
        name="mine",
        version=1,
        summary="",
        time_limit_seconds=1e3,
        variants=True,
        protocol=plan.protocol,
        case=items,
    )


def item_of(case: Case, **fields: object) -> SuiteCase:
    given = SuiteCase(
        id=case.id.partition("@")[0],
        workload=case.workload,
        small=case.small,
        parameters=case.parameters,
        launches=case.launches,
        weight=case.weight,
        expected_seconds=1.0,
        reference_seconds=1.0,
        time_limit_seconds=case.time_limit_seconds,
        memory_limit_gib=1.0,
    )
    return replace(given, **fields)  # type: ignore[arg-type]


def test_a_plan_holds_what_its_suite_places_here_and_says_what_it_does_not() -> None:
    case = a_case(parameters={"batch": 4})
    plan = with_bounds(a_plan(case), FUNCTIONAL)
    far = item_of(a_case("far"), num_nodes=2)
    suite = suite_of(plan, item_of(case), far)
    _, wanted = placing.place(suite, SYSTEM.identity.devices, plan.seed)
    whole = replace(plan, not_planned=wanted)
    check_suite(whole, SYSTEM, FUNCTIONAL, suite)
    for other in (
        plan,  # silent of what it lacks
        replace(whole, not_planned=(replace(wanted[0], reason="it rained"),)),
        replace(whole, cases=(replace(case, parameters={"batch": 5}),)),
        replace(whole, cases=(replace(case, memory_class_gib=24),)),
        replace(whole, cases=(replace(case, agents=2),)),
        replace(whole, cases=(case, replace(case, id="gemm~x@cpu:0", variant="x", variant_of="y"))),
    ):
        with pytest.raises(EvidenceError, match="suite mine"):
            check_suite(other, SYSTEM, FUNCTIONAL, suite)


def test_a_variant_in_a_plan_is_that_of_a_case_that_was_drawn() -> None:
    case = a_case()
    plan = with_bounds(a_plan(case), FUNCTIONAL)
    suite = suite_of(plan, item_of(case))
    drawn = replace(case, id="gemm~x@cpu:0", variant="x", variant_of=case.id, weight=0.0)
    check_suite(replace(plan, cases=(case, drawn)), SYSTEM, FUNCTIONAL, suite)
    heavy = replace(plan, cases=(case, replace(drawn, weight=1.0)))
    with pytest.raises(EvidenceError, match="gemm~x@cpu:0 is not planned as"):
        check_suite(heavy, SYSTEM, FUNCTIONAL, suite)


def test_a_job_is_checked_with_all_of_its_devices() -> None:
    def one(index: int) -> Device:
        first = SYSTEM.identity.devices[0]
        return replace(first, id=f"maker:{index}", vendor="maker", index=index)

    identity = replace(SYSTEM.identity, devices=(one(0), one(1)))
    system: System = replace(SYSTEM, identity=identity)
    case = replace(
        a_case(parameters={"ranks": 2}),
        id="gemm@maker:all",
        device="maker:0",
        devices=("maker:0", "maker:1"),
        scope="job",
        ranks=2,
    )
    plan = with_bounds(a_plan(case), FUNCTIONAL)
    suite = suite_of(plan, item_of(case, scope="job", parameters={"ranks": 4}))
    check_suite(plan, system, FUNCTIONAL, suite)  # a rank on each, whatever the suite says
    other = replace(plan, cases=(replace(case, parameters={"ranks": 4}),))
    with pytest.raises(EvidenceError):
        check_suite(other, system, FUNCTIONAL, suite)
