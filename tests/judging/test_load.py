"""Load of a burn-in: judged where a qualified record has the model, shown elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from support.builders import (
    FUNCTIONAL,
    Watching,
    a_case,
    a_plan,
    bare_lines,
    block,
    records,
    verdict_of,
    watched_events,
)
from support.loaded_runs import Loop, phase, tagged
from support.recorded_runs import recorded_run
from support.watched_runs import CALM, DEVICE, HEALTHY, ruling, system

from appliance.evidence import device_health
from appliance.evidence.journal_index import index_of
from appliance.judging.verdict import LOAD, of_plan, requirements
from appliance.records.journal import Event, LaunchEnded, Warmed
from appliance.records.plan import Plan
from appliance.records.qualified import ReachedLoad
from appliance.records.system import Fact, System
from appliance.records.verdict import Verdict

LIMIT = 700.0  # watts, an H100's
FACTS = {"power_limit": Fact(value=LIMIT, unit="watts")}


def card(vendor: str = "cuda", **facts: Fact) -> System:
    """A node of one device; of the processors' vendor it is one."""
    node = system(**facts)
    devices = tuple(replace(one, vendor=vendor) for one in node.identity.devices)
    return replace(node, identity=replace(node.identity, devices=devices))


NODE = card(**FACTS)
CASE = replace(a_case("burn_in", device=DEVICE), small=False)
PLAN = a_plan(CASE)
KNOWN = records(PLAN, NODE)


def watched(
    watts: float | None, *, readings: int = 7, **values: float | None
) -> Mapping[str, Watching]:
    """A device that draws so much in hot phases, of whose values others may be given."""
    read = {**CALM, "power_watts": watts, "temperature_celsius": 64.0, **values}
    return {DEVICE: Watching(counters=lambda _: HEALTHY, values=lambda _: read, readings=readings)}


def judged(
    devices: Mapping[str, Watching],
    plan: Plan = PLAN,
    *,
    is_known: bool = True,
    loop: Loop | None = None,
    system: System = NODE,
) -> Verdict:
    qualified = {"qualified": records(plan, system)} if is_known else {}
    events = list(tagged(watched_events(plan, devices), loop))
    return verdict_of(plan, events, FUNCTIONAL, system=system, **qualified)


def test_device_that_draws_what_it_may_passes_where_a_record_has_the_model() -> None:
    result = ruling(judged(watched(690.0)), "load")
    assert (result.ruling, result.required) == ("pass", True)
    assert result.statistic is not None
    assert result.statistic.metric == "power_fraction"
    assert result.statistic.value == pytest.approx(690 / LIMIT)
    assert result.statistic.limit == 0.97


def test_device_that_does_not_heat_is_rejected_with_what_it_drew() -> None:
    verdict = judged(watched(270.0), loop=Loop(watts=690.0))
    result = ruling(verdict, "load")
    assert (verdict.verdict, verdict.decided_by, result.ruling) == ("REJECTED", "load", "fail")
    assert "at least 97 % is required" in result.explanation
    assert "38.57 %" in result.explanation
    assert "Look at cooling, power supply" in result.action


def test_without_a_record_it_is_shown_and_not_judged() -> None:
    slowed = watched(270.0, throttled_power_cap=1.0)
    verdict = judged(slowed, is_known=False)
    result = ruling(verdict, "load")
    assert (result.ruling, result.reason) == ("not_applicable", "unqualified")
    assert verdict.decided_by != "load"
    assert result.explanation == (
        "there is no qualified record of burn_in on Test Processor 9000; reported, not judged: "
        f"{DEVICE}: 38.6 % of its power limit in hot phases, clock at 90.0 % of the highest, "
        "64 celsius at most, settled, slowed down by power cap in 100 % of the time, "
        "no plain loop beside it"
    )


@pytest.mark.parametrize(
    ("load", "why"),
    [
        (None, "does not say what load its devices reached"),
        (ReachedLoad(power_fraction=0.93), "is of less load than that"),
        (ReachedLoad(power_fraction=0.6, loop_power=0.98, loop_speed=0.9), "is of less load"),
        (ReachedLoad(core_use=0.9), "is of less load than that"),
    ],
)
def test_record_of_less_load_asks_for_none(load: ReachedLoad | None, why: str) -> None:
    events = list(tagged(watched_events(PLAN, watched(270.0)), Loop(watts=690.0)))
    known = records(PLAN, NODE, load=load)
    result = ruling(verdict_of(PLAN, events, FUNCTIONAL, system=NODE, qualified=known), "load")
    assert (result.ruling, result.reason) == ("not_applicable", "unqualified")
    assert why in result.explanation
    full = ReachedLoad(power_fraction=0.6, loop_power=0.98, loop_speed=0.96)
    known = records(PLAN, NODE, load=full)
    result = ruling(verdict_of(PLAN, events, FUNCTIONAL, system=NODE, qualified=known), "load")
    assert result.ruling == "fail"


def test_what_is_drawn_is_set_beside_a_plain_loop() -> None:
    shown = ruling(judged(watched(270.0), is_known=False, loop=Loop(watts=690.0)), "load")
    assert "39.1 % of the power and 98.0 % of the speed of a plain loop" in shown.explanation


FREE = {"graphics_clock_hertz": 2e9, "throttled_power_cap": 0.0}
"""Readings of a device that nothing slows down, at its highest clock."""


def test_device_that_draws_less_in_any_product_is_loaded_as_by_a_plain_loop() -> None:
    result = ruling(judged(watched(500.0, **FREE), loop=Loop(watts=505.0)), "load")
    assert (result.ruling, result.required) == ("pass", True)
    assert "71.4 % of its power limit" in result.explanation
    assert "99.0 % of the power and 98.0 % of the speed of a plain loop" in result.explanation


@pytest.mark.parametrize(
    "loop", [Loop(watts=690.0), Loop(watts=505.0, proven_seconds=1.1)], ids=["power", "speed"]
)
def test_device_that_does_less_than_its_plain_loop_fails(loop: Loop) -> None:
    assert ruling(judged(watched(500.0, **FREE), loop=loop), "load").ruling == "fail"


@pytest.mark.parametrize(
    ("loop", "values", "why"),
    [
        (Loop(watts=None), FREE, "no plain loop was read beside it"),
        (None, FREE, "no plain loop was read beside it"),
        (Loop(watts=505.0), {**FREE, "graphics_clock_hertz": 1.8e9}, "clock was at 90.0 % of the"),
        (Loop(watts=505.0), {**FREE, "throttled_thermal": 1.0}, "active in 100 % of the time"),
        (Loop(watts=505.0), {**FREE, "throttled_thermal": None}, "held back is not reported"),
    ],
    ids=["no power", "no loop", "clock", "slowed down", "not known"],
)
def test_device_that_may_be_held_back_is_neither_passed_nor_failed(
    loop: Loop | None, values: Mapping[str, float | None], why: str
) -> None:
    result = ruling(judged(watched(500.0, **values), loop=loop), "load")
    assert (result.ruling, result.reason) == ("inconclusive", "not_observed")
    assert why in result.explanation


def test_device_that_its_firmware_keeps_just_below_its_power_limit_is_at_full_load() -> None:
    """The limit holds its clock down, as the device says, in the plain loop as in the burn-in."""
    capped = {"graphics_clock_hertz": 1.4e9, "throttled_power_cap": 1.0}
    result = ruling(judged(watched(672.0, **capped), loop=Loop(watts=673.0)), "load")
    assert result.ruling == "pass"
    assert "96.0 % of its power limit in hot phases, clock at 70.0 % of the highest" in (
        result.explanation
    )


def test_processors_whose_cores_the_stress_beside_takes_are_not_judged_by_them() -> None:
    stressed = a_plan(replace(CASE, parameters={"stress": "host"}))
    node = card("cpu")
    for plan, word in ((stressed, "not_applicable"), (PLAN, "fail")):
        events = list(tagged(watched_events(plan, watched(None)), None, core_use=0.5))
        known = records(plan, node)
        result = ruling(verdict_of(plan, events, FUNCTIONAL, system=node, qualified=known), "load")
        assert result.ruling == word


def test_processors_that_others_use_are_neither_passed_nor_failed() -> None:
    node = card("cpu", usable_processors=Fact(value=4))
    shared = watched(None, foreign_processors=2.0)
    events = list(tagged(watched_events(PLAN, shared), None, core_use=0.5))
    known = records(PLAN, node)
    result = ruling(verdict_of(PLAN, events, FUNCTIONAL, system=node, qualified=known), "load")
    assert (result.ruling, result.reason) == ("inconclusive", "environment")


def test_record_without_phases_shows_too_little_power_and_never_enough() -> None:
    for watts, word in ((270.0, "fail"), (690.0, "inconclusive")):
        events = watched_events(PLAN, watched(watts))
        result = ruling(verdict_of(PLAN, events, FUNCTIONAL, system=NODE, qualified=KNOWN), "load")
        assert result.ruling == word
    assert "does not say when its hot phases began" in result.explanation


def test_only_readings_of_hot_phases_count() -> None:
    """A loop that draws more does not lend a burn-in its power."""
    result = ruling(judged(watched(600.0), loop=Loop(watts=7000.0)), "load")
    assert result.statistic is not None
    assert result.statistic.value == pytest.approx(600 / LIMIT)


def test_processors_are_judged_by_the_use_of_their_cores() -> None:
    node = card("cpu")
    known = records(PLAN, node)
    for use, word in ((0.97, "pass"), (0.5, "fail")):
        events = list(tagged(watched_events(PLAN, watched(None)), None, core_use=use))
        result = ruling(verdict_of(PLAN, events, FUNCTIONAL, system=node, qualified=known), "load")
        assert result.ruling == word
        assert result.statistic is not None
        assert (result.statistic.metric, result.statistic.value) == ("core_use", use)
    shown = ruling(verdict_of(PLAN, events, FUNCTIONAL, system=node), "load")
    assert "50.0 % of its cores in use in hot phases" in shown.explanation


@pytest.mark.parametrize("name", ["", "hot"])
def test_recorded_burn_in_at_a_third_of_its_power_is_never_loaded(name: str) -> None:
    """An H100 that version 2 kept at 270 W of 700, with a block that the stopped run had not."""
    run = recorded_run("burn-in")
    plan = replace(run.plan, cases=tuple(replace(one, version=4) for one in run.plan.cases))
    ended = block(f"{plan.cases[0].id}/1", 0, (10**9, 10**9 + 1, 10**9 + 2))
    tag = replace(phase(ended.launch, name, 0), index=0)
    events: list[Event] = []
    for event in (line.event for line in run.lines):
        if isinstance(event, LaunchEnded) and event.launch == ended.launch:
            events.append(ended)
        events.append(event)
        if isinstance(event, Warmed) and name:
            events.append(tag)
    index = index_of(plan, bare_lines(events))
    (ledger,) = device_health.of_devices(
        run.system.identity.devices, tuple(index.cases.values()), "cases"
    )
    power = ledger.observe("power_fraction")
    assert power.low is not None
    assert power.low == pytest.approx(0.39, abs=0.06)
    assert bool(power.gap) == (name == "")


def test_power_that_is_not_reported_is_unknown_and_never_zero() -> None:
    result = ruling(judged(watched(None)), "load")
    assert (result.ruling, result.statistic) == ("inconclusive", None)
    shown = ruling(judged(watched(None), is_known=False), "load")
    assert f"{DEVICE}: power not reported" in shown.explanation
    assert "not slowed down" in shown.explanation
    silent = dict.fromkeys(CALM)
    unknown = ruling(judged(watched(None, **silent), is_known=False), "load")
    assert "clock not reported" in unknown.explanation
    assert "throttling not reported" in unknown.explanation


def test_limit_that_is_not_reported_is_unknown() -> None:
    bare = card(power_limit=Fact(value=None))
    events = watched_events(PLAN, watched(690.0))
    result = ruling(
        verdict_of(PLAN, events, FUNCTIONAL, system=bare, qualified=records(PLAN, bare)), "load"
    )
    assert result.ruling == "inconclusive"
    assert "power_limit of the part is not reported" in result.explanation


@pytest.mark.parametrize("case", [a_case(device=DEVICE), a_case("burn_in", device=DEVICE)])
def test_plan_without_a_burn_in_of_full_size_asks_for_no_load(case: object) -> None:
    plan = a_plan(case)  # type: ignore[arg-type]
    assert of_plan(FUNCTIONAL, plan) == requirements(FUNCTIONAL)


def test_load_of_the_file_takes_the_place_of_the_appliance_s_own() -> None:
    own = replace(LOAD, id="heated", at_least=0.3)
    criteria = replace(FUNCTIONAL, criterion=(*FUNCTIONAL.criterion, own))
    events = list(tagged(watched_events(PLAN, watched(270.0)), None))
    verdict = verdict_of(PLAN, events, criteria, system=NODE, qualified=KNOWN)
    assert ruling(verdict, "heated").ruling == "pass"
    assert not [one for one in verdict.rulings if one.criterion == "load"]


def test_hot_phases_are_the_highest_readings_each_counted_as_often_as_it_stands() -> None:
    assert device_health.mean_of_highest([(100.0, 1), (700.0, 5), (690.0, 1)], 6 / 7) == (
        pytest.approx((5 * 700 + 690) / 6)
    )
    assert device_health.mean_of_highest([], 6 / 7) is None


@pytest.mark.parametrize(("rise", "is_settled"), [(0.0, True), (1.5, True), (4.0, False)])
def test_temperature_has_settled_where_it_rises_no_more(rise: float, is_settled: bool) -> None:  # noqa: FBT001 - a parameter
    devices = {
        DEVICE: Watching(
            counters=lambda _: HEALTHY,
            values=lambda n: {**CALM, "temperature_celsius": 50 + rise * n},
        )
    }
    index = index_of(PLAN, bare_lines(watched_events(PLAN, devices)))
    (ledger,) = device_health.of_devices(
        NODE.identity.devices, tuple(index.cases.values()), "cases"
    )
    assert ledger.temperature() is not None
    assert ledger.temperature()[1] == is_settled  # type: ignore[index]
