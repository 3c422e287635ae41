"""Measures what launches of `smoke` and `node` ask of their host, and writes it with the machine.

    scripts/measure_host_parts.py [smoke] [node] [recorded]     some minutes on two idle cores

Of `smoke` a whole run is made, and its stages are kept. For each case of `node` that draws its
inputs: the check of one output, its digest and what the host does of its build, by the worker's own
code, at the parameters that a device of 80 GiB runs, on one thread and on two (thread_scaling.py).
What is checked of products and sums holds no right numbers, which takes as long; a copy is right.
Inputs that a device draws are not made: what they move through its memory is counted, operation by
operation. `recorded` are checks and digests as version 0.4.0 made them, whose times on a host of 16
cores are in the journals; its code is taken from git. scripts/write_device_budget.py adds these
parts to those of a recorded device. Other work on the machine makes them longer and never shorter.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # who waits sleeps: load costs less so

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
sys.path.insert(0, str(ROOT / "scripts"))

import thread_scaling  # noqa: E402 - after the path
from write_device_budget import PARTS, planned  # noqa: E402 - the same

from appliance.generator.drawing import Drawn  # noqa: E402 - the same
from appliance.linux.processors import Processors  # noqa: E402 - the same
from appliance.linux.sysfs import Tree  # noqa: E402 - the same
from appliance.records.plan import Case  # noqa: E402 - the same
from appliance.runner.environment import usable_cores  # noqa: E402 - the same
from appliance.version import VERSION  # noqa: E402 - the same
from appliance.worker import outputs, torch_device  # noqa: E402 - the same
from appliance.worker.workload_loader import load_workload  # noqa: E402 - the same
from workloads import gemm_tf32, host_stream  # noqa: E402 - the same
from workloads.contract.target import Artifacts, Target  # noqa: E402 - the same
from workloads.parts.drawing import drawn as drawing  # noqa: E402 - the same
from workloads.parts.memory import copies  # noqa: E402 - the same
from workloads.parts.numerics.staging import staged  # noqa: E402 - the same

DRAWN = ("gemm", "gemm_tf32", "gemm_float8", "gemm_int8", "gemm_search", "memory_bandwidth")
"""Workloads whose inputs are drawn on the device and again, for the check, on the host."""
ON_HOST = ("host_copy", "host_stream")
"""Workloads that draw on the host too: their builds are measured, but for what a device draws."""
ON_DISK = "disk_read"
"""The workload whose file the untimed launch writes and others open: an opening is measured."""
COUNTED = 2**22
"""Elements of which the generator's operations are counted; they grow with the elements."""
SEED = 1
RECORDED_COMMIT = "1b526150f9b501ad9b5615e6a56583e072ef7a76"
"""The last one before the journals of the H100 were made, of version 0.4.0."""
STAGES = ("build", "check", "digest")
"""Those of a launch of smoke that are the host's, or no longer on a device."""


class Moved(TorchDispatchMode):
    """Counts operations, and bytes that they read and write of whole tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.num_operations = self.num_bytes = 0

    def __torch_dispatch__(self, call: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        result = call(*args, **(kwargs or {}))
        tensors = [
            one for one in tree_iter((args, kwargs, result)) if isinstance(one, torch.Tensor)
        ]
        if not call.is_view:
            self.num_operations += 1
            self.num_bytes += sum(one.numel() * one.itemsize for one in tensors)
        return result


def moved(one: Drawn) -> float:
    """Bytes that a device moves through its memory for an element of such a tensor."""
    few = Drawn(one.seed, one.name, one.values, one.dtype, (COUNTED,))
    drawing.drawn_by_device(few, torch.device("cpu"))  # the table is there from now on
    with Moved() as count:
        drawing.drawn_by_device(few, torch.device("cpu"))
    return count.num_bytes / COUNTED


def scaling(work: Callable[[int], object]) -> dict[str, float]:
    """Of some work its seconds on one thread and on two; it is told how many it has."""

    def threads(number: int) -> None:
        torch.set_num_threads(number)

    return thread_scaling.measure(work, threads).as_json()


def measured(case: Case) -> dict[str, Any]:
    """The parts of one case."""
    workload = load_workload(case.workload)(**case.parameters)
    target = Target(device=torch.device("cpu"), artifacts=Artifacts(Path(tempfile.mkdtemp())))
    made: list[Drawn] = []

    def undrawn(_: drawing.Draws, one: Drawn) -> torch.Tensor:
        made.append(one)
        return torch.empty(0)

    def build(_: int = 0) -> Any:
        with (
            mock.patch.object(drawing.Draws, "of", undrawn),
            mock.patch.object(gemm_tf32, "refuse_processor"),  # whose check is the same
            mock.patch.object(host_stream, "usable_processors", torch.get_num_threads),
        ):
            made.clear()
            return workload.build(target, SEED)

    parts: dict[str, Any] = {}
    if case.workload in ON_HOST:
        parts["build"] = scaling(build)
    state = build()
    parts["drawn_bytes"] = round(sum(one.count * moved(one) for one in made))
    state.cycle.advance()
    output = _output(workload, state)
    parts["check"] = scaling(lambda _: list(workload.check(None, state, output)))
    parts["output_bytes"] = outputs.num_bytes(output)
    if workload.is_repeatable:
        parts["digest"] = scaling(
            lambda threads: outputs.digest(
                output, torch_device.device_bits, threads, torch_device.in_pieces(staged)
            )
        )
        arrays = output.values() if isinstance(output, dict) else [output]
        parts["digest_pieces"] = min(-(-one.nbytes // outputs.PIECE) for one in arrays)
    return parts


def opened(case: Case) -> dict[str, Any]:
    """What the build takes of a launch that finds the file of its case written."""
    workload = load_workload(case.workload)(**case.parameters)
    digests: dict[str, str] = {}
    with tempfile.TemporaryDirectory(dir=ROOT) as folder:

        def build(_: int) -> object:
            artifacts = Artifacts(Path(folder), digests)
            return workload.build(Target(device=torch.device("cpu"), artifacts=artifacts), SEED)

        artifacts = Artifacts(
            Path(folder), report=lambda name, _, digest, __: digests.update({name: digest})
        )
        workload.build(Target(device=torch.device("cpu"), artifacts=artifacts), SEED)
        return {"opened": scaling(build)}


def _output(workload: Any, state: Any) -> Any:
    """What a step gives by form and size."""
    if hasattr(state, "results"):
        return {name: torch.full_like(one, 1.0) for name, one in state.results.items()}
    if hasattr(state, "buffers"):
        return {way: _arrived(workload, state, way) for way in state.buffers}
    if hasattr(state, "result"):
        return state.result
    product = getattr(state, "product", workload)
    like = {torch.int8: torch.int32, torch.float8_e4m3fn: torch.bfloat16}
    return torch.ones(product.m, product.n, dtype=like.get(product.format, product.format))


def _arrived(workload: Any, state: Any, way: str) -> torch.Tensor:
    """What a copy gives; of one to the device it lies where it was copied from."""
    if way == "to_device":
        words: torch.Tensor = state.sources[way][state.cycle.index]
        return words
    number = state.cycle.index + workload.num_inputs  # a set of this direction
    return copies.words(SEED, number, workload.num_bytes)


def cases() -> Iterator[Case]:
    """One case of each kind of work."""
    seen = set()
    for case in planned("node"):
        key = (case.workload, json.dumps(case.parameters, sort_keys=True))
        if case.workload in (*DRAWN, *ON_HOST, ON_DISK) and key not in seen:
            seen.add(key)
            yield case


def node_parts() -> dict[str, Any]:
    """The parts of each case of `node`, by its name."""
    return {
        case.id.partition("@")[0]: (opened if case.workload == ON_DISK else measured)(case)
        for case in cases()
    }


def smoke_parts() -> dict[str, Any]:
    """The stages of a run that is made now."""
    with tempfile.TemporaryDirectory() as folder:
        words = ("run", "--suite", "smoke", "--out", folder, "--quiet")
        command = [sys.executable, "-m", "appliance", *words]
        subprocess.run(command, cwd=ROOT, check=True)  # noqa: S603 - our own program
        (journal,) = Path(folder).glob("*/journal.jsonl")
        return stages_of(journal)


def stages_of(journal: Path) -> dict[str, Any]:
    """Of each case of a run of smoke the seconds of its launches' stages."""
    found: dict[str, Any] = {}
    for line in journal.open():
        event = json.loads(line)["event"]
        if event["kind"] == "stage_times":
            case, _, number = event["launch"].rpartition("/")
            stages = {
                stage: round(1e-9 * int(event["wall_ns"].get(stage, 0)), 4) for stage in STAGES
            }
            parts = found.setdefault(case.partition("@")[0], {"timed": []})
            if number == "0":
                parts["untimed"] = stages
            elif number.isdigit():
                parts["timed"].append(stages)
    return found


def recorded_parts() -> dict[str, Any]:
    """Checks and digests of version 0.4.0, by its own code."""
    archive = ("git", "archive", RECORDED_COMMIT, "appliance", "workloads")
    packed = subprocess.run(archive, cwd=ROOT, capture_output=True, check=False)  # noqa: S603 - git
    if packed.returncode:
        raise SystemExit(f"measure_host_parts.py: no code of 0.4.0: {packed.stderr.decode()}")
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as files:
            files.extractall(folder, filter="data")
        made = subprocess.run(  # noqa: S603 - our own program
            [sys.executable, str(ROOT / "scripts" / "recorded_checks.py")],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": folder},
            stdout=subprocess.PIPE,
            check=True,
        )
    parts: dict[str, Any] = json.loads(made.stdout)
    return parts


MEASURED: Mapping[str, Callable[[], dict[str, Any]]] = {
    "smoke": smoke_parts,
    "node": node_parts,
    "recorded": recorded_parts,
}


def main() -> None:
    for suite in sys.argv[1:] or MEASURED:
        made = {
            "version": VERSION,
            "processor": Processors(Tree()).model(),
            "threads": usable_cores(),
            "torch": torch.__version__,
            "load": round(os.getloadavg()[0], 1),
            "cases": MEASURED[suite](),
        }
        written = json.loads(PARTS.read_text()) if PARTS.exists() else {}
        PARTS.write_text(json.dumps(written | {suite: made}, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
