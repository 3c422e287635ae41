"""The times of the shipped suites, and the schedules beside them, are those that plans have."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from support.program import called

from appliance.records.json import to_json
from appliance.scheduling import suite_times
from appliance.scheduling.suite_times import SuiteTime, SuiteTimes
from appliance.storage import qualified_file, suite_file

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import write_suite_times  # noqa: E402 - after the path

XEON = "Intel(R) Xeon(R) Processor"
A_TIME = SuiteTime(
    suite="s", model="M", minutes=119.4, num_cases=4, num_recorded=0, is_disturbed=False
)


def test_times_and_page_are_up_to_date() -> None:
    known = write_suite_times.times()
    assert suite_times.PATH.read_bytes() == to_json(SuiteTimes(time=known)), "run make generate"
    assert write_suite_times.PAGE.read_text() == write_suite_times.page(known), "run make generate"


def test_times_follow_from_the_records_and_are_allowances_without_them() -> None:
    suite = suite_file.load_suite("smoke")[0]
    observed = qualified_file.load_observed()
    recorded = write_suite_times.time_of(suite, XEON, observed)
    allowed = write_suite_times.time_of(suite, XEON, ())
    assert recorded is not None
    assert allowed is not None
    assert (allowed.num_recorded, allowed.source) == (0, "allowance")
    assert 0 < recorded.num_recorded <= recorded.num_cases
    assert "recorded" in recorded.source
    twice = [
        replace(one, launch_seconds=None if one.launch_seconds is None else 2 * one.launch_seconds)
        for one in observed
    ]
    slower = write_suite_times.time_of(suite, XEON, twice)
    assert slower is not None
    assert slower.minutes > recorded.minutes


def test_full_sizes_are_not_planned_on_processors() -> None:
    suite = suite_file.load_suite("acceptance")[0]
    assert write_suite_times.time_of(suite, XEON, ()) is None


@pytest.mark.parametrize(
    ("num_recorded", "num_estimated", "num_assumed", "source"),
    [
        (0, 0, 0, "allowance"),
        (4, 0, 0, "recorded"),
        (3, 0, 0, "of 4 times 3 recorded, else allowance"),
        (2, 1, 0, "of 4 times 2 recorded, 1 estimated, else allowance"),
        (0, 1, 0, "of 4 times 1 estimated, else allowance"),
        (0, 1, 3, "of 4 times 1 estimated, 3 estimated of an assumed step"),
    ],
)
def test_a_time_says_what_it_is_taken_from(
    num_recorded: int, num_estimated: int, num_assumed: int, source: str
) -> None:
    counts = {"num_estimated": num_estimated, "num_assumed": num_assumed}
    one = replace(A_TIME, num_recorded=num_recorded, **counts)
    assert suite_times.sentences([one]) == (f"1 h 59 min on M ({source})",)
    longer = replace(one, model="L", minutes=120.0)
    assert suite_times.sentences([one, longer, replace(one, model="N", minutes=119.0)]) == (
        f"1 h 59 min on M, N ({source})",
        f"2 h on L ({source})",
    )
    disturbed = replace(one, is_disturbed=True).source
    assert disturbed == source.replace("recorded", "recorded beside other load")


@pytest.mark.parametrize("minutes", write_suite_times.MINUTES)
def test_schedules_of_the_recorded_device_hold_their_minutes(minutes: int) -> None:
    plan = write_suite_times.schedule(minutes)
    assert 0 < plan.longest_seconds <= 60 * minutes
    assert plan.schedule is not None
    run = {case.id.partition("@")[0] for case in plan.cases}
    assert run | plan.schedule.left_out == {row.name for row in plan.schedule.rows}
    assert not run & plan.schedule.left_out


def test_more_minutes_hold_more_rows_of_the_recorded_device() -> None:
    """Rows that nobody has timed have estimates, and no allowance that is too long for most."""
    counts = []
    for minutes in (30, 60, 240):
        schedule = write_suite_times.schedule(minutes).schedule
        assert schedule is not None
        counts.append(sum(row.launches is not None for row in schedule.rows))
        assert not [row.name for row in schedule.rows if row.times == "allowance"]
    assert 15 < counts[0] < counts[1] <= counts[2] == 31
    assert counts[1] - counts[0] >= 5


def test_the_list_of_suites_says_their_times() -> None:
    done = called("list", "suites")
    assert done.stderr.startswith("allowance: what the suite allows a case that ")
    lines = done.stdout.splitlines()
    at = next(place for place, line in enumerate(lines) if line.startswith("smoke "))
    assert any(XEON in line for line in lines[at + 1 : at + 4])
    listed = json.loads(called("list", "suites", "--json").stdout)
    assert {one["name"] for one in listed} == set(suite_file.list_suites())
    (smoke,) = [one for one in listed if one["name"] == "smoke"]
    assert {one["model"] for one in smoke["times"]} >= {XEON}
