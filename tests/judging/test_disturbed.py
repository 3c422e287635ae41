"""Rulings where others used the device: open where a time or a clock failed, else as ever."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from recorded import shared_device
from support.builders import (
    FUNCTIONAL,
    NO_BASELINES,
    NO_PEAKS,
    PROTOCOL,
    a_case,
    a_plan,
    a_system,
    chain,
    healthy_events,
    limited,
    with_bounds,
)
from support.timed_evidence import ruling_on, tail

from appliance.judging.verdict import judge
from appliance.records.baseline import Peak, Peaks
from appliance.records.criteria import Criteria
from appliance.records.journal import (
    Block,
    Calibrated,
    Checked,
    Event,
    LaunchStarted,
    Line,
    Reading,
)
from appliance.records.plan import Plan
from appliance.records.system import Fact, System
from appliance.records.verdict import Ruling
from appliance.records.workload import Work

DEVICE = "cuda:0"
PLAN = a_plan(a_case(device=DEVICE))
SLOW = limited(0.005)
IDLE = {"memory_used_bytes": 0.0, "utilisation_fraction": 0.0, "power_watts": 71.0}
USED = {"memory_used_bytes": 892141568.0, "utilisation_fraction": 1.0, "power_watts": 697.0}
HELD = {**USED, "utilisation_fraction": 0.01, "power_watts": 72.0}
"""A program that holds memory and computes nothing, as a monitoring daemon does."""


def a_node(**facts: object) -> System:
    system = a_system(DEVICE)
    device = replace(
        system.identity.devices[0],
        vendor="cuda",
        facts={name: Fact(value=value) for name, value in facts.items()},  # type: ignore[arg-type]
    )
    return replace(system, identity=replace(system.identity, devices=(device,)))


def beside(values: dict[str, float], plan: Plan = PLAN, num_readings: int = 3) -> list[Event]:
    """A healthy run on an accelerator, and readings before each launch's first report."""
    events: list[Event] = []
    for event in healthy_events(plan):
        events.append(event)
        if isinstance(event, LaunchStarted):
            reading = Reading(launch=event.launch, device=DEVICE, values=values)
            events += [reading] * num_readings
    return events


def rulings(
    events: Sequence[Event],
    criteria: Criteria = SLOW,
    *,
    plan: Plan = PLAN,
    system: System | None = None,
    lines: Sequence[Line] | None = None,
    peaks: Peaks = NO_PEAKS,
) -> Sequence[Ruling]:
    return judge(
        plan=with_bounds(plan, criteria),
        criteria=criteria,
        lines=chain(events) if lines is None else lines,
        baselines=NO_BASELINES,
        peaks=peaks,
        system=system or a_node(),
    ).rulings


def with_event_clock(events: Sequence[Event], ratio: float) -> list[Event]:
    """The device's clock at so much of its host's while the two are compared."""
    return [
        replace(
            event,
            event_ns=tuple(round(ratio * span) for span in event.wall_ns),
            inner_ns=tuple(span - span // 500 for span in event.wall_ns),
        )
        if isinstance(event, Calibrated)
        else event
        for event in events
    ]


# ------------------------------------------------------------------ the recorded device


def test_a_device_that_was_recorded_beside_another_program_is_inconclusive_and_says_why() -> None:
    case = a_case("gemm-bf16", device=DEVICE, launches=1)
    plan = a_plan(case, protocol=replace(PROTOCOL, blocks=1))
    actual = ruling_on(rulings([], FUNCTIONAL, plan=plan, lines=shared_device.lines()), "integrity")
    assert (actual.ruling, actual.reason) == ("inconclusive", "environment")
    assert actual.explanation == (
        "the device's clock runs at 0.9659 of the one that it is compared with, but another "
        "process used cuda:0: 0.8 GiB, 100 %, 698 W in 18 of 18 readings before the work of a "
        "launch began"
    )


def undisturbed(event: Event, *, is_bracketed: bool) -> Event:
    """The record with a device that nobody else uses, and with the bracket that it lacks."""
    if isinstance(event, Reading):
        return replace(event, values={**event.values, **IDLE})
    if isinstance(event, Calibrated) and is_bracketed:
        return replace(event, inner_ns=tuple(span - span // 500 for span in event.wall_ns))
    return event


@pytest.mark.parametrize(("is_bracketed", "word"), [(True, "fail"), (False, "inconclusive")])
def test_the_same_clock_on_a_device_that_nobody_else_used_is_held_against_it(
    is_bracketed: bool,  # noqa: FBT001 - a parameter
    word: str,
) -> None:
    case = a_case("gemm-bf16", device=DEVICE, launches=1)
    plan = a_plan(case, protocol=replace(PROTOCOL, blocks=1))
    lines = [
        replace(line, event=undisturbed(line.event, is_bracketed=is_bracketed))
        for line in shared_device.lines()
    ]
    actual = ruling_on(rulings([], FUNCTIONAL, plan=plan, lines=lines), "integrity")
    assert (actual.ruling, actual.reason) == (word, "clock")


# ------------------------------------------------------------------ times


@pytest.mark.parametrize(
    ("values", "word"),
    [(IDLE, "fail"), (USED, "inconclusive"), (HELD, "fail"), ({}, "fail")],
    ids=["idle", "used", "held", "not read"],
)
def test_a_time_beyond_its_limit_fails_unless_others_used_the_device(
    values: dict[str, float], word: str
) -> None:
    actual = ruling_on(rulings(beside(values)))
    assert actual.ruling == word
    assert actual.statistic is not None
    if word == "inconclusive":
        assert actual.reason == "environment"
        assert actual.explanation == (
            "Step time: slower than the limit, after 5 launches, but another process "
            "used cuda:0: 0.8 GiB, 100 %, 697 W in 18 of 18 readings before the work of a launch "
            "began"
        )


def test_a_time_within_its_limit_passes_whoever_used_the_device() -> None:
    events = beside(USED)
    assert ruling_on(rulings(events, limited(0.02))).ruling == "pass"


def test_stalls_beside_others_are_open() -> None:
    def stalled(event: Event) -> Event:
        if not isinstance(event, Block):
            return event
        times = (event.wall_ns[0], event.wall_ns[1], 2 * event.wall_ns[2])
        whole = sum(times) + 1000
        return replace(event, wall_ns=times, block_wall_ns=whole, block_raw_ns=whole)

    criteria = replace(FUNCTIONAL, criterion=(*FUNCTIONAL.criterion, tail("stall_rate", 0.005)))
    for values, word in ((IDLE, "fail"), (USED, "inconclusive")):
        events = [stalled(event) for event in beside(values)]
        assert ruling_on(rulings(events, criteria), "tail").ruling == word


def test_one_launch_beside_others_is_enough() -> None:
    events = beside(IDLE)
    third = [index for index, event in enumerate(events) if isinstance(event, LaunchStarted)][3]
    events[third + 1 : third + 4] = [
        replace(event, values=USED)
        for event in events[third + 1 : third + 4]
        if isinstance(event, Reading)
    ]
    actual = ruling_on(rulings(events))
    assert (actual.ruling, actual.reason) == ("inconclusive", "environment")
    assert "in 3 of 18 readings" in actual.explanation


def test_power_says_that_a_device_is_used_where_its_use_is_not_reported() -> None:
    events = beside({"power_watts": 600.0})
    assert ruling_on(rulings(events)).ruling == "fail"
    assert ruling_on(rulings(events, system=a_node(power_limit=700))).ruling == "inconclusive"


def test_our_own_work_disturbs_nothing() -> None:
    """Readings after a launch has reported, and those just after the launch before it."""
    reported = [
        replace(event, values=USED) if isinstance(event, Reading) else event
        for event in healthy_events(PLAN)
    ]
    assert ruling_on(rulings(reported)).ruling == "fail"
    soon = [replace(line, monotonic_ns=line.seq) for line in chain(beside(USED))]
    assert ruling_on(rulings([], lines=soon)).ruling == "fail"


# ------------------------------------------------------------------ what is never excused


def a_wrong_output(events: list[Event]) -> list[Event]:
    return [
        replace(event, check=replace(event.check, error=1.0))
        if isinstance(event, Checked) and event.phase == "first"
        else event
        for event in events
    ]


def an_impossible_time(events: list[Event]) -> list[Event]:
    return [
        replace(event, block_wall_ns=event.block_wall_ns // 2)
        if isinstance(event, Block)
        else event
        for event in events
    ]


@pytest.mark.parametrize(
    ("spoil", "criterion"),
    [(a_wrong_output, "correctness"), (an_impossible_time, "integrity")],
)
def test_what_others_cannot_cause_fails_beside_them(
    spoil: Callable[[list[Event]], list[Event]], criterion: str
) -> None:
    actual = ruling_on(rulings(spoil(beside(USED)), FUNCTIONAL), criterion)
    assert actual.ruling == "fail"


def test_a_rate_above_the_peak_fails_beside_others_though_the_clock_is_open() -> None:
    model = a_node().identity.devices[0].model
    peak = Peak(
        model=model,
        quantity="float32_flops_per_second",
        value=1e10,
        unit="FLOP/s",
        per="device",
        is_confirmed=True,
        source="invented",
    )
    plan = a_plan(a_case(device=DEVICE, work=Work(flops=2e9, precision="float32")))
    events = with_event_clock(beside(USED, plan), 0.95)
    actual = rulings(events, FUNCTIONAL, plan=plan, peaks=Peaks(peak=(peak,)))
    integrity = ruling_on(actual, "integrity")
    assert (integrity.ruling, integrity.reason) == ("fail", "above_peak")


def test_a_false_clock_of_the_device_is_open_beside_others_and_nothing_is_timed() -> None:
    events = with_event_clock(beside(USED), 0.95)
    actual = rulings(events, limited(0.02))
    assert ruling_on(actual, "integrity").ruling == "inconclusive"
    assert ruling_on(actual).reason == "environment"
    alone = rulings(with_event_clock(beside(IDLE), 0.95), limited(0.02))
    assert ruling_on(alone, "integrity").ruling == "fail"
