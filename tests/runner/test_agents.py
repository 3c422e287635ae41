"""Launches whose ranks several torchrun agents start: what goes wrong is named as under one."""

import math
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from faulty.forkless import Forkless
from faulty.vendor import Vendor
from support.launching import TESTS, Bench, bearers, case, plan

from appliance.evidence.journal_index import JournalIndex
from appliance.judging.functional import RulingDraft, _completion, _of_kind, numeric
from appliance.records.journal import Checked, Environment, Warmed
from appliance.records.plan import Case
from appliance.records.workload import Work
from appliance.runner import supervisor
from appliance.runner.launcher import file_name
from appliance.worker import torchrun
from appliance.worker.torchrun import _failure

MARK = f"BENCH_TEST_MARK={uuid.uuid4().hex}"
LIMIT = 300.0  # seconds; longer than the slowest machine needs
SHORT_LIMIT = 90.0  # where one rank waits a third of it for another that does not go on
PEER_EXIT = 20.0
"""Instead of a minute, which the agent of the rank that stays would be waited for."""
HEALTHY = ("none-4",)
FORKED = "forked by the launch's first process"
PROGRAMS = "-unforkable"
"""End of the name of a case whose ranks no process may fork."""
FAULTS: dict[str, tuple[str, str, str]] = {
    # outcome, reason, and a part of what is said; rank 1 is of the second agent or of the first
    "dies-2": ("crashed", "SIGKILL", "rank 1: ended by signal 9"),
    "raises-2": ("crashed", "ValueError", "rank 1: this rank has had enough"),
    "leaves-2": ("crashed", "exit", "rank 1 ended and did not say why"),
    "hangs-2": ("timed_out", "stalled", "(no word from rank 1"),
}


def of_agents(
    name: str, *, agents: int = 2, workload: str = "faulty.unfaithful", part: str = ""
) -> Case:
    """A case by its fault and its number of ranks, which the agents share."""
    fault, ranks = name[:-2], int(name[-1])
    return case(
        name + part,
        workload=workload,
        parameters={"ranks": ranks, "count": 1009, "num_sizes": 3, "fault": fault},
        ranks=ranks,
        scope="job",
        agents=agents,
        work=Work(units=1.0),
        launches=1 if fault == "none" else 0,
        time_limit_seconds=SHORT_LIMIT if fault == "hangs" else LIMIT,
    )


def run_of(
    folder: Path, *cases: Case, vendor: Vendor, groups: Sequence[tuple[str, ...]] = ()
) -> Bench:
    planned = plan(*cases, warmup_seconds=0.02, groups=groups)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(TESTS))
        patch.setenv(*MARK.split("="))
        patch.setattr(supervisor, "PEER_EXIT_SECONDS", PEER_EXIT)
        made = Bench(folder / "run", planned, vendor=vendor)
        made.run()
    return made  # without the mark, which whatever a test starts would inherit


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """One run of all, one after the other but for those that wait for a rank in vain."""
    cases = [of_agents(name) for name in (*HEALTHY, "lies-2", *FAULTS)]
    cases.append(of_agents("dies-2", agents=1, workload="faulty.unforkable_ranks", part=PROGRAMS))
    waiting = ("hangs-2@cpu:0/0", "leaves-2@cpu:0/0", f"dies-2{PROGRAMS}@cpu:0/0")
    others = [(f"{one.id}/0",) for one in cases if f"{one.id}/0" not in waiting]
    groups = [waiting, *others, *((f"{name}@cpu:0/1",) for name in HEALTHY)]
    folder = tmp_path_factory.mktemp("agents")
    return run_of(folder, *cases, vendor=Vendor(), groups=groups)


@pytest.mark.parametrize("name", HEALTHY)
def test_ranks_of_two_agents_complete_and_each_of_them_checks(bench: Bench, name: str) -> None:
    ranks = set(range(int(name[-1])))
    for number in (0, 1):
        launch = f"{name}@cpu:0/{number}"
        assert bench.ended(launch).outcome == "completed", bench.ended(launch)
        assert {item.rank for item in bench.of(launch, Checked)} == ranks
        facts = [item.facts["rank_start"].value for item in bench.of(launch, Environment)]
        assert facts == [FORKED] * len(ranks)
    assert {item.rank for item in bench.of(f"{name}@cpu:0/1", Warmed)} == ranks
    index = JournalIndex(bench.plan)
    for line in bench.journal.lines:
        index.take(line)
    index.settle()
    result = index.cases[f"{name}@cpu:0"]
    collective = _of_kind("collective", result)
    for draft in (_completion(result, bench.inputs), numeric(result), collective):
        assert draft == RulingDraft(ruling="pass")


def test_contribution_that_disagrees_is_seen_by_the_ranks_of_both_agents(bench: Bench) -> None:
    reported = bench.of("lies-2@cpu:0/0", Checked)
    assert {item.rank for item in reported if not item.check.is_within} == {0, 1}


@pytest.mark.parametrize("name", FAULTS)
def test_rank_that_goes_wrong_is_named_whatever_agent_started_it(bench: Bench, name: str) -> None:
    outcome, reason, output = FAULTS[name]
    ended = bench.ended(f"{name}@cpu:0/0")
    assert (ended.outcome, ended.reason) == (outcome, reason), ended
    assert output in ended.detail


def test_ranks_are_programs_where_the_vendor_rules_out_forks(tmp_path: Path) -> None:
    made = run_of(tmp_path, of_agents("lies-2"), vendor=Forkless())
    require_programs(made, "lies-2@cpu:0/0")
    assert made.ended("lies-2@cpu:0/0").outcome == "completed"
    outside = [one for one in made.of("lies-2@cpu:0/0", Checked) if not one.check.is_within]
    assert {item.rank for item in outside} == {0, 1}


def test_ranks_are_programs_where_a_fork_shows_a_fault(bench: Bench) -> None:
    launch = f"dies-2{PROGRAMS}@cpu:0/0"
    require_programs(bench, launch)
    ended = bench.ended(launch)
    assert (ended.outcome, ended.reason) == ("crashed", "SIGKILL"), ended
    assert "rank 1: ended by signal 9" in ended.detail
    stderr = (bench.folder / "logs" / f"{file_name(launch)}.stderr").read_text()
    assert "programs of their own: the probe fork ended with 5" in stderr


def require_programs(bench: Bench, launch: str) -> None:
    facts = bench.of(launch, Environment)
    assert {item.rank for item in facts} == {0, 1}
    assert {item.facts["rank_start"].value for item in facts} == {"a program"}


def test_no_process_of_any_agent_is_left(bench: Bench) -> None:
    assert bench.events
    assert bearers(MARK) == []


class Agent:
    """An agent that ended with a status, or goes on: for so many looks, or until it is told."""

    def __init__(self, status: int | None, interim_analyses: float = 0) -> None:
        self._status, self._interim_analyses = status, interim_analyses

    def poll(self) -> int | None:
        self._interim_analyses -= 1
        return self._status if self._interim_analyses < 0 else None

    def terminate(self) -> None:
        if self._interim_analyses >= 0:
            self._status, self._interim_analyses = -15, 0


@pytest.mark.parametrize(
    ("statuses", "reported"),
    [((None, 0), 0), ((1, None), 1), ((1, 137), 137), ((0, -9), 137), ((0, 0), 0)],
)
def test_signal_of_a_rank_is_told_before_what_it_caused(
    statuses: tuple[int | None, ...], reported: int
) -> None:
    agents: Any = [Agent(status) for status in statuses]
    assert _failure(agents) == reported


@pytest.mark.parametrize(
    ("ends", "reported"),
    [
        (((1, 0), (137, 20)), 137),  # the one that lost a rank is heard before the one that had it
        (((137, 0), (1, 20)), 137),
        (((1, 0), (0, math.inf)), 1),  # it goes on, and is ended: that says nothing of the cause
        (((0, 0), (0, 20)), 0),
    ],
)
def test_agents_that_end_one_after_the_other_are_all_asked(
    monkeypatch: pytest.MonkeyPatch, ends: tuple[tuple[int, float], ...], reported: int
) -> None:
    monkeypatch.setattr(torchrun, "AGENT_TICK_SECONDS", 0.0)
    monkeypatch.setattr(torchrun, "AGENT_SECONDS", 0.3 if math.inf in ends[1] else 600.0)
    assert torchrun.run_agents([Agent(*end) for end in ends], time.sleep) == reported


def test_faulty_workload_is_there() -> None:
    assert (Path(TESTS) / "faulty" / "unfaithful.py").is_file()
