"""Bits that should be the same on every device of a model, and what ran them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import permutations

import pytest
from support import builders
from support.builders import (
    FUNCTIONAL,
    NO_BASELINES,
    NO_PEAKS,
    SYSTEM,
    a_case,
    a_plan,
    a_system,
    bare_lines,
    checked,
    ended,
    healthy_events,
    limited,
    records,
    repeated,
    without,
    word_of,
)

from appliance.evidence.journal_index import index_of
from appliance.evidence.repeats import digest_of
from appliance.judging.verdict import Judge
from appliance.records.criteria import Criteria
from appliance.records.journal import (
    Check,
    Checked,
    Event,
    Libraries,
    LibrariesHashed,
    LibrariesMapped,
    Repeated,
)
from appliance.records.plan import Case, Plan
from appliance.records.qualified import Qualified
from appliance.records.system import System
from appliance.records.verdict import Ruling, Verdict
from reports import cases, machine
from reports.model import CheckRow, Row

CASE = "gemm@cpu:0"
PROTOCOL = replace(builders.PROTOCOL, repeats=3)
PLAN = a_plan(protocol=PROTOCOL)
HEALTHY = healthy_events(PLAN)


def ruled(verdict: Verdict, criterion: str = "repeatability", case: str = CASE) -> Ruling:
    return next(one for one in verdict.rulings if (one.criterion, one.case) == (criterion, case))


def output(verdict: Verdict, criterion: str = "repeatability", case: str = CASE) -> tuple[str, str]:
    result = ruled(verdict, criterion, case)
    return result.ruling, result.reason


def with_answers(events: Sequence[Event], answers: Mapping[str, str]) -> list[Event]:
    """The same run, where these launches (or all launches of these cases) gave other bits."""

    def changed(event: Repeated) -> Repeated:
        case = event.launch.rpartition("/")[0]
        answer = answers.get(event.launch, answers.get(case))
        return event if answer is None else repeated(event.launch, answer=answer)

    return [changed(event) if isinstance(event, Repeated) else event for event in events]


def verdict_of(
    plan: Plan,
    events: Sequence[Event],
    criteria: Criteria = FUNCTIONAL,
    *,
    system: System = SYSTEM,
) -> Verdict:
    """The judge's verdict where records of all cases are known."""
    known = records(plan, system)
    return builders.verdict_of(plan, events, criteria, system=system, qualified=known)


def a_judge(plan: Plan, events: Sequence[Event], system: System = SYSTEM) -> Judge:
    judge = Judge(
        plan=plan,
        criteria=FUNCTIONAL,
        baselines=NO_BASELINES,
        peaks=NO_PEAKS,
        system=system,
        qualified=records(plan, system),
    )
    for line in bare_lines(events):
        judge.take(line)
    return judge


def of_two_ranks(events: Sequence[Event]) -> list[Event]:
    """Each launch reports its second rank's bits and checks right after the first's."""
    result: list[Event] = []
    for event in events:
        result.append(event)
        if isinstance(event, Repeated | Checked):
            result.append(replace(event, rank=1))
    return result


# ------------------------------------------------------------------ device to device


def on_devices(number: int, *, models: Sequence[str] = ()) -> tuple[Plan, System]:
    """One case on so many devices, all of one model if none are given."""
    names = [f"cpu:{index}" for index in range(number)]
    system = a_system(*names)
    devices = tuple(
        replace(device, model=model)
        for device, model in zip(
            system.identity.devices, models or ["Model A"] * number, strict=True
        )
    )
    identity = replace(system.identity, devices=devices)
    cases = (a_case(device=name) for name in names)
    return a_plan(*cases, protocol=PROTOCOL), replace(system, identity=identity)


def voted(answers: str, *, models: Sequence[str] = ()) -> tuple[str, list[str]]:
    """The verdict, and the ruling on each device, where each gave the answer of one letter."""
    plan, system = on_devices(len(answers), models=models)
    cases = {f"gemm@cpu:{index}": letter for index, letter in enumerate(answers)}
    verdict = verdict_of(plan, with_answers(healthy_events(plan), cases), system=system)
    assert {ruled(verdict, case=case).reason for case in cases} <= {"", "disagreement"}
    return verdict.verdict, [ruled(verdict, case=case).ruling for case in cases]


P, F, I = "pass", "fail", "inconclusive"  # noqa: E741 - a table of three words


@pytest.mark.parametrize(
    ("answers", "word", "rulings"),
    [
        ("a", "ACCEPTED", [P]),
        ("aa", "ACCEPTED", [P, P]),
        ("ab", "INCONCLUSIVE", [I, I]),
        ("aaa", "ACCEPTED", [P, P, P]),
        ("aab", "REJECTED", [P, P, F]),
        ("baa", "REJECTED", [F, P, P]),
        ("abc", "INCONCLUSIVE", [I, I, I]),
        ("aabb", "INCONCLUSIVE", [I, I, I, I]),
        ("aabc", "INCONCLUSIVE", [I, I, I, I]),
        ("aaabb", "INCONCLUSIVE", [P, P, P, I, I]),
        ("aaabc", "REJECTED", [P, P, P, F, F]),
        ("aaaaabbc", "REJECTED", [P, P, P, P, P, I, I, F]),
        ("aaaaaaab", "REJECTED", [P] * 7 + [F]),
    ],
)
def test_devices_of_one_model_vote(answers: str, word: str, rulings: list[str]) -> None:
    assert voted(answers) == (word, rulings)


def test_the_vote_does_not_hang_on_the_order_of_devices() -> None:
    for order in set(permutations("aaab")):
        word, rulings = voted("".join(order))
        assert word == "REJECTED"
        assert rulings == [F if letter == "b" else P for letter in order]


def test_the_device_that_stands_alone_is_named_and_its_timing_is_not_shown() -> None:
    plan, system = on_devices(4)
    events = with_answers(healthy_events(plan), {"gemm@cpu:2": "other"})
    verdict = verdict_of(plan, events, limited(0.02), system=system)
    assert ruled(verdict, case="gemm@cpu:2").explanation.startswith("cpu:2 gave other bits")
    withheld = {case.case: bool(case.withheld) for case in verdict.cases}
    assert withheld == {f"gemm@cpu:{n}": n == 2 for n in range(4)}


def test_a_device_that_stands_alone_fails_though_a_launch_is_not_covered() -> None:
    plan, system = on_devices(3)
    events = with_answers(healthy_events(plan), {"gemm@cpu:2": "other"})
    silent = without(
        events, lambda e: isinstance(e, Repeated) and e.launch in ("gemm@cpu:1/r3", "gemm@cpu:2/r3")
    )
    verdict = verdict_of(plan, silent, system=system)
    assert output(verdict, case="gemm@cpu:1") == ("inconclusive", "coverage")
    assert output(verdict, case="gemm@cpu:2") == ("fail", "disagreement")


def test_two_that_disagree_are_both_named() -> None:
    plan, system = on_devices(2)
    verdict = verdict_of(
        plan, with_answers(healthy_events(plan), {"gemm@cpu:1": "other"}), system=system
    )
    for case in ("gemm@cpu:0", "gemm@cpu:1"):
        assert "cpu:0 and cpu:1" in ruled(verdict, case=case).explanation
        assert ruled(verdict, case=case).action


def test_other_models_are_never_compared() -> None:
    assert voted("ab", models=["A", "B"]) == ("ACCEPTED", [P, P])
    assert voted("aaabbb", models=["A", "A", "A", "B", "B", "B"]) == ("ACCEPTED", [P] * 6)
    assert voted("aabab", models=["A", "A", "A", "B", "B"])[1] == [P, P, F, I, I]


@pytest.mark.parametrize(
    "change",
    [
        lambda case: replace(case, ranks=2),
        lambda case: replace(case, parameters={"size": 7}),
        lambda case: replace(case, version=2),
    ],
    ids=["several processes", "other parameters", "another version"],
)
def test_only_the_same_thing_of_one_process_is_compared(change: Callable[[Case], Case]) -> None:
    plan, system = on_devices(3)
    last = change(plan.cases[2])
    plan = replace(plan, cases=(*plan.cases[:2], last))
    events = with_answers(healthy_events(plan), {"gemm@cpu:2": "other"})
    if last.ranks == 2:
        events = of_two_ranks(events)
    assert output(verdict_of(plan, events, system=system), case="gemm@cpu:2") == ("pass", "")


def test_a_device_that_contradicts_itself_has_no_vote() -> None:
    plan, system = on_devices(3)
    own = {"gemm@cpu:1/r2": "other", "gemm@cpu:2": "another"}
    verdict = verdict_of(plan, with_answers(healthy_events(plan), own), system=system)
    rulings = [ruled(verdict, case=f"gemm@cpu:{n}") for n in range(3)]
    assert [one.ruling for one in rulings] == [I, I, I]
    assert rulings[1].reason == "transient"
    assert "cpu:1/r2 gave other bits" in rulings[1].explanation
    assert "cpu:0 and cpu:2" in rulings[0].explanation


def test_an_interim_analysis_is_about_its_own_device_alone() -> None:
    plan, system = on_devices(3)
    events = with_answers(healthy_events(plan), {"gemm@cpu:2": "other"})
    judge = a_judge(plan, events[:-1], system)
    before = judge.interim_analysis("gemm@cpu:2")
    assert output(judge.verdict(), case="gemm@cpu:2") == ("fail", "disagreement")
    assert judge.interim_analysis("gemm@cpu:2") == before
    assert not before[0]


# ------------------------------------------------------------------ libraries


def with_libraries(
    events: Sequence[Event], launch: str, files: Mapping[str, str | None]
) -> list[Event]:
    return [
        replace(event, files=files)
        if isinstance(event, Libraries) and event.launch == launch
        else event
        for event in events
    ]


TWO = a_plan(a_case(), a_case("bert"))
OTHER = "bert@cpu:0/0"


def test_a_run_that_does_not_tell_what_it_ran_is_not_accepted() -> None:
    for events in (
        without(HEALTHY, lambda event: isinstance(event, Libraries)),
        with_libraries(HEALTHY, f"{CASE}/0", {}),
    ):
        verdict = verdict_of(PLAN, events)
        assert verdict.verdict == "INCONCLUSIVE"
        assert output(verdict, "integrity") == ("inconclusive", "evidence_missing")


def hashed_beside(events: Sequence[Event], digests: Mapping[str, str | None]) -> list[Event]:
    """The same run whose files were hashed beside its launches: one of them once it had changed."""
    made: list[Event] = []
    for event in events:
        if isinstance(event, Libraries):
            known = "1:2:3:4:6" if event.launch == OTHER else "1:2:3:4:5"
            files = dict.fromkeys(event.files, known)
            event = LibrariesMapped(launch=event.launch, rank=0, files=files)  # noqa: PLW2901
        made.append(event)
    return [*made[:-1], LibrariesHashed(digests=digests), made[-1]]


@pytest.mark.parametrize("other", ["d" * 64, "e" * 64, None])
def test_another_file_that_was_hashed_beside_launches_is_not_accepted(other: str | None) -> None:
    """A file that was touched alone is another by its identity, and the same by its bytes."""
    digests = {"1:2:3:4:5": "d" * 64, "1:2:3:4:6": other}
    events = hashed_beside(healthy_events(TWO), digests)
    verdict = verdict_of(TWO, events)
    is_same = other == "d" * 64
    rulings = [one for one in verdict.rulings if one.criterion == "integrity" and not one.case]
    assert [OTHER in one.explanation for one in rulings] == [True] * (not is_same)
    assert libraries_row(events).is_known == is_same


@pytest.mark.parametrize("other", ["e" * 64, None], ids=["another file", "gone since"])
def test_another_file_under_the_same_path_is_not_accepted(other: str | None) -> None:
    events = with_libraries(healthy_events(TWO), OTHER, {"/lib/libm.so.6": other})
    verdict = verdict_of(TWO, events)
    result = ruled(verdict, "integrity", "")
    assert verdict.verdict == "INCONCLUSIVE"
    assert (result.ruling, result.reason, result.required) == ("inconclusive", "disagreement", True)
    assert "/lib/libm.so.6" in result.explanation
    assert OTHER in result.explanation


def test_launches_may_run_other_files_and_files_that_nobody_can_read() -> None:
    files = {"/lib/libm.so.6": "d" * 64, "/lib/more.so": "e" * 64, "/memfd:x": None}
    events = with_libraries(healthy_events(TWO), OTHER, files)
    assert word_of(TWO, events) == "ACCEPTED"
    again = with_libraries(events, f"{CASE}/0", {"/lib/libm.so.6": "d" * 64, "/memfd:x": None})
    assert word_of(TWO, again) == "ACCEPTED"


# ------------------------------------------------------------------ what happened once


def soft(launch: str, *, error: float = 3.0, bound: float = 0.0) -> Checked:
    check = Check(
        name="mismatches", error=error, bound=bound, kind="exact", if_outside="inconclusive"
    )
    return replace(checked(launch, "first"), check=check)


def with_soft(*result: Checked) -> list[Event]:
    events = list(HEALTHY)
    for one in result:
        events.insert(events.index(ended(one.launch)), one)
    return events


def test_a_mismatch_in_one_launch_is_open_and_never_a_pass() -> None:
    for result in (
        [soft(f"{CASE}/2")],
        [soft(f"{CASE}/2"), replace(soft(f"{CASE}/2"), step=3)],
    ):
        verdict = verdict_of(PLAN, with_soft(*result), limited(0.02))
        assert verdict.verdict == "INCONCLUSIVE"
        assert output(verdict, "correctness") == ("inconclusive", "transient")
        assert ruled(verdict, "correctness").action
        assert output(verdict, "speed") == ("inconclusive", "coverage")
        assert verdict.cases[0].estimates == ()
        assert "mismatches" in verdict.cases[0].withheld


def test_within_its_bound_it_is_a_check_like_any_other() -> None:
    assert word_of(PLAN, with_soft(soft(f"{CASE}/2", error=0.0))) == "ACCEPTED"


@pytest.mark.parametrize(
    ("error", "bound"),
    [
        (float("nan"), 0.0),
        (float("inf"), 0.0),
        (-1.0, 0.0),
        (1.0, float("nan")),
        (1.0, -1.0),
        (1.0, float("inf")),
    ],
)
def test_what_is_no_comparison_is_a_fail_whatever_the_check_says(
    error: float, bound: float
) -> None:
    events = with_soft(soft(f"{CASE}/2", error=error, bound=bound))
    assert output(verdict_of(PLAN, events), "correctness") == ("fail", "check")


def test_a_mismatch_in_two_launches_is_no_accident() -> None:
    verdict = verdict_of(PLAN, with_soft(soft(f"{CASE}/2"), soft(f"{CASE}/4")))
    assert output(verdict, "correctness") == ("fail", "check")
    assert f"again in launch {CASE}/4" in ruled(verdict, "correctness").explanation


def test_a_failed_check_stands_over_a_transient_one() -> None:
    hard = replace(soft(f"{CASE}/4"), check=replace(soft(CASE).check, if_outside="fail"))
    verdict = verdict_of(PLAN, with_soft(soft(f"{CASE}/2"), hard))
    assert output(verdict, "correctness") == ("fail", "check")
    assert f"{CASE}/4" in ruled(verdict, "correctness").explanation


def test_criteria_of_one_kind_know_it_too() -> None:
    exact = replace(FUNCTIONAL.criterion[2], id="exactness", kind="exact")
    criteria = replace(FUNCTIONAL, criterion=(*FUNCTIONAL.criterion, exact))
    verdict = verdict_of(PLAN, with_soft(soft(f"{CASE}/2")), criteria)
    assert output(verdict, "exactness") == ("inconclusive", "transient")


# ------------------------------------------------------------------ on paper


def shown(events: Sequence[Event], plan: Plan = PLAN) -> CheckRow:
    """The row on repeats of the first case's page."""
    index = index_of(plan, bare_lines(events))
    verdict = verdict_of(plan, events)
    (section, *_) = cases.sections(index, verdict, NO_PEAKS, Qualified(record=()), SYSTEM)
    (row,) = [row for row in section.checks if row.phase == "deterministic phase"]
    return row


def test_the_page_shows_one_digest_or_how_many() -> None:
    row = shown(HEALTHY)
    digest = digest_of(repeated(f"{CASE}/r1"))
    assert row.count == "3 processes, 0 repeats after a mismatch"
    assert (row.error, row.is_within) == (f"digest {digest[:12]}", True)
    row = shown(with_answers(HEALTHY, {f"{CASE}/r3": "other"}))
    assert (row.error, row.is_within) == ("2 different digests", False)


def libraries_row(events: Sequence[Event]) -> Row:
    groups = machine.environment_groups(SYSTEM, index_of(TWO, bare_lines(events)))
    (row,) = [row for group in groups for row in group.rows if row.label == "Libraries that ran"]
    return row


def test_the_page_counts_libraries_and_names_what_changed() -> None:
    healthy = libraries_row(healthy_events(TWO))
    assert healthy.value.startswith("1 file, digest over the list ")
    assert healthy.is_known
    changed = with_libraries(healthy_events(TWO), OTHER, {"/lib/libm.so.6": "e" * 64})
    row = libraries_row(changed)
    assert (row.is_known, row.note) == (False, "changed during the run: /lib/libm.so.6")
    assert row.value != healthy.value
    unread = with_libraries(healthy_events(TWO), OTHER, {"/lib/gone.so": None})
    assert "1 could not be read" in libraries_row(unread).value
