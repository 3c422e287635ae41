"""NVIDIA's devices, through the driver's management library (NVML) and the kernel's files.

A device that is divided (MIG) is not one device but its slices: each slice that can be seen from
here is a device of its own, with its own UUID, name, memory and compute units, while clocks,
power and errors are those of the whole part, which the slices share. A divided device of which
no slice can be seen is listed as a whole with its partition mode.

A machine without these devices is passed by in silence. One that has them, by its PCI functions
or its device files, and whose driver does not work is refused whatever vendor was selected: its
buyer must not be given an acceptance of its processors instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

from appliance.errors import UsageError
from appliance.linux import pci
from appliance.linux.sysfs import Tree, Unreadable, or_none
from appliance.records.system import Device, DeviceLibraries, Fact, Facts
from appliance.vendors import determinism
from appliance.vendors.base import DeviceUsers, KernelFault
from appliance.vendors.containers import CONTAINERS
from appliance.vendors.nvidia import xid
from appliance.vendors.nvidia.nvlink import End, Links, connections
from appliance.vendors.nvidia.nvml import (
    LOST,
    NO_VALUE,
    UNKNOWN_DEVICE,
    UNKNOWN_FORM,
    Handle,
    Library,
    Nvml,
    Place,
    Refusal,
    attempt,
)
from appliance.vendors.nvidia.nvml_absent import absent, capability, has_no_fans, without_links
from appliance.vendors.nvidia.nvml_facts import Questions, is_divided, slices
from appliance.vendors.nvidia.nvml_telemetry import (
    COUNTED,
    READ,
    Counts,
    Readings,
    counters,
    readings,
)
from appliance.vendors.torch_settings import choose_float32_products

Value = TypeVar("Value")

UNNAMED = "NVIDIA device that does not answer"
NO_DEVICE = "the driver works, and shows no device: was --gpus all given?"
NOT_OURS = 4
"""NO_PERMISSION for a handle: the device is not available to this container or user."""
PCI_VENDOR, DISPLAY = "0x10de", ("0x0300", "0x0302")
"""PCI vendor, and the classes of VGA and 3D controllers (PCI Code and ID Assignment)."""
FLOAT8, BFLOAT16, INT8 = (8, 9), (8, 0), (7, 2)
"""Compute capability from which on there are tensor cores for the format (CUDA C++ Programming
Guide, "Compute Capabilities"). TF32 came with bfloat16."""
JAX_PLUGINS = ("jax_cuda12_plugin", "jax_cuda13_plugin")


def most_absent(device: Device) -> frozenset[str]:
    """What such a part may be said not to have; whether it has fans is not among its facts."""
    return absent(device) | {"fan_fraction"}


class Cuda:
    """Vendor of NVIDIA's devices.

    `library` answers in place of pynvml, and `root` is where /sys and /dev are read.
    """

    name = "cuda"
    torch_type = "cuda"
    collectives = "nccl"
    fork_safe = True
    overlaps = True
    """Importing torch starts no CUDA, and a context is not inherited by a fork: only a process
    that started CUDA cannot be forked. `environment` keeps `torch.cuda.is_available`, which
    libraries call when they are imported, from starting it."""
    libraries = DeviceLibraries(
        onnx_provider="CUDAExecutionProvider",
        onnx_package="onnxruntime-gpu",
        jax_plugins=JAX_PLUGINS,
        jax_package='"jax[cuda13]"',
    )

    def __init__(self, library: Library | None = None, root: Path = Path("/")) -> None:
        self._nvml = Nvml(library)
        self._tree = Tree(root)
        self._places: dict[str, Place | Unreadable] = {}
        self.absence = ""
        """Why the last probe returned no device; for the message where this vendor was named."""

    def probe(self) -> tuple[Device, ...]:
        """Devices in the driver's order, which is that of their PCI addresses.

        Raises UsageError where a device is there and the driver does not work.
        """
        places = attempt(self._find_places)
        if isinstance(places, Unreadable) or not places:
            gap = places if isinstance(places, Unreadable) else Unreadable(NO_DEVICE)
            self._refuse_if_there(gap)
            self.absence = gap.hint
            return ()
        devices = self._devices(places)
        self._places = {_key(device): place for device, place in zip(devices, places, strict=True)}
        return devices

    def read(self, device: Device) -> Mapping[str, float | None]:
        """Telemetry of this moment; a few milliseconds."""
        return {name: _or_none(value) for name, value in self._readings(device).items()}

    def counters(self, device: Device) -> Mapping[str, int | None]:
        """Errors since the driver was loaded, and states that show a fault."""
        return {name: _or_none(value) for name, value in self._counters(device).items()}

    def users(self, device: Device) -> DeviceUsers:
        """Compute processes of the device, or of the slice alone; about a millisecond.

        nvmlDeviceGetComputeRunningProcesses (nvml.h, nvmlProcessInfo_t: usedGpuMemory in bytes).
        """
        try:
            own = self._place(device).own
            processes = self._nvml.ask("nvmlDeviceGetComputeRunningProcesses", own)
            used = [one.usedGpuMemory for one in processes]
        except Unreadable as gap:
            return DeviceUsers(count=None, hint=gap.hint or NO_VALUE)
        except (AttributeError, TypeError):
            return DeviceUsers(count=None, hint=UNKNOWN_FORM)
        return DeviceUsers(count=len(used), memory_bytes=None if None in used else sum(used))

    def hints(self, device: Device) -> Mapping[str, str]:
        """For each reading and counter without a value, why."""
        values = {**self._readings(device), **self._counters(device)}
        return {name: gap.hint for name, gap in values.items() if isinstance(gap, Unreadable)}

    def absent(self, device: Device) -> frozenset[str]:
        """What this part cannot have: links of a card without, pages of one that replaces rows."""
        place = or_none(lambda: self._place(device))
        fans = {"fan_fraction"} if place and has_no_fans(self._nvml, place.whole) else set()
        return absent(device) | fans

    def kernel_fault(self, line: str, devices: Sequence[Device]) -> KernelFault | None:
        """An Xid of a device or an SXid of a switch."""
        return xid.fault(line, devices)

    def environment(self, *devices: Device) -> Mapping[str, str]:
        """Only these devices, by UUID, in this order, and settings of the libraries in a child.

        A device without UUID does not answer: -1 hides all, so that its case fails and none
        runs elsewhere.
        """
        uuids = (device.facts["uuid"].value for device in devices)
        return {
            "CUDA_VISIBLE_DEVICES": ",".join("-1" if uuid is None else str(uuid) for uuid in uuids),
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # else the fastest comes first
            # Asks NVML whether there is a device, so that what is imported starts no CUDA.
            "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
            "NCCL_SOCKET_IFNAME": "lo",  # processes of a launch meet there; there may be no other
        }

    def deterministic_environment(self) -> Mapping[str, str]:
        """A fixed workspace of cuBLAS, and what XLA needs.

        cuBLAS gives the same bits on several streams only with a workspace of fixed size (cuBLAS
        documentation, "Results reproducibility"; PyTorch, "Reproducibility"): eight buffers of
        4 MiB.
        """
        return {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", **determinism.XLA}

    def onnx_providers(self) -> tuple[str, ...]:
        """NVIDIA's, then the processors for operators that it lacks."""
        return ("CUDAExecutionProvider", "CPUExecutionProvider")

    def onnx_options(self, dtype: str) -> Mapping[str, str]:  # noqa: ARG002 - the protocol's
        """Nothing: its defaults are right."""
        return {}

    def features(self, device: Device) -> frozenset[str]:
        """Number formats by compute capability, and JAX if its plugin for CUDA is installed."""
        compute_capability = capability(device)
        names = {"float64", "float32", "float16"}
        if compute_capability >= INT8:
            names |= {"int8"}
        if compute_capability >= BFLOAT16:
            names |= {"bfloat16", "tf32"}
        if compute_capability >= FLOAT8:
            names |= {"float8"}
        if find_spec("jax") and any(map(find_spec, JAX_PLUGINS)):
            names |= {"jax"}
        return frozenset(names)

    def prepare(self) -> None:
        """Switch TF32 off, which cuDNN has on by default."""
        choose_float32_products(self.torch_type, in_tf32=False)

    def container_options(self) -> Mapping[str, object]:
        """The devices by their CDI name, or as the older runtime wants them."""
        return CONTAINERS[self.name].options()

    def _find_places(self) -> tuple[Place | Unreadable, ...]:
        """Every device or slice that is ours; for one without a handle, why. Raises Unreadable."""
        places: list[Place | Unreadable] = []
        refused: Refusal | None = None
        for index in range(self._nvml.whole("nvmlDeviceGetCount")):
            try:
                whole = self._nvml.ask("nvmlDeviceGetHandleByIndex", index)
            except Refusal as gap:
                # One that is not ours is none of our business, unless all are.
                if gap.code == NOT_OURS:
                    refused = gap
                else:
                    places.append(gap)
            else:
                places.extend(self._divided(whole))
        if refused is not None and not places:
            raise refused
        return tuple(places)

    def _divided(self, whole: Handle) -> Iterator[Place]:
        parts: tuple[Handle, ...] = ()
        if or_none(lambda: is_divided(self._nvml, whole)):
            parts = or_none(lambda: slices(self._nvml, whole)) or ()
        yield from (Place(whole, part) for part in parts or (None,))

    def _refuse_if_there(self, gap: Unreadable) -> None:
        """Raise UsageError if the machine shows a device all the same."""
        seen = pci.functions(self._tree, PCI_VENDOR, *DISPLAY)
        traces = (*(one.address for one in seen), *self._device_files())
        if traces:
            raise UsageError(
                f"an NVIDIA device is here ({traces[0]}) and cannot be used: {gap.hint}; to test "
                "the processors alone, select the vendor cpu"
            )

    def _device_files(self) -> tuple[str, ...]:
        names = or_none(lambda: self._tree.names("/dev", r"nvidia(ctl|[0-9]+)")) or ()
        return tuple(f"/dev/{name}" for name in names)

    def _devices(self, places: Sequence[Place | Unreadable]) -> tuple[Device, ...]:
        ends = [
            End(number, place.whole, or_none(self._questions(place).address) or "")
            for number, place in enumerate(places)
            if isinstance(place, Place) and place.slice is None
        ]
        ways = connections(self._nvml, ends)
        return tuple(
            self._device(number, place, ways.get(number, {})) for number, place in enumerate(places)
        )

    def _device(self, number: int, place: Place | Unreadable, ways: Facts) -> Device:
        if isinstance(place, Unreadable):
            facts: Facts = {"uuid": Fact(value=None, source="NVML", hint=place.hint)}
            return self._record(number, UNNAMED, facts, None, None)
        ask = self._questions(place)
        facts = {**ask.facts(), **Links(self._nvml, place.whole).facts(), **ways}
        uuid = facts["uuid"].value
        serial = None if uuid is None else str(uuid)
        if place.slice is None:
            serial = or_none(ask.serial) or serial
        model = or_none(ask.model) or UNNAMED
        return without_links(self._record(number, model, facts, serial, or_none(ask.memory)))

    def _record(
        self, number: int, model: str, facts: Facts, serial: str | None, memory: int | None
    ) -> Device:
        return Device(
            id=f"{self.name}:{number}",
            vendor=self.name,
            index=number,
            model=model,
            serial=serial,
            memory_bytes=memory,
            facts=facts,
        )

    def _questions(self, place: Place) -> Questions:
        return Questions(self._nvml, self._tree, place)

    def _place(self, device: Device) -> Place:
        """Where a device is queried, also one that another process probed. Raises Unreadable."""
        key = _key(device)
        if key not in self._places:
            if key == device.id:
                raise Unreadable(device.facts["uuid"].hint)
            self._places[key] = self._place_of(key)
        place = self._places[key]
        if isinstance(place, Unreadable):
            raise place
        return place

    def _place_of(self, uuid: str) -> Place:
        own = self._nvml.ask("nvmlDeviceGetHandleByUUID", uuid)
        if not uuid.startswith("MIG-"):
            return Place(own)
        return Place(self._nvml.ask("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", own), own)

    def _readings(self, device: Device) -> Readings:
        try:
            values = readings(self._nvml, self._place(device))
        except Unreadable as gap:
            return dict.fromkeys(READ, gap)
        lost = _lost(values)
        return dict.fromkeys(READ, lost) if lost else values

    def _counters(self, device: Device) -> Counts:
        try:
            values = counters(self._nvml, self._tree, self._place(device), device)
        except Unreadable as gap:
            is_gone = isinstance(gap, Refusal) and gap.code in LOST | UNKNOWN_DEVICE
            return {**dict.fromkeys(COUNTED, gap), "lost": 1 if is_gone else gap}
        lost = _lost(values)
        return {**dict.fromkeys(COUNTED, lost), "lost": 1} if lost else values


def _key(device: Device) -> str:
    """The UUID, which names the device for other processes, too; else the id."""
    uuid = device.facts["uuid"].value
    return device.id if uuid is None else str(uuid)


def _lost(values: Mapping[str, object]) -> Refusal | None:
    """The refusal of a device that does not answer any more."""
    gaps = (gap for gap in values.values() if isinstance(gap, Refusal))
    return next((gap for gap in gaps if gap.is_lost), None)


def _or_none(value: Value | Unreadable) -> Value | None:
    return None if isinstance(value, Unreadable) else value
