"""Answers of NVIDIA's management library on machines that we do not have, built from documentation.

None was recorded by us. Values of a model (clocks, limits, PCI ids, firmware versions, memory) are
those that `SOURCES` prints, which holds public captures of nvidia-smi; serials, UUIDs, addresses
of a second device and counters are invented. A fault is one change of the healthy H100.

    python tests/recorded/documented_nvml.py    writes cuda/NAME.json; a test holds that they are it

A record has `system` and for each device `answers`: the function, its arguments by the names of
nvml.h, and the value, {"error": code's name} or a structure's members; `fields` by name, with one
value or one for each link; and `files` and `links` of the kernel beneath a root.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "cuda"
Record = dict[str, Any]
Answers = dict[str, Any]

CAPTURES = (
    "https://github.com/NVIDIA/k8s-test-infra/tree/main/tests/e2e/go/assertions/nvidiasmi/"
    "testdata/hardware"
)
NVML = "https://docs.nvidia.com/deploy/nvml-api (functions, units, error codes, field values)"
LINKS = (
    "https://github.com/NVIDIA/k8s-test-infra/tree/main/deployments/nvml-mock/helm/nvml-mock/"
    "profiles (links of a device, their number and rate)"
)
KERNEL = "Linux, Documentation/ABI/testing/sysfs-bus-pci and sysfs-bus-pci-devices-aer_stats"
SOURCES = (f"{CAPTURES} (nvidia-smi -q -x of one machine)", NVML, LINKS, KERNEL)
H200 = (
    "https://github.com/awslabs/amazon-eks-ami/pull/1985 (clocks)",
    "public outputs of nvidia-smi and lspci (143771 MiB, 700 W, 10de:2335, subsystem 10de:18bf)",
    NVML,
    LINKS,
    KERNEL,
)
V100 = (
    "https://github.com/NVIDIA/nvidia-docker/issues/1076 (nvidia-smi -q of a V100-SXM2-32GB)",
    "https://docs.nvidia.com/deploy/dynamic-page-retirement (pages of parts before Ampere)",
    NVML,
)
BRIEF = (
    "https://manuals.plus/m/d4b5dc21484df3ba8fbe84918338461cc074a3fcebcc13423eadc2b10ac3bda4 "
    "(NVIDIA H100 PCIe, product brief PB-11133-001: 350 W; the other values are the module's)"
)
CARD = (
    BRIEF,
    NVML,
    KERNEL,
)
MIG = ("https://docs.nvidia.com/datacenter/tesla/mig-user-guide (names and sizes of slices)",)
RATES = {3: "8.0", 4: "16.0", 5: "32.0"}
MIB = 1 << 20
GPU = "GPU-00000000-0000-0000-0000-00000000000{}"
CAPPED = {"violationTime": 7_015_662_857_000}
UNSUPPORTED, LOST = "NVML_ERROR_NOT_SUPPORTED", "NVML_ERROR_GPU_IS_LOST"


def error(code: str) -> dict[str, str]:
    return {"error": code}


# ------------------------------------------------------------------ parts of a device


def identity(name: str, number: int, capability: Sequence[int], **texts: str) -> Answers:
    """Names of a device; texts by the last words of the function."""
    return {
        "nvmlDeviceGetName()": name,
        "nvmlDeviceGetUUID()": GPU.format(number + 1),
        "nvmlDeviceGetSerial()": f"165000000000{number + 1}",
        "nvmlDeviceGetCudaComputeCapability()": list(capability),
        **{f"nvmlDeviceGet{word}()": text for word, text in texts.items()},
    }


def memory(total: int, reserved: int) -> Answers:
    """Mebibytes."""
    return {
        "nvmlDeviceGetMemoryInfo(nvmlMemory_v2)": {
            "total": total * MIB,
            "reserved": reserved * MIB,
            "free": (total - reserved) * MIB,
            "used": 0,
        },
        "nvmlDeviceGetEccMode()": [1, 1],
        "nvmlDeviceGetMigMode()": [0, 0],
        "nvmlDeviceGetComputeMode()": 0,
        "nvmlDeviceGetPersistenceMode()": 1,
    }


def power(limit: int, lowest: int, drawn: float, celsius: int) -> Answers:
    """Watts and celsius; the device is idle."""
    return {
        "nvmlDeviceGetEnforcedPowerLimit()": limit * 1000,
        "nvmlDeviceGetPowerManagementDefaultLimit()": limit * 1000,
        "nvmlDeviceGetPowerManagementLimitConstraints()": [lowest * 1000, limit * 1000],
        "nvmlDeviceGetPowerUsage()": round(drawn * 1000),
        "nvmlDeviceGetTotalEnergyConsumption()": 600_000_000,
        "nvmlDeviceGetTemperature(NVML_TEMPERATURE_GPU)": celsius,
        "nvmlDeviceGetUtilizationRates()": {"gpu": 0, "memory": 0},
        "nvmlDeviceGetNumFans()": 0,
        "nvmlDeviceGetCurrentClocksEventReasons()": 1,
        "nvmlDeviceGetViolationStatus(NVML_PERF_POLICY_POWER)": CAPPED,
        "nvmlDeviceGetViolationStatus(NVML_PERF_POLICY_THERMAL)": {"violationTime": 0},
        "nvmlDeviceGetViolationStatus(NVML_PERF_POLICY_SYNC_BOOST)": {"violationTime": 0},
    }


def clocks(graphics: int, highest: int, of_memory: int, default: int = 0) -> Answers:
    """Megahertz; `default` is the applications clock where it is not the highest."""
    call, application = "nvmlDeviceGet{}ClockInfo({})", default or highest
    return {
        call.format("", "NVML_CLOCK_GRAPHICS"): graphics,
        call.format("", "NVML_CLOCK_MEM"): of_memory,
        call.format("Max", "NVML_CLOCK_GRAPHICS"): highest,
        call.format("Max", "NVML_CLOCK_MEM"): of_memory,
        "nvmlDeviceGetApplicationsClock(NVML_CLOCK_GRAPHICS)": application,
        "nvmlDeviceGetDefaultApplicationsClock(NVML_CLOCK_GRAPHICS)": application,
    }


def bus(address: str, device: int, subsystem: int, generation: int) -> Answers:
    """Ids with the device in the upper half, as the library gives them."""
    return {
        "nvmlDeviceGetPciInfo_v3()": {
            "busId": f"0000{address.upper()}",
            "pciDeviceId": device,
            "pciSubSystemId": subsystem,
        },
        "nvmlDeviceGetGpuMaxPcieLinkGeneration()": generation,
        "nvmlDeviceGetMaxPcieLinkGeneration()": generation,
        "nvmlDeviceGetCurrPcieLinkGeneration()": generation,
        "nvmlDeviceGetMaxPcieLinkWidth()": 16,
        "nvmlDeviceGetCurrPcieLinkWidth()": 16,
        "nvmlDeviceGetPcieReplayCounter()": 150,
    }


def errors() -> Answers:
    """No errors, of a part that replaces rows (Ampere and later)."""
    total = "nvmlDeviceGetTotalEccErrors(NVML_MEMORY_ERROR_TYPE_{}, NVML_{}_ECC)"
    kinds = [(kind, time) for kind in ("CORRECTED", "UNCORRECTED") for time in TIMES]
    return {
        **{total.format(*pair): 0 for pair in kinds},
        "nvmlDeviceGetRemappedRows()": [0, 0, 0, 0],
        "nvmlDeviceGetRetiredPages(*)": error(UNSUPPORTED),
        "nvmlDeviceGetRetiredPagesPendingStatus()": error(UNSUPPORTED),
    }


TIMES = ("VOLATILE", "AGGREGATE")


def links(version: str) -> Answers:
    """All links up, and each to a switch."""
    return {
        "nvmlDeviceGetNvLinkState(*)": 1,
        "nvmlDeviceGetNvLinkVersion(*)": version,
        "nvmlDeviceGetNvLinkRemoteDeviceType(*)": "NVML_NVLINK_DEVICE_TYPE_SWITCH",
        "nvmlDeviceGetNvLinkRemotePciInfo(*)": error(UNSUPPORTED),
        "nvmlDeviceGetTopologyCommonAncestor(device)": "NVML_TOPOLOGY_SYSTEM",
        "nvmlDeviceGetP2PStatus(device, NVML_P2P_CAPS_INDEX_NVLINK)": 0,
    }


def fields(count: int, megabytes: int, celsius: int, **counters: int) -> Answers:
    """Counters by the last words of the field, one value for each link."""
    return {
        "NVML_FI_DEV_MEMORY_TEMP": celsius,
        "NVML_FI_DEV_NVLINK_LINK_COUNT": count,
        "NVML_FI_DEV_NVLINK_GET_SPEED": [megabytes] * count,
        "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION": 0,
        "NVML_FI_DEV_PCIE_COUNT_NAKS_RECEIVED": 0,
        "NVML_FI_DEV_PCIE_COUNT_NAKS_SENT": 0,
        **{f"{EVENT}{name}": 0 for name in EVENTS},
        **{f"NVML_FI_DEV_NVLINK_{name}": [value] * count for name, value in counters.items()},
    }


EVENT = "NVML_FI_DEV_CLOCKS_EVENT_REASON_"
EVENTS = ("SW_THERM_SLOWDOWN", "HW_THERM_SLOWDOWN", "HW_POWER_BRAKE_SLOWDOWN")
"""Asked of drivers from 580 on alone."""
UP_TO_4 = {"ERROR_DL_REPLAY": 0, "ERROR_DL_RECOVERY": 0, "ERROR_DL_CRC": 0}
FROM_5_ON = {"COUNT_LINK_RECOVERY_EVENTS": 0, "COUNT_RCV_ERRORS": 0}


def kernel(address: str, ids: Sequence[str], generation: int, node: int) -> Record:
    """Files of the function, which /sys/bus/pci links to its place beneath a host bridge."""
    home = f"/sys/devices/pci0000:{address[5:7]}/{address}"
    names = ("device", "subsystem_vendor", "subsystem_device")
    rate = f"{RATES[generation]} GT/s PCIe"
    near = f"{56 * node}-{56 * node + 55}"
    texts = {
        "vendor": "0x10de",
        "class": "0x030200",
        **{name: f"0x{value}" for name, value in zip(names, ids, strict=True)},
        "current_link_speed": rate,
        "max_link_speed": rate,
        "current_link_width": "16",
        "max_link_width": "16",
        "numa_node": str(node),
        "local_cpulist": near,
        "aer_dev_correctable": "RxErr 0\nBadTLP 0\nBadDLLP 0\nTOTAL_ERR_COR 0",
        "aer_dev_nonfatal": "Undefined 0\nDLP 0\nTOTAL_ERR_NONFATAL 0",
        "aer_dev_fatal": "Undefined 0\nDLP 0\nTOTAL_ERR_FATAL 0",
    }
    return {
        "files": {f"{home}/{name}": text for name, text in texts.items()},
        "links": {f"/sys/bus/pci/devices/{address}": f"../../../..{home}"},
    }


# ------------------------------------------------------------------ machines


def node(
    devices: Sequence[Record], kernels: Sequence[Record], *, driver: str, api: int, **more: Any
) -> Record:
    files = {name: text for one in kernels for name, text in one["files"].items()}
    files |= {f"/dev/nvidia{number}": "" for number in range(len(devices))}
    return {
        "origin": "built from documentation",
        "sources": list(more.pop("sources", SOURCES)),
        "system": {
            "nvmlSystemGetDriverVersion()": driver,
            "nvmlSystemGetCudaDriverVersion_v2()": api,
            "nvmlSystemGetConfComputeState()": {"ccFeature": 0},
            **more,
        },
        "devices": list(devices),
        "files": {**files, "/dev/nvidiactl": ""},
        "links": {name: target for one in kernels for name, target in one["links"].items()},
    }


HOPPER = ("0000:53:00.0", "0000:64:00.0")


def hopper(number: int, name: str, ids: tuple[int, int], **more: Any) -> Record:
    return {
        "answers": {
            **identity(name, number, (9, 0), **more.pop("texts")),
            "nvmlDeviceGetNumGpuCores()": 16896,
            **more.pop("memory"),
            **power(700, 200, 68.57, 29),
            # Hopper tells the distance from its limits in place of the limits.
            "nvmlDeviceGetTemperatureThreshold(*)": error(UNSUPPORTED),
            **more.pop("clocks"),
            **bus(HOPPER[number], *ids, 5),
            **errors(),
            **links("NVML_NVLINK_VERSION_4_0"),
            "nvmlDeviceGetGpuFabricInfoV()": {"state": 3, "status": 0},
            "nvmlDeviceGetComputeRunningProcesses()": [],
        },
        "fields": fields(18, 26562, 37, **UP_TO_4),
    }


def h100_sxm() -> Record:
    texts = {
        "BoardPartNumber": "692-2G520-0200-000",
        "VbiosVersion": "96.00.99.00.01",
        "InforomImageVersion": "G520.0200.00.05",
        "GspFirmwareVersion": "580.105.08",
    }
    parts = {"memory": memory(81559, 480), "clocks": clocks(345, 1980, 2619)}
    ids = (0x233010DE, 0x16C110DE)
    devices = [
        hopper(number, "NVIDIA H100 80GB HBM3", ids, texts=texts, **parts) for number in (0, 1)
    ]
    names = ("2330", "10de", "16c1")
    kernels = [kernel(HOPPER[number], names, 5, number) for number in (0, 1)]
    return node(devices, kernels, driver="580.105.08", api=13000)


def h200_sxm() -> Record:
    """Firmware versions are not in the sources, so that the library does not give them."""
    texts = {"GspFirmwareVersion": "550.90.07"}
    parts = {"memory": memory(143771, 0), "clocks": clocks(345, 1980, 3201)}
    ids = (0x233510DE, 0x18BF10DE)
    devices = [hopper(number, "NVIDIA H200", ids, texts=texts, **parts) for number in (0, 1)]
    kernels = [kernel(HOPPER[number], ("2335", "10de", "18bf"), 5, number) for number in (0, 1)]
    return node(devices, kernels, driver="550.90.07", api=12040, sources=H200)


AMPERE = ("0000:06:00.0", "0000:07:00.0")


def a100(number: int) -> Record:
    texts = {
        "BoardPartNumber": "692-2G506-0200-003",
        "VbiosVersion": "92.00.45.00.03",
        "InforomImageVersion": "G506.0200.00.04",
        "GspFirmwareVersion": "570.148.08",
    }
    return {
        "answers": {
            **identity("NVIDIA A100-SXM4-40GB", number, (8, 0), **texts),
            "nvmlDeviceGetNumGpuCores()": 6912,
            **memory(40960, 518),
            **power(400, 100, 49.68, 33),
            "nvmlDeviceGetTemperatureThreshold(NVML_TEMPERATURE_THRESHOLD_SLOWDOWN)": 89,
            **clocks(210, 1410, 1215, 1095),
            **bus(AMPERE[number], 0x20B010DE, 0x134F10DE, 4),
            **errors(),
            **links("NVML_NVLINK_VERSION_3_0"),
            "nvmlDeviceGetTopologyCommonAncestor(device)": "NVML_TOPOLOGY_MULTIPLE",
        },
        "fields": fields(12, 25781, 34, **UP_TO_4),
    }


def a100_sxm() -> Record:
    kernels = [kernel(address, ("20b0", "10de", "134f"), 4, 0) for address in AMPERE]
    confidential = {"nvmlSystemGetConfComputeState()": error(UNSUPPORTED)}
    return node([a100(0), a100(1)], kernels, driver="570.148.08", api=12080, **confidential)


def b200() -> Record:
    addresses = ("0000:8f:00.0", "0000:90:00.0")
    texts = {
        "BoardPartNumber": "692-2G525-0220-500",
        "VbiosVersion": "97.00.FA.00.09",
        "InforomImageVersion": "G525.0220.00.03",
        "GspFirmwareVersion": "580.105.08",
    }
    devices = [
        {
            "answers": {
                **identity("NVIDIA B200", number, (10, 0), **texts),
                **memory(183359, 728),
                "nvmlDeviceGetPersistenceMode()": 0,
                **power(1000, 200, 195.68, 39),
                "nvmlDeviceGetTemperatureThreshold(*)": error(UNSUPPORTED),
                **clocks(120, 1965, 3996),
                **bus(address, 0x290110DE, 0x199910DE, 5),
                "nvmlDeviceGetPcieReplayCounter()": 0,
                **errors(),
                **links("NVML_NVLINK_VERSION_5_0"),
                "nvmlDeviceGetGpuFabricInfoV()": {"state": 3, "status": 0},
            },
            "fields": fields(18, 53125, 39, **FROM_5_ON),
        }
        for number, address in enumerate(addresses)
    ]
    kernels = [kernel(address, ("2901", "10de", "1999"), 5, 1) for address in addresses]
    return node(devices, kernels, driver="580.105.08", api=13000)


def mig_slices() -> Record:
    """A divided A100 of which two slices can be seen from here."""
    record = a100_sxm()
    device = record["devices"][0]
    device["answers"] |= {"nvmlDeviceGetMigMode()": [1, 1], "nvmlDeviceGetMaxMigDeviceCount()": 7}
    device["answers"]["nvmlDeviceGetUtilizationRates()"] = error(UNSUPPORTED)
    used = {"total": 4864 * MIB, "reserved": 0, "free": 4864 * MIB, "used": 0}
    device["slices"] = [
        {
            "nvmlDeviceGetName()": "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
            "nvmlDeviceGetUUID()": f"MIG-11110000-0000-0000-0000-00000000000{number}",
            "nvmlDeviceGetMemoryInfo(nvmlMemory_v2)": used,
            "nvmlDeviceGetAttributes()": {"multiprocessorCount": 14},
        }
        for number in range(2)
    ]
    record["devices"] = [device]
    record["sources"] += MIG
    return record


def card_without_bridge() -> Record:
    """A card whose links go nowhere, because nobody plugged bridges in: that is no fault."""
    record = h100_sxm()
    device = record["devices"][0]
    answers = device["answers"]
    answers |= power(350, 200, 50, 34) | bus(HOPPER[0], 0x233110DE, 0x162610DE, 5)
    answers["nvmlDeviceGetName()"] = "NVIDIA H100 PCIe"
    answers["nvmlDeviceGetNvLinkState(*)"] = 0
    for name in ("BoardPartNumber", "VbiosVersion", "InforomImageVersion", "NumGpuCores"):
        del answers[f"nvmlDeviceGet{name}()"]
    answers["nvmlDeviceGetGpuFabricInfoV()"] = error(UNSUPPORTED)
    answers["nvmlDeviceGetNvLinkRemoteDeviceType(*)"] = error(UNSUPPORTED)
    return {**record, "devices": [device], "sources": list(CARD)}


def pages_retired() -> Record:
    """A part from before rows could be replaced: it gives up pages, and one waits for a reset."""
    answers = {
        **identity("Tesla V100-SXM2-32GB", 0, (7, 0)),
        **memory(32510, 0),
        **power(300, 150, 56.58, 40),
        **clocks(1290, 1530, 877, 1290),
        **bus(HOPPER[0], 0x1DB510DE, 0x124910DE, 3),
        **errors(),
        **links("NVML_NVLINK_VERSION_2_2"),
        "nvmlDeviceGetMigMode()": error(UNSUPPORTED),
        "nvmlDeviceGetRemappedRows()": error(UNSUPPORTED),
        "nvmlDeviceGetRetiredPages(0)": [0x1000, 0x2000],
        "nvmlDeviceGetRetiredPages(1)": [0x3000],
        "nvmlDeviceGetRetiredPagesPendingStatus()": 1,
    }
    old = {
        "NVML_FI_DEV_NVLINK_LINK_COUNT": 6,
        "NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON": 25781,
        "NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL": 3,
        "NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL": 0,
        "NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": 2,
        "NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL": 5,
    }
    kernels = [kernel(HOPPER[0], ("1db5", "10de", "1249"), 3, 0)]
    device = {"answers": answers, "fields": old}
    return node([device], kernels, driver="535.154.05", api=12020, sources=V100)


@dataclass(frozen=True)
class Part:
    """A part of which little more is known than what tells it from the others.

    Its name and memory are those of public outputs of nvidia-smi, its cores those that its data
    sheet states; 0 is not known. Where it has no links no question about them is supported.
    """

    name: str
    capability: tuple[int, int]
    mebibytes: int
    cores: int = 0
    num_links: int = 0


PARTS = (
    Part("NVIDIA GB200", (10, 0), 189471, num_links=18),
    Part("NVIDIA B300 SXM6 AC", (10, 3), 275040, num_links=18),
    Part("NVIDIA GH200 480GB", (9, 0), 97871, 16896, num_links=18),
    Part("NVIDIA H20", (9, 0), 0, num_links=18),
    Part("NVIDIA RTX PRO 6000 Blackwell Server Edition", (12, 0), 97887, 24064),
    Part("NVIDIA GeForce RTX 5090", (12, 0), 32752, 21760),
    Part("NVIDIA RTX 6000 Ada Generation", (8, 9), 49140, 18176),
    Part("NVIDIA L4", (8, 9), 23034, 7424),
    Part("NVIDIA A10", (8, 6), 23028, 9216),
    Part("NVIDIA A10", (8, 6), 23028, 9216),
    Part("Tesla T4", (7, 5), 0, 2560),
    Part("Tesla V100-SXM2-32GB", (7, 0), 32510, 5120, num_links=6),
)
PART_SOURCES = (
    "public outputs of nvidia-smi (names; MiB: GB200 189471, B300 275040, GH200 97871)",
    "https://github.com/VladislavDuma/gpu_specs (MiB of A10, L4, RTX 5090, RTX 6000 Ada; cores)",
    "https://github.com/winston-zhang-orz/gpu-specs, specs.md (cores; compute capability)",
    "https://docs.nvidia.com/datacenter/tesla/mig-user-guide/610/supported-gpus.html (capability)",
    NVML,
)


def parts() -> Record:
    """One node with a device of each of them, two A10 among them."""
    devices = [
        {"answers": part_answers(number, part), "fields": part_fields(part)}
        for number, part in enumerate(PARTS)
    ]
    return node(devices, [], driver="580.105.08", api=13000, sources=PART_SOURCES)


def part_answers(number: int, part: Part) -> Answers:
    answers = {
        **identity(part.name, number, part.capability),
        "nvmlDeviceGetTopologyCommonAncestor(device)": "NVML_TOPOLOGY_SYSTEM",
        **(memory(part.mebibytes, 0) if part.mebibytes else {}),
    }
    if part.cores:
        answers["nvmlDeviceGetNumGpuCores()"] = part.cores
    return answers | (links("NVML_NVLINK_VERSION_4_0") if part.num_links else {})


def part_fields(part: Part) -> Answers:
    return {"NVML_FI_DEV_NVLINK_LINK_COUNT": part.num_links} if part.num_links else {}


# ------------------------------------------------------------------ one fault each


def faulty(*changes: tuple[str, Any], of_fields: Mapping[str, Any] | None = None) -> Record:
    """The H100 with answers of its second device changed."""
    record = h100_sxm()
    device = record["devices"][1]
    device["answers"] |= dict(changes)
    device["fields"] |= of_fields or {}
    return record


def ecc_uncorrected() -> Record:
    total = "nvmlDeviceGetTotalEccErrors(NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_{}_ECC)"
    return faulty(*((total.format(time), 1) for time in TIMES))


def remap_pending() -> Record:
    return faulty(("nvmlDeviceGetRemappedRows()", [0, 1, 1, 0]))


def link_down() -> Record:
    replays = [0] * 18
    replays[3] = 4
    return faulty(
        ("nvmlDeviceGetNvLinkState(7)", 0),
        of_fields={
            "NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY": replays,
            "NVML_FI_DEV_NVLINK_ERROR_DL_CRC": [2, 1, *[0] * 16],
        },
    )


def pcie_x8() -> Record:
    """A slot or riser with eight lanes: the driver calls that the most, the part has sixteen."""
    calls = ("nvmlDeviceGetMaxPcieLinkWidth()", "nvmlDeviceGetCurrPcieLinkWidth()")
    record = faulty(*((call, 8) for call in calls))
    path = f"/sys/devices/pci0000:64/{HOPPER[1]}/current_link_width"
    record["files"][path] = "8"
    return record


def thermal_throttle() -> Record:
    """Hot, and at its power limit: four bits at once."""
    return faulty(
        ("nvmlDeviceGetCurrentClocksEventReasons()", 0x4 | 0x8 | 0x20 | 0x40),
        ("nvmlDeviceGetTemperature(NVML_TEMPERATURE_GPU)", 89),
        ("nvmlDeviceGetPowerUsage()", 698_400),
        ("nvmlDeviceGetClockInfo(NVML_CLOCK_GRAPHICS)", 990),
        (
            "nvmlDeviceGetViolationStatus(NVML_PERF_POLICY_THERMAL)",
            {"violationTime": 12_400_000_000},
        ),
        of_fields={
            f"{EVENT}SW_THERM_SLOWDOWN": 12_100_000_000,
            f"{EVENT}HW_THERM_SLOWDOWN": 300_000_000,
        },
    )


def missing_fields() -> Record:
    """Two devices that tell little more than their names, as virtual ones do."""
    record = h100_sxm()
    kept = ("Name", "UUID", "MemoryInfo", "PciInfo", "CudaComputeCapability", "HandleByUUID")
    for device in record["devices"]:
        answers = device["answers"]
        starts = tuple(f"nvmlDeviceGet{name}" for name in kept)
        device["answers"] = {name: answers[name] for name in answers if name.startswith(starts)}
        device["fields"] = {}
    record["files"] = {name: "" for name in record["files"] if name.startswith("/dev")}
    record["links"] = {}
    return record


def gpu_lost() -> Record:
    """The second device fell off the bus: the driver still has a handle for it."""
    record = h100_sxm()
    record["devices"][1] = {"answers": {"*": error(LOST)}, "fields": {"*": error(LOST)}}
    gone = f"/sys/devices/pci0000:64/{HOPPER[1]}/"
    record["files"] = {name: text for name, text in record["files"].items() if gone not in name}
    del record["links"][f"/sys/bus/pci/devices/{HOPPER[1]}"]
    return record


def handle_lost() -> Record:
    """As above, and the driver gives no handle any more."""
    record = gpu_lost()
    record["devices"][1]["handle"] = error(LOST)
    return record


def permission_denied() -> Record:
    """The driver tells this user names and clocks, and no counter."""
    record = h100_sxm()
    closed = (
        "TotalEcc",
        "Remapped",
        "Retired",
        "Violation",
        "TotalEnergy",
        "PcieReplay",
        "ComputeRunning",
    )
    for device in record["devices"]:
        for name in device["answers"]:
            if name.startswith(tuple(f"nvmlDeviceGet{word}" for word in closed)):
                device["answers"][name] = error("NVML_ERROR_NO_PERMISSION")
    return record


def not_ours() -> Record:
    """The second device was not given to this container."""
    record = h100_sxm()
    record["devices"][1]["handle"] = error("NVML_ERROR_NO_PERMISSION")
    return record


def pcie_naks() -> Record:
    """A bad contact: packets are refused on both sides, and none is lost."""
    counts = {"RECEIVED": 12, "SENT": 30}
    return faulty(
        ("nvmlDeviceGetPcieReplayCounter()", 162),
        of_fields={f"NVML_FI_DEV_PCIE_COUNT_NAKS_{way}": num for way, num in counts.items()},
    )


def reset_wanted() -> Record:
    """Every counter is zero, and the driver wants a reset before anything can run."""
    return faulty(of_fields={"NVML_FI_DEV_GET_GPU_RECOVERY_ACTION": 1})


def fabric_not_ready() -> Record:
    return faulty(("nvmlDeviceGetGpuFabricInfoV()", {"state": 2, "status": 0}))


PASSED_THROUGH = (
    *SOURCES,
    "what an H100 80GB HBM3 in a virtual machine answered about its links (driver 580.159.04)",
    "https://github.com/leptonai/gpud/issues/1140 (the same of another one)",
)


def links_not_shown() -> Record:
    """A device that is passed through to a virtual machine, alone."""
    pair = links_not_shown_of_two()
    return {**pair, "devices": pair["devices"][:1]}


def links_not_shown_of_two() -> Record:
    """The same of two devices, which may have links to each other all the same."""
    record = h100_sxm()
    for device in record["devices"]:
        answers, of_fields = device["answers"], device["fields"]
        kept = {name: one for name, one in answers.items() if "NvLink" not in name}
        device["answers"] = {**kept, "nvmlDeviceGetGpuFabricInfoV()": {"state": 0, "status": 0}}
        device["fields"] = {name: one for name, one in of_fields.items() if "NVLINK" not in name}
    return {**record, "sources": list(PASSED_THROUGH)}


def two_a10() -> Record:
    """Two cards whose design has no links: the driver answers as where it hides them."""
    record = links_not_shown_of_two()
    for device in record["devices"]:
        device["answers"] |= {
            "nvmlDeviceGetName()": "NVIDIA A10",
            "nvmlDeviceGetCudaComputeCapability()": [8, 6],
            "nvmlDeviceGetNumGpuCores()": 9216,
        }
    return record


def nothing_supported() -> Record:
    """A device that supports no question at all, not even its name."""
    record = links_not_shown()
    return {**record, "devices": [{"answers": {"*": error(UNSUPPORTED)}, "fields": {}}]}


def shared() -> Record:
    """Another program computes on the second device; figures of one that was recorded so."""
    held = {"total": 81559 * MIB, "reserved": 480 * MIB, "free": 80228 * MIB, "used": 851 * MIB}
    return faulty(
        ("nvmlDeviceGetComputeRunningProcesses()", [{"pid": 4711, "usedGpuMemory": 851 * MIB}]),
        ("nvmlDeviceGetMemoryInfo(nvmlMemory_v2)", held),
        ("nvmlDeviceGetUtilizationRates()", {"gpu": 100, "memory": 31}),
        ("nvmlDeviceGetPowerUsage()", 697_608),
    )


def driver_broken() -> Record:
    """The device is there, and library and kernel driver differ in version."""
    return {**h100_sxm(), "init": error("NVML_ERROR_LIB_RM_VERSION_MISMATCH")}


HEALTHY = (h100_sxm, h200_sxm, a100_sxm, b200, mig_slices, card_without_bridge, two_a10)
FAULTY = (
    *(ecc_uncorrected, remap_pending, link_down, pcie_x8, thermal_throttle, missing_fields),
    *(gpu_lost, handle_lost, permission_denied, not_ours, reset_wanted, fabric_not_ready),
    *(driver_broken, pages_retired, pcie_naks, shared),
    *(links_not_shown, links_not_shown_of_two, nothing_supported),
)


def built() -> dict[str, str]:
    """Text of every record by its name."""
    return {
        make.__name__: json.dumps(deepcopy(make()), indent=1, sort_keys=True) + "\n"
        for make in (*HEALTHY, *FAULTY, parts)
    }


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, text in built().items():
        (FOLDER / f"{name}.json").write_text(text)
