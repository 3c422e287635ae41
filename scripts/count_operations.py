"""Counts the operations that builds hand to their device, by torch's dispatcher.

    scripts/count_operations.py                       this code; writes what it counts
    scripts/count_operations.py --before FOLDER       the code in a folder, as what was before
    scripts/count_operations.py --timed FOLDER        the same of smoke, as what an H100 has timed
    scripts/count_operations.py --only SUITE CASE...  this code; writes nothing

On the simulated accelerator of the tests, whose tensors go every way that an accelerator's go; it
is built by g++ where that has not been done. Counted is each operation of torch with a tensor there
but views and memory that is only taken, and of these the copies between host and device; as one
counts what torch hands over for a list of tensors (`_foreach_copy_`). Cases are at their own size
on 80 GiB, each in a process of its own: of `smoke` all that torch builds, and of `acceptance` the
smaller ones. Docs and the budget have these numbers from tests/recorded/build_operations.json.

What an H100 has timed is bench 0.12.0 (tests/recorded/h100_0_12). Of that code the operations of a
first step are counted too: a step that waits for its host says how long one takes there.

A kind of operation is one whose kernels lie in one file of torch: the first of a kind has that
loaded. Of `smoke` the kinds of a build and its first step are named, but for products of matrices,
whose kernels are another library's.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RECORDED = ROOT / "tests" / "recorded" / "build_operations.json"
CASES: Mapping[str, tuple[str, ...]] = {
    "smoke": (
        "gemm-fp32",
        "gemm-bf16",
        "gemm_exact",
        "memory_bandwidth",
        "resnet50",
        "bert",
        "llama",
        "digits_mlp",
        "markov_lm",
    ),
    "acceptance": ("bert-tf32-fp16", "reformer", "dimenet"),
}
MEMORY = 2**36
"""Bytes of the simulated device."""
TIMED = "smoke"
"""The suite that an H100 has run with bench 0.12.0."""
Row = tuple[str, str, dict[str, Any]]
Counts = dict[str, dict[str, list[int]]]
Kinds = dict[str, list[str]]
KINDS: Mapping[str, tuple[str, ...]] = {
    "fill": ("zero", "zeros", "zeros_like", "ones", "ones_like", "full", "full_like"),
    "cat": ("stack",),
    "copy": ("to_copy", "clone", "local_scalar_dense", "contiguous"),
    "shift": ("rshift", "lshift", "bitwise_right_shift", "bitwise_left_shift"),
    "bitwise": ("bitwise_and", "bitwise_or", "bitwise_xor"),
    "sum": ("mean",),
    "": ("mm", "addmm", "bmm", "baddbmm", "convolution", "convolution_backward"),
}
"""Names of operations by their kind, where it has another name; "" are those of other libraries."""


def rows(suite: str, names: tuple[str, ...]) -> Iterator[Row]:
    """Case, workload and parameters of a suite, as one such device runs it."""
    from write_device_budget import planned  # noqa: PLC0415 - of the code that is counted

    for case in planned(suite):
        name = case.id.partition("@")[0]
        if name in names and not case.variant:
            yield name, case.workload, dict(case.parameters)


def kind(call: Any) -> str:
    """What an operation of torch is of the kind of."""
    name = str(call).split(".")[1].strip("_")
    return next((kind for kind, names in KINDS.items() if name in names), name)


def counted(row: Row, *, with_step: bool = False) -> tuple[list[int], list[str]]:
    """Operations of a build on the device, of these the copies from and to the host; of a step.

    And with a step the kinds of both.
    """
    import torch  # noqa: PLC0415 - once the paths are set
    from torch.utils._python_dispatch import TorchDispatchMode  # noqa: PLC0415 - the same
    from torch.utils._pytree import tree_iter  # noqa: PLC0415 - the same

    from appliance.worker.workload_loader import load_workload  # noqa: PLC0415 - the same
    from workloads.contract.target import Artifacts, Target  # noqa: PLC0415 - the same

    class Count(TorchDispatchMode):
        def __init__(self, kinds: set[str]) -> None:
            super().__init__()
            self.operations = self.copies = 0
            self.kinds = kinds

        def __torch_dispatch__(
            self, call: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            del types
            result = call(*args, **(kwargs or {}))
            leaves = tree_iter((args, kwargs, result))
            kinds = {one.device.type for one in leaves if isinstance(one, torch.Tensor)}
            is_none = any(word in str(call) for word in ("empty", "shallow_copy"))
            if "simulated" in kinds and not call.is_view and not is_none:
                self.operations += 1
                self.copies += "_local_scalar_dense" in str(call) or len(kinds) > 1
                self.kinds.add(kind(call))
            return result

    _, workload, parameters = row
    with tempfile.TemporaryDirectory() as folder:
        target = Target(device=torch.device("simulated", 0), artifacts=Artifacts(Path(folder)))
        built = load_workload(workload)(**parameters)
        named = set[str]()
        with Count(named) as count:
            state = built.build(target, 1)
        if not with_step:
            return [count.operations, count.copies], []
        with Count(named) as step:
            built.step(state)
    return [count.operations, count.copies, step.operations], sorted(named - {""})


def count(
    code: Path, cases: Mapping[str, tuple[str, ...]], *, with_steps: str = ""
) -> tuple[Counts, Kinds]:
    """The counts of builds, and of steps, of cases of suites, by the code in a folder.

    Of one suite those of steps too, and the kinds of operations of its cases.
    """
    sys.path[:0] = [str(code), str(code / "scripts"), str(ROOT / "tests")]
    os.environ["SIMULATED_MEMORY"] = str(MEMORY)
    from support import simulated_device  # noqa: PLC0415 - once the paths are set

    simulated_device.build()
    simulated_device.register()
    made: Counts = {}
    kinds: Kinds = {}
    with multiprocessing.get_context("fork").Pool(1, maxtasksperchild=1) as pool:
        for suite, names in cases.items():
            of_suite = list(rows(suite, names))
            has_step = suite == with_steps
            counts = pool.map(partial(counted, with_step=has_step), of_suite, chunksize=1)
            for (name, *_), (numbers, named) in zip(of_suite, counts, strict=True):
                made.setdefault(suite, {})[name] = numbers
                kinds |= {name: named} if has_step else {}
    return made, kinds


def table(recorded: Mapping[str, Any]) -> Iterator[str]:
    """Lines of a table of what is recorded."""
    yield "| build | operations before | today | of them copies with the host before | today |"
    yield "|---|---:|---:|---:|---:|"
    for suite in CASES:
        for name in CASES[suite]:
            (before, copies), (today, fewer) = (
                recorded[when][suite][name] for when in ("before", "today")
            )
            yield f"| `{name}` of `{suite}` | {before:,} | {today:,} | {copies:,} | {fewer:,} |"


def _builds(made: Counts) -> Counts:
    """Of builds alone, operations and copies."""
    return {suite: {name: one[:2] for name, one in of.items()} for suite, of in made.items()}


def main() -> None:
    """Count, write and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", type=Path, metavar="FOLDER")
    parser.add_argument("--timed", type=Path, metavar="FOLDER")
    parser.add_argument("--only", nargs="+", metavar="CASE")
    options = parser.parse_args()
    if options.only:
        suite, *names = options.only
        made, kinds = count(ROOT, {suite: tuple(names)}, with_steps=TIMED)
        found = {"counts": _builds(made)[suite], "kinds": kinds}
        sys.stdout.write(json.dumps(found) + "\n")
        return
    recorded = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    named = recorded.setdefault("kinds", {})
    if options.timed:
        code, cases = options.timed.resolve(), {TIMED: CASES[TIMED]}
        made, named["timed"] = count(code, cases, with_steps=TIMED)
        recorded["timed"] = _builds(made)
        recorded["timed_steps"] = {TIMED: {name: one[2] for name, one in made[TIMED].items()}}
    elif options.before:
        made, named["before"] = count(options.before.resolve(), CASES, with_steps=TIMED)
        recorded["before"] = _builds(made)
    else:
        made, named["today"] = count(ROOT, CASES, with_steps=TIMED)
        recorded["today"] = _builds(made)
    RECORDED.write_text(json.dumps(recorded, indent=1, sort_keys=True) + "\n")
    if "before" in recorded and "today" in recorded:
        sys.stdout.write("".join(f"{line}\n" for line in table(recorded)))


if __name__ == "__main__":
    main()
