"""What an NVIDIA device is and how it is set, by the vocabulary's names, each with its source.

Nothing in here changes by itself: what a resumed run finds must be the same. So the slowdown
temperature of parts that report only their distance from it (Hopper and later) is not reported.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from appliance.linux import pci
from appliance.linux.fact_reader import fact, firmware
from appliance.linux.sysfs import Tree, Unreadable
from appliance.records.json import Scalar
from appliance.records.system import Fact, Facts
from appliance.vendors.nvidia.nvml import NO_VALUE, Handle, Nvml, Place, Refusal, as_text, first
from appliance.vendors.nvidia.nvml_telemetry import GRAPHICS, MEGAHERTZ, MEMORY, memory_info

CORES = {
    (7, 0): 64,
    (7, 2): 64,
    (7, 5): 64,
    (8, 0): 64,
    (8, 6): 128,
    (8, 7): 128,
    (8, 9): 128,
    (9, 0): 128,
    (10, 0): 128,
    (10, 1): 128,
    (10, 3): 128,
    (11, 0): 128,
    (12, 0): 128,
    (12, 1): 128,
}
"""Cores of a multiprocessor by compute capability (NVIDIA/cuda-samples, helper_cuda.h, 2025-09)."""
COMPUTE_MODES = {0: "default", 2: "prohibited", 3: "exclusive process"}
"""nvmlComputeMode_t."""
SLOWDOWN = 1
"""NVML_TEMPERATURE_THRESHOLD_SLOWDOWN."""
ONLY_DISTANCE = "not reported: newer parts report only how far they are from it"
MASK_WORDS = 16
"""Words of 64 processors each: more processors than any node has."""
FABRIC_STATES = {0: "none", 1: "not started", 2: "in progress", 3: "completed"}
"""nvmlGpuFabricState_t."""


@dataclass(frozen=True, slots=True)
class Questions:
    """The questions about one device."""

    nvml: Nvml
    tree: Tree
    place: Place

    def facts(self) -> Facts:
        """Every fact but those of its links."""
        return {
            **self._identification(),
            **self._firmware(),
            **self._memory(),
            **self._modes(),
            **self._power(),
            **self._clocks(),
            **self._bus(),
        }

    def model(self) -> str:
        """Name of the device, or of the slice with its size."""
        return self.nvml.text("nvmlDeviceGetName", self.place.own)

    def serial(self) -> str:
        """The number that is printed on the board."""
        return self._written("nvmlDeviceGetSerial")()

    def capability(self) -> tuple[int, int]:
        """Compute capability."""
        major, minor = self.nvml.ask("nvmlDeviceGetCudaComputeCapability", self.place.whole)
        return int(major), int(minor)

    def address(self) -> str:
        """PCI address as the kernel writes it."""
        info = self.nvml.ask("nvmlDeviceGetPciInfo_v3", self.place.whole)
        return pci.address(as_text(info.busId))

    def memory(self) -> int:
        """Bytes of memory in the device or the slice."""
        return int(memory_info(self.nvml, self.place.own).total)

    def _integer(self, function: str, *arguments: object) -> Callable[[], int]:
        return partial(self.nvml.whole, function, self.place.whole, *arguments)

    def _written(self, function: str, *arguments: object) -> Callable[[], str]:
        """A text that its vendor filled in; a placeholder is none."""
        return lambda: firmware(self.nvml.text(function, self.place.whole, *arguments))

    def _identification(self) -> Facts:
        def architecture() -> str:
            return "sm_{}{}".format(*self.capability())

        def units() -> int:
            if self.place.slice is not None:
                attributes = self.nvml.ask("nvmlDeviceGetAttributes", self.place.slice)
                return int(attributes.multiprocessorCount)
            cores = self._integer("nvmlDeviceGetNumGpuCores")()
            if self.capability() not in CORES:
                raise Unreadable(NO_VALUE)
            return cores // CORES[self.capability()]

        text = self._written
        return {
            "uuid": _fact(
                lambda: self.nvml.text("nvmlDeviceGetUUID", self.place.own), "nvmlDeviceGetUUID"
            ),
            "product": _fact(self.model, "nvmlDeviceGetName"),
            "board_part_number": _fact(
                text("nvmlDeviceGetBoardPartNumber"), "nvmlDeviceGetBoardPartNumber"
            ),
            "architecture": _fact(architecture, "nvmlDeviceGetCudaComputeCapability"),
            "compute_units": _fact(units, "nvmlDeviceGetNumGpuCores"),
        }

    def _firmware(self) -> Facts:
        text = self._written

        def api() -> str:
            version = self.nvml.whole("nvmlSystemGetCudaDriverVersion_v2")
            return f"CUDA {version // 1000}.{version % 1000 // 10}"

        return {
            "vbios": _fact(text("nvmlDeviceGetVbiosVersion"), "nvmlDeviceGetVbiosVersion"),
            "firmware": _fact(
                self._other_firmware,
                "nvmlDeviceGetInforomImageVersion, nvmlDeviceGetGspFirmwareVersion",
            ),
            "driver": _fact(
                lambda: self.nvml.text("nvmlSystemGetDriverVersion"), "nvmlSystemGetDriverVersion"
            ),
            "driver_api": _fact(api, "nvmlSystemGetCudaDriverVersion_v2"),
        }

    def _other_firmware(self) -> str:
        """Versions of the inforom and of the firmware of the device's own processor."""
        ways = {
            "inforom": self._written("nvmlDeviceGetInforomImageVersion"),
            "GSP": self._written("nvmlDeviceGetGspFirmwareVersion"),
        }
        versions, gaps = [], []
        for name, read in ways.items():
            try:
                versions.append(f"{name} {read()}")
            except Unreadable as gap:
                gaps.append(gap)
        if not versions:
            raise gaps[0]
        return ", ".join(versions)

    def _memory(self) -> Facts:
        def mode(position: int) -> str:
            return _on_off(self.nvml.ask("nvmlDeviceGetEccMode", self.place.whole)[position])

        return {
            "memory": _fact(self.memory, "nvmlDeviceGetMemoryInfo", "bytes"),
            "ecc_mode": _fact(lambda: mode(0), "nvmlDeviceGetEccMode"),
            "ecc_mode_pending": _fact(lambda: mode(1), "nvmlDeviceGetEccMode"),
        }

    def _modes(self) -> Facts:
        def compute() -> str:
            mode = self._integer("nvmlDeviceGetComputeMode")()
            return COMPUTE_MODES.get(mode, f"mode {mode}")

        def confidential() -> str:
            return _on_off(self.nvml.ask("nvmlSystemGetConfComputeState").ccFeature)

        persistence = self._integer("nvmlDeviceGetPersistenceMode")
        return {
            "persistence_mode": _fact(
                lambda: _on_off(persistence()), "nvmlDeviceGetPersistenceMode"
            ),
            "compute_mode": _fact(compute, "nvmlDeviceGetComputeMode"),
            "confidential_mode": _fact(confidential, "nvmlSystemGetConfComputeState"),
            "partition_mode": _fact(self._division, "nvmlDeviceGetMigMode"),
            "partitions": _fact(self._partitions, "nvmlDeviceGetMigDeviceHandleByIndex"),
            "fabric": _fact(self._fabric, "nvmlDeviceGetGpuFabricInfoV"),
        }

    def _division(self) -> str:
        return "MIG" if is_divided(self.nvml, self.place.whole) else "none"

    def _partitions(self) -> str:
        """Names of the slices that can be seen from here."""
        if not is_divided(self.nvml, self.place.whole):
            return "none"
        handles = slices(self.nvml, self.place.whole)
        names = [self.nvml.text("nvmlDeviceGetName", handle) for handle in handles]
        return ", ".join(names) or "none"

    def _fabric(self) -> str:
        """State of the switches between modules of a baseboard; CUDA waits for "completed"."""
        structure = getattr(self.nvml.library, "c_nvmlGpuFabricInfoV_t", None)
        if structure is None:
            raise Refusal(13)  # an older nvidia-ml-py
        info = structure()  # filled in by the call
        self.nvml.ask("nvmlDeviceGetGpuFabricInfoV", self.place.whole, ctypes.byref(info))
        if info.state not in FABRIC_STATES:
            raise Unreadable(NO_VALUE)
        word = FABRIC_STATES[info.state]
        return f"{word}, with error {info.status}" if info.status else word

    def _power(self) -> Facts:
        def limits(position: int) -> float:
            name = "nvmlDeviceGetPowerManagementLimitConstraints"
            return int(self.nvml.ask(name, self.place.whole)[position]) / 1e3

        ways: Mapping[str, tuple[Callable[[], float], str]] = {
            "power_limit": (
                lambda: self._integer("nvmlDeviceGetEnforcedPowerLimit")() / 1e3,
                "nvmlDeviceGetEnforcedPowerLimit",
            ),
            "power_limit_default": (
                lambda: self._integer("nvmlDeviceGetPowerManagementDefaultLimit")() / 1e3,
                "nvmlDeviceGetPowerManagementDefaultLimit",
            ),
            "power_limit_lowest": (
                lambda: limits(0),
                "nvmlDeviceGetPowerManagementLimitConstraints",
            ),
            "power_limit_highest": (
                lambda: limits(1),
                "nvmlDeviceGetPowerManagementLimitConstraints",
            ),
        }
        return {name: _fact(read, source, "watts") for name, (read, source) in ways.items()}

    def _clocks(self) -> Facts:
        def highest(clock: int) -> int:
            return self._integer("nvmlDeviceGetMaxClockInfo", clock)() * MEGAHERTZ

        limit = _fact(self._clock_limit, "nvmlDeviceGetApplicationsClock", "hertz")
        slowdown = self._integer("nvmlDeviceGetTemperatureThreshold", SLOWDOWN)
        return {
            "highest_graphics_clock": _fact(
                lambda: highest(GRAPHICS), "nvmlDeviceGetMaxClockInfo", "hertz"
            ),
            "highest_memory_clock": _fact(
                lambda: highest(MEMORY), "nvmlDeviceGetMaxClockInfo", "hertz"
            ),
            "graphics_clock_limit": _worded(limit),
            "slowdown_temperature": _fact(
                lambda: _unless_distance(slowdown), "nvmlDeviceGetTemperatureThreshold", "celsius"
            ),
        }

    def _clock_limit(self) -> int | str:
        """An applications clock other than the default, which only somebody can have set.

        The driver does not report a locked clock: it shows as throttling by a setting.
        """
        now = self._integer("nvmlDeviceGetApplicationsClock", GRAPHICS)()
        default = self._integer("nvmlDeviceGetDefaultApplicationsClock", GRAPHICS)()
        return "none" if now == default else now * MEGAHERTZ

    def _bus(self) -> Facts:
        def ids(member: str) -> str:
            info = self.nvml.ask("nvmlDeviceGetPciInfo_v3", self.place.whole)
            value = int(getattr(info, member))
            return f"{value & 0xFFFF:04x}:{value >> 16:04x}"  # the vendor is the lower half

        def function() -> pci.Function:
            return pci.Function(self.tree, self.address())

        info, integer = "nvmlDeviceGetPciInfo_v3", self._integer
        part = integer("nvmlDeviceGetGpuMaxPcieLinkGeneration")
        return {
            "pci_address": _fact(self.address, info),
            "pci_device": _fact(lambda: ids("pciDeviceId"), info),
            "pci_subsystem": _fact(lambda: ids("pciSubSystemId"), info),
            "pcie_generation_highest": _fact(
                lambda: first(part, lambda: function().highest_generation()),
                "nvmlDeviceGetGpuMaxPcieLinkGeneration",
            ),
            "pcie_width_highest": fact(
                lambda: function().highest_width(), source=f"{pci.DEVICES}/*/max_link_width"
            ),
            "pcie_generation_slot": _fact(
                integer("nvmlDeviceGetMaxPcieLinkGeneration"), "nvmlDeviceGetMaxPcieLinkGeneration"
            ),
            "pcie_width_slot": _fact(
                integer("nvmlDeviceGetMaxPcieLinkWidth"), "nvmlDeviceGetMaxPcieLinkWidth"
            ),
            "numa_node": fact(lambda: function().numa_node(), source=f"{pci.DEVICES}/*/numa_node"),
            "cpu_affinity": fact(
                lambda: first(lambda: function().processors(), self._affinity),
                source=f"{pci.DEVICES}/*/local_cpulist",
            ),
        }

    def _affinity(self) -> str:
        """Processors near the device as the driver gives them: bits of 64-bit words."""
        words = self.nvml.ask("nvmlDeviceGetCpuAffinity", self.place.whole, MASK_WORDS)
        mask = sum(int(word) << (64 * number) for number, word in enumerate(words))
        return ",".join(_ranges(mask)) or "none"


def is_divided(nvml: Nvml, handle: Handle) -> bool:
    """True if the device is divided now (MIG); parts that cannot be are not."""
    try:
        current = nvml.ask("nvmlDeviceGetMigMode", handle)[0]
    except Refusal as gap:
        if gap.code == 3:  # noqa: PLR2004 - not supported: there is nothing to divide
            return False
        raise
    return int(current) == 1


def slices(nvml: Nvml, handle: Handle) -> tuple[Handle, ...]:
    """The slices of a divided device that can be seen from here."""
    most = nvml.whole("nvmlDeviceGetMaxMigDeviceCount", handle)
    return tuple(_slices(nvml, handle, most))


def _slices(nvml: Nvml, handle: Handle, most: int) -> Iterator[Handle]:
    for number in range(most):
        try:
            yield nvml.ask("nvmlDeviceGetMigDeviceHandleByIndex", handle, number)
        except Refusal:  # an empty place, or one that belongs to somebody else
            continue


def _fact(read: Callable[[], Scalar], function: str, unit: str = "") -> Fact:
    return fact(read, source=f"NVML {function}", unit=unit)


def _worded(source_fact: Fact) -> Fact:
    """The fact without unit where it is a word."""
    if not isinstance(source_fact.value, str):
        return source_fact
    return Fact(value=source_fact.value, source=source_fact.source, hint=source_fact.hint)


def _on_off(value: object) -> str:
    return "on" if value == 1 else "off"


def _unless_distance(read: Callable[[], int]) -> int:
    try:
        return read()
    except Refusal as gap:
        if gap.code == 3:  # noqa: PLR2004 - not supported
            raise Unreadable(ONLY_DISTANCE) from None
        raise


def _ranges(mask: int) -> Iterator[str]:
    """Set bits as the kernel's list of ranges."""
    bit = 0
    while mask >> bit:
        if mask >> bit & 1:
            begin = bit
            while mask >> bit & 1:
                bit += 1
            yield str(begin) if begin == bit - 1 else f"{begin}-{bit - 1}"
        bit += 1
