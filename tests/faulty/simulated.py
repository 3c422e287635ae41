"""The vendor of the simulated accelerator, and `bench` with this vendor among those it knows.

    python -m faulty.simulated run --vendor faulty.simulated --suite FILE --out FOLDER

`bench` itself has no way to add a vendor: this program does it, and the runs that it makes say
"faulty.simulated" of each device, which nobody can sign or verify as a run of a real one.

Two devices, or SIMULATED_DEVICES. What the vendor says of them is made up, but for the memory and
the processes that use it, which the devices write into SIMULATED_STATE. The qualified records of
these devices, of which the package has none, are those of the folder SIMULATED_RECORDS.
"""

# ruff: noqa: ARG002 - the protocol names the arguments

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import cast

from support import simulated_device

from appliance.records.system import Device, DeviceLibraries, Fact, Facts
from appliance.records.vocabulary import CONNECTION, COUNTERS, THROTTLES
from appliance.vendors.base import DeviceUsers, KernelFault, Vendor
from appliance.vendors.cpu import Cpu
from appliance.vendors.registry import VENDORS

GIB = 2**30
NOT_SUPPORTED = "the driver answers NOT_SUPPORTED"
ABSENT_COUNTERS = frozenset(COUNTERS) - {"lost", "ecc_uncorrected", "links_down"}
ABSENT_READINGS = frozenset({"fan_fraction", "hotspot_temperature_celsius"})
RECORDS = "SIMULATED_RECORDS"
FOREIGN_BYTES = 9 * GIB // 10
"""Memory of the other process that the fault "shared" stands for."""


class Simulated:
    """Vendor of the simulated accelerators."""

    name = "faulty.simulated"
    torch_type = simulated_device.NAME
    collectives = simulated_device.COLLECTIVES
    fork_safe = True
    overlaps = False
    libraries = DeviceLibraries(onnx_provider="CPUExecutionProvider", onnx_package="onnxruntime")

    def probe(self) -> tuple[Device, ...]:
        return tuple(map(self._device, range(_num_devices())))

    def _device(self, index: int) -> Device:
        memory = int(os.environ.get(simulated_device.MEMORY, str(GIB)))
        is_silent = simulated_device.planted("unlinked")
        hint = NOT_SUPPORTED if is_silent else ""
        facts = {
            **_ways(index),
            "links_shown": Fact(value=not is_silent, source="simulated"),
            "num_links": Fact(value=None if is_silent else 1, source="simulated", hint=hint),
            "driver": Fact(value="1.0", source="simulated"),
            "memory": Fact(value=memory, unit="bytes", source="simulated"),
            "highest_graphics_clock": Fact(value=10**9, unit="hertz", source="simulated"),
            "power_limit": Fact(value=300.0, unit="watts", source="simulated"),
            "pcie_width_highest": Fact(value=16, source="simulated"),
            "pcie_generation_highest": Fact(value=5, source="simulated"),
            "link_kind": Fact(value="simulated", source="simulated"),
        }
        return Device(
            id=f"simulated:{index}",
            vendor=self.name,
            index=index,
            model="Simulated accelerator",
            serial=f"SIMULATED-{index}",
            memory_bytes=memory,
            facts=facts,
        )

    def read(self, device: Device) -> Mapping[str, float | None]:
        """Nothing of a device that is lost."""
        used = sum(self.processes(device).values())
        readings = {
            "graphics_clock_hertz": 1e9,
            "power_watts": 250.0 if used else 50.0,
            "temperature_celsius": 50.0,
            "utilisation_fraction": 0.98 if used else 0.0,
            "memory_used_bytes": float(used),
            "pcie_width": 16.0,
            "pcie_generation": 5.0,
            **{f"throttled_{reason}": 0.0 for reason in THROTTLES},
        }
        return {name: None if _is_lost(device) else value for name, value in readings.items()}

    def processes(self, device: Device) -> Mapping[int, int]:
        """Bytes that each living process has on the device, by the number of the process.

        That of another user is 0, as a container sees a process outside of it.
        """
        if _has_fault(device, "shared"):
            return {0: FOREIGN_BYTES, **_processes(device)}
        return _processes(device)

    def users(self, device: Device) -> DeviceUsers:
        held = self.processes(device)
        return DeviceUsers(count=len(held), memory_bytes=sum(held.values()))

    def counters(self, device: Device) -> Mapping[str, int | None]:
        counters: dict[str, int | None] = {
            "ecc_uncorrected": 0,
            "links_down": None if simulated_device.planted("unlinked") else 0,
        }
        if _is_lost(device):
            return {**dict.fromkeys(counters), "lost": 1}
        return {**counters, "lost": 0}

    def hints(self, device: Device) -> Mapping[str, str]:
        values = {**self.read(device), **self.counters(device)}
        return {name: NOT_SUPPORTED for name, value in values.items() if value is None}

    def absent(self, device: Device) -> frozenset[str]:
        return ABSENT_COUNTERS | ABSENT_READINGS

    def kernel_fault(self, line: str, devices: Sequence[Device]) -> KernelFault | None:
        return None

    def environment(self, *devices: Device) -> Mapping[str, str]:
        """Its kernels run on the processor, whose threads wait for each other as on `Cpu`."""
        visible = ",".join(str(device.index) for device in devices)
        return {simulated_device.VISIBLE: visible, **Cpu().environment()}

    def deterministic_environment(self) -> Mapping[str, str]:
        return {}

    def onnx_providers(self) -> tuple[str, ...]:
        return ("CPUExecutionProvider",)

    def onnx_options(self, dtype: str) -> Mapping[str, str]:
        """Nothing: its defaults are right."""
        return {}

    def features(self, device: Device) -> frozenset[str]:
        return frozenset({"float64", "float32", "float16", "bfloat16", "float8", "int8"})

    def prepare(self) -> None:
        simulated_device.register()

    def container_options(self) -> Mapping[str, object]:
        return {}


def _num_devices() -> int:
    return int(os.environ.get("SIMULATED_DEVICES", "2"))


def _ways(index: int) -> Facts:
    """How the device is joined to each other."""
    others = (other for other in range(_num_devices()) if other != index)
    return {f"{CONNECTION}{one}": Fact(value="host bridge", source="simulated") for one in others}


def _has_fault(device: Device, name: str) -> bool:
    return device.index == 0 and simulated_device.planted(name)


def _state() -> Path | None:
    folder = os.environ.get(simulated_device.STATE)
    return Path(folder) if folder else None


def _is_lost(device: Device) -> bool:
    state = _state()
    return state is not None and (state / f"lost.{device.index}").exists()


def _processes(device: Device) -> dict[int, int]:
    return dict(_of_living(device))


def _of_living(device: Device) -> Iterator[tuple[int, int]]:
    """Each process that has the device open, and its bytes there (see Usage in the C++ source)."""
    state = _state()
    for file in () if state is None else sorted(state.glob(f"used.{device.index}.*")):
        process = int(file.suffix[1:])
        if Path(f"/proc/{process}").exists():
            used, _ = struct.unpack("QQ", file.read_bytes().ljust(16, b"\0")[:16])
            yield process, used


def main() -> None:
    """Be `bench`, with this vendor added."""
    from appliance.cli.main import main as bench  # noqa: PLC0415 - the vendor is used without
    from appliance.storage import qualified_file  # noqa: PLC0415 - the same

    if RECORDS in os.environ:
        own = partial(qualified_file.load_qualified, folder=Path(os.environ[RECORDS]))
        qualified_file.load_qualified = own
    cast("dict[str, Callable[[], Vendor]]", VENDORS)[Simulated.name] = Simulated
    bench()


if __name__ == "__main__":
    main()
