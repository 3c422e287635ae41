"""Time to target, loading and drawn outputs as the judge and the verifier see them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
from support.builders import (
    PROTOCOL,
    SYSTEM,
    a_case,
    a_plan,
    bare_lines,
    healthy_events,
    with_bounds,
)
from support.bundles import analysed
from support.timed_evidence import criteria, perf, ruling_on, rulings, steady, tail, timed

from appliance.errors import EvidenceError, UsageError
from appliance.judging.verdict import judge
from appliance.records.baseline import Baselines, Peaks
from appliance.records.criteria import Criterion
from appliance.records.journal import Block, Check, Checked, Event, RunStarted
from appliance.records.plan import Plan
from appliance.records.verdict import Estimate, Ruling, Verdict
from appliance.storage import criteria_file
from appliance.verification import run_checks

AIMED = a_plan(
    replace(a_case(steps=40, launches=10), evaluate_every=4),
    protocol=replace(PROTOCOL, interim_analyses=(5, 10)),
)
SERVED = a_plan(
    replace(a_case(launches=5), scenario="offline"),
    protocol=replace(PROTOCOL, interim_analyses=(2, 5)),
)
FED = a_plan(a_case(launches=10), protocol=replace(PROTOCOL, interim_analyses=(5, 10), blocks=1))


def hit_after(steps: Callable[[int], int | None]) -> list[Event]:
    """A healthy run that comes to its target after so many steps, by the launch's number."""
    events: list[Event] = []
    for event in healthy_events(AIMED):
        if isinstance(event, Block):
            hit = steps(int(event.launch.rpartition("/")[2]))
            times = event.wall_ns[: hit or len(event.wall_ns)]
            whole = sum(times) + 1000
            events.append(
                replace(
                    event,
                    reached_at=hit,
                    wall_ns=times,
                    block_wall_ns=whole,
                    block_raw_ns=whole,
                )
            )
            continue
        events.append(event)
    return events


def verdict(plan: Plan, events: list[Event], *requested: Criterion) -> Verdict:
    wanted = criteria(*requested)
    return judge(
        plan=with_bounds(plan, wanted),
        criteria=wanted,
        lines=bare_lines(events),
        baselines=Baselines(baseline=()),
        peaks=Peaks(peak=()),
        system=SYSTEM,
    )


def estimate(verdict: Verdict, name: str) -> Estimate:
    return next(item for item in verdict.cases[0].estimates if item.name == name)


# ------------------------------------------------------------------ time to target


def test_steps_and_seconds_to_the_target_are_told() -> None:
    shown = verdict(AIMED, hit_after(lambda number: 12 if number % 2 else 16))
    steps, seconds = (estimate(shown, f"{name}_to_target") for name in ("steps", "seconds"))
    assert (steps.value, steps.low, steps.high, steps.count) == (14, 12, 16, 10)
    assert seconds.value == pytest.approx(0.01 * math.sqrt(12 * 16), rel=0.01)
    assert seconds.low is not None
    assert seconds.high is not None
    assert seconds.low < seconds.value < seconds.high


@pytest.mark.parametrize(("at_most", "ruling"), [(16, "pass"), (12, "fail")])
def test_every_launch_must_keep_a_limit_of_steps(at_most: float, ruling: str) -> None:
    limit = perf(metric="steps_to_target", at_most=at_most, unit="steps")
    shown = verdict(AIMED, hit_after(lambda number: 12 if number % 2 else 16), limit)
    assert ruling_on(shown.rulings).ruling == ruling


@pytest.mark.parametrize(
    ("at_most", "ruling"), [(0.14, "pass"), (0.115, "fail"), (0.1205, "inconclusive")]
)
def test_seconds_to_the_target_are_judged_as_other_times(at_most: float, ruling: str) -> None:
    limit = perf(metric="seconds_to_target", at_most=at_most)
    shown = verdict(AIMED, hit_after(lambda _: 12), limit)
    actual = ruling_on(shown.rulings)
    assert actual.ruling == ruling
    assert actual.statistic is not None
    assert actual.statistic.value == pytest.approx(0.12, rel=0.02)


@pytest.mark.parametrize("metric", ["steps_to_target", "seconds_to_target"])
def test_a_miss_never_passes_and_rejects(metric: str) -> None:
    missed = Check(name="target", error=math.inf, bound=0.0, kind="trajectory")
    events: list[Event] = []
    for event in hit_after(lambda number: None if number == 3 else 12):
        events.append(event)
        if isinstance(event, Block) and event.reached_at is None:
            events.append(Checked(launch=event.launch, rank=0, phase="last", step=39, check=missed))
    shown = verdict(AIMED, events, perf(metric=metric, at_most=1e6))
    assert shown.verdict == "REJECTED"
    assert ruling_on(shown.rulings).ruling != "pass"
    assert shown.cases[0].estimates == ()
    # a miss that came without its failed check is not within any limit either
    silent = hit_after(lambda number: None if number == 3 else 12)
    assert (
        ruling_on(verdict(AIMED, silent, perf(metric=metric, at_most=1e6)).rulings).ruling != "pass"
    )


def test_a_case_without_a_target_has_no_time_to_it() -> None:
    for metric in ("steps_to_target", "seconds_to_target"):
        limit = criteria(perf(metric=metric, at_most=1e6))
        assert ruling_on(rulings(FED, timed(FED, steady()), limit)).ruling == "inconclusive"


@pytest.mark.parametrize(
    ("change", "output"),
    [
        ({"reached_at": 11}, "which it cannot have"),
        ({"wall_ns": (10**7,) * 10, "reached_at": 10}, "where it was not asked for"),
        ({"wall_ns": (10**7,) * 12, "reached_at": None}, "40 steps were planned"),
    ],
)
def test_a_hit_where_none_was_asked_for_is_no_evidence(
    change: dict[str, object], output: str
) -> None:
    events: list[Event] = [
        replace(event, **change) if isinstance(event, Block) else event  # type: ignore[arg-type]
        for event in hit_after(lambda _: 12)
    ]
    rulings = verdict(AIMED, events).rulings
    completion = ruling_on(rulings, "completion")
    assert completion.ruling == "inconclusive"
    assert output in completion.explanation


def test_a_hit_of_a_case_without_a_target_is_no_evidence() -> None:
    events: list[Event] = [
        replace(event, reached_at=len(event.wall_ns)) if isinstance(event, Block) else event
        for event in healthy_events(FED)
    ]
    assert ruling_on(verdict(FED, events).rulings, "completion").ruling == "inconclusive"


# ------------------------------------------------------------------ loading


def loading(share: Callable[[int], float]) -> list[Event]:
    return [
        replace(
            event,
            load_ns=tuple(
                round(share(int(event.launch.rpartition("/")[2])) * time) for time in event.wall_ns
            ),
        )
        if isinstance(event, Block)
        else event
        for event in healthy_events(FED)
    ]


@pytest.mark.parametrize(
    ("at_most", "ruling"), [(0.05, "pass"), (0.01, "fail"), (0.0201, "inconclusive")]
)
def test_the_share_of_loading_is_told_and_judged(at_most: float, ruling: str) -> None:
    shown = verdict(
        FED, loading(lambda n: 0.02 + 0.0005 * (n % 3 - 1)), tail("stall_share", at_most)
    )
    reported = estimate(shown, "stall_share")
    assert reported.value == pytest.approx(0.02, rel=0.02)
    assert reported.count == 10
    assert ruling_on(shown.rulings, "tail").ruling == ruling


def test_a_case_that_loads_nothing_has_no_share_of_it() -> None:
    shown = verdict(FED, healthy_events(FED), tail("stall_share", 0.5))
    assert ruling_on(shown.rulings, "tail").ruling == "inconclusive"
    assert all(item.name != "stall_share" for item in shown.cases[0].estimates)


@pytest.mark.parametrize("loads", [(), (1, 2), (10**12,) * 3, (-1,) * 3])
def test_loading_that_does_not_lie_in_its_steps_is_no_honest_clock(loads: tuple[int, ...]) -> None:
    events: list[Event] = [
        replace(event, load_ns=loads) if isinstance(event, Block) else event
        for event in healthy_events(FED)
    ]
    actual: Ruling = ruling_on(verdict(FED, events).rulings, "integrity")
    assert (actual.ruling, actual.reason) == ("fail", "clock")
    assert "loading" in actual.explanation


# ------------------------------------------------------------------ drawn outputs, repeated inputs


def served(change: Callable[[Event], list[Event]]) -> list[Event]:
    return [new for event in healthy_events(SERVED) for new in change(event)]


def is_drawn(event: Event) -> bool:
    return isinstance(event, Checked) and event.phase == "sampled"


def test_inference_whose_drawn_outputs_are_right_is_accepted() -> None:
    assert verdict(SERVED, served(lambda event: [event])).verdict == "ACCEPTED"


def test_inference_without_drawn_outputs_is_never_accepted() -> None:
    events = served(lambda event: [] if is_drawn(event) else [event])
    shown = verdict(SERVED, events)
    assert shown.verdict == "INCONCLUSIVE"
    assert ruling_on(shown.rulings, "correctness").reason == "coverage"


def test_a_drawn_output_outside_its_bound_rejects() -> None:
    def worse(event: Event) -> list[Event]:
        if isinstance(event, Checked) and is_drawn(event):
            return [replace(event, check=replace(event.check, error=math.nan))]
        return [event]

    shown = verdict(SERVED, served(worse))
    assert shown.verdict == "REJECTED"
    assert "sampled output" in ruling_on(shown.rulings, "correctness").explanation


@pytest.mark.parametrize("error", [0.09, 0.3])
def test_answers_that_were_kept_fail_integrity(error: float) -> None:
    check = Check(name="saved", error=error, bound=0.1)

    def reported(event: Event) -> list[Event]:
        if isinstance(event, Checked) and event.phase == "first" and event.launch.endswith("/0"):
            kept = Checked(launch=event.launch, rank=0, phase="repeated", step=0, check=check)
            return [event, kept]
        return [event]

    shown = verdict(SERVED, served(reported))
    assert ruling_on(shown.rulings, "integrity").ruling == ("pass" if error < 0.1 else "fail")
    assert ruling_on(shown.rulings, "correctness").ruling == "pass"
    assert shown.verdict == ("ACCEPTED" if error < 0.1 else "REJECTED")


def test_the_verifier_draws_the_outputs_again() -> None:
    files = {"plan.json": "p" * 64, "system.json": "s" * 64}

    def walked(events: list[Event]) -> None:
        assert isinstance(events[0], RunStarted)
        first = replace(events[0], plan=files["plan.json"], system=files["system.json"])
        run_checks.check_conduct(SERVED, bare_lines([first, *events[1:]]), files)

    events = list(analysed(SERVED, healthy_events(SERVED)))
    walked(events)
    others: list[Event] = [
        replace(event, step=event.step + 1)
        if isinstance(event, Checked) and is_drawn(event)
        else event
        for event in events
    ]
    for wrong in (others, [event for event in events if not is_drawn(event)]):
        with pytest.raises(EvidenceError, match="checked other timed outputs than the seed"):
            walked(wrong)


# ------------------------------------------------------------------ criteria files

FILE = """
schema = "bench/criteria/1"
name = "mine"
version = 1
summary = "Mine"
[[criterion]]
id = "speed"
title = "Speed"
"""


@pytest.mark.parametrize(
    ("lines", "output"),
    [
        ('kind = "perf"\nmetric = "seconds_to_target"\nat_most = 3.0\nunit = "ms"', ""),
        ('kind = "perf"\nmetric = "steps_to_target"\nat_most = 300.0\nunit = "steps"', ""),
        ('kind = "tail"\nmetric = "stall_share"\nat_most = 0.05', ""),
        ('kind = "perf"\nmetric = "steps_to_target"\nat_least = 3.0', 'must be "at_most"'),
        ('kind = "perf"\nmetric = "seconds_to_target"\nwithin_of_baseline = 0.1', "no baseline"),
        ('kind = "tail"\nmetric = "stall_share"\nat_most = 1.0', "part below 1"),
        ('kind = "perf"\nmetric = "step_seconds"\nat_most = 1.0\nunit = "steps"', "use s, ms, us"),
    ],
)
def test_criteria_name_the_new_metrics(lines: str, output: str, tmp_path_factory: object) -> None:
    path = tmp_path_factory.mktemp("criteria") / "mine.toml"  # type: ignore[attr-defined]
    path.write_text(FILE + lines + "\n")
    if not output:
        criteria_file.load_criteria(str(path))
        return
    with pytest.raises(UsageError, match=output):
        criteria_file.load_criteria(str(path))
