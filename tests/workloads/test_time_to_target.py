"""Workloads that train to a target, as a launch makes them; and inference checked later."""

# ruff: noqa: ARG002 - the protocol names the arguments

from __future__ import annotations

import importlib
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from faulty.overwriting import Overwriting
from support.archives import an_archive
from support.builders import a_case, a_plan

from appliance.records.journal import Block, Checked, Digested
from appliance.records.request import LaunchSpec
from appliance.worker import outputs, torch_device
from appliance.worker.measure import Channel, LaunchCourse, Machine
from workloads.burn_in import EXTENSION, BurnIn
from workloads.char_lm import CharLm
from workloads.cifar10_resnet import Cifar10Resnet
from workloads.contract.target import Artifacts, Target
from workloads.contract.workload import Workload
from workloads.digits_mlp import DigitsMlp
from workloads.gcn_cora import GcnCora
from workloads.llama import Llama
from workloads.markov_lm import MarkovLm
from workloads.onnx_resnet50 import OnnxResnet50
from workloads.parts.burning.formats import Format
from workloads.parts.datasets import cifar, planetoid
from workloads.parts.training.optimizers import AdamW

HOST = torch.device("cpu")

pytestmark = pytest.mark.usefixtures("one_thread", "light_collections")


class Ticking:
    """A clock that every reading moves on."""

    def __init__(self) -> None:
        self.time = 0

    def now(self) -> int:
        self.time += 10_000
        return self.time

    def raw(self) -> int:
        return self.time

    def synchronise(self) -> None:
        return

    def mark(self) -> None:
        return None

    def between(self, begin: Any, end: Any) -> int:
        raise AssertionError("this clock marks nothing")


def launched(
    workload: Workload[Any, Any],
    folder: Path,
    data: Path | None = None,
    *,
    memory: int | None = None,
) -> list[Any]:
    """The records of one timed launch of the workload on this processor.

    `memory`: bytes that a launch may hold beside whose end another one begins; None: none does.
    """
    planned = a_plan(replace(a_case(steps=workload.steps), scenario=workload.scenario))
    records: list[Any] = []
    spec = LaunchSpec(
        launch=f"{planned.cases[0].id}/1",
        case=planned.cases[0],
        vendor="cpu",
        protocol=replace(planned.protocol, block_seconds=0.0),
        is_timed=True,
        check_last=True,
        seed=3,
        data=None,
        artifacts_folder=str(folder),
        artifacts={},
        socket="",
        token="",
        num_threads=1,
        overlaps=memory is not None,
    )
    machine = Machine(
        stopwatch=Ticking(),
        make_work=lambda: lambda: None,
        seed=torch_device.seed_generators,
        bits=torch_device.device_bits,
        values=torch_device.device_values,
        libraries=dict,
        kept=lambda output: torch_device.kept(output, memory or 0),
    )
    target = Target(device=HOST, artifacts=Artifacts(folder), data=data)
    LaunchCourse(
        spec=spec,
        rank=0,
        workload=workload,
        target=target,
        machine=machine,
        channel=Channel(send=records.append, wait=lambda: None),
    ).run()
    return records


def data_folder() -> Path | None:
    """Where data sets lie: BENCH_DATA, else beside the repository, else nowhere."""
    beside = Path(__file__).parents[3] / "shared" / "datasets"
    folder = Path(os.environ.get("BENCH_DATA", beside))
    return folder if folder.is_dir() else None


def block(records: list[Any]) -> Block:
    (result,) = [record for record in records if isinstance(record, Block)]
    return result


def outside(records: list[Any]) -> set[str]:
    checks = [record.check for record in records if isinstance(record, Checked)]
    return {check.name for check in checks if not check.is_within}


MISSED = "steps beyond those in which the target is to be reached"


@pytest.fixture(params=["digits_mlp", "markov_lm", "cifar10_resnet", "gcn_cora"])
def aimed(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Workload[Any, Any], Path | None]:
    kind = importlib.import_module(f"workloads.{request.param}").WORKLOAD
    data = tmp_path if request.param == "cifar10_resnet" else data_folder()
    if request.param == "cifar10_resnet":
        an_archive(tmp_path / cifar.DATASET / cifar.ARCHIVE)
    if request.param == "gcn_cora" and (data is None or not (data / planetoid.DATASET).is_dir()):
        pytest.skip(f"needs the data set {planetoid.DATASET}: set BENCH_DATA to its folder")
    return kind(**kind.small), data


@pytest.mark.slow
def test_a_healthy_launch_ends_at_its_target_and_its_end_check_agrees(
    aimed: tuple[Workload[Any, Any], Path | None], tmp_path: Path
) -> None:
    workload, data = aimed
    records = launched(workload, tmp_path / "made", data)
    result = block(records)
    assert result.reached_at == len(result.wall_ns)
    assert result.reached_at % workload.evaluate_every == 0 or result.reached_at == workload.steps
    assert outside(records) == set()
    ends = [r for r in records if isinstance(r, Checked) and r.check.kind == "trajectory"]
    assert {record.step for record in ends} == {result.reached_at - 1}
    assert len(ends) >= 2  # the target's, and the workload's own


def test_a_launch_that_learns_nothing_misses_its_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AdamW, "learning_rate_at", lambda *_: 0.0)
    records = launched(DigitsMlp(width=64, num_steps=15, target=0.99), tmp_path)
    assert block(records).reached_at is None
    assert len(block(records).wall_ns) == 15
    assert {MISSED, "held-out images misread"} <= outside(records)


def test_a_question_for_the_target_changes_nothing(tmp_path: Path) -> None:
    workloads: list[Workload[Any, Any]] = [DigitsMlp(width=32), MarkovLm(batch=64, width=32)]
    for workload in workloads:
        target = Target(device=HOST, artifacts=Artifacts(tmp_path))
        states = [workload.build(target, 5) for _ in range(2)]
        for _ in range(6):
            workload.step(states[0])
            workload.step(states[1])
            workload.has_reached(states[1])
        pairs = zip(*(state.training.model.parameters() for state in states), strict=True)
        assert all(torch.equal(*pair) for pair in pairs)


def test_full_sizes_are_asked_often_enough_and_not_too_often() -> None:
    kinds: list[Any] = [CharLm, Cifar10Resnet, DigitsMlp, MarkovLm, GcnCora]
    for kind in kinds:
        for workload in (kind(), kind(**kind.small)):
            assert 2 <= workload.steps / workload.evaluate_every <= 60


# ------------------------------------------------------------------ inference checked later


@pytest.fixture(params=[OnnxResnet50, Llama])
def served(request: pytest.FixtureRequest) -> Workload[Any, Any]:
    workload: Workload[Any, Any] = request.param(**request.param.small)
    return workload


def test_an_output_is_judged_alike_after_later_steps(
    served: Workload[Any, Any], tmp_path: Path
) -> None:
    target = Target(
        device=HOST, artifacts=Artifacts(tmp_path), onnx_providers=("CPUExecutionProvider",)
    )
    state = served.build(target, 4)
    served.step(state)
    before = served.snapshot(state)
    output = served.step(state)
    now = {check.name: check.error for check in served.check(before, state, output)}
    for _ in range(2):
        served.step(state)
    later = {check.name: check.error for check in served.check(before, state, output)}
    assert now == later
    assert all(check.is_within for check in served.check(before, state, output))


def test_a_held_input_is_taken_again(served: Workload[Any, Any], tmp_path: Path) -> None:
    target = Target(
        device=HOST, artifacts=Artifacts(tmp_path), onnx_providers=("CPUExecutionProvider",)
    )
    state = served.build(target, 4)
    digests = []
    for is_held in (False, True, False):
        if is_held:
            assert served.repeat_input(state)
        digests.append(outputs.digest(served.step(state), torch_device.device_bits))
    assert digests[0] == digests[1] != digests[2]


# ------------------------------------------------------------------ burn-in


def test_burn_in_looks_four_times_as_long_where_it_saw_a_mismatch(tmp_path: Path) -> None:
    workload = BurnIn(**BurnIn.small)  # type: ignore[arg-type]
    state = workload.build(Target(device=HOST, artifacts=Artifacts(tmp_path)), 2)
    workload.step(state)
    assert workload.extra_steps(state, 30) == 0
    state.lanes[0].tallies[0].wrong[3] += 1
    assert workload.extra_steps(state, 30) == EXTENSION * 30 == 90


def test_burn_in_with_a_mismatch_makes_more_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spoil(
        self: BurnIn, form: Format, left: torch.Tensor, right: torch.Tensor, out: torch.Tensor
    ) -> None:
        form.multiply(left, right, out)
        calls.append(1)
        if len(calls) == 40:
            out.view(torch.int16)[0, 0] ^= 1 << 3

    calls: list[int] = []
    healthy = launched(BurnIn(**BurnIn.small), tmp_path / "healthy")  # type: ignore[arg-type]
    monkeypatch.setattr(BurnIn, "multiply", spoil)
    spoiled = launched(BurnIn(**BurnIn.small), tmp_path / "spoiled")  # type: ignore[arg-type]
    lengths = [
        [len(record.wall_ns) for record in records if isinstance(record, Block)]
        for records in (healthy, spoiled)
    ]
    assert [4 * length for length in lengths[0]] == lengths[1]
    assert outside(healthy) == set()
    assert outside(spoiled) == {"a single mismatch that never came again"}


# ------------------------------------------------------------------ outputs that steps write over

WRITTEN_OVER = (
    "memory_bandwidth",
    "host_copy",
    "host_stream",
    "device_copy_pair",
    "digits_mlp",
    "markov_lm",
    "bert",
)
MEMORY = 2**34


def written_over(folder: Path, name: str, fault: str) -> Overwriting:
    """A row of which every launch has the fault in its first output."""
    return Overwriting(log=str(folder / "log"), row=name, num_bytes=2**20, healthy=0, fault=fault)


def first_and_blocks(records: list[Any]) -> list[str]:
    """In which order first outputs were checked, and blocks were made."""
    places = [
        "first" if isinstance(record, Checked | Digested) else "block"
        for record in records
        if isinstance(record, Block) or getattr(record, "phase", "") == "first"
    ]
    return list(dict.fromkeys(places))


@pytest.mark.parametrize("name", WRITTEN_OVER)
def test_a_copied_output_is_checked_after_the_blocks(name: str, tmp_path: Path) -> None:
    row = written_over(tmp_path, name, "none")
    records = launched(row, tmp_path, memory=MEMORY)
    assert first_and_blocks(records) == ["block", "first"]
    assert not outside(records)
    if name == "markov_lm":
        return  # which trains for seconds, and is not trained again for what the others show
    at_once = launched(row, tmp_path)
    assert first_and_blocks(at_once) == ["first", "block"]
    assert digest_of_first(records) == digest_of_first(at_once)
    assert checks_of_first(records) == checks_of_first(at_once)


def digest_of_first(records: list[Any]) -> str:
    (digested,) = [record for record in records if isinstance(record, Digested)]
    return digested.digest


def checks_of_first(records: list[Any]) -> list[Any]:
    """Checks of the first output, with their errors."""
    return [one.check for one in records if isinstance(one, Checked) and one.phase == "first"]


@pytest.mark.parametrize("name", [one for one in WRITTEN_OVER if one != "markov_lm"])
def test_a_wrong_output_that_was_written_over_is_caught(name: str, tmp_path: Path) -> None:
    records = launched(written_over(tmp_path, name, "element"), tmp_path, memory=MEMORY)
    assert first_and_blocks(records) == ["block", "first"]
    phases = {one.phase for one in records if isinstance(one, Checked) and not one.check.is_within}
    assert phases == {"first"}


def test_an_output_that_has_no_room_beside_steps_is_checked_at_once(tmp_path: Path) -> None:
    records = launched(written_over(tmp_path, "host_copy", "none"), tmp_path, memory=2**20)
    assert first_and_blocks(records) == ["first", "block"]
    assert not outside(records)
