"""What the processors of a node are, as the kernel lists them: models, cores, caches, memory.

Every function reads one thing and raises Unreadable with the reason where it cannot; turning
that into facts is the vendor's business. Processors of one node may differ (Arm servers mix
cores, a hypervisor may mix models), so nothing that is read of the first one is reported of all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property

from appliance.linux.fact_reader import fact
from appliance.linux.sysfs import Tree, Unreadable
from appliance.records.system import Fact

CPU = "/sys/devices/system/cpu"
CPUINFO = "/proc/cpuinfo"
MEMORY = "/sys/devices/system/memory"
STATUS = "/proc/self/status"
_KIB = 1024
_AI_INSTRUCTIONS = {
    "flags": re.compile(r"avx\w*|amx\w*|fma4?|f16c"),  # x86
    "Features": re.compile(r"asimd\w*|fphp|bf16|i8mm|f32mm|f64mm|sve\w*|sme\w*"),  # Arm
}
_ARM_PARTS = {
    (0x41, 0xD0C): "Arm Neoverse-N1",
    (0x41, 0xD40): "Arm Neoverse-V1",
    (0x41, 0xD49): "Arm Neoverse-N2",
    (0x41, 0xD4F): "Arm Neoverse-V2",
    (0xC0, 0xAC3): "Ampere-1",
    (0xC0, 0xAC4): "Ampere-1a",
}
"""Server cores by implementer and part of the MIDR register (Linux, arch/arm64 cputype.h)."""
_CACHE_TYPES = {"Data": "d", "Instruction": "i", "Unified": ""}


class Processors:
    """The processors that are online, and what of them this process may use."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    @cached_property
    def _tables(self) -> tuple[Mapping[str, str], ...]:
        """One table of /proc/cpuinfo for each processor."""
        tables: list[dict[str, str]] = []
        for entry in self._tree.text(CPUINFO).splitlines():
            key, _, value = entry.partition(":")
            if key.strip() == "processor":
                tables.append({})
            if tables:
                tables[-1].setdefault(key.strip(), " ".join(value.split()))
        if not tables:
            raise Unreadable(f"{CPUINFO} is damaged: it names no processor")
        return tuple(tables)

    def stated(self, *keys: str) -> str:
        """The different values that processors state under the first key that any of them has."""
        for key in keys:
            values = [table[key] for table in self._tables if table.get(key)]
            if values:
                return joined(values)
        raise Unreadable

    def model(self) -> str:
        """The vendor's name of the processors; Arm's kernel gives only the vendor's numbers."""
        if any("CPU part" in table and "model name" not in table for table in self._tables):
            return joined(self._arm_models())
        return self.stated("model name", "cpu", "uarch")

    def _arm_models(self) -> Iterator[str]:
        for table in self._tables:
            vendor, part = table.get("CPU implementer", ""), table.get("CPU part", "")
            known = _ARM_PARTS.get((_hexadecimal(vendor, CPUINFO), _hexadecimal(part, CPUINFO)))
            yield known or f"Arm implementer {vendor} part {part}"

    def instruction_sets(self) -> str:
        """Those that matter to AI and that every processor has, by the kernel's names."""
        for key, wanted in _AI_INSTRUCTIONS.items():
            known = [set(table[key].split()) for table in self._tables if key in table]
            if len(known) == len(self._tables):
                return (
                    " ".join(filter(wanted.fullmatch, sorted(set.intersection(*known)))) or "none"
                )
        raise Unreadable

    def is_virtual(self) -> bool:
        """Whether a hypervisor says that it is there, where the architecture has a flag for it."""
        flags = [table.get("flags", "").split() for table in self._tables]
        if not any(flags):
            raise Unreadable
        return any("hypervisor" in one for one in flags)

    @cached_property
    def online(self) -> tuple[int, ...]:
        """Numbers of the logical processors."""
        return self._tree.numbers(f"{CPU}/online")

    @cached_property
    def allowed(self) -> tuple[int, ...]:
        """Those of them that this process may be scheduled on."""
        text = self._tree.text(STATUS)
        mask = re.search(r"^Cpus_allowed:\s*([0-9a-f,]+)$", text, re.MULTILINE)
        if mask is None:
            raise Unreadable(f"{STATUS} is damaged: it has no Cpus_allowed")
        bits = int(mask[1].replace(",", ""), 16)
        return tuple(number for number in self.online if bits >> number & 1)

    def sockets(self) -> int:
        packages = {self._tree.number(path) for path in self._topology("physical_package_id")}
        if min(packages) < 0:
            raise Unreadable("the firmware does not report which socket a processor is in")
        return len(packages)

    @cached_property
    def cores(self) -> int:
        """Physical cores: processors with the same list of siblings share one."""
        names = ("core_cpus_list", "thread_siblings_list")  # before Linux 5.3, only the second
        name = next((one for one in names if self._tree.exists(self._topology(one)[0])), names[0])
        return len({self._tree.numbers(path) for path in self._topology(name)})

    def _topology(self, name: str) -> tuple[str, ...]:
        return tuple(f"{CPU}/cpu{number}/topology/{name}" for number in self.online)

    def threads_per_core(self) -> int:
        threads, rest = divmod(len(self.online), self.cores)
        if rest:
            raise Unreadable("the cores differ in their number of threads")
        return threads

    def numa_nodes(self) -> int:
        return len(self._tree.numbers("/sys/devices/system/node/online"))

    @cached_property
    def caches(self) -> Mapping[str, tuple[tuple[int, str], ...]]:
        """Every cache as (bytes, processors that share it), by its level and type: l1d, l2."""
        caches: dict[str, dict[str, int]] = {}
        for number in self.online:
            folder = f"{CPU}/cpu{number}/cache"
            for index in self._tree.names(folder, r"index\d+"):
                path = f"{folder}/{index}"
                kind = _CACHE_TYPES.get(self._tree.text(f"{path}/type"), "")
                name = f"l{self._tree.number(f'{path}/level')}{kind}"
                sharers = self._tree.text(f"{path}/shared_cpu_list")
                caches.setdefault(name, {})[sharers] = self._cache_size(f"{path}/size")
        if not caches:
            raise Unreadable
        ordered = sorted(caches.items())
        return {name: tuple((size, who) for who, size in one.items()) for name, one in ordered}

    def _cache_size(self, path: str) -> int:
        size = re.fullmatch(r"([0-9]{1,9})K", self._tree.text(path), re.ASCII)
        if size is None:
            raise Unreadable(f"{path} is damaged: it holds no size")
        return int(size[1]) * _KIB

    def memory_blocks(self) -> int:
        """Bytes of memory that the node has online."""
        size = _hexadecimal(self._tree.text(f"{MEMORY}/block_size_bytes"), MEMORY)
        blocks = self._tree.names(MEMORY, r"memory\d+")
        online = sum(self._tree.text(f"{MEMORY}/{name}/state") == "online" for name in blocks)
        if not online or not size:
            raise Unreadable
        return online * size


def installed_memory(tree: Tree, processors: Processors, absent: str) -> Fact:
    """Memory in the node. Blocks, unlike MemTotal, are the same after the next boot."""
    blocks = fact(processors.memory_blocks, source=MEMORY, unit="bytes")
    if blocks.value is not None:
        return blocks
    return fact(
        lambda: meminfo(tree, "MemTotal"), source="/proc/meminfo", unit="bytes", absent=absent
    )


def joined(values: Iterable[str]) -> str:
    """Different values, each once, as they come."""
    return "; ".join(dict.fromkeys(values))


def meminfo(tree: Tree, key: str) -> int:
    """Bytes of one row of /proc/meminfo, or its count where the row has no unit."""
    text = tree.text("/proc/meminfo")
    row = re.search(rf"^{re.escape(key)}:\s+([0-9]{{1,12}})( kB)?$", text, re.MULTILINE | re.ASCII)
    if row is None:
        raise Unreadable(f"/proc/meminfo has no {key}")
    return int(row[1]) * (_KIB if row[2] else 1)


def _hexadecimal(text: str, source: str) -> int:
    if not re.fullmatch(r"(0x)?[0-9a-f]{1,16}", text, re.IGNORECASE | re.ASCII):
        raise Unreadable(f'{source} is damaged: "{text[:20]}" is no hexadecimal number')
    return int(text, 16)
