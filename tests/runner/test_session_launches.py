"""Launches of several sessions: which are made when, and what a session finds of the one before."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.builders import session_change
from support.launching import TESTS, Bench, Seen, case, plan

from appliance.evidence.journal_index import index_of
from appliance.evidence.launches import values_by_session
from appliance.records.journal import Artifact, InterimAnalysis, LaunchStarted, ServerProbed

ONE, TWO = "one@cpu:0", "two@cpu:0"


@pytest.fixture(scope="module", autouse=True)
def workloads() -> Iterator[None]:
    """Children find the workloads of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(TESTS))
        yield


def begun(bench: Bench) -> list[str]:
    return [event.launch for event in bench.events if isinstance(event, LaunchStarted)]


def next_session(bench: Bench, observer: Seen | None = None) -> None:
    """As `accept` begins it."""
    for event in session_change(1, "")[:2]:
        bench.journal.append(event)
    bench.run(observer)


def test_a_session_makes_its_own_launches_with_new_servers(tmp_path: Path) -> None:
    cases = (case("one", launches=4), case("two", launches=4))
    bench = Bench(tmp_path / "run", plan(*cases, interim_analyses=(2,), repeats=3, sessions=2))
    bench.run()
    first = [f"{name}/{number}" for number in (0, "r1", 1, "r2", 2) for name in (ONE, TWO)]
    assert begun(bench) == first
    watching = Seen()
    next_session(bench, watching)
    second = [f"{name}/{number}" for number in ("r3", 3, 4) for name in (ONE, TWO)]
    assert begun(bench) == first + second
    assert watching.num_done == len(first)
    probed = [e.library_mode for e in bench.events if isinstance(e, ServerProbed)]
    assert sorted(probed) == ["default"] * 2 + ["deterministic"] * 2
    analyses = [(e.case, e.launches) for e in bench.events if isinstance(e, InterimAnalysis)]
    assert analyses == [(ONE, 2), (TWO, 2), (ONE, 4), (TWO, 4)]
    index = index_of(bench.plan, bench.journal.lines)
    assert [len(values) for values in values_by_session(index.cases[ONE])] == [2, 2]
    assert index.run.num_interruptions == 0


def test_files_of_an_untimed_launch_that_are_gone_are_made_again(tmp_path: Path) -> None:
    bench = Bench(
        tmp_path / "run", plan(case("one", launches=2), interim_analyses=(1,), sessions=2)
    )
    bench.run()
    shutil.rmtree(tmp_path / "work")
    next_session(bench)
    assert begun(bench) == [f"{ONE}/{number}" for number in (0, 1, 0, 2)]
    made = [e.launch for e in bench.events if isinstance(e, Artifact) and e.is_made]
    assert made == [f"{ONE}/0"] * 2
    evidence = index_of(bench.plan, bench.journal.lines).cases[ONE]
    assert evidence.fault == ""
    assert all(launch.is_completed for launch in evidence.launches)
    assert evidence.num_interruptions == 0


def test_a_case_that_failed_is_not_made_in_the_sessions_after(tmp_path: Path) -> None:
    planned = plan(case("one", launches=4), interim_analyses=(2,), sessions=2)
    bench = Bench(tmp_path / "run", planned, lambda _: (True, "decided: a check failed"))
    bench.run()
    next_session(bench)
    assert begun(bench) == [f"{ONE}/{number}" for number in (0, 1, 2)]
    assert [bench.ended(f"{ONE}/{number}").reason for number in (3, 4)] == ["decided"] * 2
