"""What is folded to minutes gives the figures of what was read, and a forged minute is seen."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from support.builders import PROTOCOL, a_case, a_plan

from appliance.evidence.folding import (
    DETAIL_NS,
    FOLD_NS,
    MOST_EVENTS,
    ReadingFold,
    Sampled,
    fault_of,
    fold_ns,
    fold_steps,
    in_detail,
    in_full,
    of_folded,
    of_reading,
    spread_of,
    steps_fault,
    whole_ns,
)
from appliance.records.journal import Block, Reading, ReadingsFolded, StepsFolded, TimedValues
from appliance.statistics.estimates import block_figures

LAUNCH, DEVICE = "burn_in@cpu:0/1", "cpu:0"
HALF = 500_000_000
SECOND = 2 * HALF


def draws(seed: int) -> Random:
    return Random(seed)  # noqa: S311 - no secret


def values(draw: Random, *, heat: float = 0.0, thermal: bool = False) -> dict[str, float | None]:
    return {
        "power_watts": draw.gauss(690, 5),
        "temperature_celsius": 60.0 + heat,
        "graphics_clock_hertz": 1.7e9,
        "fan_fraction": None,
        "throttled_power_cap": float(draw.random() < 0.5),
        "throttled_thermal": float(thermal),
        "utilisation_fraction": 1.0,
    }


def folded(
    read: Callable[[int], dict[str, float | None]], number: int, fold_ns: int = FOLD_NS
) -> tuple[list[ReadingsFolded], list[Reading]]:
    """The minutes of so many readings, two a second, and the readings themselves."""
    fold = ReadingFold(launch=LAUNCH, device=DEVICE, begin_ns=0, fold_ns=fold_ns)
    minutes, readings = [], []
    for place in range(number):
        reading = read(place)
        readings.append(Reading(launch=LAUNCH, device=DEVICE, values=reading))
        minutes.append(fold.add((place + 1) * HALF, reading))
    minutes.append(fold.close(number * HALF + 1))
    return [one for one in minutes if one is not None], readings


def sampled(minutes: list[ReadingsFolded]) -> list[Sampled]:
    return [one for minute in minutes for one in of_folded(minute)]


def test_minutes_give_the_extremes_counts_and_means_of_their_readings() -> None:
    draw = draws(1)
    minutes, readings = folded(lambda _: values(draw), 1000)
    parts, alone = sampled(minutes), [of_reading(one) for one in readings]
    assert len(parts) < len(alone) / 5
    for name in ("power_watts", "throttled_power_cap", "temperature_celsius"):
        short, whole = spread_of(name, parts), spread_of(name, alone)
        assert short is not None
        assert whole is not None
        assert (short.low, short.high, short.num_read) == (whole.low, whole.high, 1000)
        total = math.fsum(one.count * (one.values[name] or 0.0) for one in parts)
        assert total == pytest.approx(math.fsum(one.values[name] or 0 for one in alone), rel=1e-12)
    assert spread_of("fan_fraction", parts) is None


def test_minutes_tile_the_time_and_count_every_reading() -> None:
    draw = draws(2)
    minutes, _ = folded(lambda _: values(draw), 700)
    assert [one.index for one in minutes] == list(range(len(minutes)))
    ends = [one.end_ns for one in minutes]
    assert [one.begin_ns for one in minutes] == [0, *ends[:-1]]
    assert all(one.end_ns - one.begin_ns >= FOLD_NS for one in minutes[:-1])
    assert sum(one.count for one in sampled(minutes)) == 700


def test_readings_of_the_begin_and_the_end_stand_in_full() -> None:
    draw = draws(3)
    minutes, readings = folded(lambda _: values(draw), 600)
    first, last = ([one.values for one in in_detail(minutes[place])] for place in (0, -1))
    assert first == [one.values for one in readings[:20]]
    assert last == [one.values for one in readings[-20:]]
    assert minutes[0].detail_common["graphics_clock_hertz"] == 1.7e9
    assert not any("graphics_clock_hertz" in one.values for one in minutes[0].detail)
    assert not any(one.detail for one in minutes[1:-1])


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"thermal": True}, "throttled: thermal"),
        ({"heat": 12.0}, "temperature_celsius outside the minute before"),
        ({"heat": math.nan}, "temperature_celsius is no number"),
    ],
)
def test_what_stands_out_has_ten_seconds_around_it_in_full(
    changes: dict[str, Any], cause: str
) -> None:
    draw = draws(4)
    minutes, readings = folded(lambda n: values(draw, **changes if n == 300 else {}), 600)
    marked = [one for one in minutes if one.causes]
    assert [one.causes for one in marked] == [(cause,)]
    kept = [one.values for one in in_detail(marked[0])]
    assert all(one.values in kept for one in readings[300:320])
    assert len(kept) <= 2 * DETAIL_NS // HALF + 2
    assert all(one in kept for one in [readings[285].values, readings[299].values])


@pytest.mark.parametrize(
    ("devices", "hours", "minutes"),
    [(1, 168, 1), (2, 168, 1), (4, 168, 2), (8, 24, 1), (8, 168, 10)],
)
def test_minutes_are_as_wide_as_keeps_a_run_to_50_mb(
    devices: int, hours: int, minutes: int
) -> None:
    protocol = replace(PROTOCOL, blocks=1, block_seconds=3600.0)
    cases = [a_case("burn_in", device=f"cuda:{n}", launches=hours) for n in range(devices)]
    assert fold_ns(a_plan(*cases, protocol=protocol)) == minutes * FOLD_NS
    assert fold_ns(a_plan(a_case("gemm", launches=10_000), protocol=protocol)) == FOLD_NS


@pytest.mark.parametrize(("devices", "minutes"), [(1, 1), (8, 20)])
def test_stress_beside_a_burn_in_has_its_room(devices: int, minutes: int) -> None:
    protocol = replace(PROTOCOL, blocks=1, block_seconds=3600.0)
    parameters = {"stress": "disk"}
    cases = [
        a_case("burn_in", device=f"cuda:{n}", launches=168, parameters=parameters)
        for n in range(devices)
    ]
    assert fold_ns(a_plan(*cases, protocol=protocol)) == minutes * FOLD_NS


def test_what_stands_in_full_does_not_depend_on_the_width() -> None:
    def read(place: int) -> dict[str, float | None]:
        heat = {1500: 12.0, 2444: math.nan}.get(place, 0.0)
        return values(draws(place), heat=heat, thermal=place == 900)

    narrow, _ = folded(read, 3600)
    wide, _ = folded(read, 3600, 5 * FOLD_NS)
    assert len(wide) < len(narrow) / 4
    assert [fault_of(one) for one in wide] == [""] * len(wide)
    in_full, again = (
        [(one.at_ns, str(one.values)) for minute in minutes for one in in_detail(minute)]
        for minutes in (narrow, wide)
    )
    assert dict(in_full) == dict(again)
    causes = [[cause for one in minutes for cause in one.causes] for minutes in (narrow, wide)]
    assert causes[0] == causes[1]
    assert sum(one.count for one in sampled(wide)) == 3600


def test_a_device_that_throttles_all_the_time_costs_no_more_than_a_few_details() -> None:
    draw = draws(5)
    minutes, _ = folded(lambda n: values(draw, thermal=n // 60 % 2 == 1), 7200)
    most = (2 + 3 * MOST_EVENTS) * DETAIL_NS // HALF
    assert sum(len(one.detail) for one in minutes) <= most
    throttled = sum(one.count for one in sampled(minutes) if one.values["throttled_thermal"])
    assert throttled == 3600


def a_minute() -> ReadingsFolded:
    draw = draws(6)
    return folded(lambda _: values(draw), 400)[0][1]


def forged(minute: ReadingsFolded, **changes: Any) -> ReadingsFolded:
    return replace(minute, groups=(replace(minute.groups[0], **changes), *minute.groups[1:]))


def test_an_honest_minute_has_no_fault() -> None:
    draw = draws(7)
    assert [fault_of(one) for one in folded(lambda _: values(draw), 900)[0]] == [""] * 8


def test_a_forged_minute_is_seen() -> None:
    minute = a_minute()
    group = minute.groups[0]
    low, high, total = group.ranged["power_watts"]
    too_much = {"power_watts": (low, high, total + group.count * (high - low))}
    assert "sum of power_watts" in fault_of(forged(minute, ranged=too_much))
    assert "sum of power_watts" in fault_of(forged(minute, count=group.count * 2))
    assert "sum of" in fault_of(forged(minute, ranged={"power_watts": (high, low, total)}))
    assert "counts no reading" in fault_of(forged(minute, count=0))
    assert "a value twice" in fault_of(forged(minute, common={"power_watts": 1.0}))
    assert "unread" in fault_of(replace(minute, groups=(), detail=sampled_detail(minute)))
    assert "longer than itself" in fault_of(replace(minute, end_ns=minute.begin_ns))
    late = replace(minute, detail=(replace(sampled_detail(minute)[0], at_ns=0),))
    assert "not of its time" in fault_of(late)


def sampled_detail(minute: ReadingsFolded) -> tuple[Any, ...]:
    return (TimedValues(at_ns=minute.begin_ns + 1, values={"power_watts": 1.0}),)


# ------------------------------------------------------------------ steps


def a_block(wall: list[int], *, is_folded: bool = True) -> Block:
    events = [one - one // 1000 for one in wall]
    steps = fold_steps(wall, events) if is_folded else in_full(wall, events)
    return Block(
        launch=LAUNCH,
        rank=0,
        index=0,
        first_step=1,
        wall_ns=steps.wall_ns,
        event_ns=steps.event_ns,
        folded=steps.folded,
        block_wall_ns=sum(wall) + 1000,
        block_raw_ns=sum(wall) + 1000,
    )


def step_times(number: int, *, stalled: int | None = None) -> list[int]:
    draw = draws(8)
    times = [round(draw.gauss(SECOND, SECOND / 100)) for _ in range(number)]
    if stalled is not None:
        times[stalled] *= 9
    return times


def test_folded_steps_have_the_number_and_the_sums_of_all() -> None:
    wall = step_times(3600)
    block, whole = a_block(wall), a_block(wall, is_folded=False)
    assert block.num_steps == whole.num_steps == 3600
    assert whole_ns(block) == whole_ns(whole)
    assert len(block.wall_ns) < 25
    assert block.wall_ns[:9] == tuple(wall[:9])
    assert block.wall_ns[-9:] == tuple(wall[-9:])
    assert steps_fault(block) == ""
    short, long = block_figures([block, whole])
    assert short.is_plausible
    assert (short.num_steps, short.wall_log_seconds) == (3600, long.wall_log_seconds)


def test_wide_folds_leave_the_same_steps_in_full() -> None:
    wall = step_times(3600, stalled=1000)
    narrow, wide = fold_steps(wall, None), fold_steps(wall, None, 5 * FOLD_NS)
    assert wide.wall_ns == narrow.wall_ns
    assert len(wide.folded) < len(narrow.folded) / 3
    counts = (sum(one.count for one in steps.folded) for steps in (narrow, wide))
    assert set(counts) == {3600 - len(wide.wall_ns)}


def test_a_block_of_seconds_stays_as_it_is() -> None:
    wall = step_times(18)
    assert a_block(wall) == a_block(wall, is_folded=False)


def test_the_minute_of_a_step_that_stalled_stands_in_full() -> None:
    wall = step_times(600, stalled=300)
    block = a_block(wall)
    assert wall[300] in block.wall_ns
    assert block.num_steps == 600
    assert steps_fault(block) == ""


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda one: replace(one, wall_ns=(*one.wall_ns[:2], one.wall_ns[2] * 2)), "sum of steps"),
        (lambda one: replace(one, count=one.count * 2), "sum of steps"),
        (lambda one: replace(one, first=0), "overlap"),
        (lambda one: replace(one, count=1), "less than two"),
        (lambda one: replace(one, event_ns=None), "without the device's time"),
    ],
)
def test_forged_steps_are_seen(change: Callable[[StepsFolded], StepsFolded], fault: str) -> None:
    block = a_block(step_times(600))
    pieces = list(block.folded)
    pieces[1] = change(pieces[1])
    assert fault in steps_fault(replace(block, folded=tuple(pieces)))


def test_a_block_whose_folded_steps_exceed_it_is_no_plausible_one() -> None:
    block = a_block(step_times(600))
    (figures,) = block_figures([replace(block, block_wall_ns=block.block_wall_ns // 2)])
    assert not figures.is_plausible
