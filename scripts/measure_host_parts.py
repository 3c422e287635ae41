"""Measures what launches of `smoke` and `node` ask of their host, and writes it with the machine.

    scripts/measure_host_parts.py [smoke] [node]       about a minute each on two idle cores

Of `smoke` a whole run is made, and its stages are kept. For each case of `node` that draws its
inputs: the check of one output, and its digest, by the worker's own code, at the parameters that a
device of 80 GiB runs, in processor time, so that others who use the machine make it longer and
never shorter. What is checked holds no right numbers, which takes as long. Inputs that a device
draws are not made: what they move through its memory is counted, operation by operation.
scripts/write_device_budget.py adds these parts to those of a recorded device.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
sys.path.insert(0, str(ROOT / "scripts"))

from write_device_budget import PARTS, planned  # noqa: E402 - after the path

from appliance.generator.drawing import Drawn  # noqa: E402 - the same
from appliance.linux.processors import Processors  # noqa: E402 - the same
from appliance.linux.sysfs import Tree  # noqa: E402 - the same
from appliance.records.plan import Case  # noqa: E402 - the same
from appliance.runner.environment import usable_cores  # noqa: E402 - the same
from appliance.version import VERSION  # noqa: E402 - the same
from appliance.worker import outputs, torch_device  # noqa: E402 - the same
from appliance.worker.workload_loader import load_workload  # noqa: E402 - the same
from workloads import gemm_tf32  # noqa: E402 - the same
from workloads.contract.target import Artifacts, Target  # noqa: E402 - the same
from workloads.parts.drawing import drawn as drawing  # noqa: E402 - the same

DRAWN = ("gemm", "gemm_tf32", "gemm_float8", "gemm_int8", "gemm_search", "memory_bandwidth")
"""Workloads whose inputs are drawn on the device and again, for the check, on the host."""
ON_HOST = ("host_copy", "host_stream")
"""Workloads that draw on the host too: their builds are measured, but for what a device draws."""
ON_DISK = "disk_read"
"""The workload whose file the untimed launch writes and others open: an opening is measured."""
COUNTED = 2**22
"""Elements of which the generator's operations are counted; they grow with the elements."""
SEED = 1
TIMES = 3
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


def seconds(work: Callable[[], object]) -> tuple[float, float]:
    """Wall and processor seconds of some work, the least of a few times: others use the machine."""
    walls, processors = [], []
    for _ in range(TIMES):
        begin, processor = time.perf_counter(), time.process_time()
        work()
        walls.append(time.perf_counter() - begin)
        processors.append(time.process_time() - processor)
    return min(walls), min(processors)


def measured(case: Case) -> dict[str, Any]:
    """The parts of one case."""
    workload = load_workload(case.workload)(**case.parameters)
    target = Target(device=torch.device("cpu"), artifacts=Artifacts(Path(tempfile.mkdtemp())))
    made: list[Drawn] = []

    def undrawn(_: drawing.Draws, one: Drawn) -> torch.Tensor:
        made.append(one)
        return torch.empty(0)

    with (
        mock.patch.object(drawing.Draws, "of", undrawn),
        mock.patch.object(gemm_tf32, "refuse_processor"),  # whose check is the same
    ):
        begin = time.process_time()
        state = workload.build(target, SEED)
        busy = time.process_time() - begin
    parts = {"drawn_bytes": sum(one.count * moved(one) for one in made)}
    if case.workload in ON_HOST:
        parts["build_seconds"] = busy
    state.cycle.advance()
    output = _output(workload, state)
    wall, busy = seconds(lambda: list(workload.check(None, state, output)))
    parts |= {"check_wall_seconds": wall, "check_seconds": busy}
    parts["output_bytes"] = outputs.num_bytes(output)
    if workload.is_repeatable:
        threads = torch.get_num_threads()
        wall, busy = seconds(lambda: outputs.digest(output, torch_device.device_bits, threads))
        parts |= {"digest_wall_seconds": wall, "digest_seconds": busy}
    return {name: round(value, 3) for name, value in parts.items()}


def opened(case: Case) -> dict[str, Any]:
    """What the build takes of a launch that finds the file of its case written."""
    workload = load_workload(case.workload)(**case.parameters)
    digests: dict[str, str] = {}
    with tempfile.TemporaryDirectory(dir=ROOT) as folder:

        def build() -> object:
            artifacts = Artifacts(Path(folder), digests)
            return workload.build(Target(device=torch.device("cpu"), artifacts=artifacts), SEED)

        artifacts = Artifacts(
            Path(folder), report=lambda name, _, digest, __: digests.update({name: digest})
        )
        workload.build(Target(device=torch.device("cpu"), artifacts=artifacts), SEED)
        wall, busy = seconds(build)
    return {"opened_wall_seconds": round(wall, 3), "opened_seconds": round(busy, 3)}


def _output(workload: Any, state: Any) -> Any:
    """What a step gives by form and size."""
    if hasattr(state, "results"):
        return {name: torch.full_like(one, 1.0) for name, one in state.results.items()}
    if hasattr(state, "buffers"):
        return state.buffers
    if hasattr(state, "result"):
        return state.result
    product = getattr(state, "product", workload)
    like = {torch.int8: torch.int32, torch.float8_e4m3fn: torch.bfloat16}
    return torch.ones(product.m, product.n, dtype=like.get(product.format, product.format))


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
    torch.set_num_threads(usable_cores())
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


MEASURED: Mapping[str, Callable[[], dict[str, Any]]] = {"smoke": smoke_parts, "node": node_parts}


def main() -> None:
    made = {}
    for suite in sys.argv[1:] or MEASURED:
        made[suite] = {
            "version": VERSION,
            "processor": Processors(Tree()).model(),
            "threads": usable_cores(),
            "torch": torch.__version__,
            "load": round(os.getloadavg()[0], 1),
            "cases": MEASURED[suite](),
        }
    written = json.loads(PARTS.read_text()) if PARTS.exists() else {}
    PARTS.write_text(json.dumps(written | made, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
