"""The node's own processors as a device: what they are, how they do, and their error counts.

All of it comes from /proc and /sys beneath a root, so that recorded machines are read by the
same code; no tool is started and no library is called. The processors of a node are one device,
because a process runs on all that it is allowed to. What a machine does not report (a virtual
machine has no frequency driver, an Arm server no microcode) is not reported, with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from appliance.linux import cgroup
from appliance.linux.cpu_contention import Neighbours
from appliance.linux.fact_reader import fact, line
from appliance.linux.processors import (
    CPU,
    CPUINFO,
    STATUS,
    Processors,
    installed_memory,
    joined,
    meminfo,
)
from appliance.linux.sensors import Sensors
from appliance.linux.sysfs import Tree, Unreadable, or_none
from appliance.records.system import Device, DeviceLibraries, Fact, Facts
from appliance.records.vocabulary import COUNTERS, READINGS
from appliance.vendors.base import KernelFault
from appliance.vendors.torch_settings import choose_float32_products

NO_SYSTEM = "mount /sys and /proc read-only into the container"
NO_FREQUENCY = "no frequency driver is loaded; a virtual machine's host keeps it: run on the host"
NO_NUMA = "the kernel has no NUMA support, or /sys is not mounted"
NO_CACHE = "the kernel or the hypervisor does not report it: run on the host"
NOT_STATED = "the kernel does not state it on this architecture"
NO_SENSOR = "neither driver nor hypervisor gives it: run on the host, with its EDAC driver loaded"
OF_CARDS = ("pcie_", "link", "row_", "rows_", "pages_", "ras_")
MACHINE_CHECK = re.compile(
    r"mce: \[Hardware Error\]|Uncorrected hardware memory error|\bUE\b.*EDAC"
)


def most_absent(_: Device) -> frozenset[str]:
    """What only a card has."""
    of_cards = {name for name in (*COUNTERS, *READINGS) if name.startswith(OF_CARDS)}
    return frozenset(of_cards | {"lost", "resets"})


class Cpu:
    """Vendor of the node's processors; it has exactly one device.

    Readings show what others use of it: all but `own` (default: this process) and its children.
    """

    name = "cpu"
    torch_type = "cpu"
    collectives = "gloo"
    fork_safe = True
    overlaps = False
    libraries = DeviceLibraries(onnx_provider="CPUExecutionProvider", onnx_package="onnxruntime")

    def __init__(self, root: Path = Path("/"), own: int | None = None) -> None:
        self._tree = Tree(root)
        self._sensors = Sensors(self._tree)
        self._neighbours = Neighbours(self._tree, own)

    def probe(self) -> tuple[Device, ...]:
        """The one device, read anew; a fact that cannot be read has its hint."""
        processors = Processors(self._tree)
        model = fact(processors.model, source=CPUINFO, absent=NOT_STATED)
        memory = installed_memory(self._tree, processors, NO_SYSTEM)
        return (
            Device(
                id="cpu:0",
                vendor=self.name,
                index=0,
                model="unknown processor" if model.value is None else str(model.value),
                serial=None,
                memory_bytes=memory.value if isinstance(memory.value, int) else None,
                facts={
                    "model": model,
                    **_identification(processors),
                    **_counts(processors),
                    **_caches(processors),
                    "memory": memory,
                    **self._allowance(processors),
                    **self._frequencies(),
                },
            ),
        )

    def read(self, device: Device) -> Mapping[str, float | None]:  # noqa: ARG002 - there is one
        """Frequency, temperature, free memory and load of this moment; about 1 ms.

        Also the processors that others used and that a hypervisor withheld since the reading
        before.
        """
        others = self._neighbours.read()
        return {
            "frequency_hertz": or_none(self._sensors.frequency),
            "temperature_celsius": or_none(self._sensors.temperature),
            "memory_available_bytes": or_none(lambda: meminfo(self._tree, "MemAvailable")),
            "load1": or_none(self._sensors.load),
            "foreign_processors": others.foreign,
            "stolen_processors": others.stolen,
        }

    def counters(self, device: Device) -> Mapping[str, int | None]:  # noqa: ARG002 - there is one
        """Since boot: memory errors corrected and not, machine checks, thermal throttling."""
        return {
            "ecc_corrected": or_none(lambda: self._sensors.memory_errors("ce_count")),
            "ecc_uncorrected": or_none(lambda: self._sensors.memory_errors("ue_count")),
            "machine_checks": or_none(self._sensors.machine_checks),
            "thermal_throttles": or_none(self._sensors.thermal_throttles),
        }

    def users(self, device: Device) -> None:
        """Nothing: every process uses them, and readings have the share of others."""

    def hints(self, device: Device) -> Mapping[str, str]:
        """Why a sensor or a count is not there: a virtual machine shows neither."""
        values = {**self.read(device), **self.counters(device)}
        return {name: NO_SENSOR for name, value in values.items() if value is None}

    def absent(self, device: Device) -> frozenset[str]:
        """What only a card has: a slot, links, and memory of its own that replaces its rows."""
        return most_absent(device)

    def kernel_fault(
        self,
        line: str,
        devices: Sequence[Device],
    ) -> KernelFault | None:
        """A machine check that the kernel could not correct; the kernel's own words."""
        matched = MACHINE_CHECK.search(line)
        if matched is None:
            return None
        return KernelFault(
            code="machine check",
            device=devices[0].id if devices else "",
            is_fatal=True,
            meaning="the processor or its memory reported an error that hardware did not correct "
            "(Linux, arch/x86/kernel/cpu/mce)",
        )

    def environment(self, *devices: Device) -> Mapping[str, str]:  # noqa: ARG002 - there is one
        """How torch's threads (GNU OpenMP) wait for each other; the runner sets their number.

        By default they spin, so on a busy host one thread without a processor holds up all the
        others. A training step on two threads (2026-11, 2 cores, medians): beside another load
        207 ms spinning, 61 ms with a short spin; alone 19 to 24 ms and 20 to 22 ms.
        """
        return {"GOMP_SPINCOUNT": "1000"}

    def deterministic_environment(self) -> Mapping[str, str]:
        """Nothing: on a fixed number of threads, no library here sums in an order of chance."""
        return {}

    def onnx_providers(self) -> tuple[str, ...]:
        """ONNX Runtime's own kernels."""
        return ("CPUExecutionProvider",)

    def onnx_options(self, dtype: str) -> Mapping[str, str]:  # noqa: ARG002 - the protocol's
        """Nothing: its defaults are right."""
        return {}

    def features(self, device: Device) -> frozenset[str]:  # noqa: ARG002 - there is one
        """Number formats, and JAX if it is installed; it is looked up without importing it.

        Formats without an instruction are computed all the same. TF32 is none of them: nothing
        shortens float32 here, so a case that wants it would measure something else.
        """
        formats = {"float64", "float32", "float16", "bfloat16", "float8", "int8"}
        return frozenset(formats | ({"jax"} if find_spec("jax") else set()))

    def prepare(self) -> None:
        """Have float32 computed as float32."""
        choose_float32_products(self.torch_type, in_tf32=False)

    def container_options(self) -> Mapping[str, object]:
        """Nothing to pass."""
        return {}

    def _allowance(self, processors: Processors) -> Facts:
        """What this process may use: its affinity, and its control groups' limits."""

        def quota() -> float | str:
            limit = cgroup.cpu_quota(self._tree)
            return "none" if limit is None else limit

        def usable() -> float:
            limit = cgroup.cpu_quota(self._tree)
            allowed = float(len(processors.allowed))
            return allowed if limit is None else min(allowed, limit)

        def memory() -> int | str:
            limit = cgroup.memory_limit(self._tree)
            return "none" if limit is None else limit

        groups = partial(fact, source=cgroup.ROOT, absent=cgroup.ABSENT)
        allowed = fact(lambda: len(processors.allowed), source=STATUS, absent=NO_SYSTEM)
        return {
            "allowed_processors": allowed,
            "processor_quota": _worded(groups(quota), "processors"),
            "usable_processors": groups(usable),
            "memory_limit": _worded(groups(memory), "bytes"),
        }

    def _frequencies(self) -> Facts:
        def settings(name: str) -> str:
            return joined(self._tree.line(f"{path}/{name}") for path in self._sensors.policies)

        def extreme(name: str, pick: Callable[[Iterable[int]], int]) -> int:
            # The driver writes kilohertz.
            return (
                pick(self._tree.number(f"{path}/{name}") for path in self._sensors.policies) * 1000
            )

        read = partial(fact, source=f"{CPU}/cpufreq", absent=NO_FREQUENCY)
        return {
            "governor": read(lambda: settings("scaling_governor")),
            "frequency_driver": read(lambda: settings("scaling_driver")),
            "lowest_frequency": read(lambda: extreme("cpuinfo_min_freq", min), unit="hertz"),
            "highest_frequency": read(lambda: extreme("cpuinfo_max_freq", max), unit="hertz"),
            "boost": read(self._boost),
            "simultaneous_multithreading": line(self._tree, f"{CPU}/smt/control", NO_SYSTEM),
        }

    def _boost(self) -> str:
        """Whether processors may run above their base frequency."""
        inverted = f"{CPU}/intel_pstate/no_turbo"
        is_inverted = self._tree.exists(inverted)
        flag = self._tree.number(inverted if is_inverted else f"{CPU}/cpufreq/boost")
        return "on" if bool(flag) != is_inverted else "off"


def _worded(measured: Fact, unit: str) -> Fact:
    """The fact with its unit where it is a number; the word "none" has no unit."""
    if isinstance(measured.value, str):
        return measured
    return Fact(value=measured.value, unit=unit, source=measured.source, hint=measured.hint)


def _identification(processors: Processors) -> Facts:
    stated = {
        "vendor": ("vendor_id", "CPU implementer"),
        "family": ("cpu family", "CPU architecture"),
        "model_number": ("model", "CPU part"),
        "stepping": ("stepping", "CPU revision"),
        "microcode": ("microcode",),
    }
    facts = {
        name: fact(partial(processors.stated, *keys), source=CPUINFO, absent=NOT_STATED)
        for name, keys in stated.items()
    }
    sets = fact(processors.instruction_sets, source=CPUINFO, absent=NOT_STATED)
    return {**facts, "instruction_sets": sets}


def _counts(processors: Processors) -> Facts:
    topology = partial(fact, source=f"{CPU}/cpu*/topology", absent=NO_SYSTEM)
    nodes = "/sys/devices/system/node/online"
    return {
        "sockets": topology(processors.sockets),
        "physical_cores": topology(lambda: processors.cores),
        "logical_processors": fact(
            lambda: len(processors.online), source=f"{CPU}/online", absent=NO_SYSTEM
        ),
        "threads_per_core": topology(processors.threads_per_core),
        "numa_nodes": fact(processors.numa_nodes, source=nodes, absent=NO_NUMA),
    }


def _caches(processors: Processors) -> Facts:
    """Size of one cache and the number of caches, for each level and type."""
    source = f"{CPU}/cpu*/cache"
    try:
        caches = processors.caches
    except Unreadable as gap:
        return {"caches": Fact(value=None, source=source, hint=gap.hint or NO_CACHE)}
    facts: dict[str, Fact] = {}
    for name, members in caches.items():
        sizes = sorted({size for size, _ in members})
        differ = f"the sizes differ: {', '.join(map(str, sizes))} bytes"
        facts[f"{name}_cache_size"] = (
            Fact(value=sizes[0], unit="bytes", source=source)
            if len(sizes) == 1
            else Fact(value=None, unit="bytes", source=source, hint=differ)
        )
        facts[f"{name}_cache_instances"] = Fact(value=len(members), source=source)
    return facts
