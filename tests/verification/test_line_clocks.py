"""The two clocks of a journal's lines pass together but for what a healthy machine does to one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

import pytest
from support.builders import a_plan

from appliance.errors import EvidenceError
from appliance.records.journal import Event, Line, RunEnded, RunResumed
from appliance.storage.journal import as_written
from appliance.verification.observation_checks import check_observations

BEGIN = datetime(2026, 11, 21, 12, tzinfo=UTC)
SECOND = 10**9
PLAN = a_plan()
EVENT = RunEnded(launches=0)


def journal(
    day: Callable[[int], float],
    *,
    number: int = 20,
    event: Callable[[int], Event] = lambda _: EVENT,
) -> Sequence[Line]:
    """Lines a second apart by one clock; `day` is the time of day of each, in seconds."""
    return [
        Line(
            seq=one,
            utc=as_written(BEGIN + timedelta(seconds=day(one))),
            monotonic_ns=one * SECOND,
            prev="",
            event=event,
        )
        for one in range(number)
    ]


@pytest.mark.parametrize(
    "day",
    [
        lambda one: one,
        lambda one: one + 0.001 * (one % 2),
        lambda one: 1.0005 * one,
        lambda one: one - 3600 * (one > 10),
        lambda one: one + 28_800 * (one > 10),
        lambda one: one - 5 * (one // 3),
    ],
    ids=["alike", "a millisecond", "steered", "zone put right", "slept", "set every third line"],
)
def test_a_clock_that_is_set_or_steered_is_taken(day: Callable[[int], float]) -> None:
    check_observations(PLAN, journal(day))


@pytest.mark.parametrize(
    "day",
    [lambda _: 0.0, lambda one: -one, lambda one: one / 1000, lambda one: 10 * one],
    ids=["stands", "runs backwards", "a line a millisecond", "ten times as fast"],
)
def test_a_clock_that_passes_otherwise_throughout_is_refused(day: Callable[[int], float]) -> None:
    with pytest.raises(EvidenceError, match="in 19 of 19 stretches between two lines"):
        check_observations(PLAN, journal(day))


def test_a_few_lines_say_nothing_of_a_clock() -> None:
    check_observations(PLAN, journal(lambda _: 0.0, number=8))
    with pytest.raises(EvidenceError, match="in 8 of 8 stretches"):
        check_observations(PLAN, journal(lambda _: 0.0, number=9))


def test_between_two_processes_of_a_run_the_clocks_say_nothing() -> None:
    resumed = RunResumed(interruption=1, interrupted=(), dropped="", pid=1)
    check_observations(PLAN, journal(lambda one: 3600.0 * one, event=resumed))
