"""Measures builds of rows of `acceptance` whose device's part is small, on one thread and on two.

    scripts/measure_builds.py [FOLDER]      some minutes on two cores; writes host_builds.json

Each is made in a process of its own that has imported the row before, as a fork server has, on the
processor: what a device draws, the host draws here too. With a folder of bench 0.12.0 two builds of
its code are measured as well, which an H100 has timed (tests/recorded/h100_0_12/rows_b): that of
`recursiongfn`, and that of `brax` until JAX refused to compile. What the device took longer for
these stands in scripts/host_builds.py, for what it does where first used.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RECORDED = ROOT / "tests" / "recorded" / "host_builds.json"
ROWS = ("brax", "pna", "ppo", "torchatari")
TIMED = ("recursiongfn", "brax")
"""Rows whose builds by 0.12.0 an H100 has timed and whose host part can be measured."""
COUNTED = "pna"
"""The one whose inputs a device draws: its operations are counted (count_operations.py)."""
TIMES = 3
BUILD = """
import contextlib, gc, json, os, sys, tempfile, time
from pathlib import Path
code, workload, parameters, threads, cut = json.loads(sys.argv[1])
sys.path.insert(0, code)
import torch
from appliance.worker.workload_loader import import_to_fork, load_workload
from workloads.contract.target import Artifacts, Target
import_to_fork(workload)
if cut:
    from jax import stages
    def refuse(*_, **__):
        raise RuntimeError("cut")
    stages.Lowered.compile = refuse
torch.set_num_threads(threads)
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
gc.freeze()
built = load_workload(workload)(**parameters)
target = Target(device=torch.device("cpu"), artifacts=Artifacts(Path(tempfile.mkdtemp())))
wall, processor = time.perf_counter(), time.process_time()
with contextlib.suppress(RuntimeError) if cut else contextlib.nullcontext():
    built.build(target, 1)
print(json.dumps([time.perf_counter() - wall, time.process_time() - processor]))
"""


def seconds(code: Path, row: tuple[str, Mapping[str, Any]], threads: int, *, cut: bool) -> Any:
    """Seconds that passed, and seconds of processors, of one build in a process of its own."""
    given = json.dumps([str(code), *row, threads, cut])
    with tempfile.TemporaryDirectory() as folder:
        made = subprocess.run(  # noqa: S603 - our own code
            [sys.executable, "-c", BUILD, given],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "TMPDIR": folder, "OMP_WAIT_POLICY": "PASSIVE"},
        )
    return json.loads(made.stdout.splitlines()[-1])


def measured(
    code: Path, row: tuple[str, Mapping[str, Any]], *, cut: bool = False
) -> dict[str, float]:
    """The three figures of thread_scaling.py, each the least of some builds, made in turn."""
    made: dict[int, list[Any]] = {1: [], 2: []}
    for _ in range(TIMES):
        for threads, some in made.items():
            some.append(seconds(code, row, threads, cut=cut))
    return {
        "one": round(min(processor for _, processor in made[1]), 2),
        "two": round(min(wall for wall, _ in made[2]), 2),
        "both": round(min(processor for _, processor in made[2]), 2),
    }


def rows() -> Iterator[tuple[str, tuple[str, Mapping[str, Any]]]]:
    """Rows of `acceptance` by name, with their workloads and parameters on the recorded device."""
    sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]
    from write_device_budget import planned  # noqa: PLC0415 - once the paths are set

    for case in planned("acceptance"):
        if not case.variant:
            yield case.id.partition("@")[0], (case.workload, dict(case.parameters))


def operations() -> dict[str, int]:
    """Operations that the build of `COUNTED` hands to its device."""
    script = str(ROOT / "scripts" / "count_operations.py")
    command = [sys.executable, script, "--only", "acceptance", COUNTED]
    made = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 - ours
    return {name: int(of[0]) for name, of in json.loads(made.stdout)["counts"].items()}


def main() -> None:
    """Measure and write."""
    known = dict(rows())
    from appliance.linux.processors import Processors  # noqa: PLC0415 - once the paths are set
    from appliance.linux.sysfs import Tree  # noqa: PLC0415 - the same

    recorded = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    recorded["processor"] = Processors(Tree()).model()
    recorded["builds"], recorded["loads"] = {}, {}
    for name in ROWS:
        recorded["loads"][name] = round(os.getloadavg()[0], 1)
        recorded["builds"][name] = measured(ROOT, known[name])
    recorded["operations"] = operations()
    if sys.argv[1:]:
        code = Path(sys.argv[1]).resolve()
        recorded["timed"] = {
            name: measured(code, known[name], cut=name == "brax") for name in TIMED
        }
    RECORDED.write_text(json.dumps(recorded, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
