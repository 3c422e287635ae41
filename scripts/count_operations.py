"""Counts the operations that builds hand to their device, by torch's dispatcher.

    scripts/count_operations.py [--code FOLDER] [--suite SUITE] [CASE...]     a Markdown table

On the simulated accelerator of the tests, whose tensors go every way that an accelerator's go; it
is built by g++ where that has not been done. Counted is each operation of torch with a tensor there
but views and memory that is only taken, and of these the copies between host and device; as one
counts what torch hands over for a list of tensors (`_foreach_copy_`). FOLDER holds another state of
the code, whose rows are counted instead of this one's. Cases are those of the suite at their own
size on 80 GiB, without those of an engine of its own (ONNX Runtime) or of a data set.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
ASIDE = frozenset({"onnx_resnet50", "resnet50_jpeg"})


def rows(suite: str, names: list[str]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Case, workload and parameters of a suite, as one such device runs it."""
    from write_device_budget import planned  # noqa: PLC0415 - of the code that is counted

    for case in planned(suite):
        name = case.id.partition("@")[0]
        if (name in names or not names) and not case.variant and case.workload not in ASIDE:
            yield name, case.workload, dict(case.parameters)


def counted(workload: str, parameters: dict[str, Any], device: Any) -> tuple[int, int]:
    """Operations of a build on the device, and of these the copies from and to the host."""
    import torch  # noqa: PLC0415 - once the paths are set
    from torch.utils._python_dispatch import TorchDispatchMode  # noqa: PLC0415 - the same
    from torch.utils._pytree import tree_iter  # noqa: PLC0415 - the same

    from appliance.worker.workload_loader import load_workload  # noqa: PLC0415 - the same
    from workloads.contract.target import Artifacts, Target  # noqa: PLC0415 - the same

    class Count(TorchDispatchMode):
        operations = copies = 0

        def __torch_dispatch__(
            self, call: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            del types
            result = call(*args, **(kwargs or {}))
            tensors = [
                one for one in tree_iter((args, kwargs, result)) if isinstance(one, torch.Tensor)
            ]
            kinds = {one.device.type for one in tensors if one.device.type != "meta"}
            is_read = "_local_scalar_dense" in str(call)
            is_taken = "empty" in str(call) or "shallow_copy" in str(call)
            if device.type in kinds and not call.is_view and not is_taken:
                self.operations += 1
                self.copies += is_read or len(kinds) > 1
            return result

    with tempfile.TemporaryDirectory() as folder:
        target = Target(device=device, artifacts=Artifacts(Path(folder)))
        built = load_workload(workload)(**parameters)
        with Count() as count:
            built.build(target, 1)
    return count.operations, count.copies


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--code", type=Path, default=ROOT, metavar="FOLDER")
    parser.add_argument("--suite", default="smoke")
    parser.add_argument("cases", nargs="*")
    options = parser.parse_args()
    code = options.code.resolve()
    sys.path[:0] = [str(code), str(code / "scripts"), str(ROOT / "tests")]
    os.environ.setdefault("SIMULATED_MEMORY", str(2**35))
    import torch  # noqa: PLC0415 - once the paths are set
    from support import simulated_device  # noqa: PLC0415 - the same

    simulated_device.build()
    simulated_device.register()
    device = torch.device(simulated_device.NAME, 0)
    print("| case | operations | copies from and to the host |\n|---|---:|---:|")
    for name, workload, parameters in rows(options.suite, options.cases):
        operations, copies = counted(workload, parameters, device)
        print(f"| `{name}` | {operations:,} | {copies:,} |", flush=True)


if __name__ == "__main__":
    main()
