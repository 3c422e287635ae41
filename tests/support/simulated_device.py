"""Torch's device type "simulated": an accelerator that does not exist, and can be made to lie.

    python -m support.simulated_device      builds it if that has not been done; prints its file

The device is C++ (simulated_device.cpp), built once with torch's extension builder and stored by a
digest of the source and torch's version in build/. `register` gives it to torch in this process,
for good; a process without that knows nothing of it. What it is told stands in its environment:

    SIMULATED_VISIBLE   numbers of the node's devices that the process sees ("0,1")
    SIMULATED_MEMORY    bytes of memory of each device (1 GiB)
    SIMULATED_STATE     folder in which processes leave what a driver would know of them
    SIMULATED_FAULTS    what goes wrong on the node's device 0: some of FAULTS, by commas, each a
                        name or name=number

The sums of its operators are those of the processors, bit by bit, where no fault is planted. It has
no fused attention (torch takes the other way round), no fused cells of recurrent networks, no
sparse or quantised tensors and no graphs. Numbers are computed in the caller's thread, so a race
between two streams does not show; memory that is freed too early does not show either.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import types
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

NAME = "simulated"
SOURCE = Path(__file__).with_suffix(".cpp")
BUILT = Path(__file__).parents[2] / "build"
MODULE = "simulated_device_extension"
COLLECTIVES = "simulated_gloo"
VISIBLE, MEMORY, STATE, PLANTED = (
    f"SIMULATED_{word}" for word in ("VISIBLE", "MEMORY", "STATE", "FAULTS")
)
FLAGS = ("-O1", "-g0")  # the kernels are torch's own; what is built here only calls them

FAULTS: Mapping[str, str] = {
    "order": "the sums of a matmul begin elsewhere at each call, in each process",
    "short": "matmuls in float32 keep 10 bits of their operands behind the point",
    "flip": "one bit of the exponent in the output of the matmul of this number",
    "integers": "products of 64-bit integers lose their lowest bit",
    "unwritten": "from the matmul of this number on, what memory held before is the output",
    "forgets": "at every synchronise of this number the largest block loses a bit",
    "fades": "at every operator of this number the largest block loses a bit",
    "hang": "from the operator of this number on nothing is ever done",
    "clock": "events count time at this rate",
    "early": "operators take twice as long, and synchronising waits for none of them",
    "shared": "another process has the device for half of the time",
    "unlinked": "the driver does not say how many links are down",
    "vanishes": "from the operator of this number on the device does not answer any process",
}
"""Faults by name; "this number" is what stands behind the equals sign."""


def planted(name: str) -> bool:
    """Whether this process's environment plants the fault."""
    faults = os.environ.get(PLANTED, "").split(",")
    return any(fault.partition("=")[0] == name for fault in faults)


# ---------------------------------------------------------------------------------- building


def missing_tools() -> str:
    """What this machine lacks to build the device; empty if nothing."""
    headers = Path(sysconfig.get_path("include")) / "Python.h"
    lacking = [
        name
        for name, is_there in {
            "g++": shutil.which("g++") is not None,
            "ninja": shutil.which("ninja") is not None,
            "the headers of Python": headers.exists(),
        }.items()
        if not is_there
    ]
    return ", ".join(lacking)


def library() -> Path:
    """Where the device is, or would be, built for this source, torch and Python."""
    digest = hashlib.sha256(SOURCE.read_bytes())
    digest.update(f"{version('torch')} {sys.version} {FLAGS}".encode())
    return BUILT / f"{NAME}-{digest.hexdigest()[:16]}" / f"{MODULE}.so"


def build() -> Path:
    """The built device; builds it, in a process of its own, if no process has done so before."""
    file = library()
    BUILT.mkdir(exist_ok=True)
    with (BUILT / f"{NAME}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not file.exists():
            with tempfile.TemporaryDirectory(dir=BUILT) as folder:
                subprocess.run([sys.executable, __file__, folder], check=True)
                file.parent.mkdir(exist_ok=True)
                Path(folder, file.name).replace(file)
    return file


def _compile(folder: str) -> None:
    from torch.utils import cpp_extension  # noqa: PLC0415 - slow, and only to build

    # A compiler takes most of a gigabyte, and tests run beside it.
    os.environ["MAX_JOBS"] = "1"
    cpp_extension.load(
        name=MODULE,
        sources=[str(SOURCE)],
        extra_cflags=list(FLAGS),
        build_directory=folder,
        is_python_module=False,
    )


# -------------------------------------------------------------------------------- registering


def register() -> types.ModuleType:
    """Torch's module of the device (`torch.simulated`); made at the first call.

    Raises FileNotFoundError where the device has not been built.
    """
    import torch  # noqa: PLC0415 - the vendor module of these devices imports this one

    if not hasattr(torch, NAME):
        extension = _loaded(library())
        torch.utils.rename_privateuse1_backend(NAME)
        torch._register_device_module(NAME, _device_module(extension))
        torch.utils.generate_methods_for_privateuse1_backend()
        _register_collectives(extension)
    module: types.ModuleType = getattr(torch, NAME)
    return module


def _loaded(file: Path) -> Any:
    if not file.exists():
        raise FileNotFoundError(f"{file}: build it with `python -m support.simulated_device`")
    spec = importlib.util.spec_from_file_location(MODULE, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _device_module(extension: Any) -> types.ModuleType:
    """What torch and its users look for in the module of a device type."""
    import torch  # noqa: PLC0415

    def index_of(device: Any = None) -> int:
        if isinstance(device, int):
            return device
        index = None if device is None else torch.device(device).index
        return int(extension.current_device() if index is None else index)

    class device:  # noqa: N801 - as torch calls it
        def __init__(self, device: Any) -> None:
            self.index = index_of(device)

        def __enter__(self) -> None:
            self.before = extension.exchange_device(self.index)

        def __exit__(self, *_: object) -> None:
            extension.exchange_device(self.before)

    generators = tuple(map(extension.default_generator, range(extension.device_count())))
    contents: dict[str, Any] = {
        "device": device,
        "device_count": extension.device_count,
        "current_device": extension.current_device,
        "set_device": lambda device: extension.exchange_device(index_of(device)),
        "synchronize": lambda device=None: extension.synchronize(index_of(device)),
        "calls": lambda device=None: extension.calls(index_of(device)),
        "get_device_name": lambda _=None: "Simulated accelerator",
        "is_available": lambda: extension.device_count() > 0,
        "is_initialized": lambda: True,
        "init": lambda: None,
        "_lazy_init": lambda: None,
        "_is_in_bad_fork": lambda: False,
        "get_amp_supported_dtype": lambda: [torch.bfloat16, torch.float16],
        "is_bf16_supported": lambda: True,
        "default_generators": generators,
        **_of_generators(generators, index_of),
        **_of_every_accelerator(),
    }
    module = types.ModuleType(f"torch.{NAME}")
    vars(module).update(contents)
    return module


def _of_generators(generators: Any, index_of: Callable[[Any], int]) -> dict[str, Any]:
    def seed_all(seed: int) -> None:
        for one in generators:
            one.manual_seed(seed)

    def own(device: Any = None) -> Any:
        return generators[index_of(device)]

    return {
        "manual_seed": lambda seed: own().manual_seed(seed),
        "manual_seed_all": seed_all,
        "get_rng_state": lambda device=None: own(device).get_state(),
        "set_rng_state": lambda state, device=None: own(device).set_state(state),
    }


def _of_every_accelerator() -> dict[str, Any]:
    """Streams, events and memory, which torch has alike for all of them."""
    import torch  # noqa: PLC0415

    names = ("current_stream", "set_stream", "empty_cache", "memory_allocated", "memory_reserved")
    peaks = ("max_memory_allocated", "max_memory_reserved", "reset_peak_memory_stats")
    return {
        "Stream": torch.Stream,
        "Event": torch.Event,
        "stream": lambda stream: stream,  # a stream is its own context
        **{name: getattr(torch.accelerator, name) for name in (*names, *peaks)},
    }


def _register_collectives(extension: Any) -> None:
    """Collectives of these devices: gloo's, on the same bytes."""
    import torch.distributed as dist  # noqa: PLC0415

    def make(store: Any, rank: int, size: int, timeout: Any) -> Any:
        return extension.Collectives(dist.ProcessGroupGloo(store, rank, size, timeout))

    dist.Backend.register_backend(COLLECTIVES, make, devices=[NAME, "cpu"])


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _compile(sys.argv[1])
    else:
        print(build())  # noqa: T201
