"""What a node is too small for, and how fast a variant is beside its case, in the verdict."""

from __future__ import annotations

import math
from dataclasses import replace

from support.builders import FUNCTIONAL, a_case, a_plan, healthy_events, verdict_of

from appliance.judging.variants import Contrast
from appliance.planning import coverage
from appliance.records.plan import NotPlanned, Plan

MANY = NotPlanned(case="many-gpus", device="", reason="it needs 2 devices, and this node has 1")
SMALL = NotPlanned(
    case="large", device="cpu:0", reason="it needs 80 GiB of memory, and cpu:0 has 8"
)


def lacking(*result: NotPlanned) -> Plan:
    return replace(a_plan(), not_planned=result)


def test_a_run_that_lacks_a_case_of_its_suite_is_not_accepted() -> None:
    plan = lacking(MANY, SMALL)
    verdict = verdict_of(plan, healthy_events(plan))
    rulings = [item for item in verdict.rulings if item.criterion != "repeatability"]
    (ruling,) = [item for item in rulings if item.ruling != "pass"]
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


def test_a_variant_disagrees_where_its_ratio_is_known_to_be_another() -> None:
    def contrast(ratio: float, reference: float | None) -> Contrast:
        return Contrast(variant="a~b@cpu:0", case="a@cpu:0", ratio=ratio, reference=reference)

    together = [contrast(0.0, None), contrast(0.0, 0.09)]
    disagreeing = [contrast(0.0, -0.11), contrast(math.nan, 0.0)]
    assert [one.is_disagreeing for one in (*together, *disagreeing)] == [False, False, True, True]
    assert all("a~b@cpu:0 runs at " in one.sentence for one in (*together, *disagreeing))


def test_a_variant_of_a_healthy_run_changes_no_verdict_and_has_no_score() -> None:
    base = a_case()
    drawn = replace(base, id="gemm~wide@cpu:0", variant="wide", variant_of=base.id, weight=0.0)
    plan = a_plan(base, drawn)
    verdict = verdict_of(plan, healthy_events(plan))
    assert verdict.verdict == "ACCEPTED"
    assert [item.case for item in verdict.cases] == ["gemm@cpu:0", "gemm~wide@cpu:0"]


# ------------------------------------------------------------------ what is known beforehand


def test_a_run_that_cannot_be_accepted_says_so_before_its_first_launch() -> None:
    assert coverage.preflight_warnings(a_plan(), FUNCTIONAL) == ()
    (gap,) = coverage.preflight_warnings(lacking(MANY), FUNCTIONAL)
    assert gap.startswith("the run cannot be accepted: 1 case of the suite is not planned (many-")
    assert (
        coverage.preflight_warnings(lacking(MANY), replace(FUNCTIONAL, may_lack=("many*",))) == ()
    )
    nowhere = replace(FUNCTIONAL.criterion[0], cases="gmm*")
    (output,) = coverage.preflight_warnings(a_plan(), replace(FUNCTIONAL, criterion=(nowhere,)))
    assert "matches no planned case" in output
