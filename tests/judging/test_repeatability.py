"""Repeats in the deterministic phase: what fails, what is transient, what nothing is known of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from support.builders import (
    FLIPPED,
    NO_BASELINES,
    NO_PEAKS,
    PROTOCOL,
    SYSTEM,
    a_case,
    a_plan,
    bare_lines,
    ended,
    examined,
    healthy_events,
    limited,
    not_made,
    records,
    repeated,
    resumed,
    verdict_of,
    with_end,
    without,
)

from appliance.errors import UsageError
from appliance.evidence.repeats import points_to
from appliance.judging.limits import NO_RECORDS
from appliance.judging.verdict import Judge
from appliance.records.journal import Event, Reading, Repeated
from appliance.records.qualified import Qualified, QualifiedRecord
from appliance.records.verdict import Ruling, Verdict
from appliance.storage.qualified_file import check_qualified

CASE = "gemm@cpu:0"
RECORD = "the qualified record of gemm on Test Processor 9000"
PLAN = a_plan(protocol=replace(PROTOCOL, repeats=20))
HEALTHY = healthy_events(PLAN)
KNOWN = records(PLAN)


def ruled(verdict: Verdict, criterion: str = "repeatability") -> Ruling:
    return next(one for one in verdict.rulings if one.criterion == criterion)


def output(events: Sequence[Event], known: Qualified = KNOWN) -> tuple[str, str, str]:
    verdict = verdict_of(PLAN, events, qualified=known)
    result = ruled(verdict)
    return verdict.verdict, result.ruling, result.reason


def differing(number: int, *answers: str, answer: str = "flipped") -> list[Event]:
    """The run in which this repeat gave other bits, and then repeated them with these answers."""
    launch = f"{CASE}/r{number}"
    events: list[Event] = []
    for event in HEALTHY:
        if event == ended(launch):
            events.append(examined(launch, *answers))
        is_it = isinstance(event, Repeated) and event.launch == launch
        events.append(repeated(launch, answer=answer) if is_it else event)
    return events


# ------------------------------------------------------------------ with a record


def test_repeats_of_the_same_bits_pass() -> None:
    assert output(HEALTHY) == ("ACCEPTED", "pass", "")


def test_one_flipped_bit_in_one_repeat_of_20_is_transient_and_named_on_page_1() -> None:
    verdict = verdict_of(PLAN, differing(7, *[""] * 100), qualified=KNOWN)
    result = ruled(verdict)
    assert (verdict.verdict, result.ruling, result.reason) == (
        "INCONCLUSIVE",
        "inconclusive",
        "transient",
    )
    assert f"launch {CASE}/r7 gave other bits than the others" in result.explanation
    assert "of 100 repeats of the same operands 0 differ" in result.explanation
    assert "bits 30 to 30 of 32" in result.explanation
    assert "points to silent corruption" in result.explanation
    assert f"Transient, left to the buyer: {CASE}: launch {CASE}/r7" in verdict.scope
    assert verdict.cases[0].estimates  # its outputs are within their bounds


def test_a_flipped_bit_in_every_repeat_fails_and_shows_no_timing() -> None:
    events = differing(2, *(f"flipped {number}" for number in range(100)))
    verdict = verdict_of(PLAN, events, limited(0.02), qualified=KNOWN)
    result = ruled(verdict)
    assert (verdict.verdict, result.ruling, result.reason) == ("REJECTED", "fail", "disagreement")
    assert verdict.decided_by == f"repeatability of {CASE}"
    assert "of 100 repeats of the same operands 100 differ" in result.explanation
    assert "1,000 clean repeats on 1 device of this model" in result.explanation
    assert verdict.cases[0].estimates == ()
    assert ruled(verdict, "speed").reason == "coverage"


@pytest.mark.parametrize(("num_differing", "reason"), [(4, "transient"), (5, "disagreement")])
def test_the_record_decides_how_many_differences_are_too_many(
    num_differing: int, reason: str
) -> None:
    answers = [f"flipped {n}" if n < num_differing else "" for n in range(100)]
    assert output(differing(3, *answers))[2] == reason
    assert output(differing(3, *answers), records(PLAN, num_clean=100))[2] == "transient"


def test_the_first_repeat_can_be_the_odd_one() -> None:
    """All others differ from it then, and of what follows none differs from the others."""
    events = differing(1, answer="flipped")
    others = [
        event
        for event in events
        if not (isinstance(event, Repeated) and event.launch == f"{CASE}/r2")
    ]
    place = others.index(ended(f"{CASE}/r2"))
    requested = [repeated(f"{CASE}/r2"), examined(f"{CASE}/r2", *[""] * 100)]
    verdict = verdict_of(PLAN, [*others[:place], *requested, *others[place:]], qualified=KNOWN)
    assert ruled(verdict).reason == "transient"
    assert f"launch {CASE}/r1 gave other bits" in ruled(verdict).explanation


def test_an_interim_analysis_stops_a_case_that_failed() -> None:
    plan = a_plan(a_case(launches=10), protocol=replace(PLAN.protocol, interim_analyses=(5, 10)))
    events = differing(2, *(f"flipped {number}" for number in range(100)))
    judge = Judge(
        plan=plan,
        criteria=limited(0.02),
        baselines=NO_BASELINES,
        peaks=NO_PEAKS,
        system=SYSTEM,
        qualified=KNOWN,
    )
    for line in bare_lines(events[: events.index(ended(f"{CASE}/5")) + 1]):
        judge.take(line)
    is_decided, reason = judge.interim_analysis(CASE)
    assert is_decided
    assert "gave other bits" in reason


@pytest.mark.parametrize("number", [1, 20])
def test_a_repeat_that_reported_nothing_is_not_covered(number: int) -> None:
    name = f"{CASE}/r{number}"
    silent = without(HEALTHY, lambda e: isinstance(e, Repeated) and e.launch == name)
    assert output(silent) == ("INCONCLUSIVE", "inconclusive", "coverage")
    assert output(not_made(HEALTHY, name))[1:] == ("inconclusive", "coverage")


@pytest.mark.parametrize("known", [KNOWN, None], ids=["record", "no record"])
def test_a_suite_without_a_deterministic_phase_is_not_judged_by_it(known: Qualified | None) -> None:
    """Whether this model was recorded changes nothing for who never asked for repeats."""
    plan = a_plan()
    given = {} if known is None else {"qualified": known}
    verdict = verdict_of(plan, healthy_events(plan), **given)
    assert (verdict.verdict, ruled(verdict).ruling) == ("ACCEPTED", "not_applicable")
    assert ruled(verdict).reason == "unplanned"
    assert (
        "Repeatability is not measured, in 1 of 1 cases: the suite plans no deterministic phase."
        in verdict.scope
    )


def test_bits_that_an_interrupted_repeat_reported_are_not_forgotten() -> None:
    name = f"{CASE}/r3"
    place = next(
        index for index, event in enumerate(HEALTHY) if getattr(event, "launch", "") == name
    )
    own = [event for event in HEALTHY if getattr(event, "launch", "") == name]
    cut = [*own[:-1], *resumed(1, name)]
    assert output([*HEALTHY[:place], *cut, *HEALTHY[place:]])[0] == "ACCEPTED"
    other = [repeated(name, answer="x") if isinstance(one, Repeated) else one for one in cut]
    assert output([*HEALTHY[:place], *other, *HEALTHY[place:]])[2] == "transient"


def test_the_temperature_and_the_clock_at_a_mismatch_are_said() -> None:
    name = f"{CASE}/r7"
    values = {"temperature_celsius": 81.0, "graphics_clock_hertz": 1.98e9, "power_watts": 700.0}
    events = differing(7, *[""] * 100)
    place = events.index(ended(name))
    events.insert(place, Reading(launch=name, device="cpu:0", values=values))
    explanation = ruled(verdict_of(PLAN, events, qualified=KNOWN)).explanation
    assert "(cpu:0 at 81 celsius, cpu:0 at 1.98e+09 Hz)" in explanation


def test_many_low_bits_point_to_order_and_all_else_to_corruption() -> None:
    low = replace(FLIPPED, num_elements=3_000, largest_ulp=2, xor_bits=(2500, 600, *(0,) * 30))
    assert points_to(low) == "many low bits, which points to another order of sums"
    for other in (
        replace(low, num_elements=1),
        replace(low, xor_bits=(*(0,) * 30, 3000, 0)),
        replace(low, largest_ulp=None),
    ):
        assert points_to(other) == "few numbers or high bits, which points to silent corruption"


# ------------------------------------------------------------------ without one


def test_without_a_record_bits_are_reported_and_page_1_says_so() -> None:
    verdict = verdict_of(PLAN, HEALTHY)
    result = ruled(verdict)
    assert (verdict.verdict, result.ruling) == ("ACCEPTED", "not_applicable")
    assert result.reason == "unqualified"
    assert result.explanation == (
        "there is no qualified record of gemm on Test Processor 9000; reported, not judged: "
        "20 processes gave the same bits"
    )
    assert "Judged: whether every planned case completed and was correct." in verdict.scope
    assert (
        "Repeatability is reported, not judged, in 1 of 1 cases: there is no qualified record of "
        "gemm on Test Processor 9000." in verdict.scope
    )


def test_without_a_record_a_mismatch_fails_nothing_and_is_said() -> None:
    events = differing(2, *(f"flipped {number}" for number in range(100)))
    verdict = verdict_of(PLAN, events, limited(0.02))
    assert ruled(verdict).ruling == "not_applicable"
    assert "of 100 repeats of the same operands 100 differ" in ruled(verdict).explanation
    assert ruled(verdict, "speed").ruling == "pass"


def changed(**changes: object) -> Qualified:
    return Qualified(record=(replace(KNOWN.record[0], **changes),))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("known", "why"),
    [
        (
            changed(stack={**KNOWN.record[0].stack, "torch": "2.12.0"}),
            f"{RECORD} is for torch 2.12.0, this run has 2.13.0",
        ),
        (
            changed(stack={**KNOWN.record[0].stack, "driver": "580.1"}),
            f"{RECORD} is for driver 580.1, this run has none reported",
        ),
        (
            changed(version=2),
            f"{RECORD} is of its version 2, this run has version 1",
        ),
        (changed(model="H100"), "there is no qualified record of gemm on Test Processor 9000"),
        (changed(workload="bert"), "there is no qualified record of gemm on Test Processor 9000"),
    ],
    ids=["other library", "other driver", "other version", "other model", "other workload"],
)
def test_a_record_of_something_else_is_none(known: Qualified, why: str) -> None:
    verdict = verdict_of(PLAN, differing(2, *[str(n) for n in range(100)]), qualified=known)
    result = ruled(verdict)
    assert (result.ruling, result.reason) == ("not_applicable", "unqualified")
    assert result.explanation.startswith(f"{why}; reported")
    assert f"in 1 of 1 cases: {why}." in verdict.scope


def test_what_has_no_deterministic_form_is_not_judged_and_page_1_says_so() -> None:
    known = changed(form="no_deterministic_form", num_clean=0, operators=("scatter_add_",))
    verdict = verdict_of(PLAN, differing(2, *[str(n) for n in range(100)]), qualified=known)
    result = ruled(verdict)
    assert (result.ruling, result.reason) == ("not_applicable", "no_deterministic_form")
    assert "gemm has no deterministic form on Test Processor 9000 (scatter_add_)" in (
        result.explanation
    )
    assert "in 1 of 1 cases, which have no deterministic form: gemm has" in verdict.scope


def test_a_repeat_that_crashes_is_held_against_the_device_by_a_record_alone() -> None:
    crashed = with_end(HEALTHY, f"{CASE}/r4", "crashed", "out_of_memory")
    for known, word in ((KNOWN, "REJECTED"), (NO_RECORDS, "INCONCLUSIVE")):
        verdict = verdict_of(PLAN, crashed, qualified=known)
        assert (verdict.verdict, ruled(verdict, "completion").reason) == (word, "crashed")


# ------------------------------------------------------------------ records


def a_record(**changes: object) -> QualifiedRecord:
    return replace(KNOWN.record[0], **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("record", "fault"),
    [
        (a_record(num_clean=0), "is of 0 clean repeats"),
        (a_record(devices=()), "names no device"),
        (a_record(devices=("a", "a")), "names no device, or one of them twice"),
        (a_record(stack={}), "names no library stack"),
        (a_record(sources=()), "names no journal"),
        (a_record(form="no_deterministic_form"), "counts clean repeats of what has no"),
    ],
)
def test_a_record_by_which_nothing_can_be_ruled_is_refused(
    record: QualifiedRecord, fault: str
) -> None:
    with pytest.raises(UsageError, match=fault):
        check_qualified(Qualified(record=(record,)), "records.json")


def test_two_records_of_one_stack_are_refused() -> None:
    with pytest.raises(UsageError, match="stands there twice"):
        check_qualified(Qualified(record=(a_record(), a_record(num_clean=7))), "records.json")
