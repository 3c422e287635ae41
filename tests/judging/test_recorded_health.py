"""Today's criteria of health on what a healthy H100 recorded under bench 0.12.0.

Its blocks of smoke last 0.2 s, so that no reading is under load; version 0.12.0 counted the time
that heat takes, and none of the power brake. Which counters a run of today has there, is known: the
driver was 580.159.04, whose fields for both read 0 in a probe before and after 3 s of products.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from support.builders import NO_BASELINES

from appliance.evidence.device_health import UNLOADED
from appliance.evidence.journal_index import JournalIndex
from appliance.judging.verdict import Judge
from appliance.records.criteria import Criteria
from appliance.records.journal import Counted, Line, RunEnded
from appliance.records.json import adapter
from appliance.records.plan import Plan
from appliance.records.system import Fact, System
from appliance.records.verdict import Ruling
from appliance.storage import criteria_file, device_file

FOLDER = Path(__file__).parents[1] / "recorded"
SHIPPED = criteria_file.load_criteria("accelerator")[0]
JUDGED = ("throttling", "power-limit", "power-cap")
LINK = "pcie-generation"
READ = (*JUDGED, LINK)
CRITERIA = replace(SHIPPED, criterion=tuple(one for one in SHIPPED.criterion if one.id in READ))
HEAT, BRAKE = "thermal_violation_ns", "power_brake_violation_ns"
Counts = Mapping[str, int]
Course = Callable[[int], Counts]
"""What is counted beside what was recorded, by the number of readings of counters before it."""


@cache
def recorded(name: str, folder: str = "h100_0_12") -> tuple[Line, ...]:
    data = lzma.decompress((FOLDER / folder / f"{name}.jsonl.xz").read_bytes())
    return tuple(adapter(Line).validate_json(line) for line in data.splitlines())


def as_today(kind: type[Any], data: bytes) -> Any:
    """A record by today's schema."""
    (schema,) = (one for one in fields(kind) if one.name == "schema")
    return adapter(kind).validate_json(json.dumps({**json.loads(data), "schema": schema.default}))


def judged(
    name: str, course: Course | None = None, folder: str = "h100_0_12", **facts: Fact
) -> dict[str, Ruling]:
    """The rulings of CRITERIA on a run, by their names."""
    return {one.criterion: one for one in rulings_on(name, course, folder, CRITERIA, **facts)}


def rulings_on(
    name: str, course: Course | None, folder: str, criteria: Criteria, **facts: Fact
) -> Sequence[Ruling]:
    """The rulings on a run, its counters as they were or taking this course as well.

    A run that was stopped is closed by the reading that it had last.
    """
    packed = (FOLDER / folder / f"{name}.plan.json.xz").read_bytes()
    plan: Plan = as_today(Plan, lzma.decompress(packed))
    system: System = as_today(System, (FOLDER / "h100" / "system.json").read_bytes())
    device = system.identity.devices[0]
    device = replace(device, facts={**device.facts, **facts})
    judge = Judge(
        plan=replace(plan, num_limits=0, bounds=()),
        criteria=criteria,
        baselines=NO_BASELINES,
        peaks=device_file.load_peaks([device.model]),
        system=replace(system, identity=replace(system.identity, devices=(device,))),
    )
    counted, last = 0, {}
    lines = recorded(name, folder)
    if not isinstance(lines[-1].event, RunEnded):
        closing = [line for line in lines if isinstance(line.event, Counted)][-1]
        lines = (*lines, replace(closing, event=replace(closing.event, launch="", moment="after")))
    for line in lines:
        event = line.event
        if course is not None and isinstance(event, Counted):
            last = dict(event.counters) if not event.is_same else last
            absent = ("throttled_current",) if not event.launch and event.moment == "before" else ()
            event = replace(
                event,
                counters={**last, **course(counted)},
                is_same=False,
                absent=(*event.absent, *absent),
            )
            counted += 1
        judge.take(replace(line, event=event))
    return judge.verdict().rulings


@pytest.mark.parametrize(
    ("name", "folder"), [("smoke", "h100_0_12"), ("node", "h100_0_12"), ("smoke", "h100_0_13")]
)
def test_nothing_fails_of_what_healthy_devices_recorded(name: str, folder: str) -> None:
    """Which README says; what is open there was left out of the record, or lacks its software."""
    rulings = rulings_on(name, None, folder, SHIPPED)
    assert [one for one in rulings if one.ruling == "fail"] == []
    assert any(one.criterion == "correctness" and one.ruling == "pass" for one in rulings)


def test_products_at_the_standard_limit_are_held_back_by_it_and_nothing_is_held_against_them() -> (
    None
):
    rulings = judged("node")
    assert {name: rulings[name].ruling for name in JUDGED} == dict.fromkeys(JUDGED, "pass")
    throttling, cap = rulings["throttling"].statistic, rulings["power-cap"].statistic
    assert throttling is not None
    assert (throttling.value, throttling.count) == (0.0, 124)
    assert cap is not None
    assert 0.01 < cap.value < 0.02
    lowered = judged("node", power_limit=Fact(value=350, unit="watts"))
    assert (lowered["power-limit"].ruling, lowered["power-cap"].ruling) == ("fail", "pass")
    assert "50 % (350 W of 700 W)" in lowered["power-limit"].explanation
    higher = judged("node", power_limit=Fact(value=1000, unit="watts"))
    assert higher["power-cap"].ruling == "fail"  # 690 W are drawn while a limit holds it back


def test_short_steps_pass_by_what_the_device_counts_and_not_without() -> None:
    then = judged("smoke")
    assert then["throttling"].ruling == "inconclusive"
    assert UNLOADED in then["throttling"].explanation
    assert UNLOADED in then[LINK].explanation  # its tool reports it, of an idle link
    assert then["power-cap"].ruling == "pass"  # as nothing was counted at the limit
    now = judged("smoke", lambda _: {BRAKE: 0})["throttling"]
    assert (now.ruling, now.statistic and now.statistic.count) == ("pass", 54)


def test_short_steps_pass_by_counters_that_a_device_really_reported() -> None:
    """By the code that reads them, with the driver that the version before had."""
    throttling = judged("smoke", folder="h100_0_13")["throttling"]
    assert (throttling.ruling, throttling.statistic and throttling.statistic.value) == ("pass", 0.0)


def test_a_first_step_is_time_of_steps_once_and_only_within_its_launch() -> None:
    """Else the share of the time in which a device was held back comes out too small."""
    packed = (FOLDER / "h100_0_13" / "smoke.plan.json.xz").read_bytes()
    index = JournalIndex(as_today(Plan, lzma.decompress(packed)))
    for line in recorded("smoke", "h100_0_13"):
        index.take(line)
    seen = set()
    for launch in index.launches.values():
        if launch.started is None or not launch.blocks:
            continue
        blocks = sum(block.block_wall_ns for block in launch.blocks)
        is_apart = not (launch.started.is_beside or launch.blocks[0].first_step == 0)
        first = launch.started.first_step_ns if is_apart else 0
        assert launch.steps_ns == first + launch.warm_ns + blocks
        seen.add((launch.started.is_beside, launch.blocks[0].first_step == 0))
    assert seen == {(False, False), (True, False), (False, True)}


@pytest.mark.parametrize("name", [HEAT, BRAKE])
def test_short_steps_that_were_held_back_fail(name: str) -> None:
    """By 12 ms around each launch, of 0.4 s of steps on average: 3 % of the time."""
    held = judged("smoke", lambda n: {BRAKE: 0, name: 12_000_000 * n})["throttling"]
    assert (held.ruling, held.reason) == ("fail", "health")
    assert "by its counters" in held.explanation


@pytest.mark.parametrize(
    ("course", "words"),
    [
        (lambda n: {BRAKE: 1000 - n}, "it went back from"),
        (lambda n: {} if n == 80 else {BRAKE: 0}, "it was there in 163 of 164 readings only"),
        (lambda n: {BRAKE: 10**13 * (n > 80)}, "between launches, in"),
        (lambda n: {BRAKE: 10**13 * (n > 81)}, "which no device can have counted"),
    ],
)
def test_forged_counters_are_no_pass(course: Course, words: str) -> None:
    ruling = judged("smoke", course)["throttling"]
    assert ruling.ruling == "inconclusive"
    assert words in ruling.explanation
