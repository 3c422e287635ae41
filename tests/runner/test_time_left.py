"""What a run within some minutes makes of the time that decided cases leave."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.builders import FUNCTIONAL
from support.launching import NOTHING_KNOWN, TESTS, Bench, Seen, case, plan

from appliance.judging.verdict import judge
from appliance.planning.sessions import NO_TIME
from appliance.records.journal import InterimAnalysis, LaunchEnded, RunEnded, RunStarted
from appliance.records.plan import Launch, Plan, Schedule, ScheduledRow
from appliance.storage.journal import Clock
from appliance.verification.run_checks import check_conduct

HOUR_NS = 3600 * 10**9
MINUTES = 30
"""Of a run; more than the slowest machine needs for all that is planned."""
QUICK, OPEN, WAITING = "quick@cpu:0", "open@cpu:0", "waiting@cpu:0"


@pytest.fixture(scope="module", autouse=True)
def faulty_workloads() -> Iterator[None]:
    """Children find the workloads of tests/faulty."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(TESTS))
        yield


def row(name: str, launches: int | None, *, most: int, waits: int = 0) -> ScheduledRow:
    return ScheduledRow(
        name=name,
        group=name,
        variant_of="",
        weight=1.0,
        fixed_seconds=1.0,
        launch_seconds=1.0,
        is_recorded=False,
        least=1 if waits else 2,
        most=most,
        launches=launches,
        waits=waits,
    )


def scheduled() -> Plan:
    """Two cases of 2 launches that may become 4, and a row that waits, within half an hour."""
    made = plan(
        case("quick", launches=4, assured=2, checked_launch=1),
        case("open", launches=4, assured=2, checked_launch=1),
        case("waiting", launches=1, waits=1, checked_launch=1),
        interim_analyses=(2, 4),
    )
    rows = (row("quick", 2, most=4), row("open", 2, most=4), row("waiting", None, most=1, waits=1))
    return replace(made, schedule=Schedule(minutes=MINUTES, rows=rows))


def a_bench(folder: Path, clock: Clock | None = None) -> Bench:
    """A run in which the interim analyses decide one case and leave the other open."""
    bench = Bench(folder, scheduled(), clock=clock or Clock())
    bench.interim_analysis = lambda name: (name == QUICK, "planted")
    return bench


def made(bench: Bench) -> list[str]:
    return [
        event.launch
        for event in bench.events
        if isinstance(event, LaunchEnded) and event.outcome == "completed"
    ]


def left_out(bench: Bench, reason: str) -> list[str]:
    return [
        event.launch
        for event in bench.events
        if isinstance(event, LaunchEnded) and event.reason == reason
    ]


def analysed(bench: Bench) -> list[tuple[str, int]]:
    return [(one.case, one.launches) for one in bench.events if isinstance(one, InterimAnalysis)]


def verified(bench: Bench) -> None:
    """As verify does, of what the run left."""
    bench.journal.append(RunEnded(launches=len(bench.plan.launches)))
    start = bench.journal.lines[0].event
    assert isinstance(start, RunStarted)
    check_conduct(
        bench.plan, bench.journal.lines, {"plan.json": start.plan, "system.json": start.system}
    )


def started(bench: Bench) -> Bench:
    bench.journal.append(RunStarted(run_id=bench.plan.run_id, plan="p", system="s", pid=1))
    return bench


def test_the_row_that_waited_and_the_open_case_are_made_and_the_decided_one_is_not(
    tmp_path: Path,
) -> None:
    bench, seen = started(a_bench(tmp_path / "run")), Seen()
    bench.run(seen)
    assert left_out(bench, "decided") == [f"{QUICK}/3", f"{QUICK}/4"]
    assert left_out(bench, NO_TIME) == []
    assert made(bench)[-4:] == [f"{WAITING}/0", f"{WAITING}/1", f"{OPEN}/3", f"{OPEN}/4"]
    assert [(given.wave, given.cases) for given in seen.given] == [(1, {WAITING}), (2, {OPEN})]
    assert analysed(bench) == [(QUICK, 2), (OPEN, 2), (WAITING, 1), (OPEN, 4)]
    verified(bench)


def test_without_time_left_nothing_more_is_made_and_the_row_that_waited_is_not_covered(
    tmp_path: Path,
) -> None:
    ended: list[str] = []

    def monotonic_ns() -> int:
        return time.monotonic_ns() + (HOUR_NS if len(ended) >= 6 else 0)

    def note(launch: Launch) -> None:
        ended.append(launch.id)

    bench = a_bench(tmp_path / "run", Clock(monotonic_ns=monotonic_ns))
    started(bench).run(Seen(note))
    assert made(bench) == ended
    assert len(ended) == 6  # all that is assured
    assert left_out(bench, NO_TIME) == [f"{WAITING}/0", f"{WAITING}/1", f"{OPEN}/3", f"{OPEN}/4"]
    assert analysed(bench) == [(QUICK, 2), (OPEN, 2)]
    verified(bench)
    verdict = judge(
        plan=bench.plan, criteria=FUNCTIONAL, lines=bench.journal.lines, **NOTHING_KNOWN
    )
    completion = {one.case: one for one in verdict.rulings if one.criterion == "completion"}
    assert completion[OPEN].ruling == "pass"
    assert completion[WAITING].reason == "coverage"
    assert completion[WAITING].explanation == f"the {MINUTES} min of the run left no time for it"
    assert "so nothing is shown of them: waiting." in verdict.scope
    assert verdict.verdict == "INCONCLUSIVE"


def test_a_row_whose_assumed_step_takes_an_hour_leaves_the_others_theirs(tmp_path: Path) -> None:
    made_plan = scheduled()
    assert made_plan.schedule is not None
    rows = tuple(
        replace(one, is_estimated=True, is_assumed=True) if one.name == "open" else one
        for one in made_plan.schedule.rows
    )
    whole = replace(made_plan, schedule=Schedule(minutes=MINUTES, rows=rows))
    slow: list[str] = []

    def monotonic_ns() -> int:
        return time.monotonic_ns() + (HOUR_NS if slow else 0)

    bench = Bench(tmp_path / "run", whole, clock=Clock(monotonic_ns=monotonic_ns))

    def note(launch: Launch) -> None:
        if launch.case == OPEN:
            slow.append(launch.id)

    started(bench).run(Seen(note))
    assert slow == [f"{OPEN}/0"]
    assert {name for name in made(bench) if name.startswith(QUICK)} == {
        f"{QUICK}/{number}" for number in range(3)
    }
    assert left_out(bench, NO_TIME)[:2] == [f"{OPEN}/1", f"{OPEN}/2"]
    verified(bench)
    verdict = judge(
        plan=bench.plan, criteria=FUNCTIONAL, lines=bench.journal.lines, **NOTHING_KNOWN
    )
    completion = {one.case: one for one in verdict.rulings if one.criterion == "completion"}
    assert (completion[OPEN].ruling, completion[OPEN].reason) == ("inconclusive", "coverage")
    assert completion[QUICK].ruling == "pass"


def test_a_run_that_is_killed_in_the_time_left_goes_on_with_what_it_was_given(
    tmp_path: Path,
) -> None:
    class Cut(Exception): ...

    def cut(launch: Launch) -> None:
        if launch.wave:
            raise Cut(launch.id)

    bench = started(a_bench(tmp_path / "run"))
    with pytest.raises(Cut):
        bench.run(Seen(cut))
    bench.run()
    assert left_out(bench, NO_TIME) == []
    assert made(bench)[-4:] == [f"{WAITING}/0", f"{WAITING}/1", f"{OPEN}/3", f"{OPEN}/4"]
