"""Readings and counters are ones that a device can have: as recorded, and as verified."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from support.builders import SYSTEM, bare_lines, ended
from support.recorded_runs import RUNS, recorded_run

from appliance.plausibility.reading_checks import (
    excused_counter,
    impossible_reading,
    unread_launch,
)
from appliance.records.journal import Counted, Reading
from appliance.records.vocabulary import RANGES, READINGS, possible, possible_counts

LAUNCH, DEVICE = "gemm@cpu:0/1", "cpu:0"


@pytest.mark.parametrize("name", RUNS)
def test_no_recorded_run_of_a_device_is_accused(name: str) -> None:
    lines = recorded_run(name).lines
    assert (impossible_reading(lines), unread_launch(lines)) == ("", "")


def test_every_reading_has_a_range() -> None:
    assert READINGS.keys() <= RANGES.keys()


@pytest.mark.parametrize("value", [1e300, -1.0, math.inf, math.nan])
def test_what_no_device_has_is_recorded_as_not_reported_and_found(value: float) -> None:
    values = {"power_watts": value, "temperature_celsius": 40.0}
    assert possible(values) == {"power_watts": None, "temperature_celsius": 40.0}
    (fault,) = [
        impossible_reading(bare_lines([Reading(launch=LAUNCH, device=DEVICE, values=values)]))
    ]
    assert "power_watts is" in fault
    assert possible_counts({"lost": -1, "resets": 2**64, "ecc_corrected": 3}) == {
        "lost": None,
        "resets": None,
        "ecc_corrected": 3,
    }


def test_what_has_no_name_is_found() -> None:
    reading = Reading(launch=LAUNCH, device=DEVICE, values={"teraflops": 989.0})
    assert "'teraflops' is read" in impossible_reading(bare_lines([reading]))
    counted = Counted(device=DEVICE, counters={"certified": 1})
    assert "'certified' is counted" in impossible_reading(bare_lines([counted]))


def test_a_long_launch_without_a_reading_is_found() -> None:
    end = replace(ended(LAUNCH), wall_ns=6 * 10**9)
    assert "its devices were not read" in unread_launch(bare_lines([end]))
    reading = Reading(launch=LAUNCH, device=DEVICE, values={})
    assert unread_launch(bare_lines([reading, end])) == ""
    assert unread_launch(bare_lines([replace(end, wall_ns=10**9)])) == ""


def test_a_device_is_not_excused_of_what_it_can_have() -> None:
    said = Counted(device=DEVICE, counters={}, absent=("lost", "pcie_replays"))
    assert excused_counter(SYSTEM, bare_lines([said])) == ""
    more = replace(said, absent=("ecc_uncorrected",))
    assert "not to have ecc_uncorrected" in excused_counter(SYSTEM, bare_lines([more]))
