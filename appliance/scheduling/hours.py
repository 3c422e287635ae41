"""A suite of burn-in for other hours than its file says: as many segments, as long as they need be.

The segments of a burn-in are launches, so an interruption costs what one of them would have
covered: they are at most an hour, and never fewer than six where the time allows half a minute
each. Time limits leave room for the four times that a segment may last that saw a mismatch.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from appliance.errors import UsageError
from appliance.planning.launch_constants import SEGMENTED

if TYPE_CHECKING:
    from appliance.records.suite import Suite, SuiteCase

LEAST_HOURS, MOST_HOURS = 0.01, 2500.0
LONGEST_SEGMENT, LEAST_SEGMENT, FEWEST_SEGMENTS = 3600.0, 30.0, 6
BESIDE_SECONDS = 15.0
"""What a segment takes beside its block, as in the suites' files."""
LONGEST_PHASE, PHASES_OF_SEGMENT = 300.0, 12
PHASE = "phase_seconds"
_HOUR = 3600.0


def check_hours(hours: float) -> None:
    """UsageError for a length that no burn-in can have."""
    if not (math.isfinite(hours) and LEAST_HOURS <= hours <= MOST_HOURS):
        raise UsageError(
            f"--hours is {hours:g}: give a number from {LEAST_HOURS:g} to {MOST_HOURS:g}"
        )


def with_hours(suite: Suite, hours: float | None) -> Suite:
    """The suite, of which each device is under test for so many hours; as it is without hours.

    The cases of the suite share them. Raises UsageError for a suite that is no burn-in.
    """
    if hours is None:
        return suite
    check_hours(hours)
    others = [case.id for case in suite.case if case.workload not in SEGMENTED]
    if others:
        raise UsageError(
            f"--hours is for suites of burn-in, and {suite.name} has {others[0]}: name burn-in, "
            "burn-in-1h, soak-24h, soak-168h or a copy of one"
        )
    seconds = hours * _HOUR / len(suite.case)
    segment = min(LONGEST_SEGMENT, max(LEAST_SEGMENT, seconds / FEWEST_SEGMENTS))
    number = max(1, math.ceil(seconds / segment - 1e-9))
    segment = seconds / number
    return replace(
        suite,
        summary=f"{hours:g} hours of burn-in in segments of {segment:.0f} s: "
        + suite.summary.partition(": ")[2],
        time_limit_seconds=len(suite.case) * number * (1.2 * segment + BESIDE_SECONDS) + 1200.0,
        protocol=replace(suite.protocol, block_seconds=segment, interim_analyses=(number,)),
        case=tuple(_sized(case, segment, number) for case in suite.case),
    )


def _sized(case: SuiteCase, segment: float, number: int) -> SuiteCase:
    phase = min(LONGEST_PHASE, max(1.0, segment / PHASES_OF_SEGMENT))
    phases = {PHASE: phase} if PHASE in case.parameters else {}
    return replace(
        case,
        launches=number,
        parameters={**case.parameters, **phases},
        expected_seconds=segment + BESIDE_SECONDS,
        time_limit_seconds=4 * segment + 600.0,
    )
