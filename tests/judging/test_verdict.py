"""The judge: nothing is accepted by default, and a seller who breaks a run gains nothing."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import (
    FUNCTIONAL,
    PROTOCOL,
    SYSTEM,
    a_case,
    a_plan,
    bare_lines,
    block,
    checked,
    ended,
    healthy_events,
    limited,
    not_made,
    of_launch,
    records,
    resumed,
    verdict_of,
    with_bounds,
    with_end,
    without,
    word_of,
)

from appliance.judging.verdict import _word, interim_analysis, judge, requirements
from appliance.records.baseline import Baselines, Peaks
from appliance.records.criteria import Criteria, Criterion
from appliance.records.journal import (
    NOT_JUDGED,
    UNJUDGED_FOR_MEMORY,
    Artifact,
    Block,
    Check,
    Checked,
    Digested,
    Environment,
    Event,
    InterimAnalysis,
    LaunchEnded,
    LaunchStarted,
    Outcome,
    Reading,
    RunEnded,
    RunStarted,
    ServerProbed,
    Started,
    Warmed,
)
from appliance.records.plan import Case, Plan
from appliance.records.verdict import Ruling, VerdictWord
from appliance.records.workload import Work

CASE = "gemm@cpu:0"
PLAN = a_plan()
HEALTHY = healthy_events(PLAN)
REPEATING = replace(PROTOCOL, repeats=3)
THREE = (a_case(), a_case("exact", is_timed=False), a_case("digits", steps=7))


def ruling(events: Sequence[Event], criterion: str, criteria: Criteria = FUNCTIONAL) -> Ruling:
    result = verdict_of(PLAN, events, criteria).rulings
    return next(item for item in result if item.criterion == criterion)


def answer(events: Sequence[Event], criterion: str) -> tuple[str, str]:
    result = ruling(events, criterion)
    return result.ruling, result.reason


def analysed(plan: Plan, events: Sequence[Event], criteria: Criteria) -> tuple[bool, str]:
    return interim_analysis(
        plan=with_bounds(plan, criteria),
        criteria=criteria,
        lines=bare_lines(events),
        baselines=Baselines(baseline=()),
        peaks=Peaks(peak=()),
        system=SYSTEM,
        case=plan.cases[0].id,
    )


# ------------------------------------------------------------------ what may be missing


TELLS_NOTHING_OF_THE_DEVICE = (
    RunStarted,  # the chain ties the journal to its plan, and each launch has its own start
    RunEnded,  # each launch has its own end
    ServerProbed,  # every launch says itself how it was made
    Environment,  # printed; the identity in system.json is what binds
    Started,  # the time to the first step is reported, and no criterion reads it
    Warmed,  # warm-up is no sample
    Digested,  # bits in the default mode, which verify holds to the checks of their launches
    Reading,  # telemetry is printed beside the samples
    InterimAnalysis,  # only an interim analysis that decides leaves launches out, and these need it
)
"""Events without which a healthy run is still accepted, as no ruling is made from them."""


def is_made_again_elsewhere(event: Event) -> bool:
    """A timed launch names the reference that it read; what it compared with it is the check."""
    return isinstance(event, Artifact) and not event.is_made


def test_a_healthy_run_is_accepted() -> None:
    plan = a_plan(*THREE, protocol=REPEATING)
    verdict = verdict_of(plan, healthy_events(plan), qualified=records(plan))
    assert verdict.verdict == "ACCEPTED"
    assert [(item.ruling, item.reason, item.action) for item in verdict.rulings] == [
        ("pass", "", "")
    ] * 12
    assert [(case.num_planned, case.num_completed) for case in verdict.cases] == [
        (9, 9),
        (4, 4),
        (9, 9),
    ]


def test_no_ruling_event_can_be_left_out() -> None:
    plan = a_plan(*THREE, protocol=REPEATING)
    events, known = healthy_events(plan), records(plan)
    for index, event in enumerate(events):
        word = verdict_of(plan, events[:index] + events[index + 1 :], qualified=known).verdict
        is_spare = isinstance(event, TELLS_NOTHING_OF_THE_DEVICE) or is_made_again_elsewhere(event)
        assert (word == "ACCEPTED") == is_spare, event


def test_no_beginning_of_a_run_is_accepted() -> None:
    ends = [index for index, event in enumerate(HEALTHY) if isinstance(event, LaunchEnded)]
    words = {word_of(PLAN, HEALTHY[:length]) for length in range(ends[-1] + 1)}
    assert words == {"INCONCLUSIVE"}


def test_nothing_planned_is_inconclusive() -> None:
    assert word_of(replace(PLAN, cases=(), launches=()), []) == "INCONCLUSIVE"


def test_a_plan_that_lists_fewer_launches_than_its_case_asks_for_is_not_accepted() -> None:
    fewer = replace(PLAN, launches=PLAN.launches[:-1])
    events = without(HEALTHY, lambda event: of_launch(event, f"{CASE}/5"))
    assert word_of(fewer, events) == "INCONCLUSIVE"


@pytest.mark.parametrize(
    ("outcome", "reason", "word"),
    [
        ("crashed", "SIGSEGV", "REJECTED"),
        ("crashed", "out_of_memory", "REJECTED"),
        ("timed_out", "time limit", "REJECTED"),
        ("unsupported", "no device", "INCONCLUSIVE"),
        ("not_run", "bad_parameters", "INCONCLUSIVE"),
        ("crashed", "bad_parameters", "INCONCLUSIVE"),
        ("not_run", "disk_full", "INCONCLUSIVE"),
        ("not_run", "decided", "INCONCLUSIVE"),
    ],
)
@pytest.mark.parametrize("launch", [f"{CASE}/0", f"{CASE}/2", f"{CASE}/5"])
def test_every_outcome_but_completed(
    launch: str, outcome: Outcome, reason: str, word: VerdictWord
) -> None:
    assert word_of(PLAN, with_end(HEALTHY, launch, outcome, reason)) == word
    if outcome not in ("crashed", "timed_out"):
        assert word_of(PLAN, not_made(HEALTHY, launch, outcome, reason)) == word


def test_a_launch_that_lacked_memory_is_told_what_to_do_about_memory() -> None:
    lacked, broken = (
        ruling(with_end(HEALTHY, f"{CASE}/0", "crashed", reason), "completion").action
        for reason in ("out_of_memory", "SIGSEGV")
    )
    assert "memory_limit_gib" in lacked
    assert broken.startswith(f"Read logs/ of {CASE}/0; ")


def test_an_unsupported_case_is_inconclusive() -> None:
    plan = a_plan(a_case(), a_case("other", unsupported="cpu:0 has no float8"))
    events = healthy_events(plan)
    for launch in [item.id for item in plan.launches if item.case == "other@cpu:0"]:
        events = not_made(events, launch, "unsupported")
    verdict = verdict_of(plan, events)
    assert verdict.verdict == "INCONCLUSIVE"
    reasons = {item.reason for item in verdict.rulings if item.case == "other@cpu:0"}
    assert reasons == {"unsupported", "unplanned"}


def test_case_that_cannot_run_says_why_under_every_criterion() -> None:
    lack = "transformers 4.40.0 is outside >=5.23,<6"
    other = replace(a_case("other"), software=lack)
    plan = a_plan(a_case(), other)
    events = healthy_events(plan)
    for launch in [item.id for item in plan.launches if item.case == "other@cpu:0"]:
        events = not_made(events, launch, "software", "unavailable")
    verdict = verdict_of(plan, events)
    assert verdict.verdict == "INCONCLUSIVE"
    of_case = [item for item in verdict.rulings if item.case == "other@cpu:0"]
    reasons = {item.criterion: item.reason for item in of_case if item.reason != "unplanned"}
    assert set(reasons.values()) == {"software"}
    assert {"completion", "integrity", "correctness"} <= set(reasons)
    explanations = {item.explanation for item in of_case if item.reason == "software"}
    assert explanations == {f"cannot run: software: {lack}"}


def test_every_ruling_but_pass_says_why_and_what_to_do() -> None:
    broken = [
        with_end(HEALTHY, f"{CASE}/1", "crashed", "SIGABRT"),
        with_end(HEALTHY, f"{CASE}/1", "unsupported"),
        with_end(HEALTHY, f"{CASE}/0", "interrupted"),
        without(HEALTHY, lambda event: isinstance(event, Checked)),
        without(HEALTHY, lambda event: isinstance(event, Block)),
        [],
    ]
    for events in broken:
        for item in verdict_of(PLAN, events, limited(0.02)).rulings:
            output = (item.reason != "", item.explanation != "", item.action != "")
            assert output == ((False,) * 3 if item.ruling == "pass" else (True,) * 3)


# ------------------------------------------------------------------ checks


def corrupted(events: Sequence[Event], index: int, error: float, bound: float) -> list[Event]:
    event = events[index]
    assert isinstance(event, Checked)
    check = replace(event.check, error=error, bound=bound)
    return [*events[:index], replace(event, check=check), *events[index + 1 :]]


CHECKS = [index for index, event in enumerate(HEALTHY) if isinstance(event, Checked)]


@given(
    index=st.sampled_from(CHECKS),
    error=st.floats(allow_nan=True),
    bound=st.floats(allow_nan=True),
)
def test_one_check_not_within_its_bound_rejects(index: int, error: float, bound: float) -> None:
    is_within = math.isfinite(bound) and math.isfinite(error) and 0 <= error <= bound
    expected = "ACCEPTED" if is_within else "REJECTED"
    assert word_of(PLAN, corrupted(HEALTHY, index, error, bound)) == expected


@pytest.mark.parametrize("error", [math.nan, math.inf, -1e-9, 1.0])
def test_a_check_outside_its_bound_rejects_though_its_launch_ends_badly(error: float) -> None:
    first_of_launch_3 = next(index for index in CHECKS if of_launch(HEALTHY[index], f"{CASE}/3"))
    events = corrupted(HEALTHY, first_of_launch_3, error, 1e-5)
    for outcome in ("crashed", "interrupted", "unsupported"):
        assert answer(with_end(events, f"{CASE}/3", outcome), "correctness") == ("fail", "check")


def test_steps_that_lacked_memory_to_be_run_again_are_open_however_often() -> None:
    """Never accepted, and no fault of the device; under another name it is a fault again."""
    lacking = Check(
        name=UNJUDGED_FOR_MEMORY, error=1, bound=0, kind="exact", if_outside="inconclusive"
    )

    def events(check: Check) -> list[Event]:
        return [replace(e, check=check) if isinstance(e, Checked) else e for e in HEALTHY]

    assert answer(events(lacking), "correctness") == ("inconclusive", "coverage")
    assert verdict_of(PLAN, events(lacking)).cases[0].withheld.endswith(NOT_JUDGED)
    for fault in (
        replace(lacking, name="logits against float64"),
        replace(lacking, if_outside="fail"),
        replace(lacking, error=math.nan),
    ):
        assert answer(events(fault), "correctness") == ("fail", "check")


def test_no_timing_is_shown_of_a_case_whose_check_failed() -> None:
    case = verdict_of(PLAN, corrupted(HEALTHY, CHECKS[0], math.nan, 1e-5)).cases[0]
    assert case.estimates == ()
    assert case.withheld
    assert {(item.log_seconds, item.first_step_seconds) for item in case.launches} == {(None, None)}


@pytest.mark.parametrize("phase", ["first", "last"])
def test_a_phase_that_was_not_checked_is_inconclusive(phase: str) -> None:
    events = without(HEALTHY, lambda e: isinstance(e, Checked) and e.phase == phase)
    assert answer(events, "correctness") == ("inconclusive", "coverage")


def test_an_output_that_was_not_held_to_its_spread_is_not_covered() -> None:
    plan = a_plan(replace(a_case(), is_repeatable=False))
    events = healthy_events(plan)
    assert word_of(plan, events) == "ACCEPTED"
    silent = without(events, lambda e: isinstance(e, Checked) and e.phase == "repeatability")
    assert word_of(plan, silent) == "INCONCLUSIVE"
    beyond = [
        checked(event.launch, "repeatability", error=0.02, bound=0.01)
        if isinstance(event, Checked) and event.phase == "repeatability"
        else event
        for event in events
    ]
    verdict = verdict_of(plan, beyond)
    assert (verdict.verdict, verdict.decided_by) == ("REJECTED", f"correctness of {CASE}")


def test_bits_that_differ_in_the_default_mode_fail_nothing() -> None:
    """An accelerator adds up in any order there: 0.4 held it against a healthy one."""
    twice = checked(f"{CASE}/0", "repeatability", error=1e8, bound=0.0)
    events = [*HEALTHY[: HEALTHY.index(ended(f"{CASE}/0"))], twice]
    events += HEALTHY[HEALTHY.index(ended(f"{CASE}/0")) :]
    verdict = verdict_of(PLAN, events)
    assert (verdict.verdict, verdict.num_failed) == ("ACCEPTED", 0)
    assert verdict.cases[0].estimates


def test_the_drawn_launch_must_check_its_last_output_and_no_other_will_do() -> None:
    (drawn,) = (e for e in HEALTHY if isinstance(e, Checked) and e.phase == "last")
    moved = without(HEALTHY, lambda event: event == drawn)
    moved.insert(moved.index(ended(f"{CASE}/3")), replace(drawn, launch=f"{CASE}/3"))
    assert answer(moved, "correctness") == ("inconclusive", "coverage")
    # Unless the drawn one was interrupted: then the stand-in counts, and must be there.
    assert word_of(PLAN, with_end(moved, f"{CASE}/2", "interrupted")) == "ACCEPTED"
    assert word_of(PLAN, with_end(HEALTHY, f"{CASE}/2", "interrupted")) == "INCONCLUSIVE"


@pytest.mark.parametrize("case", [a_case(checked_launch=None), a_case(steps=7)])
def test_every_launch_checks_its_last_output_where_all_must(case: Case) -> None:
    plan = a_plan(case)
    events = healthy_events(plan)
    assert word_of(plan, events) == "ACCEPTED"
    lasts = [i for i, e in enumerate(events) if isinstance(e, Checked) and e.phase == "last"]
    for index in lasts:
        assert word_of(plan, events[:index] + events[index + 1 :]) == "INCONCLUSIVE"


def test_an_untimed_case_with_steps_checks_its_last_output() -> None:
    plan = a_plan(a_case("exact", is_timed=False, steps=3))
    events = healthy_events(plan)
    assert word_of(plan, events) == "ACCEPTED"
    unchecked = without(events, lambda e: isinstance(e, Checked) and e.phase == "last")
    assert word_of(plan, unchecked) == "INCONCLUSIVE"


def test_a_launch_that_read_another_reference_is_not_accepted() -> None:
    events = [
        replace(event, sha256="b" * 64)
        if isinstance(event, Artifact) and event.launch == f"{CASE}/4"
        else event
        for event in HEALTHY
    ]
    assert answer(events, "correctness") == ("inconclusive", "evidence_missing")


def test_the_worst_check_shown_is_the_one_that_is_no_comparison() -> None:
    events = corrupted(HEALTHY, CHECKS[0], math.nan, 1e-5)
    result = verdict_of(PLAN, events).cases[0].checks[0]
    assert (result.count, result.num_outside, math.isnan(result.worst.error)) == (6, 1, True)


# ------------------------------------------------------------------ work and clocks


def with_blocks(change: Callable[[Block], Block]) -> list[Event]:
    return [
        change(event) if isinstance(event, Block) and event.launch == f"{CASE}/4" else event
        for event in HEALTHY
    ]


@pytest.mark.parametrize(
    "change",
    [
        lambda item: replace(item, wall_ns=()),
        lambda item: replace(item, wall_ns=item.wall_ns[:1]),
        lambda item: replace(item, index=item.index + 1),
    ],
    ids=["no steps", "fewer steps", "another block"],
)
def test_a_launch_that_made_less_than_planned_is_not_accepted(
    change: Callable[[Block], Block],
) -> None:
    assert answer(with_blocks(change), "completion") == ("inconclusive", "evidence_missing")


def test_a_case_with_steps_must_make_them_all() -> None:
    plan = a_plan(a_case("digits", steps=7))
    events = [
        replace(event, wall_ns=event.wall_ns[:-1]) if isinstance(event, Block) else event
        for event in healthy_events(plan)
    ]
    assert word_of(plan, events) == "INCONCLUSIVE"


@pytest.mark.parametrize(
    "change",
    [
        lambda item: replace(item, wall_ns=(0, *item.wall_ns[1:])),
        lambda item: replace(item, wall_ns=(-5, *item.wall_ns[1:])),
        lambda item: replace(item, block_wall_ns=sum(item.wall_ns) * 9 // 10),
        lambda item: replace(item, block_wall_ns=0),
        lambda item: replace(item, event_ns=(0, *item.wall_ns[1:])),
        lambda item: replace(item, event_ns=item.wall_ns[1:]),
        lambda item: replace(item, event_ns=tuple(2 * time for time in item.wall_ns)),
    ],
    ids=["zero", "negative", "short block", "no block", "zero event", "few events", "long events"],
)
def test_times_that_no_clock_can_give_are_rejected_and_not_shown(
    change: Callable[[Block], Block],
) -> None:
    events = with_blocks(change)
    assert answer(events, "integrity") == ("fail", "clock")
    assert verdict_of(PLAN, events).cases[0].estimates == ()
    assert ruling(events, "speed", limited(0.02)).ruling == "inconclusive"


# ------------------------------------------------------------------ interruptions


def cut_in(launch: str, events: Sequence[Event] = HEALTHY, number: int = 1) -> list[Event]:
    """The run was interrupted after the first block of a launch, and went on after it."""
    first_block = next(
        index for index, e in enumerate(events) if isinstance(e, Block) and of_launch(e, launch)
    )
    before, after = events[: first_block + 1], events[first_block + 1 :]
    rest = without(after, lambda event: of_launch(event, launch))
    return [*before, *resumed(number, launch), *rest]


def test_one_interruption_is_tolerated_and_its_finished_blocks_count() -> None:
    verdict = verdict_of(PLAN, cut_in(f"{CASE}/4"))
    assert (verdict.verdict, verdict.num_interruptions) == ("ACCEPTED", 1)
    case = verdict.cases[0]
    assert (case.num_completed, case.launches[4].num_steps) == (5, 3)
    assert [item.count for item in case.estimates if item.name == "step_seconds"] == [5]


def test_two_interruptions_are_inconclusive_for_the_cases_touched_alone() -> None:
    plan = a_plan(a_case(), a_case("bert"))
    events = cut_in(f"{CASE}/3", cut_in(f"{CASE}/4", healthy_events(plan)), number=1)
    criteria = limited(0.02)
    verdict = verdict_of(plan, events, criteria)
    assert (verdict.verdict, verdict.num_interruptions) == ("INCONCLUSIVE", 2)
    result = {(item.criterion, item.case): (item.ruling, item.reason) for item in verdict.rulings}
    assert result["speed", CASE] == ("inconclusive", "interrupted")
    assert result["completion", CASE] == ("inconclusive", "interrupted")
    assert result["speed", "bert@cpu:0"] == ("pass", "")


def test_interrupted_segments_of_a_burn_in_cost_coverage_and_no_ruling() -> None:
    """Two segments were cut short; another case that was cut twice stays open."""
    for name, word in (("burn_in", "ACCEPTED"), ("gemm", "INCONCLUSIVE")):
        plan = a_plan(replace(a_case(), workload=name))
        healthy = healthy_events(plan)
        verdict = verdict_of(plan, cut_in(f"{CASE}/3", cut_in(f"{CASE}/4", healthy), number=1))
        assert (verdict.verdict, verdict.num_interruptions) == (word, 2)


def test_interruptions_between_launches_touch_nothing() -> None:
    events = [*HEALTHY[:2], *resumed(1), *resumed(2), *HEALTHY[2:]]
    verdict = verdict_of(PLAN, events, limited(0.02))
    assert (verdict.verdict, verdict.num_interruptions) == ("ACCEPTED", 2)


def test_launches_cut_short_without_a_resumption_are_interruptions_all_the_same() -> None:
    events = with_end(HEALTHY, f"{CASE}/3", "interrupted", "server_lost")
    assert verdict_of(PLAN, events).num_interruptions == 1
    twice = verdict_of(PLAN, with_end(events, f"{CASE}/5", "interrupted", "server_lost"))
    assert (twice.verdict, twice.num_interruptions) == ("INCONCLUSIVE", 2)


def test_a_stopped_launch_and_the_resumption_after_it_are_one_interruption() -> None:
    events = with_end(HEALTHY, f"{CASE}/3", "interrupted", "SIGINT")
    place = events.index(ended(f"{CASE}/3", "interrupted", "SIGINT")) + 1
    verdict = verdict_of(PLAN, [*events[:place], *resumed(1), *events[place:]])
    assert (verdict.verdict, verdict.num_interruptions) == ("ACCEPTED", 1)


def test_a_case_whose_only_timed_launch_was_interrupted_is_inconclusive() -> None:
    plan = a_plan(a_case(launches=1, checked_launch=1))
    events = healthy_events(plan)
    assert word_of(plan, events) == "ACCEPTED"
    assert word_of(plan, with_end(events, f"{CASE}/1", "interrupted")) == "INCONCLUSIVE"


def untimed(events: Sequence[Event]) -> list[Event]:
    return [event for event in events if of_launch(event, f"{CASE}/0")]


def twice_untimed(outcome: Outcome, *, is_resumed: bool = True) -> list[Event]:
    """A run whose untimed launch ended so, and was made again."""
    first = with_end(untimed(HEALTHY), f"{CASE}/0", outcome)
    cut = [*first[:-1], *resumed(1, f"{CASE}/0")] if is_resumed else first
    return [*HEALTHY[:2], *cut, *HEALTHY[2:]]


def test_the_untimed_launch_is_made_again_after_an_interruption() -> None:
    assert word_of(PLAN, twice_untimed("interrupted")) == "ACCEPTED"
    assert word_of(PLAN, with_end(HEALTHY, f"{CASE}/0", "interrupted")) == "INCONCLUSIVE"


@pytest.mark.parametrize(
    ("outcome", "word"),
    [("crashed", "REJECTED"), ("timed_out", "REJECTED"), ("completed", "INCONCLUSIVE")],
)
def test_the_untimed_launch_is_not_made_again_for_another_reason(
    outcome: Outcome, word: VerdictWord
) -> None:
    assert word_of(PLAN, twice_untimed(outcome, is_resumed=False)) == word


def test_what_the_interrupted_untimed_launch_had_checked_stays() -> None:
    events = twice_untimed("interrupted")
    first_check = next(i for i, event in enumerate(events) if isinstance(event, Checked))
    assert word_of(PLAN, corrupted(events, first_check, 1.0, 1e-5)) == "REJECTED"


@pytest.mark.parametrize("outcome", ["completed", "interrupted", "not_run"])
@pytest.mark.parametrize("is_timed", [True, False], ids=["after its blocks", "before a block"])
def test_no_timed_launch_is_redrawn(
    outcome: Outcome,
    is_timed: bool,  # noqa: FBT001 - the parameter of the test
) -> None:
    again = [event for event in HEALTHY if of_launch(event, f"{CASE}/3")]
    place = HEALTHY.index(again[0])
    slow = with_end(again if is_timed else [again[0], again[-1]], f"{CASE}/3", outcome)
    assert word_of(PLAN, [*HEALTHY[:place], *slow, *HEALTHY[place:]]) == "INCONCLUSIVE"


def test_a_launch_that_was_cut_short_cannot_complete_after_all() -> None:
    place = HEALTHY.index(ended(f"{CASE}/3"))
    assert word_of(PLAN, [*HEALTHY[:place], *resumed(1), *HEALTHY[place:]]) == "INCONCLUSIVE"


def test_the_reference_is_the_one_that_was_made_last() -> None:
    events = twice_untimed("interrupted")
    made = [i for i, e in enumerate(events) if isinstance(e, Artifact) and e.is_made]
    first = events[made[0]]
    assert isinstance(first, Artifact)
    events[made[0]] = replace(first, sha256="c" * 64)
    assert word_of(PLAN, events) == "ACCEPTED"
    read = next(i for i, e in enumerate(events) if isinstance(e, Artifact) and not e.is_made)
    events[read] = replace(first, launch=f"{CASE}/1", sha256="c" * 64, is_made=False)
    assert word_of(PLAN, events) == "INCONCLUSIVE"


def test_a_crash_is_not_forgotten_when_the_launch_is_made_again() -> None:
    again = [event for event in HEALTHY if of_launch(event, f"{CASE}/3")]
    place = HEALTHY.index(again[0])
    crashed = with_end(again, f"{CASE}/3", "crashed", "SIGSEGV")
    assert word_of(PLAN, [*HEALTHY[:place], *crashed, *HEALTHY[place:]]) == "REJECTED"


@pytest.mark.parametrize(
    "added",
    [
        ended(f"{CASE}/4", "not_run", "decided"),
        ended(f"{CASE}/4"),
        ended(f"{CASE}/4", "interrupted", "SIGINT"),
        block(f"{CASE}/4", 2, (1, 1, 1)),
        checked(f"{CASE}/4", "last"),
        LaunchStarted(launch=f"{CASE}/6", mode="fresh"),
        LaunchStarted(launch="other@cpu:0/1", mode="fresh"),
        RunStarted(run_id="another", plan="", system="", pid=3),
    ],
    ids=lambda event: f"{event.kind} {getattr(event, 'launch', '')}",
)
def test_what_does_not_belong_into_the_journal_is_not_accepted(added: Event) -> None:
    assert word_of(PLAN, [*HEALTHY, added]) == "INCONCLUSIVE"


# ------------------------------------------------------------------ decided launches and interim
# analyses


LONG = a_plan(a_case(launches=10), protocol=replace(PROTOCOL, interim_analyses=(5, 10)))


def decided_events(*, is_decided: bool = True, launches: int = 5) -> list[Event]:
    """A run of LONG that an interim analysis decided: the rest of the launches was not made."""
    kept = [
        event
        for event in healthy_events(LONG)
        if not isinstance(event, InterimAnalysis | RunEnded)
        and int(getattr(event, "launch", "/0").rpartition("/")[2]) <= launches
    ]
    decision = InterimAnalysis(case=CASE, launches=launches, is_decided=is_decided, reason="")
    left = [ended(f"{CASE}/{n}", "not_run", "decided") for n in range(launches + 1, 11)]
    return [*kept, decision, *left]


def test_decided_launches_are_accepted_where_the_interim_analysis_decides() -> None:
    verdict = verdict_of(LONG, decided_events(), limited(0.02))
    assert verdict.verdict == "ACCEPTED"
    case = verdict.cases[0]
    assert (case.num_planned, case.num_completed, case.num_decided) == (11, 6, 5)


@pytest.mark.parametrize(
    ("events", "criteria"),
    [
        (decided_events(is_decided=False), limited(0.02)),
        (decided_events(), FUNCTIONAL),
        (decided_events(), limited(0.01)),
        (decided_events(launches=6), limited(0.02)),
        (decided_events(launches=2), limited(0.02)),
    ],
    ids=["undecided", "nothing to decide", "too close", "no interim analysis planned", "too few"],
)
def test_launches_left_out_without_an_interim_analysis_that_decides_are_not_accepted(
    events: list[Event], criteria: Criteria
) -> None:
    assert word_of(LONG, events, criteria) == "INCONCLUSIVE"


def test_an_interim_analysis_says_open_until_every_limit_is_ruled() -> None:
    events = healthy_events(LONG)
    after_five = events[: events.index(ended(f"{CASE}/5")) + 1]
    assert analysed(LONG, after_five, limited(0.02)) == (True, "decided: within every limit")
    assert analysed(LONG, after_five, limited(0.005))[0]
    assert not analysed(LONG, after_five, limited(0.01))[0]
    assert not analysed(LONG, after_five, limited(0.02, required=False))[0]
    assert not analysed(LONG, after_five, FUNCTIONAL)[0]


def test_an_interim_analysis_that_was_not_planned_decides_no_performance() -> None:
    events = healthy_events(LONG)
    after_six = events[: events.index(ended(f"{CASE}/6")) + 1]
    for limit in (0.02, 0.005):
        is_decided, reason = analysed(LONG, after_six, limited(limit))
        assert (is_decided, reason) == (
            False,
            "open: no interim analysis is planned after 6 launches",
        )


def test_a_functional_fail_is_final_at_any_interim_analysis() -> None:
    events = with_end(healthy_events(LONG), f"{CASE}/1", "crashed", "SIGABRT")
    after_one = events[: events.index(ended(f"{CASE}/1", "crashed", "SIGABRT")) + 1]
    is_decided, reason = analysed(LONG, after_one, FUNCTIONAL)
    assert is_decided
    assert "SIGABRT" in reason


# ------------------------------------------------------------------ performance


@pytest.mark.parametrize(
    ("at_most", "word", "reason"),
    [
        (0.02, "ACCEPTED", ""),
        (0.005, "REJECTED", "over_limit"),
        (0.01, "INCONCLUSIVE", "noise"),
        (math.nan, "INCONCLUSIVE", "coverage"),
        (math.inf, "INCONCLUSIVE", "coverage"),
        (0.0, "INCONCLUSIVE", "coverage"),
        (-1.0, "INCONCLUSIVE", "coverage"),
    ],
)
def test_a_limit_is_passed_failed_or_undecided(
    at_most: float, word: VerdictWord, reason: str
) -> None:
    assert word_of(PLAN, HEALTHY, limited(at_most)) == word
    assert ruling(HEALTHY, "speed", limited(at_most)).reason == reason


def test_an_advisory_limit_does_not_reject() -> None:
    verdict = verdict_of(PLAN, HEALTHY, limited(0.005, required=False))
    assert verdict.verdict == "ACCEPTED"
    assert [item.ruling for item in verdict.rulings if not item.required] == ["fail"]
    assert "not judged" in verdict.scope


def test_four_launches_never_pass_nor_fail_a_limit() -> None:
    plan = a_plan(a_case(launches=4))
    for limit in (10.0, 1e-9):
        assert word_of(plan, healthy_events(plan), limited(limit)) == "INCONCLUSIVE"


def test_launches_of_exactly_the_same_time_show_a_fault_of_the_clock() -> None:
    events = [
        replace(event, wall_ns=(10**7,) * 3, block_wall_ns=3 * 10**7)
        if isinstance(event, Block)
        else event
        for event in HEALTHY
    ]
    for limit in (0.02, 0.005):
        result = ruling(events, "speed", limited(limit))
        assert (result.ruling, result.reason) == ("inconclusive", "clock")


def rate(metric: str, at_least: float) -> Criteria:
    limit = Criterion(
        id="speed",
        kind="perf",
        title="Rate",
        metric=metric,
        at_least=at_least,
    )
    return replace(FUNCTIONAL, criterion=(*FUNCTIONAL.criterion, limit))


@pytest.mark.parametrize(
    ("metric", "at_least", "expected"),
    [  # a step takes 10 ms and has 4 samples and 2 GFLOP; bytes are not counted
        ("units_per_second", 300.0, ("pass", "")),
        ("units_per_second", 500.0, ("fail", "over_limit")),
        ("flops_per_second", 1.5e11, ("pass", "")),
        ("flops_per_second", 2.5e11, ("fail", "over_limit")),
        ("bytes_per_second", 1.0, ("inconclusive", "coverage")),
    ],
)
def test_rates_are_judged_as_work_over_time(
    metric: str, at_least: float, expected: tuple[str, str]
) -> None:
    result = ruling(HEALTHY, "speed", rate(metric, at_least))
    assert (result.ruling, result.reason) == expected


@pytest.mark.parametrize("units", [0.0, math.nan, math.inf, -4.0])
def test_zero_work_is_never_a_pass(units: float) -> None:
    plan = a_plan(a_case(work=Work(units=units)))
    verdict = verdict_of(plan, healthy_events(plan), rate("units_per_second", 1e-9))
    assert verdict.verdict == "INCONCLUSIVE"
    assert [item.name for item in verdict.cases[0].estimates] == [
        "step_seconds",
        "first_step_seconds",
        "stall_rate",
    ]


def test_no_speed_is_judged_where_a_check_failed() -> None:
    result = ruling(corrupted(HEALTHY, CHECKS[0], 1.0, 1e-5), "speed", limited(0.02))
    assert (result.ruling, result.reason) == ("inconclusive", "coverage")


def test_a_limit_on_a_case_without_times_is_inconclusive() -> None:
    plan = a_plan(a_case("exact", is_timed=False))
    assert word_of(plan, healthy_events(plan)) == "ACCEPTED"
    verdict = verdict_of(plan, healthy_events(plan), limited(10.0))
    assert (verdict.verdict, verdict.rulings[-1].reason) == ("INCONCLUSIVE", "coverage")


def test_many_limits_share_the_risk_of_a_wrong_fail() -> None:
    # Nearing the healthy 10 ms from below: the nearest limit that one case still fails.
    one = a_plan()
    many = a_plan(*(a_case(f"gemm{number}") for number in range(60)))
    limits = (0.009999, 0.009995, 0.00999, 0.00998, 0.00997, 0.00996)
    nearest = next(limit for limit in limits if is_rejected(one, limit))
    assert not is_rejected(many, nearest)
    assert is_rejected(many, 0.009)


def is_rejected(plan: Plan, limit: float) -> bool:
    return word_of(plan, healthy_events(plan), limited(limit)) == "REJECTED"


# ------------------------------------------------------------------ criteria and the word


def only(*criteria: Criterion) -> Criteria:
    return replace(FUNCTIONAL, criterion=criteria)


CRASHED = with_end(HEALTHY, f"{CASE}/1", "crashed", "SIGABRT")


@pytest.mark.parametrize(
    "criteria",
    [
        only(),
        only(replace(FUNCTIONAL.criterion[0], cases="bert*")),
        only(replace(FUNCTIONAL.criterion[0], required=False)),
        only(replace(limited(0.02).criterion[-1], id="completion")),
    ],
    ids=["left out", "limited to others", "advisory", "another one of its name"],
)
def test_functional_criteria_hold_whatever_the_file_says(criteria: Criteria) -> None:
    assert word_of(PLAN, CRASHED, criteria) == "REJECTED"
    ids = [criterion.id for criterion in requirements(criteria)]
    assert len(ids) == len(set(ids))


def test_the_file_itself_is_enough_where_it_covers_every_case() -> None:
    assert requirements(FUNCTIONAL) == FUNCTIONAL.criterion
    assert word_of(PLAN, HEALTHY, only()) == "ACCEPTED"


@pytest.mark.parametrize(("required", "word"), [(True, "INCONCLUSIVE"), (False, "ACCEPTED")])
def test_a_criterion_that_matches_no_case_is_inconclusive(
    required: bool,  # noqa: FBT001 - the parameter of the test
    word: VerdictWord,
) -> None:
    criteria = limited(0.02, cases="bertt*", required=required)
    assert word_of(PLAN, HEALTHY, criteria) == word
    result = ruling(HEALTHY, "speed", criteria)
    assert (result.case, result.ruling, result.reason) == ("", "inconclusive", "coverage")


def test_no_rulings_at_all_are_inconclusive() -> None:
    assert _word([]) == "INCONCLUSIVE"


def test_a_fail_stands_over_what_is_inconclusive() -> None:
    events = not_made(CRASHED, f"{CASE}/4", "unsupported")
    assert word_of(PLAN, events, limited(0.02, cases="none")) == "REJECTED"


def test_the_scope_says_how_far_performance_was_judged() -> None:
    plan = a_plan(a_case(), a_case("bert"))
    events = healthy_events(plan)
    scope = verdict_of(plan, events, limited(0.02, cases="bert")).scope
    assert "1 of 2 cases" in scope
    assert "no baseline" in verdict_of(plan, events).scope


def test_the_same_files_give_the_same_verdict() -> None:
    lines = bare_lines(HEALTHY)
    given_twice = [
        judge(
            plan=with_bounds(PLAN, limited(0.02)),
            criteria=limited(0.02),
            lines=lines,
            baselines=Baselines(baseline=()),
            peaks=Peaks(peak=()),
            system=SYSTEM,
        )
        for _ in range(2)
    ]
    assert given_twice[0] == given_twice[1]
