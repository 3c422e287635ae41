"""Device time is judged as far as the wall bears it out, and by the wall beyond.

The forged cases are those that bench 0.4.0 accepted: a device that is slower than its limit, whose
events leave out just what it is slower by.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from support.baselines import a_level
from support.builders import PROTOCOL, SYSTEM, a_case, a_plan, with_bounds
from support.timed_evidence import criteria, perf, ruling_on, steady, tail, timed

from appliance.evidence.baseline_key import device_name, key_of
from appliance.judging.verdict import judge
from appliance.records.baseline import Baseline, Baselines, Peaks
from appliance.records.criteria import Criteria
from appliance.records.journal import Block, Calibrated, Event, Line
from appliance.records.plan import Plan
from appliance.records.verdict import Verdict

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

import write_clocks

PLAN = a_plan(a_case(launches=10), protocol=replace(PROTOCOL, interim_analyses=(5, 10), blocks=1))
SPEED = criteria(perf(within_of_baseline=0.03))
HONEST_NS = 12_000
"""What timing a step costs on an H100."""


def baselines(plan: Plan, seconds: float, *, wall_seconds: float | None = None) -> Baselines:
    """A device that takes so long by its events, and by the wall a little more."""
    case = plan.cases[0]
    by_steps, by_wall = (
        a_level(math.log(one), 0.004) for one in (seconds, wall_seconds or seconds * 1.002)
    )
    return Baselines(
        baseline=(
            Baseline(
                key=key_of(case, plan.protocol, SYSTEM),
                kind="same_device",
                devices=(device_name(SYSTEM, case.device),),
                num_launches=480,
                num_runs=12,
                run_seconds=3600.0,
                steps=by_steps,
                wall=by_wall,
                smallest_margin=0.006,
                smallest_margin_of_three=0.006,
                bundles=("b" * 64,),
            ),
        )
    )


def with_events(
    lines: Sequence[Line], of: Callable[[int], float], *, empty_ns: int = HONEST_NS
) -> list[Line]:
    """The lines of a device with a clock of its own, which says `of` of a step's wall (ns)."""

    def event(one: Event) -> Event:
        match one:
            case Block():
                return replace(one, event_ns=tuple(round(of(time)) for time in one.wall_ns))
            case Calibrated():
                inner = tuple(span - span // 500 for span in one.wall_ns)
                events = tuple(span - span // 1000 for span in one.wall_ns)
                empty = (empty_ns,) * 5
                return replace(one, event_ns=events, inner_ns=inner, empty_ns=empty)
            case _:
                return one

    return [replace(line, event=event(line.event)) for line in lines]


def verdict_of(
    lines: Sequence[Line], known: Baselines, requested: Criteria = SPEED, plan: Plan = PLAN
) -> Verdict:
    return judge(
        plan=with_bounds(plan, requested),
        criteria=requested,
        lines=lines,
        baselines=known,
        peaks=Peaks(peak=()),
        system=SYSTEM,
    )


FORGED = {
    "wall +4.5 %, events 0.955 of it": (0.010, 1.045, lambda wall: 0.955 * wall),
    "wall +6 %, events 0.952 of it": (0.010, 1.06, lambda wall: 0.952 * wall),
    "5 ms +15 %, events 0.9 ms short": (0.005, 1.15, lambda wall: wall - 900_000),
}


@pytest.mark.parametrize("empty_ns", [HONEST_NS, 900_000])
@pytest.mark.parametrize("name", FORGED)
def test_forged_events_are_rejected_by_the_wall(name: str, empty_ns: int) -> None:
    """Also where the device makes steps that do nothing as slow as it needs."""
    seconds, slower, events = FORGED[name]
    lines = with_events(timed(PLAN, steady(seconds * slower)), events, empty_ns=empty_ns)
    verdict = verdict_of(lines, baselines(PLAN, seconds))
    actual = ruling_on(verdict.rulings)
    assert (verdict.verdict, actual.ruling, actual.reason) == ("REJECTED", "fail", "over_limit")
    clocks = verdict.cases[0].clocks
    assert clocks is not None
    assert (clocks.judged, clocks.has_events) == ("wall", True)
    assert clocks.wall_seconds == pytest.approx(seconds * slower, rel=0.01)
    assert clocks.step_seconds < seconds * 1.03


def test_a_healthy_device_whose_wall_bears_its_events_out_is_judged_by_them() -> None:
    lines = with_events(timed(PLAN, steady(0.010)), lambda wall: wall - 20_000)
    verdict = verdict_of(lines, baselines(PLAN, 0.010))
    assert verdict.cases[0].clocks is not None
    assert verdict.cases[0].clocks.judged == "steps"
    assert ruling_on(verdict.rulings).ruling == "pass"


def test_a_healthy_device_with_short_steps_passes_by_the_wall() -> None:
    """As on an H100: 11 us of a step of 76 us are no event's; its baseline is like that too."""
    draw = steady(76e-6)
    lines = with_events(timed(PLAN, draw), lambda wall: wall - 11_000)
    verdict = verdict_of(lines, baselines(PLAN, 65e-6, wall_seconds=76e-6))
    assert verdict.cases[0].clocks is not None
    assert verdict.cases[0].clocks.judged == "wall"
    assert verdict.verdict == "ACCEPTED"


def test_a_device_s_clock_at_0_966_fails() -> None:
    def slow(event: Event) -> Event:
        if isinstance(event, Calibrated):
            return replace(event, event_ns=tuple(round(0.966 * span) for span in event.wall_ns))
        return event

    lines = with_events(timed(PLAN, steady(0.0103)), lambda wall: 0.966 * wall)
    lines = [replace(line, event=slow(line.event)) for line in lines]
    verdict = verdict_of(lines, baselines(PLAN, 0.010))
    actual = ruling_on(verdict.rulings, "integrity")
    assert (verdict.verdict, actual.ruling, actual.reason) == ("REJECTED", "fail", "clock")


def test_events_far_below_the_wall_never_pass_by_themselves() -> None:
    """A lying clock and a device that gave its time to others look alike: nobody is accepted."""
    lines = with_events(timed(PLAN, steady(0.0101)), lambda wall: 0.4 * wall)
    verdict = verdict_of(lines, baselines(PLAN, 0.010, wall_seconds=0.0101))
    integrity = ruling_on(verdict.rulings, "integrity")
    assert (integrity.ruling, integrity.reason) == ("inconclusive", "clock")
    assert verdict.verdict == "INCONCLUSIVE"
    slow = with_events(timed(PLAN, steady(0.025)), lambda wall: 0.4 * wall)
    assert verdict_of(slow, baselines(PLAN, 0.010)).verdict == "REJECTED"


@pytest.mark.parametrize("requested", [tail("latency_seconds", 0.0100, quantile=0.9)])
def test_percentiles_are_of_the_clock_that_is_judged(requested: object) -> None:
    limit = criteria(requested)  # type: ignore[arg-type]
    lines = with_events(timed(PLAN, steady(0.0105)), lambda wall: 0.93 * wall)
    actual = ruling_on(verdict_of(lines, Baselines(baseline=()), limit).rulings, "tail")
    assert (actual.ruling, actual.reason) == ("fail", "over_limit")


def test_stalls_are_of_the_clock_that_is_judged() -> None:
    """Events that leave the stalls out leave them out of the sum, too."""

    def draw(launch: object) -> list[float]:
        return [0.010] * 34 + [0.030] * 6

    requested = criteria(tail("stall_rate", 0.05))
    lines = with_events(timed(PLAN, draw), lambda wall: min(wall, 10_000_000) - 10_000)
    actual = ruling_on(verdict_of(lines, Baselines(baseline=()), requested).rulings, "tail")
    assert (actual.ruling, actual.reason) == ("fail", "over_limit")


def test_page_of_honest_workloads_is_what_its_script_writes() -> None:
    assert write_clocks.PAGE.read_text() == write_clocks.page()


def test_without_a_limit_both_figures_are_on_record() -> None:
    lines = with_events(timed(PLAN, steady(0.010)), lambda wall: 0.9 * wall)
    (result,) = verdict_of(lines, Baselines(baseline=()), criteria()).cases
    assert result.clocks is not None
    assert result.clocks.judged == "wall"
    assert result.clocks.step_seconds == pytest.approx(0.9 * result.clocks.wall_seconds, rel=1e-3)
    step = next(one for one in result.estimates if one.name == "step_seconds")
    assert step.value == pytest.approx(result.clocks.wall_seconds, rel=1e-9)
