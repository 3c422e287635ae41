"""A suite of burn-in takes any number of hours: segments, limits and phases follow."""

from __future__ import annotations

import math

import pytest

from appliance.errors import UsageError
from appliance.scheduling.hours import MOST_HOURS, with_hours
from appliance.storage.suite_file import check_protocol, list_suites, load_suite
from appliance.verbs.run_options import PlanOptions

BURN_INS = ("burn-in", "burn-in-1h", "soak-24h", "soak-168h")


@pytest.mark.parametrize("name", BURN_INS)
@pytest.mark.parametrize("hours", [0.01, 0.05, 0.5, 1.0, 7.3, 72.0, 2500.0])
def test_segments_add_up_to_the_hours(name: str, hours: float) -> None:
    suite = with_hours(load_suite(name)[0], hours)
    check_protocol(suite.protocol, name)
    seconds = 0.0
    for case in suite.case:
        number, segment = case.launches or 0, suite.protocol.block_seconds
        seconds += number * segment
        assert suite.protocol.interim_analyses == (number,)
        assert segment <= 3600.0
        assert case.time_limit_seconds > 4 * segment
        assert 1.0 <= float(case.parameters["phase_seconds"]) <= 300.0
    assert seconds == pytest.approx(hours * 3600)
    assert suite.time_limit_seconds > seconds * 1.2
    assert f"{hours:g} hours" in suite.summary


@pytest.mark.parametrize("name", BURN_INS)
def test_without_hours_a_suite_is_as_it_is(name: str) -> None:
    suite = load_suite(name)[0]
    assert with_hours(suite, None) is suite


def test_a_minute_is_still_several_segments() -> None:
    suite = with_hours(load_suite("burn-in")[0], 0.05)
    assert sum(case.launches or 0 for case in suite.case) >= 3


@pytest.mark.parametrize("hours", [0.0, -1.0, math.nan, math.inf, MOST_HOURS * 2])
def test_hours_that_no_burn_in_has_are_refused(hours: float) -> None:
    with pytest.raises(UsageError, match="--hours is"):
        PlanOptions(hours=hours)


def test_hours_and_minutes_are_not_given_together() -> None:
    with pytest.raises(UsageError, match="both lengths"):
        PlanOptions(hours=1.0, minutes=5)


def test_hours_of_a_suite_that_is_no_burn_in_are_refused() -> None:
    other = next(name for name in list_suites() if name not in BURN_INS)
    with pytest.raises(UsageError, match="--hours is for suites of burn-in"):
        with_hours(load_suite(other)[0], 1.0)
