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
    records,
    verdict_of,
    watched_events,
)
from support.watched_runs import CALM, DEVICE, HEALTHY, ruling, system

from appliance.evidence import device_health
from appliance.evidence.journal_index import index_of
from appliance.judging.verdict import LOAD, of_plan, requirements
from appliance.records.plan import Plan
from appliance.records.system import Fact
from appliance.records.verdict import Verdict

LIMIT = 700.0  # watts, an H100's
FACTS = {"power_limit": Fact(value=LIMIT, unit="watts")}
NODE = system(**FACTS)
CASE = replace(a_case("burn_in", device=DEVICE), small=False)
PLAN = a_plan(CASE)
KNOWN = records(PLAN, NODE)


def watched(
    watts: float | None, *, readings: int = 7, **values: float | None
) -> Mapping[str, Watching]:
    """A device that draws so much in hot phases, of whose values others may be given."""
    read = {**CALM, "power_watts": watts, "temperature_celsius": 64.0, **values}
    return {DEVICE: Watching(counters=lambda _: HEALTHY, values=lambda _: read, readings=readings)}


def judged(devices: Mapping[str, Watching], plan: Plan = PLAN, *, is_known: bool = True) -> Verdict:
    qualified = {"qualified": KNOWN} if is_known else {}
    events = watched_events(plan, devices)
    return verdict_of(plan, events, FUNCTIONAL, system=NODE, **qualified)


def test_device_that_draws_what_it_may_passes_where_a_record_has_the_model() -> None:
    result = ruling(judged(watched(690.0)), "load")
    assert (result.ruling, result.required) == ("pass", True)
    assert result.statistic is not None
    assert result.statistic.metric == "power_fraction"
    assert result.statistic.value == pytest.approx(690 / LIMIT)
    assert result.statistic.limit == 0.97


def test_device_that_does_not_heat_is_rejected_with_what_it_drew() -> None:
    verdict = judged(watched(270.0))
    result = ruling(verdict, "load")
    assert (verdict.verdict, verdict.decided_by, result.ruling) == ("REJECTED", "load", "fail")
    assert "at least 0.97 is required" in result.explanation
    assert "0.385714" in result.explanation
    assert "Look at cooling, power supply" in result.action


def test_without_a_record_it_is_shown_and_not_judged() -> None:
    slowed = watched(270.0, throttled_power_cap=1.0)
    verdict = judged(slowed, is_known=False)
    result = ruling(verdict, "load")
    assert (result.ruling, result.reason) == ("not_applicable", "unqualified")
    assert verdict.decided_by != "load"
    assert result.explanation == (
        "there is no qualified record of burn_in on Test Processor 9000; reported, not judged: "
        f"{DEVICE}: 0.386 of its power limit in hot phases, clock 0.900 of the highest, "
        "64 celsius at most, settled, slowed down by power_cap in 100 % of the readings"
    )


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
    bare = system()
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
    events = watched_events(PLAN, watched(270.0))
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
