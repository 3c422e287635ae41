"""A pass in a later attempt needs more: the receipt selects among the bounds of the plan."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from support.builders import PROTOCOL, a_case, a_plan
from support.timed_evidence import SECONDS, criteria, perf, ruling_on, rulings, steady, timed

from appliance.errors import EvidenceError
from appliance.planning.criterion_scope import MOST_ATTEMPTS, planned_bounds
from appliance.records.journal import AttemptBegun, Line
from appliance.records.verdict import Ruling, Statistic

PLAN = replace(
    a_plan(a_case(launches=10), protocol=replace(PROTOCOL, interim_analyses=(5, 10), blocks=1)),
    num_attempts=MOST_ATTEMPTS,
)
ASKED = criteria(perf(at_most=SECONDS * 1.03, unit="s", margin=0.03))


def in_attempt(number: int, slowdown: float = 1.013) -> Ruling:
    """The same launches, made as this attempt; 0 as none."""
    first, *rest = timed(PLAN, steady(SECONDS * slowdown))
    begun = replace(first, event=AttemptBegun(attempt=number, receipt="", nonce=""))
    lines: list[Line] = [first, begun, *rest] if number else [first, *rest]
    return ruling_on(rulings(PLAN, lines, ASKED))


def statistic(number: int) -> Statistic:
    result = in_attempt(number).statistic
    assert result is not None
    return result


def test_what_passes_at_first_does_not_at_last() -> None:
    words = [in_attempt(number).ruling for number in (1, MOST_ATTEMPTS)]
    assert words == ["pass", "inconclusive"]


def test_bound_of_a_pass_rises_and_that_of_a_fail_stays() -> None:
    result = [statistic(number) for number in range(1, MOST_ATTEMPTS + 1)]
    passing = [one.critical_pass for one in result]
    assert passing == sorted(set(passing))
    assert len({one.critical_fail for one in result}) == 1
    assert all(math.isfinite(bound) for bound in passing)


def test_device_over_its_limit_fails_in_any_attempt() -> None:
    words = {in_attempt(number, 1.08).ruling for number in range(1, MOST_ATTEMPTS + 1)}
    assert words == {"fail"}


@pytest.mark.parametrize("number", [0, MOST_ATTEMPTS + 1])
def test_run_of_no_attempt_that_the_plan_allows_is_not_judged(number: int) -> None:
    with pytest.raises(EvidenceError, match=r"names no attempt|no bounds for attempt 11"):
        in_attempt(number)


def test_plan_without_counted_attempts_has_the_bounds_of_one_run() -> None:
    analyses = PLAN.protocol.interim_analyses
    _, one = planned_bounds(ASKED, PLAN.cases, analyses)
    _, ten = planned_bounds(ASKED, PLAN.cases, analyses, num_attempts=MOST_ATTEMPTS)
    assert [bounds.alpha for bounds in one] == [ASKED.alpha_pass, ASKED.alpha_fail]
    assert len(ten) == MOST_ATTEMPTS + 1
