"""What is not begun any more once a session has run as long as its suite allows."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.builders import FUNCTIONAL
from support.launching import NOTHING_KNOWN, TESTS, Bench, Seen, case, plan

from appliance.judging.verdict import judge
from appliance.planning.sessions import TIME_LIMIT
from appliance.records.journal import LaunchEnded, LaunchStarted
from appliance.records.plan import Launch, Plan
from appliance.storage.journal import Clock, Journal


@pytest.fixture(scope="module", autouse=True)
def faulty_workloads() -> Iterator[None]:
    """Children find the workloads of tests/faulty."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(TESTS))
        yield


def limited(seconds: float, *, is_time_limited: bool = True) -> Plan:
    made = plan(case("one"))
    return replace(made, time_limit_seconds=seconds, is_time_limited=is_time_limited)


def left_out(bench: Bench) -> list[str]:
    return [
        event.launch
        for event in bench.events
        if isinstance(event, LaunchEnded) and event.reason == TIME_LIMIT
    ]


def test_nothing_is_begun_after_the_limit_and_the_cases_are_ruled_so(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "run", limited(1e-9))
    seen = Seen()
    bench.run(seen)
    names = [launch.id for launch in bench.plan.launches]
    assert left_out(bench) == seen.ended == names
    assert not any(isinstance(event, LaunchStarted) for event in bench.events)
    verdict = judge(
        plan=bench.plan, criteria=FUNCTIONAL, lines=bench.journal.lines, **NOTHING_KNOWN
    )
    assert verdict.verdict == "INCONCLUSIVE"
    of_cases = [one for one in verdict.rulings if one.case and one.criterion == "completion"]
    assert [one.reason for one in of_cases] == ["time_limit"]
    assert "time limit of the suite" in of_cases[0].explanation


def test_a_launch_under_way_at_the_limit_ends_and_the_next_one_is_not_begun(tmp_path: Path) -> None:
    hours: list[str] = []

    def an_hour_passes(launch: Launch) -> None:
        hours.append(launch.id)

    def monotonic_ns() -> int:
        return time.monotonic_ns() + len(hours) * 3600 * 10**9

    bench = Bench(tmp_path / "run", limited(1800))
    bench.journal = Journal.create(
        tmp_path / "journal.jsonl", "f" * 64, Clock(monotonic_ns=monotonic_ns)
    )
    bench.run(Seen(an_hour_passes))
    first, *others = [launch.id for launch in bench.plan.launches]
    assert bench.ended(first).outcome == "completed"
    assert hours == [first]
    assert left_out(bench) == others


def test_a_plan_that_says_nothing_of_it_is_made_whole(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "run", limited(1e-9, is_time_limited=False))
    bench.run()
    assert left_out(bench) == []
    assert all(bench.ended(launch.id).outcome == "completed" for launch in bench.plan.launches)


def test_what_was_interrupted_is_made_again_though_the_time_is_over(tmp_path: Path) -> None:
    """It was begun before the limit, and its case has no reference without it."""

    class Cut(Exception): ...

    def cut(launch: Launch) -> None:
        raise Cut(launch.id)

    bench = Bench(tmp_path / "run", limited(1e9))
    with pytest.raises(Cut):
        bench.run(Seen(cut))
    cut_short, *others = [launch.id for launch in bench.plan.launches]
    bench.plan = replace(bench.plan, time_limit_seconds=1e-9)
    bench.run()
    assert bench.of(cut_short, LaunchEnded)[-1].outcome == "completed"
    assert left_out(bench) == others
