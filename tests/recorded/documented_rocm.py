"""Answers of AMD's library and tool on machines that we do not have, built from documentation.

None was recorded by us. Values of a model (names, ids, memory, limits, rates, links) are those of
`SOURCES`, which holds public outputs of amd-smi, rocminfo and lspci; serials, UUIDs, addresses,
part numbers, firmware versions, temperatures, counters, and the number of links and the subsystem
of the MI250X are invented. A fault is one change of a healthy machine.

    python tests/recorded/documented_rocm.py    writes rocm/NAME.json; a test holds that they are it

A record has `library`: for each device what the functions of amdsmi answer, by name and the last
words of their arguments, {"error": status} where they raise; `grows` of an answer is what its
fields grow by from call to call. `tool` is what amd-smi prints for a command, `files` and `links`
are the kernel's, and `then` is what changes once the devices were found.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "rocm"
Record = dict[str, Any]
ORIGIN = "built from documentation"
SOURCES = (
    "https://rocm.docs.amd.com/projects/amdsmi (functions, keys, units, statuses, the tool)",
    "amdsmi 7.0.2, amdsmi_interface.py (what the Python library makes of a structure)",
    "https://github.com/ROCm/rocm-systems, projects/amdsmi/amdsmi_cli (keys of the tool)",
    "Linux, Documentation/ABI/testing/sysfs-bus-pci and sysfs-bus-pci-devices-aer_stats",
)
OF_MI300X = (
    "https://www.amd.com/en/products/accelerators/instinct/mi300/mi300x.html (limits and links)",
    "https://github.com/ROCm/legacy-rocm-build/issues/4454 (lspci: 74a1 below a switch of its own)",
)
OF_MI250X = (
    "https://github.com/ROCm/aiter/issues/179 (rocminfo: name, gfx90a)",
    "https://github.com/ROCm/pytorch/pull/1457 (no current power, an average of it)",
    "AMD Instinct MI250X, data sheet (110 compute units and 64 GB a die, 1700 MHz, 560 W)",
)
NOT_SUPPORTED, NO_PERMISSION, NO_DEVICE = 2, 10, 12
"""AMDSMI_STATUS_NOT_SUPPORTED, _NO_PERM and _IO."""
NA = "N/A"
STEP_MICROJOULES = 15.259
CAUSES = ("prochot", "ppt", "socket_thm", "vr_thm", "hbm_thm")
TOOL_CAUSES = {
    "prochot": "prochot",
    "ppt": "ppt",
    "socket_thm": "socket_thermal",
    "vr_thm": "vr_thermal",
    "hbm_thm": "hbm_thermal",
}
STATUSES = {"retired": 0, "pending": 1, "un_res": 2}
SECTIONS = ("ecc", "ecc_blocks", "usage", "power", "clock", "throttle")
NO_PAGES = "No bad pages found."
CYCLES = 1000
"""Cycles of the firmware between two readings of a replay."""


@dataclass(frozen=True)
class Model:
    """What all devices of a model have in common; watts, megahertz, bytes and gigabits."""

    name: str
    board: str
    part: str
    target: str
    ids: tuple[str, str]
    units: int
    memory: int
    kind: tuple[int, str]
    watts: int
    clocks: tuple[int, int]
    rate: float
    links: str
    gigabits: int
    lane_gigabits: int
    counts: bool
    """It counts cycles in which it was held back, and tells its power of now (MI300)."""


MI300X = Model(
    name="AMD Instinct MI300X",
    board="AMD Instinct MI300X OAM",
    part="102-G30211-0C",
    target="gfx942",
    ids=("74a1", "74a1"),
    units=304,
    memory=206_141_652_992,
    kind=(4, "HBM3"),
    watts=750,
    clocks=(2100, 1300),
    rate=32.0,
    links="UUUUUUU",
    gigabits=512,
    lane_gigabits=32,
    counts=True,
)
MI250X = Model(
    name="AMD Instinct MI250X/MI250",
    board="AMD INSTINCT MI200 (MCM) OAM LC MBA HPE C2",
    part="D65209",
    target="gfx90a",
    ids=("740c", "0b0c"),
    units=110,
    memory=68_702_699_520,
    kind=(3, "HBM2E"),
    watts=560,
    clocks=(1700, 1600),
    rate=16.0,
    links="UUUU",
    gigabits=400,
    lane_gigabits=25,
    counts=False,
)


@dataclass(frozen=True)
class Card:
    """One device as a record has it; a field that differs from its default is a fault."""

    model: Model
    number: int
    address: str
    node: int = 0
    links: str = ""
    lanes: int = 16
    corrected: int = 0
    uncorrected: int = 0
    other_uncorrected: int = 0
    pages: tuple[str, ...] = ()
    active: tuple[str, ...] = ()
    power: int = 142
    hotspot: int = 44
    memory_celsius: int = 38
    clock: int = 0
    """Megahertz; 0 is the highest."""
    missing: bool = False
    mode: tuple[str, str] = ("SPX", "NPS1")
    parts: int = 1
    shared: bool = False
    """All partitions give the UUID of their device, as before ROCm 7.0."""

    @property
    def uuid(self) -> str:
        return f"GPU-{(0x10 if self.shared else self.number + 0x10):016x}"

    @property
    def module(self) -> int:
        """Partitions of a device have its serial."""
        return self.number if self.parts == 1 else 0

    @property
    def states(self) -> str:
        return self.links or self.model.links

    @property
    def megahertz(self) -> int:
        return self.clock or self.model.clocks[0]


def error(status: int) -> Record:
    return {"error": status}


# ------------------------------------------------------------------ the library


def answers(card: Card) -> Record:
    """What the library answers for one device."""
    return {
        "amdsmi_get_gpu_device_bdf": card.address,
        **_identity(card),
        **_limits(card),
        **_errors(card),
        "amdsmi_get_gpu_metrics_info": metrics(card),
        "amdsmi_get_power_info": {"socket_power": card.power},
        "amdsmi_get_gpu_vram_usage": {"vram_total": card.model.memory >> 20, "vram_used": 285},
        "amdsmi_get_gpu_memory_usage VRAM": 285 << 20,
        "amdsmi_get_energy_count": {
            "energy_accumulator": 123_456_789,
            "counter_resolution": STEP_MICROJOULES,
            "grows": {"energy_accumulator": 6_553_509},
        },
        "amdsmi_get_gpu_fan_speed 0": error(NOT_SUPPORTED),
        "amdsmi_get_gpu_fan_speed_max 0": error(NOT_SUPPORTED),
    }


def _identity(card: Card) -> Record:
    model = card.model
    return {
        "amdsmi_get_gpu_asic_info": {
            "market_name": model.name,
            "vendor_id": "0x1002",
            "device_id": f"0x{model.ids[0]}",
            "asic_serial": f"0x{card.module + 0x10:016X}",
            "oam_id": card.number,
            "num_compute_units": model.units // card.parts,
            "target_graphics_version": model.target,
        },
        "amdsmi_get_gpu_board_info": {
            "model_number": model.part,
            "product_serial": NA if card.missing else f"69230000000{card.module}",
            "product_name": model.board,
            "manufacturer_name": "AMD",
        },
        "amdsmi_get_gpu_enumeration_info": {"hip_id": card.number, "hip_uuid": card.uuid},
        "amdsmi_get_gpu_device_uuid": f"{card.number:02x}ff74a1-0000-1000-8000-000000000000",
        "amdsmi_get_gpu_vbios_info": {
            "part_number": NA if card.missing else "113-00000000-100",
            "version": NA if card.missing else "022.040.003.043",
        },
        "amdsmi_get_gpu_driver_info": {"driver_name": "amdgpu", "driver_version": "6.14.14"},
        "amdsmi_get_fw_info": {
            "fw_list": [
                {"fw_name": "AMDSMI_FW_ID_CP_MEC1", "fw_version": "168"},
                {"fw_name": "AMDSMI_FW_ID_SDMA0", "fw_version": "24"},
            ]
        },
        "amdsmi_get_gpu_memory_total VRAM": model.memory // card.parts,
        "amdsmi_get_gpu_vram_info": {
            "vram_type": model.kind[0],
            "vram_size": (model.memory // card.parts) >> 20,
        },
        "amdsmi_get_gpu_compute_partition": card.mode[0],
        "amdsmi_get_gpu_memory_partition": card.mode[1],
    }


def _limits(card: Card) -> Record:
    watts = card.model.watts * 1_000_000
    clocks = zip(("GFX", "MEM"), card.model.clocks, strict=True)
    return {
        "amdsmi_get_power_cap_info": {
            "power_cap": 0xFFFFFFFF if card.missing else watts,
            "default_power_cap": watts,
            "min_power_cap": 0,
            "max_power_cap": watts,
        },
        **{
            f"amdsmi_get_clock_info {name}": {"clk": clock, "min_clk": NA, "max_clk": clock}
            for name, clock in clocks
        },
        "amdsmi_get_temp_metric HOTSPOT CRITICAL": 100,
        "amdsmi_get_gpu_xgmi_link_status": {"status": list(card.states), "total_links": 8},
        "amdsmi_get_link_metrics": {
            "num_links": len(card.states),
            "links": [
                {
                    "bit_rate": card.model.lane_gigabits,
                    "max_bandwidth": card.model.gigabits,
                    "link_type": 2,
                }
                for _ in card.states
            ],
        },
    }


def _errors(card: Card) -> Record:
    none = {"correctable_count": 0, "uncorrectable_count": 0, "deferred_count": 0}
    memory = {**none, "correctable_count": card.corrected, "uncorrectable_count": card.uncorrected}
    return {
        "amdsmi_get_gpu_ecc_enabled": 0x1 | 0x4 | 0x80,
        "amdsmi_get_gpu_ras_feature_info": {"poison_schema": card.model.counts},
        "amdsmi_get_gpu_total_ecc_count": {
            **memory,
            "uncorrectable_count": card.uncorrected + card.other_uncorrected,
        },
        "amdsmi_get_gpu_ecc_count UMC": memory,
        "amdsmi_get_gpu_ecc_count XGMI_WAFL": none,
        "amdsmi_get_gpu_bad_page_info": [
            {"value": number, "page_address": 4096 * number, "page_size": 4096, "status": status}
            for number, status in enumerate(STATUSES[page] for page in card.pages)
        ],
    }


def metrics(card: Card) -> Record:
    """The one answer with most readings: N/A where this generation has no such field."""
    counts, now = card.model.counts, card.megahertz
    reported = {
        "temperature_edge": NA if counts else card.hotspot - 7,
        "temperature_hotspot": card.hotspot,
        "temperature_mem": NA if card.missing else card.memory_celsius,
        "temperature_hbm": [NA] * 4,
        "average_gfx_activity": NA if card.missing else 100 if card.active else 0,
        "average_umc_activity": 0,
        "average_socket_power": NA if counts else card.power,
        "current_socket_power": card.power if counts and not card.missing else NA,
        "current_gfxclk": now,
        "current_gfxclks": [now, now - 4, now - 2, now, now, now, now, now] if counts else [NA] * 8,
        "current_uclk": card.model.clocks[1],
        "throttle_status": NA if counts else bool(card.active),
        "indep_throttle_status": NA if counts else bool(card.active),
        "pcie_link_width": card.lanes,
        "pcie_link_speed": round(10 * card.model.rate),
        "pcie_replay_count_acc": 3 if counts else NA,
        "pcie_nak_sent_count_acc": 1 if counts else NA,
        "pcie_nak_rcvd_count_acc": 1 if counts else NA,
        "accumulation_counter": 50_000 if counts else NA,
        **{f"{cause}_residency_acc": 7 if counts else NA for cause in CAUSES},
    }
    growth = {
        "accumulation_counter": CYCLES,
        **{f"{cause}_residency_acc": CYCLES - 50 for cause in card.active},
    }
    return {**reported, "grows": growth} if counts else reported


def library(cards: Sequence[Card]) -> Record:
    return {
        "system": {"amdsmi_get_rocm_version": [True, "7.0.2"]},
        "devices": [answers(card) for card in cards],
        "pairs": {
            f"{one.number} {other.number}": _pair(one, other)
            for one in cards
            for other in cards
            if one is not other
        },
    }


def _pair(one: Card, other: Card) -> Record:
    megabytes = one.model.gigabits // 8 * 1000
    links = 1 if one.model.counts else 4  # the two dies of a module
    return {
        "amdsmi_topo_get_link_type": {"hops": 1, "type": 2},
        "amdsmi_get_minmax_bandwidth_between_processors": {
            "min_bandwidth": megabytes,
            "max_bandwidth": links * megabytes,
        },
    }


# ------------------------------------------------------------------ the tool


def pair(value: object, unit: str) -> object:
    return NA if value in (NA, None) else {"value": value, "unit": unit}


def tool(cards: Sequence[Card]) -> Record:
    """What the tool of release 7 prints for each command."""
    return {
        "list -e": [
            {"gpu": card.number, "bdf": card.address, "uuid": NA, "hip_id": card.number,
             "hip_uuid": card.uuid}
            for card in cards
        ],
        "static": {"gpu_data": [static(card) for card in cards]},
        "metric": {"gpu_data": [metric(card) for card in cards]},
        "firmware": [{"gpu": card.number, "fw_list": [
            {"fw_id": "CP_MEC1", "fw_version": "168"}, {"fw_id": "SDMA0", "fw_version": "24"},
        ]} for card in cards],
        "version": [{"tool": "AMDSMI Tool", "version": "26.0.2", "rocm_version": "7.0.2"}],
        "partition": {"current_partition": [
            {"gpu_id": card.number, "memory": card.mode[1], "accelerator_type": card.mode[0]}
            for card in cards
        ]},
        "xgmi": {
            "xgmi_metric": [[{
                "gpu": card.number,
                "bdf": card.address,
                "link_metrics": {"max_bandwidth": pair(card.model.gigabits, "Gb/s")},
            } for card in cards]],
            "link_port_status": [
                {"gpu": card.number, "bdf": card.address, "link_status": list(card.states)}
                for card in cards
            ],
        },
        "topology": [
            {"gpu": one.number, "bdf": one.address, "links": [_towards(one, two) for two in cards]}
            for one in cards
        ],
        "bad-pages": [
            {"gpu": card.number, **{kind: _of_kind(card, kind) for kind in STATUSES}}
            for card in cards
        ],
    }  # fmt: skip


def _towards(one: Card, other: Card) -> Record:
    if one is other:
        return {"gpu": other.number, "bdf": other.address, "link_type": "SELF", "bandwidth": NA}
    rates = _pair(one, other)["amdsmi_get_minmax_bandwidth_between_processors"]
    return {
        "gpu": other.number,
        "bdf": other.address,
        "link_type": "XGMI",
        "num_hops": 1,
        "bandwidth": f"{rates['min_bandwidth']}-{rates['max_bandwidth']}",
    }


def _of_kind(card: Card, kind: str) -> object:
    result = [number for number, page in enumerate(card.pages) if page == kind]
    return [{"page_address": 4096 * number, "page_size": 4096} for number in result] or NO_PAGES


def static(card: Card) -> Record:
    reported = answers(card)
    model = card.model
    return {
        "gpu": card.number,
        "asic": reported["amdsmi_get_gpu_asic_info"],
        "board": reported["amdsmi_get_gpu_board_info"],
        "ifwi": reported["amdsmi_get_gpu_vbios_info"],
        "limit": {
            "max_power": pair(model.watts, "W"),
            "min_power": pair(0, "W"),
            "socket_power": NA if card.missing else pair(model.watts, "W"),
            "slowdown_hotspot_temperature": pair(100, "C"),
        },
        "driver": {"name": "amdgpu", "version": "6.14.14"},
        "vram": {"type": model.kind[1], "size": pair((model.memory // card.parts) >> 20, "MB")},
        "ras": {
            "poison_schema": "ENABLED",
            "ecc_block_state": {"UMC": "ENABLED", "XGMI_WAFL": "ENABLED"},
        },
        "partition": {"accelerator_partition": card.mode[0], "memory_partition": card.mode[1]},
    }


def metric(card: Card) -> Record:
    model, reported = card.model, metrics(card)
    mebibytes = (model.memory // card.parts) >> 20
    status = "THROTTLED" if card.active else "UNTHROTTLED"
    return {
        "gpu": card.number,
        "usage": {
            "gfx_activity": pair(reported["average_gfx_activity"], "%"),
            "umc_activity": pair(0, "%"),
        },
        "power": {
            "socket_power": NA if card.missing else pair(card.power, "W"),
            "throttle_status": NA if model.counts else status,
        },
        "clock": {
            **{
                f"gfx_{die}": {"clk": pair(clock, "MHz"), "max_clk": pair(model.clocks[0], "MHz")}
                for die, clock in enumerate([card.megahertz, card.megahertz - 4])
            },
            "mem_0": {"clk": pair(model.clocks[1], "MHz"), "max_clk": pair(model.clocks[1], "MHz")},
        },
        "temperature": {
            "edge": pair(reported["temperature_edge"], "C"),
            "hotspot": pair(card.hotspot, "C"),
            "mem": pair(reported["temperature_mem"], "C"),
        },
        "pcie": {
            "width": card.lanes,
            "speed": pair(model.rate, "GT/s"),
            "replay_count": reported["pcie_replay_count_acc"],
            "nak_sent_count": reported["pcie_nak_sent_count_acc"],
            "nak_received_count": reported["pcie_nak_rcvd_count_acc"],
        },
        "ecc": {
            "total_correctable_count": card.corrected,
            "total_uncorrectable_count": card.uncorrected + card.other_uncorrected,
            "total_deferred_count": 0,
            "cache_correctable_count": 0,
            "cache_uncorrectable_count": card.other_uncorrected,
        },
        "ecc_blocks": {"XGMI_WAFL": {"correctable_count": 0, "uncorrectable_count": 0}},
        "fan": {"speed": NA, "max": NA, "rpm": NA, "usage": NA},
        "energy": {"total_energy_consumption": pair(1883.826, "J")},
        "mem_usage": {"total_vram": pair(mebibytes, "MB"), "used_vram": pair(285, "MB")},
        "throttle": {
            f"{TOOL_CAUSES[cause]}_violation_status": (
                NA if not model.counts else "ACTIVE" if cause in card.active else "NOT ACTIVE"
            )
            for cause in CAUSES
        },
    }


# ------------------------------------------------------------------ the kernel


def kernel(card: Card) -> Record:
    """Files of the device, which is below a switch of its own if it is an MI300X."""
    bus = int(card.address[5:7], 16)
    names = [f"0000:{number:02x}:00.0" for number in range(bus - 2, bus + 1)]
    below = f"pci0000:{bus - 4:02x}/0000:{bus - 4:02x}:01.0"
    own = [("1022", "1500"), ("1002", "1501"), ("1002", card.model.ids[0])]
    chain = list(zip(names, own, strict=True)) if card.model.counts else [(names[2], own[2])]
    record: Record = {"files": {}, "links": {}}
    home, ids = below, ("1022", "14ab")
    places = [(home, ids), *_places(home, chain)]
    for number, (home, ids) in enumerate(places):
        # The slot's link is that of the port and of the first function of the module.
        lanes = card.lanes if number < 2 else 16
        _function(record, home, ids, card, lanes)
    own_home = places[-1][0]
    record["links"][f"/sys/devices/{own_home}/driver"] = "../../../../../bus/pci/drivers/amdgpu"
    return record


def _places(home: str, chain: Sequence[tuple[str, tuple[str, str]]]) -> list[Any]:
    result = []
    for name, ids in chain:
        home = f"{home}/{name}"
        result.append((home, ids))
    return result


def _function(record: Record, home: str, ids: tuple[str, str], card: Card, lanes: int) -> None:
    is_device = ids[1] == card.model.ids[0]
    rate = f"{card.model.rate} GT/s PCIe"
    texts = {
        "vendor": f"0x{ids[0]}",
        "device": f"0x{ids[1]}",
        "subsystem_vendor": "0x1002",
        "subsystem_device": f"0x{card.model.ids[1]}",
        "class": "0x120000" if is_device else "0x060400",
        "current_link_speed": rate,
        "max_link_speed": rate,
        "current_link_width": str(lanes),
        "max_link_width": "16",
        "numa_node": str(card.node),
        "local_cpulist": f"{48 * card.node}-{48 * card.node + 47}",
        "aer_dev_correctable": "RxErr 0\nTOTAL_ERR_COR 0",
        "aer_dev_nonfatal": "Undefined 0\nTOTAL_ERR_NONFATAL 0",
        "aer_dev_fatal": "Undefined 0\nTOTAL_ERR_FATAL 0",
        **({"pcie_replay_count": "3"} if is_device else {}),
    }
    address = home.rpartition("/")[2]
    record["files"] |= {f"/sys/devices/{home}/{name}": text for name, text in texts.items()}
    record["links"][f"/sys/bus/pci/devices/{address}"] = f"../../../devices/{home}"


# ------------------------------------------------------------------ machines


def machine(cards: Sequence[Card], about: str, sources: Sequence[str]) -> Record:
    """A record; partitions are told by the library and the tool, and share their function."""
    kernels = [kernel(card) for card in cards if card.address.endswith(".0")]
    return {
        "origin": ORIGIN,
        "about": about,
        "sources": [*sources, *SOURCES],
        "library": library(cards),
        "tool": tool(cards),
        "files": {name: text for one in kernels for name, text in one["files"].items()},
        "links": {name: text for one in kernels for name, text in one["links"].items()},
    }


BUSES = (0x0C, 0x22, 0x38, 0x5C, 0x9F, 0xAF, 0xBF, 0xDF)
EIGHT = tuple(
    Card(MI300X, number, f"0000:{bus:02x}:00.0", node=number // 4)
    for number, bus in enumerate(BUSES)
)
TWO = EIGHT[:2]
DIES = tuple(
    Card(MI250X, number, f"0000:{bus:02x}:00.0", power=95)
    for number, bus in enumerate((0xC9, 0xD1))
)
PARTS = tuple(
    Card(MI300X, number, f"0000:0c:00.{number}", mode=("CPX", "NPS4"), parts=8)
    for number in range(8)
)


def faulty(about: str, **change: Any) -> Record:
    """The first device of a machine of two has a fault."""
    return machine((replace(TWO[0], **change), *TWO[1:]), about, OF_MI300X)


def lost() -> Record:
    record = machine(TWO, "the first device falls off the bus after it was found", OF_MI300X)
    reported = record["tool"]
    silent = {name: error(NO_DEVICE) for name in record["library"]["devices"][0]}
    record["then"] = {
        "library": {"0": {**silent, "amdsmi_get_gpu_device_bdf": TWO[0].address}},
        "tool": {**tool(TWO[1:]), "version": reported["version"]},
        "gone": [f"/sys/bus/pci/devices/{TWO[0].address}"],
    }
    return record


def denied() -> Record:
    """Bad pages, error counts and firmware are root's; the tool writes N/A for them."""
    record = machine(TWO, "a user who may not read all of it", OF_MI300X)
    root = (
        "bad_page_info",
        "ecc_count UMC",
        "ecc_count XGMI_WAFL",
        "total_ecc_count",
        "metrics_info",
    )
    for reported in record["library"]["devices"]:
        reported |= {f"amdsmi_get_gpu_{name}": error(NO_PERMISSION) for name in root}
        reported["amdsmi_get_fw_info"] = error(NO_PERMISSION)
    for entry in record["tool"]["metric"]["gpu_data"]:
        entry.update(dict.fromkeys((*SECTIONS, "temperature", "pcie", "energy"), NA))
    for entry in record["tool"]["bad-pages"]:
        entry.update(dict.fromkeys(STATUSES, NA))
    del record["tool"]["firmware"]
    return record


def records() -> dict[str, Record]:
    shared = tuple(replace(card, shared=True) for card in PARTS)
    return {
        "mi300x": machine(EIGHT, "eight healthy modules", OF_MI300X),
        "mi300x_partitioned": machine(PARTS, "one module as eight partitions", OF_MI300X),
        "mi300x_partitioned_6": machine(shared, "the same, told by ROCm 6", OF_MI300X),
        "mi250x": machine(DIES, "one healthy module: two dies", OF_MI250X),
        "ecc_uncorrected": faulty(
            "errors of the memory that were not corrected, and one of another block",
            uncorrected=2,
            corrected=41,
            other_uncorrected=1,
        ),
        "bad_page_pending": faulty(
            "two pages given up, one waits and one cannot be",
            pages=("retired", "pending", "retired", "un_res"),
        ),
        "link_down": faulty("one link to another device is down", links="UUUDUUU"),
        "pcie_x8": faulty("half of the lanes to the slot", lanes=8),
        "thermal_throttle": faulty(
            "held back by its temperature and by its power limit",
            active=("ppt", "socket_thm"),
            hotspot=101,
            power=749,
            clock=1420,
        ),
        "missing_field": faulty("fields that the firmware leaves empty", missing=True),
        "gpu_lost": lost(),
        "permission_denied": denied(),
    }


def built() -> dict[str, str]:
    """The text of each record by its name."""
    return {name: written(record) for name, record in records().items()}


def written(record: Mapping[str, Any]) -> str:
    return json.dumps(deepcopy(record), indent=1, sort_keys=True) + "\n"


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, text in built().items():
        (FOLDER / f"{name}.json").write_text(text)


if __name__ == "__main__":
    main()
