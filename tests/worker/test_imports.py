"""Importing a workload brings no library that only building it needs; who builds has it before.

Nothing here is timed: `benchmarks/run.py imports` measures what an import takes. A library that
takes long and is not needed to tell of a workload is held out by its name.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from appliance.ipc.messages import ServeRequest
from appliance.records.json import to_json

ROOT = Path(__file__).parents[2]
LATE = ("ale_py", "brax", "diffusers", "gymnax", "jax", "lightning", "onnx", "onnxscript")
"""Libraries of some workloads that importing none of them loads."""
NAMES = sorted(
    path.stem
    for path in (ROOT / "workloads").glob("*.py")
    if path.stem not in {"__init__", "contract"}
)
BUILDERS = [
    name
    for name in NAMES
    if "    builds_with: ClassVar" in (ROOT / "workloads" / f"{name}.py").read_text()
]


def reported(code: str, output: bytes = b"") -> set[str]:
    """Words that a program prints last, in a process that has imported nothing yet."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        input=output,
        check=True,
        stdout=subprocess.PIPE,
        timeout=1500,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    return set(done.stdout.decode().splitlines()[-1].split())


def test_libraries_that_are_held_out_are_installed() -> None:
    assert [name for name in LATE if importlib.util.find_spec(name) is None] == []


def test_importing_every_workload_loads_none_of_the_late_libraries() -> None:
    """Nor has any of them torch describe itself, which starts the driver of a build for CUDA."""
    imports = ", ".join(f"workloads.{name}" for name in NAMES)
    describes = "calls = []; torch._C._show_config = lambda: calls.append('described') or ''"
    code = f"import sys, torch; {describes}; import {imports}; print(*sys.modules, *calls)"
    words = reported(code)
    assert {"torch", "transformers", "torch_geometric"} <= words
    assert words & {*LATE, "described"} == set()


@pytest.fixture(scope="module")
def imported_by_building() -> dict[str, str]:
    """By workload, the late libraries that building it imports after it was loaded.

    Each in a fork of one process, which has imported torch and no workload.
    """
    code = f"""
import os, sys, traceback
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from appliance.worker.workload_loader import load_workload

def describe():
    raise AssertionError("a build for CUDA starts the driver to describe itself")

torch._C._show_config = describe  # after which no fork can use the device

class Watch(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        assert func is torch.ops.aten.lift_fresh.default, func  # a constant that is written down
        return func(*args, **(kwargs or {{}}))

def libraries():
    return {{one for one in sys.modules if one.partition(".")[0] in {LATE!r}}}

def report(name):
    assert not libraries()
    kind = load_workload(name, to_build=False)
    with Watch():
        load_workload(name)
    before = libraries()
    assert before
    workload = kind(**kind.small)
    workload.work(), workload.num_parameters()
    return ",".join(libraries() - before)

words = []
for name in {BUILDERS!r}:
    reader, writer = os.pipe()
    if not os.fork():
        try:
            os.write(writer, f"{{name}}:{{report(name)}}".encode())
        except BaseException:
            traceback.print_exc()
        os._exit(0)
    os.close(writer)
    words.append(os.read(reader, 2**16).decode())
    os.close(reader)
print(*words)
"""
    return dict(word.split(":") for word in reported(code))


@pytest.mark.parametrize("name", BUILDERS)
def test_what_a_workload_builds_with_is_all_that_building_imports(
    name: str, imported_by_building: dict[str, str]
) -> None:
    """The clock of a launch that builds sees no import, which runs no operator either."""
    assert imported_by_building[name] == ""


def test_listing_workloads_imports_nothing_that_computes() -> None:
    code = f"""
import sys
from appliance.verbs.listing import listed
names = [one.name for one in listed()]
print(*names, *({{*sys.modules}} & {{"torch", *{LATE!r}}}))
"""
    words = reported(code)
    assert words >= {*BUILDERS}
    assert words & {"torch", *LATE} == set()


def test_first_optimiser_of_a_launch_imports_nothing() -> None:
    """In a fork each launch would import it again."""
    code = """
import sys
from appliance.worker.workload_loader import import_to_fork
import_to_fork("digits_mlp")
before = {*sys.modules}
import torch
from workloads.parts.training.optimizers import AdamW
model = torch.nn.Linear(2, 2)
optimizer = AdamW(learning_rate=0.1).make(model)
model(torch.ones(1, 2)).sum().backward()
optimizer.step()
new = {*sys.modules} - before
print("torch._dynamo" in before, *(name for name in new if not name.startswith("torch.profiler")))
"""
    assert reported(code) == {"True"}


def test_fork_server_has_imported_what_its_workloads_build_with() -> None:
    code = f"""
import os, sys
from appliance.worker import child

class Server:
    def __init__(self, answer, **_):
        self.answer = answer

    def serve(self):
        os.write(self.answer, " ".join({{*sys.modules}} & {{*{LATE!r}}}).encode())

child.ForkServer = Server
child._serve()
"""
    request = ServeRequest(
        vendor="cpu", workloads=tuple(BUILDERS), framework="torch", probe_seconds=1.0
    )
    # Importing gymnax computes, after which no process may be forked.
    assert reported(code, to_json(request) + b"\n") == {"brax", "diffusers", "jax"}


def test_a_server_of_models_that_are_exported_has_most_of_what_exporting_needs(
    tmp_path: Path,
) -> None:
    """In a fork each export would import it and make its tables again; what is left is small.

    No operator of torch runs for it, after which no process may be forked.
    """
    code = f"""
import sys
import torch
from pathlib import Path
from unittest import mock
from torch.utils._python_dispatch import TorchDispatchMode
from appliance.ipc.import_watch import ImportWatch
from appliance.worker.forkserver import import_what_exports
from workloads.parts.inference import exporter

ran = []

class Operators(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        ran.append(str(func))
        return func(*args, **(kwargs or {{}}))

with Operators():
    import_what_exports("onnx", ImportWatch())
num_modules = len({{*sys.modules}} & {{"networkx", "onnx"}})
left = {{*exporter.IMPORTED}} - {{*sys.modules}}
path = Path({str(tmp_path)!r}, "network.onnx")
with (
    mock.patch("torch.onnx._internal.exporter._registration._get_overload") as registered,
    mock.patch("torch.export.default_decompositions") as decompositions,
    mock.patch("torch.export.exported_program._collect_all_valid_cia_ops") as split,
):
    network = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU(inplace=True))
    exporter.export(network, {{"input": torch.zeros(1, 2)}}, "y", path)
made = registered.call_count + decompositions.call_count + split.call_count
print(*left, *ran, f"modules={{num_modules}} tables={{made}} bytes={{bool(path.stat().st_size)}}")
"""
    assert reported(code) == {"modules=2", "tables=0", "bytes=True"}
