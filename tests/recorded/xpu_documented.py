"""Machines with Intel cards that we do not have, built from what drivers and tool document.

    python tests/recorded/xpu_documented.py    writes tests/recorded/xpu/*.tree and *.json

A `.tree` holds the files of /sys, /dev and /usr in the form of trees.py, a `.json` what xpu-smi
answers to each command. Each says that it was built, and of what. Serials and the device ids of
bridges are invented; sizes, clocks and limits are those that the vendor publishes for the model. A
fault changes one thing of a machine.
"""

from __future__ import annotations

import copy
import json
import struct
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from trees import packed  # noqa: E402 - beside this file

FOLDER = HERE / "xpu"
SOURCES = (
    "Linux, drivers/gpu/drm/xe/xe_gt_freq.c, xe_gt_throttle.c, xe_gt_idle.c, xe_hwmon.c",
    "Linux, drivers/gpu/drm/i915/gt/intel_gt_sysfs_pm.c",
    "Linux, Documentation/ABI/testing/sysfs-driver-intel-xe-hwmon and -i915-hwmon",
    "intel-gpu/intel-gpu-i915-backports, drivers/gpu/drm/i915/gt/sysfs_gt_errors.c",
    "intel/compute-runtime, level_zero/sysman, sysman_product_helper_pvc.cpp, sysman_pmt.cpp",
    "intel/xpumanager, cli/src/core_stub/*.cpp and doc/smi_user_guide.md",
    "intel/xpumanager, tag v2.0.0, ial/cmn/cmd_config.cpp, cmd_health.cpp, cmd_stats.cpp",
    "https://github.com/Syllo/nvtop/pull/344 (the link that is stated behind a card's switch)",
)
ORIGIN = "built from documentation"
Files = dict[str, str | bytes | Path]
Answers = dict[str, Any]
REASONS = ("pl1", "pl2", "pl4", "thermal", "prochot", "ratl", "vr_thermalert", "vr_tdc")
NO_ERRORS = ("correctable_l3bank", "fatal_subslice", "fatal_l3bank", "soc_fatal_hbm_ss0_0")
RAS = "XPUM_STATS_RAS_ERROR_CAT_"
COUNTS = (
    *("RESET", "PROGRAMMING_ERRORS", "DRIVER_ERRORS"),
    *("CACHE_ERRORS_CORRECTABLE", "CACHE_ERRORS_UNCORRECTABLE"),
    *("NON_COMPUTE_ERRORS_CORRECTABLE", "NON_COMPUTE_ERRORS_UNCORRECTABLE"),
)
FIRST, SECOND = "0000:4d:00.0", "0000:cc:00.0"
HOMES = {
    FIRST: "pci0000:4a/0000:4a:02.0/0000:4b:00.0/0000:4c:01.0/0000:4d:00.0",
    SECOND: "pci0000:c9/0000:c9:02.0/0000:ca:00.0/0000:cb:01.0/0000:cc:00.0",
}
ARC, INSIDE = "0000:03:00.0", "0000:00:02.0"
ARC_HOME = "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0/0000:03:00.0"
PORTS, LANES = 8, 4  # of Xe Link on a tile, and on a port
SLOWEST, FAST, FASTEST = "2.5 GT/s PCIe", "16.0 GT/s PCIe", "32.0 GT/s PCIe"


# ------------------------------------------------------------------ the bus


def aer(**counts: int) -> Files:
    names = {"correctable": "COR", "nonfatal": "NONFATAL", "fatal": "FATAL"}
    return {
        f"aer_dev_{kind}": f"RxErr 0\nTOTAL_ERR_{word} {counts.get(kind, 0)}\n"
        for kind, word in names.items()
    }


def function(home: str, ids: tuple[int, int], kind: str, **files: str | bytes | Path) -> Files:
    """A PCI function with its link in /sys/bus."""
    address = home.rpartition("/")[2]
    own: Files = {
        "vendor": f"0x{ids[0]:04x}",
        "device": f"0x{ids[1]:04x}",
        "class": kind,
        "config": struct.pack("<HH", *ids),
        **aer(),
        **files,
    }
    return {
        f"/sys/bus/pci/devices/{address}": Path(f"../../../devices/{home}"),
        **{f"/sys/devices/{home}/{name}": content for name, content in own.items()},
    }


def link(now: tuple[str, int], most: tuple[str, int]) -> Files:
    return {
        "current_link_speed": now[0],
        "current_link_width": str(now[1]),
        "max_link_speed": most[0],
        "max_link_width": str(most[1]),
    }


def above(home: str, slot: tuple[str, int], most: tuple[str, int]) -> Files:
    """The root port and the two ports of the switch on a card."""
    root, up, down = home.split("/")[1:4]
    bus = home.split("/", maxsplit=1)[0]
    reported: Files = {}
    places = {
        f"{bus}/{root}": (0x352A, link(most, slot)),
        f"{bus}/{root}/{up}": (0x4FA0, link(most, most)),
        f"{bus}/{root}/{up}/{down}": (0x4FA4, link((SLOWEST, 1), (SLOWEST, 1))),
    }
    for place, (number, files) in places.items():
        reported |= function(place, (0x8086, number), "0x060400", **files)
    return reported


def bound(home: str, driver: str, node: int, card: int) -> Files:
    """A driver has the function and made nodes for it."""
    up = "../" * (home.count("/") + 1)
    return {
        f"/sys/bus/pci/drivers/{driver}/module": "x",
        f"/sys/devices/{home}/driver": Path(f"{up}../bus/pci/drivers/{driver}"),
        f"/sys/devices/{home}/drm/renderD{node}/dev": f"226:{node}",
        f"/sys/devices/{home}/drm/card{card}/dev": f"226:{card}",
        f"/dev/dri/renderD{node}": "x",
    }


SYSTEM: Files = {
    "/proc/sys/kernel/osrelease": "6.14.0-33-generic",
    "/usr/lib/x86_64-linux-gnu/libze_intel_gpu.so.1": Path("libze_intel_gpu.so.1.6.33578"),
    "/usr/lib/x86_64-linux-gnu/libze_intel_gpu.so.1.6.33578": "x",
}


# ------------------------------------------------------------------ Max 1550


def max_1550(address: str, number: int) -> Files:
    home = HOMES[address]
    card = f"/sys/devices/{home}/drm/card{number}"
    files: Files = {
        **above(home, (FASTEST, 16), (FASTEST, 16)),
        **function(
            home,
            (0x8086, 0x0BD5),
            "0x038000",
            subsystem_vendor="0x8086",
            subsystem_device="0x0000",
            numa_node=str(number),
            local_cpulist=("0-51,104-155", "52-103,156-207")[number],
            **link((SLOWEST, 1), (SLOWEST, 1)),
        ),
        **bound(home, "i915", 128 + number, number),
        f"{card}/lmem_total_bytes": str(128 * 2**30),
        **hwmon(home, 5 + 2 * number, "i915", energy1_input=str(9_000_000_000_000)),
        **hwmon(home, 4 + 2 * number, "i915_gt0", energy1_input="12"),
        "/sys/module/i915/version": "1.23.10.72.231129.76",
    }
    for tile in range(2):
        files |= {f"{card}/gt/gt{tile}/{name}": value for name, value in i915_part().items()}
        files |= telemetry(home, 2 * number + tile, 61 + tile)
    return files


def i915_part(clock: int = 1600, reasons: tuple[str, ...] = ()) -> Files:
    return {
        "rps_act_freq_mhz": str(clock),
        "rps_max_freq_mhz": "1600",
        "rps_RP0_freq_mhz": "1600",
        "throttle_reason_status": str(int(bool(reasons))),
        **{f"throttle_reason_{name}": str(int(name in reasons)) for name in REASONS},
        **{f"error_counter/{name}": "0" for name in (*NO_ERRORS, "engine_reset", "driver_ggtt")},
    }


def hwmon(home: str, number: int, name: str, **files: str) -> Files:
    folder = f"/sys/devices/{home}/hwmon/hwmon{number}"
    limits = {"power1_max": "600000000", "power1_rated_max": "600000000"}
    reported = {"name": name, **({} if "_" in name else limits), **files}
    return {f"{folder}/{file}": content for file, content in reported.items()}


def telemetry(home: str, number: int, celsius: int) -> Files:
    """The words of a tile's telemetry, with places of 4 bytes; only root may read them."""
    switch = "/".join(home.split("/")[:3])
    port = f"/sys/devices/{switch}/0000:fd:02.0/0000:fe:00.1"
    monitor = f"{port}/pmt_telemetry.{number}.auto/intel_pmt/telem{number}"
    words = bytearray(64)
    for place, value in ((28, celsius - 6), (36, celsius - 7), (40, 40), (44, celsius)):
        struct.pack_into("<I", words, place, value)
    return {
        f"/sys/class/intel_pmt/telem{number}": Path(f"../../{monitor.removeprefix('/sys/')}"),
        f"{monitor}/guid": "0xb15a0edc",
        f"{monitor}/offset": "16",
        f"{monitor}/size": "80",
        f"{monitor}/telem": bytes(16) + bytes(words),
    }


def max_answers() -> Answers:
    addresses = (FIRST, SECOND)
    answers: Answers = {
        "discovery": {"device_list": [listed(n, a, "0xbd5") for n, a in enumerate(addresses)]},
        "topology -m": {"topo_list": topology()},
    }
    for number, address in enumerate(addresses):
        answers |= {
            f"discovery -d {address}": {
                **listed(number, address, "0xbd5"),
                "amc_firmware_name": "AMC",
                "amc_firmware_version": "6.8.0.0",
                "driver_version": "I915_23.10.72_PSB_231129.76",
                "gfx_data_firmware_name": "GFX_DATA",
                "gfx_data_firmware_version": "unknown",
                "gfx_firmware_name": "GFX",
                "gfx_firmware_version": "PVC2_1.23374",
                "gfx_pscbin_firmware_version": "0x1012ca9.0x20220803",
                "max_fabric_port_speed": "50000.000000",
                "memory_ecc_state": "enabled",
                "memory_physical_size_byte": str(128 * 2**30),
                "number_of_fabric_ports": str(2 * PORTS),
                "number_of_lanes_per_fabric_port": str(LANES),
                "number_of_slices": "2",
                "number_of_sub_slices_per_slice": "64",
                "number_of_tiles": "2",
                "serial_number": f"EXAMPLE000{number}",
                "uuid": f"01000000-0000-0000-{number:04x}-4d00a1b2c3d4",
            },
            f"config -d {address}": settings(number),
            f"health -d {address}": health(number),
            f"stats -d {address} -r": statistics(number),
        }
    return answers


def listed(number: int, address: str, kind: str) -> Answers:
    name = "Intel(R) Arc(TM) B580 Graphics" if kind == "0xe20b" else MAX
    return {
        "device_function_type": "physical",
        "device_id": number,
        "device_name": name,
        "device_type": "GPU",
        "drm_device": f"/dev/dri/card{number}",
        "pci_bdf_address": address,
        "pci_device_id": kind,
        "uuid": f"00000000-0000-{number:04x}-0000-002f{kind[2:]:>04}8086",
        "vendor_name": "Intel(R) Corporation",
    }


MAX = "Intel(R) Data Center GPU Max 1550"


def topology(dead: tuple[int, ...] = ()) -> list[Answers]:
    """Both tiles of both cards: tile 0 reaches tile 1 of the other directly, and the reverse."""
    rows = []
    ends = [(card, tile) for card in range(2) for tile in range(2)]
    for here in ends:
        for there in ends:
            row: Answers = {
                "local_cpu_affinity": ("0-51,104-155", "52-103,156-207")[here[0]],
                "local_device_id": here[0],
                "local_numa_index": here[0],
                "local_on_subdevice": True,
                "local_subdevice_id": here[1],
                "remote_device_id": there[0],
                "remote_subdevice_id": there[1],
            }
            if here == there:
                row["link_type"] = "S"
            elif here[0] == there[0]:
                row["link_type"] = "MDF"
            elif here[1] == there[1]:
                row["link_type"] = "XL*"
            else:
                row["link_type"] = "XL"
                alive = [LANES * (port not in dead or here[1] > 0) for port in range(PORTS)]
                row["port_list"] = alive
            rows.append(row)
    return rows


def settings(number: int, dead: tuple[int, ...] = ()) -> Answers:
    def tile(place: int) -> Answers:
        lost = dead if place == 0 else ()
        return {
            "max_frequency": 1600,
            "min_frequency": 900,
            "port_down": ", ".join(str(port) for port in lost),
            "port_up": ", ".join(str(port) for port in range(PORTS) if port not in lost),
            "tile_id": f"{number}/{place}",
        }

    return {
        "device_id": number,
        "memory_ecc_current_state": "enabled",
        "memory_ecc_pending_state": "enabled",
        "power_limit": 600,
        "power_vaild_range": "1 to 600",
        "tile_config_data": [tile(0), tile(1)],
    }


def health(number: int, links: tuple[str, str] = ("Ok", "All ports are healthy.")) -> Answers:
    def part(status: str, description: str, **thresholds: int) -> Answers:
        return {"description": description, "status": status, **thresholds}

    heat = "All temperature sensors are healthy."
    return {
        "device_id": number,
        "core_temperature": part("Ok", heat, throttle_threshold=105, shutdown_threshold=130),
        "memory_temperature": part("Ok", heat, throttle_threshold=85, shutdown_threshold=100),
        "power": part("Ok", "All power domains are healthy.", throttle_threshold=600),
        "memory": part("Ok", "All memory channels are healthy."),
        "xe_link_port": part(*links),
        "frequency": part("Ok", "The device frequency not throttled"),
    }


def statistics(number: int, **counts: int) -> Answers:
    rows = [{"metrics_type": f"{RAS}{name}", "value": counts.get(name, 0)} for name in COUNTS]
    heat = {"metrics_type": "XPUM_STATS_GPU_CORE_TEMPERATURE", "value": 61.0}
    return {"device_id": number, "device_level": [*rows, heat], "tile_level": []}


def of_version_2(answers: Answers) -> Answers:
    """The same card as xpu-smi 2.0.0 tells of it: other keys, and nothing of Xe Links."""
    reported = copy.deepcopy(answers)
    reported["topology -m"] = {"headers": ["GPU 0/0"], "matrix": []}
    for number, address in enumerate((FIRST, SECOND)):
        config = reported[f"config -d {address}"]
        config["power_valid_range"] = config.pop("power_vaild_range")
        for tile in config["tile_config_data"]:
            tile.pop("port_up")
            tile.pop("port_down")
        parts = reported[f"health -d {address}"]
        del parts["xe_link_port"]
        for part in ("power", "memory", "frequency"):
            parts[f"{part}_health"] = parts.pop(part) | {"status": "OK"}
        reported[f"stats -d {address} -r"] = {
            "device_index": number,
            "pci_bdf": address,
            "ras_errors": {name: errors(0, 0) for name in CATEGORIES},
        }
        for key in ("max_fabric_port_speed", "number_of_fabric_ports"):
            reported[f"discovery -d {address}"].pop(key)
    return reported


CATEGORIES = ("Reset", "Programming Errors", "Driver Errors", "Cache Errors", "Mem Errors")


def errors(correctable: int, uncorrectable: int) -> Answers:
    total = correctable + uncorrectable
    counts = {"correctable_total": correctable, "uncorrectable_total": uncorrectable}
    return {**counts, "total": total}


# ------------------------------------------------------------------ Arc B580


def arc_b580() -> Files:
    """A card in a desktop, whose processor has graphics of its own."""
    home, tile = ARC_HOME, f"/sys/devices/{ARC_HOME}/tile0"
    return {
        **SYSTEM,
        **above(home, (FASTEST, 16), (FAST, 8)),
        **function(
            home,
            (0x8086, 0xE20B),
            "0x030000",
            subsystem_vendor="0x8086",
            subsystem_device="0x1100",
            numa_node="-1",
            local_cpulist="0-15",
            **link((SLOWEST, 1), (SLOWEST, 1)),
        ),
        **bound(home, "xe", 129, 1),
        f"{tile}/physical_vram_size_bytes": str(12 * 2**30),
        **{f"{tile}/gt0/{name}": text for name, text in xe_part(2850, "gt0-rc").items()},
        **{f"{tile}/gt1/{name}": text for name, text in xe_part(1500, "gt1-mc").items()},
        **{
            f"/sys/devices/{home}/hwmon/hwmon3/{name}": text
            for name, text in {
                "name": "xe",
                "power1_max": "190000000",
                "power1_rated_max": "190000000",
                "power1_cap": "228000000",
                "energy1_input": "812000000",
                "energy2_input": "700000000",
                "temp2_input": "47000",
                "temp3_input": "52000",
                "fan1_input": "1034",
            }.items()
        },
        **inside(),
    }


def xe_part(clock: int, name: str) -> Files:
    return {
        "freq0/act_freq": str(clock),
        "freq0/cur_freq": str(clock),
        "freq0/max_freq": str(clock),
        "freq0/rp0_freq": str(clock),
        "freq0/throttle/status": "0",
        **{f"freq0/throttle/reason_{reason}": "0" for reason in REASONS},
        "gtidle/name": name,
        "gtidle/idle_status": "gt-c0",
    }


def inside() -> Files:
    """UHD Graphics 770 of a desktop processor, with its node."""
    home = f"pci0000:00/{INSIDE}"
    graphics = function(home, (0x8086, 0x4680), "0x030000", numa_node="-1", local_cpulist="0-15")
    return {**graphics, **bound(home, "i915", 128, 0)}


def arc_answers() -> Answers:
    """What is not told of a card without management firmware is "unknown" or missing."""
    stated = statistics(0)
    stated["device_level"] = [row for row in stated["device_level"] if RAS not in str(row)]
    checked = health(0)
    del checked["xe_link_port"]
    checked["memory"] = {"description": "Cannot be determined.", "status": "Unknown"}
    return {
        "discovery": {"device_list": [listed(0, ARC, "0xe20b")]},
        f"discovery -d {ARC}": {
            **listed(0, ARC, "0xe20b"),
            "driver_version": "xe",
            "gfx_firmware_version": "BMG__21.1115",
            "gfx_data_firmware_version": "0x1f4",
            "memory_physical_size_byte": "12809404416",
            "number_of_slices": "5",
            "number_of_sub_slices_per_slice": "4",
            "number_of_tiles": "1",
            "serial_number": "unknown",
        },
        f"config -d {ARC}": {"error": "Error", "errno": 1},
        f"health -d {ARC}": checked,
        f"stats -d {ARC} -r": stated,
        "topology -m": {"topo_list": []},
    }


# ------------------------------------------------------------------ faults

CARD = f"/sys/devices/{HOMES[FIRST]}"
UP = "/".join(CARD.split("/")[:-2])
CLOCKS = [f"{CARD}/drm/card0/gt/gt{tile}" for tile in range(2)]


def tree(files: Files, base: str = "", gone: tuple[str, ...] = ()) -> str:
    """A machine with its origin; or what is different from its base."""
    head = f"= base ../xpu/{base}\n" if base else ""
    reported = "".join(f"# {source}\n" for source in (ORIGIN, *SOURCES))
    return head + reported + "".join(f"== {path} (gone)\n" for path in gone) + packed(files)


def document(answers: Answers, base: str = "") -> str:
    reported = {"origin": ORIGIN, "sources": SOURCES, **({"base": base} if base else {})}
    return json.dumps({**reported, "answers": answers}, indent=1, sort_keys=True) + "\n"


def throttled() -> Files:
    files = {
        f"{clock}/{name}": text
        for clock in CLOCKS
        for name, text in i915_part(900, ("pl1", "thermal")).items()
        if "error_counter" not in name
    }
    files[f"{CARD}/hwmon/hwmon5/power1_max"] = "450000000"
    hot = {f"{path}": text for path, text in telemetry(HOMES[FIRST], 0, 106).items()}
    return files | {path: text for path, text in hot.items() if path.endswith("/telem")}


def without(answer: Answers, *keys: str) -> Answers:
    return {key: value for key, value in copy.deepcopy(answer).items() if key not in keys}


HEALTHY = max_answers()
HEALTHY_BY_TOOL_2 = of_version_2(HEALTHY)
DENIED = {"error": "Level Zero Initialization Error", "errno": 2}
FEWER = statistics(0)
FEWER["device_level"] = [row for row in FEWER["device_level"] if "NON_COMPUTE" not in str(row)]
DEAD_PORT = "The port 3 connection instabilities are preventing workloads making forward progress."
UNREADABLE = [
    *(f"{CARD}/hwmon/hwmon5/{name}" for name in ("energy1_input", "power1_max")),
    *(path for path in telemetry(HOMES[FIRST], 0, 61) if path.endswith("/telem")),
    *(path for path in telemetry(HOMES[FIRST], 1, 62) if path.endswith("/telem")),
]
MACHINE: Files = {**SYSTEM, **max_1550(FIRST, 0), **max_1550(SECOND, 1)}

TREES: Mapping[str, str] = {
    "max_1550": tree(MACHINE),
    "arc_b580": tree(arc_b580()),
    "inside_a_processor": tree({**SYSTEM, **inside()}),
    "max_1550_ecc": tree({f"{CLOCKS[0]}/error_counter/soc_fatal_hbm_ss0_0": "2"}, "max_1550"),
    "max_1550_link_down": tree({}, "max_1550"),
    "max_1550_tool_2": tree({}, "max_1550"),
    "max_1550_tool_2_ecc": tree({}, "max_1550"),
    "max_1550_x8": tree({f"{UP}/current_link_width": "8"}, "max_1550"),
    "max_1550_throttled": tree(throttled(), "max_1550"),
    "max_1550_missing_field": tree(
        {}, "max_1550", (f"{CARD}/hwmon/hwmon5/energy1_input", f"{CLOCKS[0]}/rps_act_freq_mhz")
    ),
    "max_1550_lost": tree({}, "max_1550", (f"/sys/bus/pci/devices/{FIRST}",)),
    "max_1550_denied": tree({}, "max_1550")
    + packed({path: MACHINE[path] for path in UNREADABLE}, frozenset(UNREADABLE)),
    "max_1550_no_driver": tree(
        {}, "max_1550", tuple(f"/sys/devices/{home}/driver" for home in HOMES.values())
    ),
}
ANSWERS: Mapping[str, str] = {
    "max_1550": document(HEALTHY),
    "arc_b580": document(arc_answers()),
    "inside_a_processor": document({"discovery": {"device_list": []}}),
    "max_1550_ecc": document(
        {f"stats -d {FIRST} -r": statistics(0, NON_COMPUTE_ERRORS_UNCORRECTABLE=2)}, "max_1550"
    ),
    "max_1550_link_down": document(
        {
            "topology -m": {"topo_list": topology((3,))},
            f"config -d {FIRST}": settings(0, (3,)),
            f"health -d {FIRST}": health(0, ("Critical", DEAD_PORT)),
        },
        "max_1550",
    ),
    "max_1550_tool_2": document(HEALTHY_BY_TOOL_2),
    "max_1550_tool_2_ecc": document(
        {
            f"stats -d {FIRST} -r": {
                "ras_errors": {name: errors(0, 0) for name in CATEGORIES}
                | {"Mem Errors": errors(5, 2), "Reset": errors(0, 1)}
            }
        },
        "max_1550_tool_2",
    ),
    "max_1550_x8": document({}, "max_1550"),
    "max_1550_throttled": document({}, "max_1550"),
    "max_1550_missing_field": document(
        {
            f"discovery -d {FIRST}": without(
                HEALTHY[f"discovery -d {FIRST}"], "serial_number", "gfx_firmware_version"
            ),
            f"stats -d {FIRST} -r": FEWER,
        },
        "max_1550",
    ),
    "max_1550_lost": document({}, "max_1550"),
    "max_1550_denied": document(dict.fromkeys(HEALTHY, DENIED), "max_1550"),
    "max_1550_no_driver": document(dict.fromkeys(HEALTHY, DENIED), "max_1550"),
}


def write() -> None:
    for name, text in TREES.items():
        (FOLDER / f"{name}.tree").write_text(text)
    for name, text in ANSWERS.items():
        (FOLDER / f"{name}.json").write_text(text)


if __name__ == "__main__":
    write()
