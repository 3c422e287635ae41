"""The sustained stage: what a plan must hold, and when its cases may be decided at first."""

from dataclasses import replace

import pytest
from support.builders import PROTOCOL, limited
from support.planned_suites import place, planned, suite, suite_case

from appliance.errors import UsageError
from appliance.planning.sustained import launch_seconds
from appliance.records.criteria import Criteria, Criterion
from appliance.storage import criteria_file

PACE = replace(PROTOCOL, interim_analyses=(5, 10, 20, 40), warmup_seconds=1.0, block_seconds=2.0)
"""A launch works for 5.03 s: 0.03 to compare clocks, 1 to warm up, two blocks of 2."""
CASES = tuple(map(suite_case, ("gemm", "bert")))


def criteria(seconds: float) -> Criteria:
    """A limit on every time, and a stage of so many seconds."""
    drift = Criterion(
        id="drift",
        kind="drift",
        title="Drift",
        metric="drift_over_run",
        at_most=0.02,
        sustained_seconds=seconds,
    )
    limits = limited(1.0)
    return replace(limits, criterion=(*limits.criterion, drift))


def test_a_launch_works_for_as_long_as_the_protocol_says_at_least() -> None:
    assert launch_seconds(PACE) == pytest.approx(5.03)


def test_a_plan_too_short_for_the_stage_is_refused_with_what_to_change() -> None:
    most = 2 * 40 * launch_seconds(PACE)
    assert planned(suite(*CASES, protocol=PACE), criteria=criteria(most - 1)).cases
    with pytest.raises(UsageError) as caught:
        planned(suite(*CASES, protocol=PACE), criteria=criteria(most + 1))
    sentence = str(caught.value)
    assert 'criterion "drift" has cpu:0 under load for 403.4 s, and this is 402 s' in sentence
    assert "plan more cases, launches or longer blocks" in sentence
    assert "shorter sustained_seconds" in sentence


def test_each_device_must_be_held_under_load() -> None:
    places = (place(0), place(1))
    one = 2 * 40 * launch_seconds(PACE)
    with pytest.raises(UsageError, match="cpu:0 under load"):
        planned(suite(*CASES, protocol=PACE), criteria=criteria(1.5 * one), places=places)


@pytest.mark.parametrize(("rounds", "first"), [(1, 5), (5, 5), (5.1, 10), (20, 20), (21, 40)])
def test_expected_time_is_that_of_the_first_analysis_after_the_stage(
    rounds: float, first: int
) -> None:
    stage = rounds * 2 * launch_seconds(PACE)
    plan = planned(suite(*CASES, protocol=PACE), criteria=criteria(stage))
    untimed = sum(case.reference_seconds for case in CASES)
    timed = first * sum(case.expected_seconds for case in CASES)
    assert plan.expected_seconds == pytest.approx(untimed + timed)


def test_of_several_sessions_the_last_holds_the_stage() -> None:
    """A device cools in the pauses."""
    most = 2 * 40 * launch_seconds(PACE)
    requested = suite(*CASES, protocol=PACE)
    assert planned(requested, criteria=criteria(most), sessions=3).sessions == 3
    with pytest.raises(UsageError, match="too short"):
        planned(requested, criteria=criteria(most + 1), sessions=3)


# ------------------------------------------------------------------ what files say


def test_every_shipped_file_that_judges_times_states_a_stage() -> None:
    judging = 0
    for name in criteria_file.list_criteria():
        shipped, _ = criteria_file.load_criteria(name)
        if any(one.kind == "perf" for one in shipped.criterion):
            judging += 1
            (drift,) = (one for one in shipped.criterion if one.kind == "drift")
            assert (drift.required, drift.cases) == (True, "*")
            assert drift.sustained_seconds
    assert judging


@pytest.mark.parametrize(
    ("lines", "output"),
    [
        ('kind = "drift"\nmetric = "drift_over_run"', 'needs "sustained_seconds"'),
        (
            'kind = "drift"\nmetric = "drift_over_run"\nsustained_seconds = 0',
            "give more than 0 and at most a week",
        ),
        (
            'kind = "tail"\nmetric = "stall_rate"\nsustained_seconds = 60',
            "which only drift takes",
        ),
    ],
)
def test_a_stage_that_cannot_be_held_is_refused(lines: str, output: str) -> None:
    text = (
        'schema = "bench/criteria/1"\nname = "mine"\nversion = 1\nsummary = "tests"\n'
        f'[[criterion]]\nid = "one"\ntitle = "One"\nat_most = 0.02\n{lines}\n'
    )
    with pytest.raises(UsageError, match=output):
        criteria_file.parse_criteria(text.encode(), "mine.toml")
