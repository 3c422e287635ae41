"""Launches of several ranks in real processes: right results, and one rank that goes wrong."""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from support.forked_ranks import checks_of_ranks
from support.launching import TESTS, Bench, bearers, case, plan

from appliance.evidence.journal_index import JournalIndex
from appliance.evidence.launches import CaseEvidence
from appliance.judging.functional import RulingDraft, _completion, _of_kind, numeric
from appliance.records.journal import (
    Block,
    Checked,
    Environment,
    LaunchStarted,
    ServerProbed,
    Started,
    Warmed,
)
from appliance.records.plan import Case
from appliance.records.workload import Work
from workloads.collectives import Collectives
from workloads.contract.failures import ParameterError
from workloads.contract.target import Artifacts, Target

MARK = f"BENCH_TEST_MARK={uuid.uuid4().hex}"
LIMIT = 300.0  # seconds; longer than the slowest machine needs
SHORT_LIMIT = 60.0  # where one rank waits a third of it for another that does not come
HEALTHY = {"none-2": 2, "none-4": 4}
WRONG = "lies-2"
DISAGREEING = {"all_reduce_sum", "all_gather", "all_to_all", "pairs"}
"""Operations that show the first rank that another contributes wrongly."""
FAULTS: dict[str, tuple[str, str, str]] = {
    # outcome, reason, and a part of what is said
    "dies-2": ("crashed", "SIGKILL", "rank 1: ended by signal 9"),
    "raises-2": ("crashed", "ValueError", "rank 1: this rank has had enough"),
    "leaves-4": ("crashed", "exit", "rank 1 ended and did not say why"),
    "absent-2": ("timed_out", "stalled", ": joining the other ranks: "),
    "hangs-2": ("timed_out", "stalled", ": all_reduce_sum/2: "),
    "hangs-4": ("timed_out", "stalled", ": all_reduce_sum/2: "),
}
WAITED = [name for name, (_, reason, _) in FAULTS.items() if reason == "stalled"]


def of_ranks(name: str, **fields: Any) -> Case:
    """A case by its fault and its number of ranks."""
    fault, ranks = name[:-2], int(name[-1])
    given = {"ranks": ranks, "count": 1009, "num_sizes": 3, "fault": fault, **fields}
    healthy = fault == "none"
    return case(
        name,
        workload="faulty.unfaithful",
        parameters=given,
        ranks=ranks,
        work=Work(units=1.0),
        launches=1 if healthy else 0,
        time_limit_seconds=SHORT_LIMIT if name in WAITED else LIMIT,
    )


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """One run of all: two and four healthy ranks, and such of which one goes wrong in its way.

    Those that wait for a rank which does not come do so beside others.
    """
    folder = tmp_path_factory.mktemp("ranks")
    cases = (
        of_ranks("none-2"),
        of_ranks("none-4", dtype="bfloat16"),
        *(of_ranks(name) for name in (WRONG, *FAULTS)),
    )
    together = [["none-2", "none-4"], [*WAITED, WRONG], ["leaves-4", "dies-2", "raises-2"]]
    groups = [tuple(f"{name}@cpu:0/0" for name in names) for names in together]
    groups += [(f"{name}@cpu:0/1",) for name in HEALTHY]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(TESTS))
        patch.setenv(*MARK.split("="))
        made = Bench(folder / "run", plan(*cases, groups=groups, warmup_seconds=0.02))
        made.run()
    return made  # without the mark, which whatever a test starts would inherit


def evidence_of(bench: Bench, name: str) -> CaseEvidence:
    index = JournalIndex(bench.plan)
    for line in bench.journal.lines:
        index.take(line)
    index.settle()
    return index.cases[f"{name}@cpu:0"]


def checks(bench: Bench, launch: str) -> Sequence[Checked]:
    return bench.of(launch, Checked)


# ------------------------------------------------------------------ healthy ranks


@pytest.mark.parametrize(("name", "ranks"), HEALTHY.items())
def test_healthy_ranks_complete_and_each_of_them_checks_everything(
    bench: Bench, name: str, ranks: int
) -> None:
    for number in (0, 1):
        launch = f"{name}@cpu:0/{number}"
        assert bench.ended(launch).outcome == "completed", bench.ended(launch)
        assert all(item.check.is_within for item in checks(bench, launch))
        for rank in range(ranks):
            reported = [item for item in checks(bench, launch) if item.rank == rank]
            first = [item.check for item in reported if item.phase == "first"]
            collective = [check for check in first if check.kind == "collective"]
            assert len(collective) == 12  # eleven operations, and the digest
            assert {check.name for check in first if check not in collective} == {
                "inputs as drawn",
                "known answers of the input generator",
            }
            phases = {item.phase for item in reported}
            assert phases == ({"first", "last"} if number else {"first"})
    evidence = evidence_of(bench, name)
    assert not evidence.fault
    collective = _of_kind("collective", evidence)
    for draft in (_completion(evidence, bench.inputs), numeric(evidence), collective):
        assert draft == RulingDraft(ruling="pass")


def test_all_ranks_hold_the_digest_that_the_host_computes(bench: Bench) -> None:
    for number in (0, 1):
        reported = {
            item.check.detects_what
            for item in checks(bench, f"none-4@cpu:0/{number}")
            if "digest" in item.check.name and item.phase == "first"
        }
        assert len(reported) == 1, reported


def test_ranks_make_one_number_of_steps_and_are_timed_together(bench: Bench) -> None:
    for name, ranks in HEALTHY.items():
        launch = f"{name}@cpu:0/1"
        for kind in (Warmed, Block):
            lengths: dict[int, list[int]] = {}
            for event in bench.of(launch, kind):
                lengths.setdefault(event.rank, []).append(len(event.wall_ns))
            assert set(lengths) == set(range(ranks))
            assert len({tuple(result) for result in lengths.values()}) == 1
        order = [type(event) for event in bench.of(launch) if isinstance(event, Warmed | Block)]
        assert order[:ranks] == [Warmed] * ranks


def test_ranks_are_processes_of_their_own_and_share_the_threads(bench: Bench) -> None:
    started = [event.rank for event in bench.of("none-4@cpu:0/0", Started)]
    assert sorted(started) == [0, 1, 2, 3]
    reported = bench.of("none-4@cpu:0/0", Environment)
    assert [event.facts["threads"].value for event in reported] == [1] * 4
    assert [event.facts["rank_start"].value for event in reported] == [
        "forked by the launch's first process"
    ] * 4
    modes = {event.mode for event in bench.events if isinstance(event, LaunchStarted)}
    assert modes == {"forked"}
    probed = [event for event in bench.events if isinstance(event, ServerProbed)]
    assert {event.ranks for event in probed} == set(HEALTHY.values())
    assert all(event.is_healthy for event in probed)


def without(bench: Bench, kind: type, phase: str = "") -> CaseEvidence:
    """Evidence of the two healthy ranks without what rank 1 has said of one kind."""
    index = JournalIndex(bench.plan)
    for line in bench.journal.lines:
        event = line.event
        is_meant = isinstance(event, kind) and getattr(event, "rank", None) == 1
        if not (is_meant and getattr(event, "phase", "") == phase):
            index.take(line)
    index.settle()
    return index.cases["none-2@cpu:0"]


def test_rank_that_said_nothing_of_its_steps_or_checks_is_missed(bench: Bench) -> None:
    assert "0 timed steps in 0 blocks" in without(bench, Block).fault
    for phase in ("first", "last"):
        draft = numeric(without(bench, Checked, phase))
        assert (draft.ruling, draft.reason) == ("inconclusive", "coverage")


# ------------------------------------------------------------------ one rank goes wrong


@pytest.mark.parametrize("fault", ["lies", "withholds"])
@pytest.mark.parametrize("ranks", [2, 4])
def test_wrong_contribution_of_one_rank_is_seen_by_all(
    tmp_path: Path, fault: str, ranks: int
) -> None:
    parameters = {"count": 1009, "num_sizes": 3, "fault": fault}
    outside = [
        {check.name.partition(":")[0] for check in of_rank if not check.is_within}
        for of_rank in checks_of_ranks("faulty.unfaithful", parameters, ranks, tmp_path)
    ]
    assert all(outside)
    assert outside[0] >= DISAGREEING


def test_wrong_contribution_of_one_rank_fails_its_case(bench: Bench) -> None:
    launch = f"{WRONG}@cpu:0/0"
    assert bench.ended(launch).outcome == "completed", bench.ended(launch)
    outside = [item for item in checks(bench, launch) if not item.check.is_within]
    assert {item.rank for item in outside} == {0, 1}
    evidence = evidence_of(bench, WRONG)
    for draft in (numeric(evidence), _of_kind("collective", evidence)):
        assert (draft.ruling, draft.reason) == ("fail", "check")


@pytest.mark.parametrize("name", FAULTS)
def test_rank_that_does_not_go_on_is_named_within_the_limit(bench: Bench, name: str) -> None:
    outcome, reason, output = FAULTS[name]
    ended = bench.ended(f"{name}@cpu:0/0")
    assert (ended.outcome, ended.reason) == (outcome, reason), ended
    assert output in ended.detail
    assert ended.wall_ns < (SHORT_LIMIT if name in WAITED else LIMIT) * 1e9
    completion = _completion(evidence_of(bench, name), bench.inputs)
    assert completion.ruling == "fail"
    assert completion.reason == ("stalled" if reason == "stalled" else "crashed")
    assert _of_kind("collective", evidence_of(bench, name)) == completion


@pytest.mark.parametrize("name", WAITED)
def test_rank_that_is_waited_for_is_named(bench: Bench, name: str) -> None:
    # under load another one that waits may be ended before it could say so
    assert re.search(r"\(no word from rank (\d, )*1\b", bench.ended(f"{name}@cpu:0/0").detail)


def test_no_process_of_any_rank_is_left(bench: Bench) -> None:
    assert bench.events
    assert bearers(MARK) == []


# ------------------------------------------------------------------ without a process


def test_operation_that_does_not_write_is_seen(tmp_path: Path) -> None:
    """In a group of one, with all buffers as they were before the step."""
    workload = Collectives(**Collectives.small)
    state = workload.build(Target(device=torch.device("cpu"), artifacts=Artifacts(tmp_path)), 5)
    output = workload.step(state)
    assert not any(check.error for check in workload.check(None, state, output))
    workload.snapshot(state)
    checks = list(workload.check(None, state, output))
    assert len(checks) == 10  # without the ring and the pairs, with the digest
    assert all(check.error > 0 for check in checks)


def test_case_of_ranks_that_cannot_run_is_refused() -> None:
    for parameters, sentence in (
        ({"ranks": 1}, "2 or more"),
        ({"ranks": 257, "dtype": "bfloat16"}, "sums the numbers of 256 exactly"),
        ({"count": 1}, "at least 8 bytes"),
        ({"operation": "gossip"}, "choose one of all, all_reduce_sum"),
    ):
        with pytest.raises(ParameterError, match=sentence):
            Collectives(**parameters)


@pytest.mark.parametrize(
    ("operation", "ranks", "factor"),
    [
        ("all_reduce_sum", 2, 1.0),
        ("all_reduce_max", 4, 1.5),
        ("reduce_scatter", 4, 0.75),
        ("all_gather_in_place", 2, 0.5),
        ("all_to_all", 4, 0.75),
        ("broadcast", 4, 1.0),
        ("ring", 4, 1.0),
    ],
)
def test_bytes_are_those_of_bus_bandwidth(operation: str, ranks: int, factor: float) -> None:
    count = 4 * 1001  # whose share is odd for 4 ranks and not for 2
    share = {2: 2003, 4: 1001}[ranks] * ranks
    is_shared = operation.startswith(("reduce_scatter", "all_gather", "all_to_all"))
    work = Collectives(operation=operation, ranks=ranks, count=count).work()
    assert work.unit == "bytes"
    assert work.bytes == work.units == factor * 4 * (share if is_shared else count)


def test_sizes_run_from_eight_bytes_to_the_largest_and_are_odd() -> None:
    for dtype, smallest in (("float64", 1), ("float32", 2), ("float16", 4)):
        counts = Collectives(count=65537, num_sizes=6, dtype=dtype)._counts
        assert (counts[0], counts[-1], len(counts)) == (smallest, 65537, 6)
        assert all(count % 2 for count in counts[1:])
