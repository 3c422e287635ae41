"""Intel's graphics cards: Data Center GPU Max and Flex, and Arc.

Facts and telemetry come from the kernel drivers i915 and xe in /sys (kernel.py), and what those
do not report from Intel's tool xpu-smi where it is installed (tool.py). Graphics inside a
processor are no accelerator and never appear; cards.py says how they are distinguished. torch is
imported by `prepare` alone, which the worker calls.

One device is one card. A Max card has two tiles, which Level Zero can show as one device or as two
(ZE_FLAT_DEVICE_HIERARCHY, COMPOSITE or FLAT, the latter being its default). Here it is always
COMPOSITE: the card is what was bought, has one serial number, one power limit and one slot, and the
vendor's figures are those of the whole card.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from appliance.errors import UsageError
from appliance.linux.drm_clients import clients
from appliance.linux.fact_reader import value_of
from appliance.linux.pci import errors_of
from appliance.linux.sysfs import Tree, Unreadable, or_none
from appliance.records.system import Device, DeviceLibraries, Fact
from appliance.records.vocabulary import COUNTERS, READINGS, THROTTLES
from appliance.vendors.base import DeviceUsers, KernelFault
from appliance.vendors.containers import CONTAINERS
from appliance.vendors.intel import log, software
from appliance.vendors.intel import tool as xpu_tool
from appliance.vendors.intel.cards import XE_HPC, Card, graphics
from appliance.vendors.intel.facts import NOT_REPORTED, facts, memory_bytes, serial, uuid
from appliance.vendors.intel.kernel import Kernel
from appliance.vendors.intel.tool import Answers, Tool
from appliance.vendors.torch_settings import choose_float32_products

Read = Callable[[], float]
Count = Callable[[], int]

RAS = "XPUM_STATS_RAS_ERROR_CAT"
"""Beginning of the tool's names of error counts (core/include/xpum_structs.h)."""
GONE = "the card does not answer any more: look at the kernel's log and reset or replace it"
FIRST = "power is the growth of the energy counter: it has a value from the second reading on"
ONLY_TOOL = "only xpu-smi reports it, and starting that would disturb the case that is timed"
ALL_INSIDE = "graphics inside a processor is no accelerator, and there is no other of Intel's"
NO_CARD = "no graphics card of Intel's is on the bus"
NO_SPEED = "the driver reports revolutions, and nothing reports the highest: no share can be stated"
PRECISIONS = {"float32": "FP32", "float16": "FP16"}
"""What OpenVINO's provider calls number formats; "ACCURACY" is the graph's own, whatever it is."""
CACHE_SECONDS = 20.0
"""How long an answer of the tool on errors and health is taken as current.

Counts are wanted before and after every launch, and the tool takes seconds for each card. What the
kernel driver counts is read anew each time.
"""
SHORTEST_SECONDS = 0.05
"""Between two readings of the energy counter; nearer ones show its steps, not the power."""
READ_WRITE = os.R_OK | os.W_OK


class Xpu:
    """Vendor of Intel's cards. `root`, `tool`, `may_open` and `clock` stand in for the machine."""

    name = "xpu"
    torch_type = "xpu"
    collectives = "xccl"
    fork_safe = False  # nothing of Intel says that a context survives a fork
    overlaps = True
    libraries = DeviceLibraries(
        onnx_provider="OpenVINOExecutionProvider",
        onnx_package="onnxruntime-openvino",
        jax_plugins=("intel_extension_for_openxla",),
        jax_package="intel-extension-for-openxla",
        ranges={"torch": "==2.8.0"},  # the newest torch that Intel's extension was released for
    )

    def __init__(
        self,
        root: Path = Path("/"),
        tool: Tool = xpu_tool.run,
        *,
        may_open: Callable[[Path], bool] = lambda path: os.access(path, READ_WRITE),
        clock: Callable[[], float] = time.monotonic,
        version: software.Version = metadata.version,
    ) -> None:
        self._tree = Tree(root)
        self._tool = tool
        self._may_open = may_open
        self._clock = clock
        self._version = version
        self._energy: dict[str, tuple[float, float]] = {}
        self._answers, self._answered = Answers(tool), clock()
        self.absence = ""
        """Why the last probe returned no device; for the message where this vendor was named."""

    def probe(self) -> tuple[Device, ...]:
        """The cards that can be used, in the order of their PCI addresses.

        Raises UsageError if there are cards and none of them can be used, which must not end in
        a run on the processors, and if torch and Intel's extension do not belong together.
        """
        cards = self._cards()
        if not cards:
            self.absence = ALL_INSIDE if graphics(self._tree) else NO_CARD
            return ()
        software.require_a_pair(self._version)
        answers = self._fresh(0.0)
        numbered = list(enumerate(cards))
        return tuple(
            self._device(number, card, [one for one in numbered if one[1] != card], answers)
            for number, card in numbered
        )

    def read(self, device: Device) -> Mapping[str, float | None]:
        """Telemetry from the kernel alone, about 20 small files for each tile."""
        card = self._card(device)
        if card is None or card.is_lost:
            return dict.fromkeys(READINGS)
        readings = {name: or_none(read) for name, read in self._readings(card).items()}
        readings["power_watts"] = or_none(lambda: self._power(card))
        reasons = or_none(Kernel(self._tree, card).throttles) or {}
        throttled = {f"throttled_{name}": reasons.get(name) for name in THROTTLES}
        return {name: {**readings, **throttled}.get(name) for name in READINGS}

    def counters(self, device: Device) -> Mapping[str, int | None]:
        """Error counts of the kernel driver, of PCIe and of xpu-smi, which may take seconds."""
        card = self._card(device)
        if card is None or card.is_lost:
            return {**dict.fromkeys(COUNTERS), "lost": 1}
        counts = self._counts(card)
        return {name: or_none(counts[name]) if name in counts else None for name in COUNTERS}

    def users(self, device: Device) -> DeviceUsers:
        """Processes that have the card open, by what the kernel says of their open files."""
        card = self._card(device)
        if card is None or card.is_lost:
            return DeviceUsers(count=None, hint=GONE)
        try:
            seen = clients(self._tree, card.function.address)
        except Unreadable as gap:
            return DeviceUsers(count=None, hint=gap.hint or NOT_REPORTED)
        return DeviceUsers(count=len(seen.processes), memory_bytes=seen.memory_bytes)

    def hints(self, device: Device) -> Mapping[str, str]:
        """Why a reading or a count is None now."""
        card = self._card(device)
        if card is None or card.is_lost:
            gone = [*READINGS, *(name for name in COUNTERS if name != "lost")]
            return dict.fromkeys(gone, GONE)
        kernel = Kernel(self._tree, card)
        readers: dict[str, Callable[[], object]] = {
            **{name: partial(_nothing, NOT_REPORTED) for name in (*READINGS, *COUNTERS)},
            **self._readings(card),
            **self._counts(card),
            **{f"throttled_{name}": kernel.throttles for name in THROTTLES},
            "power_watts": kernel.energy,
        }
        reasons = {name: reason for name, ask in readers.items() if (reason := _reason(ask))}
        if "power_watts" not in reasons and card.function.address not in self._energy:
            reasons["power_watts"] = FIRST
        return reasons

    def absent(self, device: Device) -> frozenset[str]:
        """What nothing here reports, links where the design has none, fans of modules without.

        Arc and Flex have no Xe Link; Max modules and cards have no fan of their own (Intel,
        "Data Center GPU Max Series Technical Overview").
        """
        card = self._card(device)
        if card is None:
            return frozenset()
        readable = {*self._readings(card), *self._counts(card), "power_watts"}
        readable |= {f"throttled_{name}" for name in THROTTLES}
        never = frozenset({*READINGS, *COUNTERS} - readable)
        links = frozenset(name for name in COUNTERS if name.startswith("link"))
        fans = frozenset({"fan_fraction"}) if card.design == XE_HPC else frozenset()
        return never | fans | (frozenset() if card.design.has_links else links)

    def kernel_fault(self, line: str, devices: Sequence[Device]) -> KernelFault | None:
        """What i915 or xe wrote of one of the devices."""
        return log.fault(line, devices)

    def environment(self, *devices: Device) -> Mapping[str, str]:
        """What shows a child these cards alone.

        ZE_AFFINITY_MASK counts the devices that Level Zero finds, so they are put in the order of
        their PCI addresses first (ZE_ENABLE_PCI_ID_DEVICE_ORDER; without it, the order is the
        driver's choice), and graphics inside a processor are counted along if their node can be
        opened. ONEAPI_DEVICE_SELECTOR works on what the mask leaves and numbers it anew: one that
        the user has set for the whole node (level_zero:3) would leave nothing, and OpenCL would
        show every card a second time, so it is set to all that the mask leaves. The mask is a set:
        cards are always seen in the order of their addresses, and another order is refused.
        """
        fixed = {
            "ZE_ENABLE_PCI_ID_DEVICE_ORDER": "1",
            "ZE_FLAT_DEVICE_HIERARCHY": "COMPOSITE",
            "ONEAPI_DEVICE_SELECTOR": "level_zero:gpu",
            xpu_tool.SILENT: "silent",
        }
        if not devices:
            return fixed
        numbers = [self._level_zero_number(device) for device in devices]
        if numbers != sorted(numbers):
            raise UsageError(
                f"{', '.join(device.id for device in devices)}: these devices are always seen in "
                "the order of their PCI addresses; name them in ascending order"
            )
        return {**fixed, "ZE_AFFINITY_MASK": ",".join(map(str, numbers))}

    def deterministic_environment(self) -> Mapping[str, str]:
        """Nothing: torch sets oneDNN's attribute `deterministic` itself, and reads no variable."""
        return {}

    def onnx_providers(self) -> tuple[str, ...]:
        """OpenVINO, which has the kernels for these cards, before the processors."""
        return ("OpenVINOExecutionProvider", "CPUExecutionProvider")

    def onnx_options(self, dtype: str) -> Mapping[str, str]:
        """The card, and the graph's own format.

        OpenVINO computes on the processors where it is not given a device, under the name of the
        same provider (ONNX Runtime 1.24.1: seen here), and on a card makes float32 graphs in
        float16 unasked (openvino, pull request 14752). The keys are those of ONNX Runtime's own
        documentation, "OpenVINO Execution Provider"; the driver heeds ZE_AFFINITY_MASK for OpenCL,
        too, so that the first card is the one of this launch (intel/compute-runtime,
        shared/source/os_interface/device_factory.cpp).
        """
        return {"device_type": "GPU", "precision": PRECISIONS.get(dtype, "ACCURACY")}

    def features(self, device: Device) -> frozenset[str]:
        """Formats that the design has units for, and JAX with Intel's plug-in for it.

        float64 that software imitates (Arc A, Flex) is not there: a case would measure that. Nor is
        int8 with a torch that cannot multiply it there.
        """
        card = self._card(device)
        formats = frozenset() if card is None else card.design.formats
        if not software.has_integer_products(self._version):
            formats -= {"int8"}
        has_jax = find_spec("jax") and software.is_installed(
            "intel-extension-for-openxla", self._version
        )
        return formats | ({"jax"} if has_jax else frozenset())

    def prepare(self) -> None:
        """Import Intel's extension if it is there, and have float32 computed as float32."""
        software.require_a_pair(self._version)
        if software.is_installed(software.EXTENSION, self._version):
            import intel_extension_for_pytorch  # type: ignore[import-not-found]  # noqa: F401, PLC0415
        choose_float32_products(self.torch_type, in_tf32=False)

    def container_options(self) -> Mapping[str, object]:
        """By the container device interface, or by the nodes and their group."""
        return CONTAINERS[self.name].options()

    # ------------------------------------------------------------------ cards

    def _cards(self) -> list[Card]:
        """Cards that can be used. Raises UsageError if there are some and none can be."""
        discrete = [card for card in graphics(self._tree) if card.is_discrete]
        gaps = {card: self._gap(card) for card in discrete}
        usable = [card for card in discrete if not gaps[card]]
        reasons = [gap for gap in gaps.values() if gap]
        if reasons and not usable and not all(map(self._is_given_away, discrete)):
            raise UsageError(f"{reasons[0]}; --vendor cpu runs without it")
        return usable

    def _is_given_away(self, card: Card) -> bool:
        """Another driver than Intel's has it, as one that hands it to a virtual machine."""
        return or_none(card.function.driver) is not None and or_none(card.driver) is None

    def _gap(self, card: Card) -> str:
        """Why a card cannot be used, with the fix; empty if it can be."""
        title = f"{card.model} at {card.function.address}"
        if or_none(card.driver) is None:
            return f"{title} has no Intel driver: load it (modprobe xe, or i915 for older cards)"
        node = or_none(card.node)
        if node is None or not self._tree.exists(node):
            return f"{title} has no render node here: was --device /dev/dri given?"
        if not self._may_open(self._tree.path(node)):
            return (
                f"{title} may not be used: {node} cannot be opened; join its group (render), or "
                "give the container that group (--group-add)"
            )
        return ""

    def _device(
        self, number: int, card: Card, others: Sequence[tuple[int, Card]], answers: Answers
    ) -> Device:
        name = card.function.address
        own: Mapping[str, Fact] = facts(card, others, self._tree, answers)
        return Device(
            id=f"{self.name}:{number}",
            vendor=self.name,
            index=number,
            model=card.model,
            serial=or_none(lambda: serial(answers, name)) or or_none(lambda: uuid(answers, name)),
            memory_bytes=or_none(lambda: memory_bytes(card, answers)),
            facts=own,
        )

    def _card(self, device: Device) -> Card | None:
        """The card of a device of an earlier probe; None if it is gone from the bus."""
        wanted = value_of(device.facts, "pci_address")
        return next(
            (card for card in graphics(self._tree) if card.function.address == wanted), None
        )

    def _fresh(self, seconds: float) -> Answers:
        """The tool's answers, none older than this."""
        if self._clock() - self._answered >= seconds:
            self._answers = Answers(self._tool, self._answers.silence)
            self._answered = self._clock()
        return self._answers

    def _level_zero_number(self, device: Device) -> int:
        """The device's place among all that Level Zero will find, by PCI address.

        For a card that is lost it is one that none has, so that no other takes its place.
        """
        seen = [card for card in graphics(self._tree) if not self._gap(card)]
        wanted = value_of(device.facts, "pci_address")
        addresses = [card.function.address for card in seen]
        lost = len(addresses) + device.index
        return addresses.index(str(wanted)) if wanted in addresses else lost

    # ------------------------------------------------------------------ readings and counts

    def _readings(self, card: Card) -> Mapping[str, Read]:
        """Readings by name; those that nothing here could report are left out."""
        kernel = Kernel(self._tree, card)
        return {
            "graphics_clock_hertz": kernel.clock,
            "energy_joules": kernel.energy,
            "temperature_celsius": kernel.temperature,
            "memory_temperature_celsius": kernel.memory_temperature,
            "utilisation_fraction": partial(_nothing, ONLY_TOOL),
            "memory_utilisation_fraction": partial(_nothing, ONLY_TOOL),
            "memory_used_bytes": partial(_nothing, ONLY_TOOL),
            "fan_fraction": partial(_nothing, NO_SPEED),
            "pcie_generation": lambda: float(card.port().generation()),
            "pcie_width": lambda: float(card.port().width()),
            "throttle_mask": kernel.throttle_mask,
        }

    def _power(self, card: Card) -> float:
        """Watts since the reading before, from the counter of energy."""
        name, now, energy = card.function.address, self._clock(), Kernel(self._tree, card).energy()
        then, before = self._energy.get(name, (now, energy))
        if name in self._energy and now - then < SHORTEST_SECONDS:
            raise Unreadable("the two readings lie too near")
        self._energy[name] = now, energy
        if now <= then or energy < before:
            raise Unreadable(FIRST)
        return (energy - before) / (now - then)

    def _counts(self, card: Card) -> Mapping[str, Count]:
        """Counts and states by name; those that nothing here could report are left out."""
        answers = self._fresh(CACHE_SECONDS)
        name = card.function.address
        return {
            **_errors(Kernel(self._tree, card), answers, name),
            "row_remap_pending": lambda: int(_health(answers, name, "memory") == "warning"),
            "row_remap_failed": lambda: int(_health(answers, name, "memory") == "critical"),
            "pcie_correctable": partial(_bus_errors, card, "correctable"),
            "pcie_non_fatal": partial(_bus_errors, card, "nonfatal"),
            "pcie_fatal": partial(_bus_errors, card, "fatal"),
            "links_down": partial(_links_down, card, answers),
            "lost": lambda: 0,
        }


def _errors(kernel: Kernel, answers: Answers, name: str) -> Mapping[str, Count]:
    """Errors of the card itself; where driver and tool both count, the higher of the two.

    What the tool calls non-compute is the memory and what lies before it (xpu-smi dump -h).
    """

    def reported(kind: str) -> Count:
        return lambda: answers.statistic(name, f"{RAS}_{kind}")

    def driver(*starts: str, of_memory: bool = False) -> Count:
        return lambda: kernel.errors(
            lambda file: file.startswith(starts) and ("_hbm_" in file) == of_memory
        )

    memory = driver("soc_fatal_", of_memory=True)
    corrected = driver("correctable_", "gsc_correctable_")
    uncorrected = driver("fatal_", "soc_fatal_", "gsc_nonfatal_")
    return {
        "ecc_corrected": reported("NON_COMPUTE_ERRORS_CORRECTABLE"),
        "ecc_uncorrected": _higher(memory, reported("NON_COMPUTE_ERRORS_UNCORRECTABLE")),
        "ras_corrected": _higher(corrected, reported("CACHE_ERRORS_CORRECTABLE")),
        "ras_uncorrected": _higher(uncorrected, reported("CACHE_ERRORS_UNCORRECTABLE")),
        "driver_errors": _higher(driver("driver_"), reported("DRIVER_ERRORS")),
        "programming_errors": reported("PROGRAMMING_ERRORS"),
        "resets": _higher(driver("engine_reset"), reported("RESET")),
    }


def _nothing(reason: str) -> float:
    raise Unreadable(reason)


def _reason(ask: Callable[[], object]) -> str:
    """Why something cannot be read; empty if it can be."""
    try:
        ask()
    except Unreadable as gap:
        return gap.hint or NOT_REPORTED
    return ""


def _higher(*counts: Count) -> Count:
    """The highest of those that can be read; where none can, the reason of the last."""

    def highest() -> int:
        values = [value for value in map(or_none, counts) if value is not None]
        return max(values) if values else counts[-1]()

    return highest


def _health(answers: Answers, name: str, part: str) -> str:
    """ok, warning or critical: the tool's judgement of one part."""
    status = str(answers.health(name, part).get("status", "")).lower()
    if status not in {"ok", "warning", "critical"}:
        raise Unreadable(f"xpu-smi does not report the health of {part}")
    return status


def _links_down(card: Card, answers: Answers) -> int:
    """Ports that do not work, as far as the tool's health of the links calls for it.

    A board does not wire every port, so a port that is down is a fault only where the tool reports
    that the links are not well; it names one port, so there is at least one.
    """
    name = card.function.address
    if not card.design.has_links:
        raise Unreadable("this card has no links")
    if _health(answers, name, "xe_link_port") != "critical":
        return 0
    down = or_none(lambda: xpu_tool.listed_ports(answers.settings(name), "port_down"))
    return max(1, down or 0)


def _bus_errors(card: Card, kind: str) -> int:
    """PCIe errors of the card: at its port to the slot, where the slot's show, and behind it."""
    return errors_of([card.function, *([port] if (port := or_none(card.port)) else [])], kind)
