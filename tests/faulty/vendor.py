"""A vendor of devices for tests: one or two devices that are the host's own processor."""

# ruff: noqa: ARG002 - the protocol names the arguments

from __future__ import annotations

from collections.abc import Mapping, Sequence

from appliance.records.system import Device, DeviceLibraries
from appliance.vendors import determinism
from appliance.vendors.base import DeviceUsers, KernelFault


class Vendor:
    name = "faulty.vendor"
    torch_type = "cpu"
    collectives = "gloo"
    fork_safe = True
    overlaps = False
    libraries = DeviceLibraries(onnx_provider="CPUExecutionProvider", onnx_package="onnxruntime")

    def probe(self) -> tuple[Device, ...]:
        return tuple(
            Device(
                id=f"cpu:{index}",
                vendor=self.name,
                index=index,
                model="Test",
                serial=None,
                memory_bytes=None,
                facts={},
            )
            for index in range(2)
        )

    def read(self, device: Device) -> Mapping[str, float | None]:
        return {"temperature_celsius": 40.0 + device.index, "power_watts": None}

    def counters(self, device: Device) -> Mapping[str, int | None]:
        return {}

    def users(self, device: Device) -> DeviceUsers | None:
        return None

    def hints(self, device: Device) -> Mapping[str, str]:
        return {"power_watts": "this vendor has no meter"}

    def absent(self, device: Device) -> frozenset[str]:
        return frozenset({"links_down"})

    def kernel_fault(self, line: str, devices: Sequence[Device]) -> KernelFault | None:
        return None

    def environment(self, *devices: Device) -> Mapping[str, str]:
        return {"TEST_DEVICE": ",".join(device.id for device in devices)}

    def deterministic_environment(self) -> Mapping[str, str]:
        return {"TEST_LIBRARY_MODE": "deterministic", **determinism.XLA}

    def onnx_providers(self) -> tuple[str, ...]:
        return ("CPUExecutionProvider",)

    def onnx_options(self, dtype: str) -> Mapping[str, str]:
        """Nothing: its defaults are right."""
        return {}

    def features(self, device: Device) -> frozenset[str]:
        return frozenset({"float64", "jax"})

    def prepare(self) -> None:
        return

    def container_options(self) -> Mapping[str, object]:
        return {}
