"""Measures digests of the outputs of `smoke` by the code of 0.12.0 and by today's, in turn.

    scripts/compare_digests.py FOLDER       a folder of 0.12.0's code; writes digest_codes.json

In one process, on the simulated accelerator of the tests, whose tensors come to the host as an
accelerator's do, on two threads. An H100 has timed 0.12.0's code; the budget takes its seconds
times what today's takes longer here.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parents[1]
RECORDED = ROOT / "tests" / "recorded" / "digest_codes.json"
sys.path[:0] = [str(ROOT), str(ROOT / "scripts"), str(ROOT / "tests")]

import count_operations  # noqa: E402 - after the path

TIMES, AT_ONCE, THREADS = 15, 3, 2


def before(folder: Path) -> ModuleType:
    """What hashed outputs in 0.12.0."""
    path = folder / "appliance" / "worker" / "outputs.py"
    spec = importlib.util.spec_from_file_location("outputs_of_0_12", path)
    assert spec is not None and spec.loader is not None  # noqa: S101, PT018 - a file of ours
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def least(works: list[Callable[[], Any]]) -> list[float]:
    """Seconds of each, the least of some, made in turn."""
    seconds: list[list[float]] = [[] for _ in works]
    for _ in range(TIMES):
        for work, some in zip(works, seconds, strict=True):
            begin = time.perf_counter()
            for _ in range(AT_ONCE):
                work()
            some.append((time.perf_counter() - begin) / AT_ONCE)
    return [min(some) for some in seconds]


def measured(row: count_operations.Row, earlier: ModuleType) -> dict[str, float]:
    """Bytes of the output of a first step, and seconds of its digest by both codes."""
    import torch  # noqa: PLC0415 - once the device is registered

    from appliance.worker import outputs, torch_device  # noqa: PLC0415 - the same
    from appliance.worker.workload_loader import load_workload  # noqa: PLC0415 - the same
    from workloads.contract.target import Artifacts, Target  # noqa: PLC0415 - the same
    from workloads.parts.numerics.staging import staged  # noqa: PLC0415 - the same

    _, name, parameters = row
    workload = load_workload(name)(**parameters)
    with tempfile.TemporaryDirectory() as folder:
        target = Target(device=torch.device("simulated", 0), artifacts=Artifacts(Path(folder)))
        output = workload.step(workload.build(target, 1))

    def flat(leaf: Any) -> Any:
        content = torch_device.device_bytes(leaf)
        return torch_device.device_bits(leaf) if content is None else content

    bits, pieces = torch_device.device_bits, torch_device.in_pieces(staged)
    then, now = least(
        [
            lambda: earlier.digest(output, bits, THREADS, flat),
            lambda: outputs.digest(output, bits, THREADS, pieces),
        ]
    )
    size = outputs.num_bytes(output)
    return {"bytes": size, "before": round(then, 5), "today": round(now, 5)}


def main() -> None:
    """Measure and write."""
    os.environ["SIMULATED_MEMORY"] = str(count_operations.MEMORY)
    from support import simulated_device  # noqa: PLC0415 - after the path

    simulated_device.build()
    simulated_device.register()
    import torch  # noqa: PLC0415 - once the device is registered

    torch.set_num_threads(THREADS)
    earlier = before(Path(sys.argv[1]).resolve())
    names = count_operations.CASES["smoke"]
    made = {row[0]: measured(row, earlier) for row in count_operations.rows("smoke", names)}
    recorded = {"load": round(os.getloadavg()[0], 1), "cases": made}
    RECORDED.write_text(json.dumps(recorded, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
