"""What a run's time went to: by its journal's lines, every nanosecond once, nothing made up."""

from __future__ import annotations

import pytest

from appliance.evidence.budget import Budget, BudgetSums, sentence
from appliance.records.journal import (
    Event,
    InterimAnalysis,
    LaunchAhead,
    LaunchEnded,
    LaunchStarted,
    Line,
    RunEnded,
    RunPlanned,
    RunResumed,
    RunStarted,
    ServerProbed,
    StageTimes,
    TimedStage,
)

S = 10**9
BEGUN = RunStarted(run_id="r", plan="p", system="s", pid=1)
PROBED = ServerProbed(
    device="cpu:0",
    framework="torch",
    library_mode="default",
    is_healthy=True,
    seconds=1.0,
    reason="",
)
ANALYSED = InterimAnalysis(case="a", launches=5, is_decided=True, reason="decided")
RESUMED = RunResumed(interruption=1, interrupted=("a",), dropped="", pid=2)


def started(launch: str) -> LaunchStarted:
    return LaunchStarted(launch=launch, mode="forked")


def ended(launch: str) -> LaunchEnded:
    return LaunchEnded(
        launch=launch,
        outcome="completed",
        reason="",
        detail="",
        exit_code=0,
        wall_ns=0,
        peak_memory_bytes=None,
    )


def stages(launch: str, rank: int = 0, **seconds: float) -> StageTimes:
    wall_ns: dict[TimedStage, int] = {}
    for name, value in seconds.items():
        wall_ns[name] = round(value * S)  # type: ignore[index]
    return StageTimes(launch=launch, rank=rank, wall_ns=wall_ns)


def budget(*events: tuple[float, Event]) -> Budget:
    sums = BudgetSums()
    for number, (second, event) in enumerate(events):
        at = round(second * S)
        sums.take(Line(seq=number, utc="", monotonic_ns=at, prev="", event=event))
    return sums.now()


def test_the_parts_are_the_run_and_what_lies_between_launches_is_named() -> None:
    made = budget(
        (100, BEGUN),
        (100, RunPlanned(wall_ns=2 * S)),
        (104, PROBED),
        (105, started("a")),
        (114, stages("a", start=1, build=3, timed=4.5)),
        (115, ended("a")),
        (118, ANALYSED),
        (119, RunEnded(launches=1)),
    )
    assert made.seconds == pytest.approx(
        {
            "plan": 2,
            "servers": 4,
            "between": 2,
            "start": 1,
            "build": 3,
            "timed": 4.5,
            "end": 1.5,
            "judge": 3,
        }
    )
    assert made.whole == pytest.approx(2 + 19)
    assert made.useful == pytest.approx(4.5)


def test_launches_at_once_share_the_time_that_they_took_together() -> None:
    made = budget(
        (0, BEGUN),
        (0, started("a")),
        (0, started("b")),
        (9, stages("a", build=5, timed=5)),
        (10, ended("a")),
        (19, stages("b", timed=20)),
        (20, ended("b")),
    )
    assert made.whole == pytest.approx(20)
    assert made.seconds == pytest.approx({"build": 20 * 5 / 30, "timed": 20 * 25 / 30})


def test_ranks_run_side_by_side_so_their_mean_counts() -> None:
    made = budget(
        (0, BEGUN),
        (0, started("a")),
        (10, stages("a", 0, build=4, timed=6)),
        (10, stages("a", 1, build=2, timed=6, wait=2)),
        (10, ended("a")),
    )
    assert made.seconds == pytest.approx({"build": 3, "timed": 6, "wait": 1})


def test_a_launch_that_reported_nothing_is_not_measured() -> None:
    made = budget((0, BEGUN), (1, started("a")), (8, ended("a")))
    assert made.seconds == pytest.approx({"between": 1, "not_measured": 7})
    assert sentence(made) == "what the time went to was not measured"


def test_a_resumption_measures_neither_the_pause_nor_the_launch_that_it_cut() -> None:
    made = budget(
        (1000, BEGUN),
        (1000, started("a")),
        (1003, stages("a", build=3)),
        (50, RESUMED),  # of another boot, whose clock begins anew
        (51, ended("a")),
        (52, started("a")),
        (53, stages("a", timed=1)),
        (53, ended("a")),
    )
    assert made.seconds == pytest.approx({"not_measured": 3, "between": 2, "timed": 1})


def test_the_sentence_names_the_largest_parts_and_sums_up_the_rest() -> None:
    seconds = {"import": 30.0, "check": 12.0, "timed": 50.0, "warm_up": 7.3, "end": 0.4}
    seconds |= {"digest": 0.3}
    assert sentence(Budget(seconds=seconds)) == (
        "of 1 min 40 s: 57 % useful, 30 % imports, 12 % checks, 1 % all else"
    )
    part = {"timed": 3.0, "not_measured": 1.0}
    assert sentence(Budget(seconds=part)) == "of 4.0 s: 75 % useful, 25 % not measured"


def test_what_began_beside_another_launch_is_named_and_no_part() -> None:
    second = StageTimes(
        launch="b", rank=0, wall_ns={"timed": 3 * S}, ahead_ns={"start": S, "build": S}
    )
    made = budget(
        (0, BEGUN),
        (0, started("a")),
        (4, LaunchAhead(launch="b", beside=("a",), through="build")),
        (6, stages("a", timed=4, check=2)),
        (6, ended("a")),
        (7, started("b")),
        (10, second),
        (10, ended("b")),
    )
    assert made.whole == pytest.approx(10)
    assert made.seconds == pytest.approx({"check": 2, "timed": 7, "between": 1})
    assert made.beside == pytest.approx(2)
    assert sentence(made).endswith(", and 2.0 s of coming launches beside the end of others")
