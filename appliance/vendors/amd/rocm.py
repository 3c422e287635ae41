"""AMD's devices: through the Python library amdsmi, else the tool amd-smi, and the kernel's files.

A device is what programs see as one. A module of the MI250 and MI250X is two devices, one per
die. An MI300X that is divided (DPX, QPX, CPX) is as many devices as it has partitions: each is
planned, timed and judged by itself, and its model says which part of what it is, so that the
figures and baselines of the whole module are never held against it. Power, errors and links are
those of the module, which its partitions share.

A machine without these devices is passed by in silence. One that has them on its bus, and where
nothing can read them, is refused: its buyer must not be given an acceptance of its processors.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from appliance.errors import UsageError
from appliance.linux.fact_reader import fact, value_of
from appliance.linux.sysfs import Tree, Unreadable, or_none
from appliance.records.system import Device, DeviceLibraries, Fact, Facts
from appliance.records.vocabulary import CONNECTION, COUNTERS, FACTS, READINGS
from appliance.vendors import determinism
from appliance.vendors.amd import absent as amd_absent
from appliance.vendors.amd import amdsmi_calls, faults, kfd, smi_tool
from appliance.vendors.amd.amdsmi_library import Library
from appliance.vendors.amd.bus import Place, accelerators
from appliance.vendors.amd.smi_tool import CommandLine, Tool
from appliance.vendors.amd.values import NOT_REPORTED, Query, Readers, Source, Unit
from appliance.vendors.base import DeviceUsers, KernelFault
from appliance.vendors.containers import CONTAINERS
from appliance.vendors.torch_settings import choose_float32_products

UNKNOWN_MODEL = "unknown AMD device"
GONE = "the device does not answer any more: look at the kernel's log, and reset or replace it"
NO_SUCH = "AMD's devices have no such thing"
NO_WORD = "AMD's library and tool do not report it"
FAULTS = (AttributeError, KeyError, IndexError, TypeError, ValueError, ArithmeticError)
"""What an answer of another form than documented ends in; it is a gap like any other."""
MODES = ("persistence_mode", "compute_mode", "confidential_mode", "ecc_mode_pending")
"""Facts of other vendors' drivers: amdgpu stays loaded, and has no such setting."""
BASE = frozenset(("float64", "float32", "float16", "bfloat16", "int8"))
FORMATS: Mapping[str, frozenset[str]] = {
    "gfx90a": BASE,
    "gfx942": BASE | {"tf32"},
    "gfx950": BASE | {"float8"},
}
"""Number formats by the compiler's target. CDNA 3 (gfx942) has xf32, and of float8 the "fnuz"
kinds alone, which are not torch.float8_e4m3fn; CDNA 4 (gfx950) has that one and no xf32 ("AMD CDNA
3" and "AMD Instinct CDNA 4 Instruction Set Architecture"; ROCm documentation, "Data types and
precision support")."""
TWO_DIES = re.compile(r"\bMI250X?\b")
"""Modules of two dies, each a device of its own ("AMD CDNA 2 Architecture")."""
DIE = "one of 2 dies of a module"
JAX_PLUGINS = ("jax_rocm7_plugin", "jax_rocm10_plugin", "jax_rocm60_plugin")


most_absent = amd_absent.absent
"""What such a part may be said not to have."""


class Rocm:
    """Vendor of AMD's devices.

    `library` answers in place of amdsmi and `tool` in place of amd-smi; `root` is where /sys is.
    """

    name = "rocm"
    torch_type = "cuda"
    collectives = "nccl"
    fork_safe = False
    overlaps = True
    """No document says that a process forked after the runtime's libraries are loaded works."""
    libraries = DeviceLibraries(
        onnx_provider="MIGraphXExecutionProvider",
        onnx_package="onnxruntime-ep-migraphx",
        onnx_plugin="onnxruntime_ep_migraphx",
        jax_plugins=JAX_PLUGINS,
        jax_package="jax_rocm10_plugin",
    )

    def __init__(
        self,
        root: Path = Path("/"),
        library: Any | None = None,
        tool: Tool | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tree = Tree(root)
        self._library = library
        self._tool = tool
        self._clock = clock
        self._source: Source | None = None

    # ---------------------------------------------------------------- what is there

    def probe(self) -> tuple[Device, ...]:
        """Devices in the order that programs know them by, else in that of their source.

        Raises UsageError if there are some on the bus and nothing can read them.
        """
        seen = accelerators(self._tree)
        if not seen and self._library is None and self._tool is None:
            return ()
        try:
            units = self._ready().units()
        except Unreadable as gap:
            return self._refused(seen, gap.hint)
        if not units:
            return self._refused(seen, "its driver shows it to nobody: is amdgpu loaded?")
        ordered = sorted(units, key=_order(units))
        return tuple(self._device(index, unit, ordered) for index, unit in enumerate(ordered))

    def _refused(self, seen: Sequence[str], why: str) -> tuple[Device, ...]:
        if not seen:
            return ()
        raise UsageError(
            f"an AMD accelerator is here ({seen[0]}) and cannot be read: {why}; in a container "
            "give --device /dev/kfd and --device /dev/dri; to test the processors "
            "alone, select the vendor cpu"
        )

    def _ready(self) -> Source:
        """The library, else the tool. Raises Unreadable, saying what would be needed."""
        if self._source is None:
            self._source = self._open_source()
        return self._source

    def _open_source(self) -> Source:
        if self._library is not None:
            return Library(self._library)
        if self._tool is not None:
            return CommandLine(self._tool, self._clock)
        if not self._tree.is_live:
            raise Unreadable(amdsmi_calls.NO_LIBRARY)
        try:
            return Library(amdsmi_calls.load())
        except Unreadable as gap:
            source = CommandLine(smi_tool.run, self._clock)
            try:
                source.units()
            except Unreadable as other:
                raise Unreadable(f"{gap.hint}, and {other.hint}") from None
            return source

    def _device(self, index: int, unit: Unit, units: Sequence[Unit]) -> Device:
        place = Place(self._tree, unit.address)
        queries = {
            **unit.queries,
            "pci_address": Query(lambda: unit.address, self._ready().name),
            "partitions": Query(lambda: _divided(unit, units), "devices by address"),
        }
        facts: Facts = {
            **{name: self._fact(name, queries, place.queries()) for name in FACTS},
            **self._connections(index, units),
        }
        memory = facts["memory"].value
        serial = _as_fact(unit.serial).value
        return Device(
            id=f"{self.name}:{index}",
            vendor=self.name,
            index=index,
            model=_model(unit, units, facts),
            serial=None if serial is None else str(serial),
            memory_bytes=memory if isinstance(memory, int) else None,
            facts=facts,
        )

    def _fact(self, name: str, queries: Mapping[str, Query], bus: Mapping[str, Query]) -> Fact:
        """A fact of the source, else of the bus; with the reason where neither reports it."""
        candidates = [
            _as_fact(query) for query in (queries.get(name), bus.get(name)) if query is not None
        ]
        reported = next((one for one in candidates if one.value is not None), None)
        if reported is not None:
            return reported
        if candidates:
            return candidates[0]
        hint = NO_SUCH if name in MODES else NO_WORD
        return Fact(value=None, source=self._ready().name, hint=hint)

    def _connections(self, index: int, units: Sequence[Unit]) -> Facts:
        own = units[index]
        facts: dict[str, Fact] = {}
        for number, other in enumerate(units):
            if number == index:
                continue
            ways = Query(
                lambda other=other: self._way(own, other),  # type: ignore[misc]
                f"{self._ready().name}, /sys",
            )
            facts[f"{CONNECTION}{number}"] = _as_fact(ways)
        return facts

    def _way(self, own: Unit, other: Unit) -> str:
        """The vendor's links, else the way over the host."""
        mine, theirs = (Place(self._tree, unit.address) for unit in (own, other))
        if _module(own) == _module(other):
            return "same module"
        links = or_none(lambda: self._ready().connection(own.address, other.address))
        return links if links is not None else mine.way(theirs)

    # ---------------------------------------------------------------- how it does

    def read(self, device: Device) -> Mapping[str, float | None]:
        """Telemetry of one moment: about three calls of the library, or the tool every 5 s."""
        return {name: _value(read) for name, read in self._readings(device).items()}

    def counters(self, device: Device) -> Mapping[str, int | None]:
        """Errors since the driver was loaded, retired pages, and PCIe's errors."""
        counts = {name: _value(read) for name, read in self._counters(device).items()}
        return {name: None if value is None else int(value) for name, value in counts.items()}

    def users(self, device: Device) -> DeviceUsers:
        """Compute processes of the device, by the kernel's compute driver."""
        try:
            return kfd.users(self._tree, _address(device))
        except (Unreadable, *FAULTS) as gap:
            return DeviceUsers(count=None, hint=getattr(gap, "hint", "") or NOT_REPORTED)

    def hints(self, device: Device) -> Mapping[str, str]:
        """Why a reading or a counter is None now."""
        is_lost = _value(self._counters(device)["lost"]) == 1
        readers = {**self._readings(device), **self._counters(device)}
        gaps = {name: _gap(read) for name, read in readers.items()}
        return {name: GONE if is_lost else gap for name, gap in gaps.items() if gap is not None}

    def absent(self, device: Device) -> frozenset[str]:
        """Counters and readings that the device cannot have."""
        return amd_absent.absent(device)

    def kernel_fault(self, line: str, devices: Sequence[Device]) -> KernelFault | None:
        """A fault that the driver amdgpu wrote into the kernel's log."""
        return faults.fault(line, devices)

    def _readings(self, device: Device) -> Readers:
        address = _address(device)
        readers = self._from_source(lambda source: source.readings(address))
        return _merged(READINGS, readers, Place(self._tree, address).readings())

    def _counters(self, device: Device) -> Readers:
        address = _address(device)
        place = Place(self._tree, address)
        readers = self._from_source(lambda source: source.counters(address))
        return {
            **_merged(COUNTERS, readers, place.counters()),
            "lost": lambda: self._lost(place, address),
        }

    def _from_source(self, ask: Callable[[Source], Readers]) -> Readers:
        source = or_none(self._ready)
        return {} if source is None else ask(source)

    def _lost(self, place: Place, address: str) -> float | None:
        """1 if the bus or the source has lost it, 0 if it answers, None if neither can say."""
        if place.is_gone:
            return 1.0
        answers = self._ready().answers(address)
        return None if answers is None else float(not answers)

    # ---------------------------------------------------------------- how it is used

    def environment(self, *devices: Device) -> Mapping[str, str]:
        """Only these devices, in this order, and settings of the libraries in a child.

        ROCR_VISIBLE_DEVICES works below HIP, so that ONNX Runtime and JAX see the same, and takes
        UUIDs, which hold whatever the order ("GPU isolation techniques", ROCm documentation);
        numbers stand in where a UUID is not reported, or is shared, as partitions did before ROCm
        7.0. The other variables count within what is left: they name all of it, in order, so that
        none which the parent has takes a device away.
        """
        uuids = [str(device.facts["uuid"].value) for device in devices if "uuid" in device.facts]
        are_unique = len(set(uuids)) == len(devices)
        are_known = are_unique and all(uuid.startswith("GPU-") for uuid in uuids)
        visible = uuids if are_known else [str(device.index) for device in devices]
        rest = ",".join(map(str, range(len(devices))))
        return {
            "ROCR_VISIBLE_DEVICES": ",".join(visible),
            "HIP_VISIBLE_DEVICES": rest,
            "CUDA_VISIBLE_DEVICES": rest,
            "GPU_DEVICE_ORDINAL": rest,
            # Some releases of torch heed their own switch for TF32 only if this is set
            # (aten/src/ATen/Context.cpp); `prepare` turns that switch off.
            "HIPBLASLT_ALLOW_TF32": "1",
            "NCCL_SOCKET_IFNAME": "lo",  # processes of a launch meet there; there may be no other
        }

    def deterministic_environment(self) -> Mapping[str, str]:
        """What XLA needs; torch itself has hipBLAS do without atomics (CublasHandlePool.cpp)."""
        return determinism.XLA

    def onnx_providers(self) -> tuple[str, ...]:
        """AMD's graph compiler, then the processors for operators that it lacks.

        The ROCm provider was removed with ONNX Runtime 1.23 (microsoft/onnxruntime, 25181).
        """
        return ("MIGraphXExecutionProvider", "CPUExecutionProvider")

    def onnx_options(self, dtype: str) -> Mapping[str, str]:  # noqa: ARG002 - the protocol's
        """Nothing: its defaults are right."""
        return {}

    def features(self, device: Device) -> frozenset[str]:
        """Number formats by the compiler's target, and JAX if its plugin for ROCm is installed."""
        target = str(value_of(device.facts, "architecture")).partition(":")[0]
        formats = FORMATS.get(target, BASE)
        has_jax = find_spec("jax") and any(map(find_spec, JAX_PLUGINS))
        return formats | (frozenset({"jax"}) if has_jax else frozenset())

    def prepare(self) -> None:
        """Switch TF32 off, which torch has on by default for convolutions.

        ONNX Runtime loads no plugin by itself, so AMD's is registered where it is installed.
        """
        choose_float32_products(self.torch_type, in_tf32=False)
        if find_spec("onnxruntime_ep_migraphx"):
            _register_plugin()

    def container_options(self) -> Mapping[str, object]:
        """The devices by their CDI name, or their nodes with the groups that may open them."""
        return CONTAINERS[self.name].options()


def _register_plugin() -> None:
    """Names of the package and its functions: AMD, "ONNX Runtime", the page in Dockerfile.rocm."""
    import onnxruntime  # noqa: PLC0415 - in the worker only
    import onnxruntime_ep_migraphx as plugin  # noqa: PLC0415 - where it is installed

    for name, path in zip(plugin.get_ep_names(), plugin.get_library_paths(), strict=True):
        onnxruntime.register_execution_provider_library(name, str(path))


def _merged(names: Mapping[str, object], readers: Readers, bus: Readers) -> Readers:
    """For every name the way to its value: of the source, else of the bus."""

    def read(name: str) -> float | None:
        ways = [way for way in (readers.get(name), bus.get(name)) if way is not None]
        gaps: list[Unreadable] = []
        for way in ways:
            try:
                value = way()
            except Unreadable as gap:
                gaps.append(gap)
            else:
                if value is not None:
                    return value
        hint = next((gap.hint for gap in gaps if gap.hint), NOT_REPORTED if ways else NO_WORD)
        raise Unreadable(NO_SUCH if name in amd_absent.NO_QUESTION else hint)

    def way(name: str) -> Callable[[], float | None]:
        return lambda: read(name)

    return {name: way(name) for name in names}


def _value(read: Callable[[], float | None]) -> float | None:
    try:
        return read()
    except (Unreadable, *FAULTS):
        return None


def _gap(read: Callable[[], float | None]) -> str | None:
    """Why there is no value; None if there is one."""
    try:
        return None if read() is not None else NOT_REPORTED
    except Unreadable as gap:
        return gap.hint or NOT_REPORTED
    except FAULTS:
        return NOT_REPORTED


def _as_fact(query: Query) -> Fact:
    try:
        return fact(query.read, source=query.source, unit=query.unit, absent=NOT_REPORTED)
    except FAULTS:
        return Fact(value=None, unit=query.unit, source=query.source, hint=NOT_REPORTED)


def _order(units: Sequence[Unit]) -> Callable[[Unit], int]:
    """By the numbers of programs where each device has one of its own."""
    numbers = {unit.order for unit in units}
    is_ordered = None not in numbers and len(numbers) == len(units)
    places = {id(unit): index for index, unit in enumerate(units)}
    return lambda unit: unit.order if is_ordered and unit.order is not None else places[id(unit)]


def _module(unit: Unit) -> str:
    """What the partitions of one device have in common: its address without their number."""
    return unit.address.rpartition(".")[0]


def _parts(unit: Unit, units: Sequence[Unit]) -> int:
    """How many devices its module is divided into."""
    return sum(_module(one) == _module(unit) for one in units)


def _divided(unit: Unit, units: Sequence[Unit]) -> str:
    parts = _parts(unit, units)
    if parts > 1:
        return f"{parts} partitions"
    return DIE if TWO_DIES.search(str(_as_fact(unit.model).value)) else "none"


def _model(unit: Unit, units: Sequence[Unit], facts: Facts) -> str:
    """The name of the whole; of a part also of what kind, so that it is compared with its like."""
    name = _as_fact(unit.model).value
    model = UNKNOWN_MODEL if name is None else str(name)
    parts, mode = _parts(unit, units), facts["partition_mode"].value
    if mode in (None, "none") and parts == 1:
        return model
    if mode in (None, "none"):
        return f"{model}, one of {parts} partitions"
    return f"{model}, one {mode} partition"


def _address(device: Device) -> str:
    """The address by which the source knows a device; a partition's number is its last digit."""
    return str(value_of(device.facts, "pci_address") or "")
