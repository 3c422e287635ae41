"""NVIDIA's devices, from recorded answers of their management library; no driver is needed."""

import json
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pynvml
import pytest
import torch
from recorded import documented_nvml, replayed_nvml, trees
from recorded.replayed_nvml import Replayed

from appliance.errors import UsageError
from appliance.linux.sysfs import Unreadable
from appliance.probe import node
from appliance.records.json import Scalar
from appliance.records.system import Device, identity_differences
from appliance.records.vocabulary import CONNECTION, COUNTERS, FACTS, READINGS, THROTTLES
from appliance.vendors.base import Vendor
from appliance.vendors.containers import CONTAINERS
from appliance.vendors.nvidia import xid
from appliance.vendors.nvidia.cuda import Cuda
from appliance.vendors.nvidia.nvml import DRIVER_LIBRARY, HINTS, Nvml, Refusal
from appliance.vendors.nvidia.nvml_absent import BY_DESIGN
from appliance.vendors.nvidia.nvml_telemetry import COUNTED, READ, REASONS, throttled

Named = Callable[[str], Cuda]
ROOT = Path(__file__).parents[2]
LIVE = tuple(name for name in replayed_nvml.names() if name != "driver_broken")
NEVER_GIVEN = "not reported by this device"


@pytest.fixture
def vendor(tmp_path: Path) -> Named:
    """The vendor of a recorded machine."""
    return lambda name: replayed_nvml.vendor(name, tmp_path / name)


def values(device: Device) -> dict[str, Scalar | None]:
    return {name: fact.value for name, fact in device.facts.items()}


def library(one: Cuda) -> Replayed:
    replayed = one._nvml._replacement
    assert isinstance(replayed, Replayed)
    return replayed


def known(result: Mapping[str, float | None]) -> dict[str, float]:
    return {name: value for name, value in result.items() if value is not None}


def nonzero(result: Mapping[str, float | None]) -> dict[str, float]:
    return {name: value for name, value in known(result).items() if value}


# ------------------------------------------------------------------ the records


def test_the_records_are_what_their_builder_writes() -> None:
    here = {path.stem: path.read_text() for path in documented_nvml.FOLDER.glob("*.json")}
    assert here == documented_nvml.built()


@pytest.mark.parametrize("name", replayed_nvml.names())
def test_no_record_claims_to_be_of_a_machine(name: str) -> None:
    record = json.loads((documented_nvml.FOLDER / f"{name}.json").read_text())
    assert record["origin"] == "built from documentation"
    assert record["sources"]


def test_a_record_answers_as_the_library_would() -> None:
    replayed = Replayed({"system": {}, "devices": [{"answers": {}, "fields": {}}]})
    handle = replayed.nvmlDeviceGetHandleByIndex(0)
    with pytest.raises(pynvml.NVMLError_NotSupported):
        replayed.nvmlDeviceGetName(handle)
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        replayed.nvmlDeviceGetHandleByIndex(1)
    with pytest.raises(TypeError):
        replayed.nvmlDeviceGetName()
    with pytest.raises(AttributeError):
        replayed.nvmlDeviceGetColour(handle)


# ------------------------------------------------------------------ what a device is


def test_a_module_is_told_with_all_its_facts(vendor: Named) -> None:
    one, _ = vendor("h100_sxm").probe()
    assert (one.id, one.vendor, one.index) == ("cuda:0", "cuda", 0)
    assert (one.model, one.serial) == ("NVIDIA H100 80GB HBM3", "1650000000001")
    assert one.memory_bytes == 81559 << 20
    assert values(one) == {
        "uuid": "GPU-00000000-0000-0000-0000-000000000001",
        "product": "NVIDIA H100 80GB HBM3",
        "board_part_number": "692-2G520-0200-000",
        "architecture": "sm_90",
        "compute_units": 132,
        "vbios": "96.00.99.00.01",
        "firmware": "inforom G520.0200.00.05, GSP 580.105.08",
        "driver": "580.105.08",
        "driver_api": "CUDA 13.0",
        "memory": 81559 << 20,
        "ecc_mode": "on",
        "ecc_mode_pending": "on",
        "persistence_mode": "on",
        "compute_mode": "default",
        "confidential_mode": "off",
        "partition_mode": "none",
        "partitions": "none",
        "fabric": "completed",
        "power_limit": 700.0,
        "power_limit_default": 700.0,
        "power_limit_lowest": 200.0,
        "power_limit_highest": 700.0,
        "highest_graphics_clock": 1_980_000_000,
        "highest_memory_clock": 2_619_000_000,
        "graphics_clock_limit": "none",
        "slowdown_temperature": None,
        "pci_address": "0000:53:00.0",
        "pci_device": "10de:2330",
        "pci_subsystem": "10de:16c1",
        "pcie_generation_highest": 5,
        "pcie_width_highest": 16,
        "pcie_generation_slot": 5,
        "pcie_width_slot": 16,
        "numa_node": 0,
        "cpu_affinity": "0-55",
        "links_shown": True,
        "link_kind": "NVLink 4",
        "num_links": 18,
        "num_links_up": 18,
        "link_bytes_per_second": 26_562_000_000,
        "connection_to_1": "NVLink x18",
    }


@pytest.mark.parametrize("name", LIVE)
def test_the_vocabulary_is_held(name: str, vendor: Named) -> None:
    one = vendor(name)
    for device in one.probe():
        words = {word for word in device.facts if not word.startswith(CONNECTION)}
        assert words <= FACTS.keys()
        assert set(one.read(device)) == set(READ) <= READINGS.keys()
        assert set(one.counters(device)) == set(COUNTED) <= COUNTERS.keys()
        assert one.absent(device) <= {*READINGS, *COUNTERS} - {"lost"}
        assert all(fact.source for fact in device.facts.values())


@pytest.mark.parametrize("name", LIVE)
def test_every_gap_has_its_reason(name: str, vendor: Named) -> None:
    one = vendor(name)
    for device in one.probe():
        gaps = {word for word, fact in device.facts.items() if fact.value is None}
        assert all(device.facts[word].hint for word in gaps)
        reported = {**one.read(device), **one.counters(device)}
        assert set(one.hints(device)) == {word for word, value in reported.items() if value is None}
        assert all(one.hints(device).values())


@pytest.mark.parametrize("name", LIVE)
def test_a_second_look_finds_the_same(name: str, vendor: Named) -> None:
    one = vendor(name)
    assert one.probe() == one.probe()


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("h100_sxm", "h100-sxm"),
        ("h200_sxm", "h200-sxm"),
        ("a100_sxm", "a100-sxm-40gb"),
        ("b200", "b200"),
        ("card_without_bridge", "h100-pcie"),
    ],
)
def test_models_are_those_of_the_device_files(name: str, file: str, vendor: Named) -> None:
    text = (ROOT / "appliance" / "devices" / f"{file}.toml").read_text()
    models = set(tomllib.loads(text)["models"])
    assert {device.model for device in vendor(name).probe()} <= models


def test_an_older_part_tells_its_slowdown_temperature_and_default_clock(vendor: Named) -> None:
    result = values(vendor("a100_sxm").probe()[0])
    # Its applications clock is below the highest as delivered: nobody set that.
    assert (result["slowdown_temperature"], result["graphics_clock_limit"]) == (89, "none")
    assert (result["confidential_mode"], result["fabric"]) == (None, None)
    assert (result["compute_units"], result["link_kind"], result["num_links"]) == (
        108,
        "NVLink 3",
        12,
    )


def test_a_clock_that_somebody_set_is_told(vendor: Named) -> None:
    one = vendor("a100_sxm")
    answers = library(one).record["devices"][0]["answers"]
    answers["nvmlDeviceGetApplicationsClock(NVML_CLOCK_GRAPHICS)"] = 900
    fact = one.probe()[0].facts["graphics_clock_limit"]
    assert (fact.value, fact.unit) == (900_000_000, "hertz")


def test_a_part_without_its_files_tells_what_the_driver_knows(vendor: Named) -> None:
    one, other = vendor("missing_fields").probe()
    facts = known(values(one))  # type: ignore[arg-type]
    assert set(facts) == {
        *("uuid", "product", "architecture", "driver", "driver_api", "memory", "partitions"),
        *("confidential_mode", "partition_mode", "pci_address", "pci_device", "pci_subsystem"),
        "links_shown",
    }
    assert other.serial == other.facts["uuid"].value
    assert one.facts["pcie_width_highest"].hint


def test_processors_near_a_device_come_from_the_driver_where_the_kernel_hides_them(
    vendor: Named,
) -> None:
    one = vendor("missing_fields")
    mask = [0b1011, 1, *[0] * 14]
    library(one).record["devices"][0]["answers"]["nvmlDeviceGetCpuAffinity(16)"] = mask
    assert one.probe()[0].facts["cpu_affinity"].value == "0-1,3,64"


def test_devices_without_links_are_joined_over_the_host(vendor: Named) -> None:
    one = vendor("a100_sxm")
    for device in library(one).record["devices"]:
        device["answers"]["nvmlDeviceGetNvLinkState(*)"] = 0
    result = values(one.probe()[0])
    assert (result["num_links_up"], result["connection_to_1"]) == (0, "PCIe switches")
    assert one.counters(one.probe()[0])["links_down"] == 12


def test_links_straight_to_another_device_are_counted(vendor: Named) -> None:
    one = vendor("a100_sxm")
    answers = library(one).record["devices"][0]["answers"]
    for link in range(4):
        answers[f"nvmlDeviceGetNvLinkRemoteDeviceType({link})"] = "NVML_NVLINK_DEVICE_TYPE_GPU"
        answers[f"nvmlDeviceGetNvLinkRemotePciInfo({link})"] = {"busId": "00000000:07:00.0"}
    assert one.probe()[0].facts["connection_to_1"].value == "NVLink x4"


def test_links_to_a_switch_that_does_not_join_are_no_connection(vendor: Named) -> None:
    one = vendor("h100_sxm")
    call = "nvmlDeviceGetP2PStatus(device, NVML_P2P_CAPS_INDEX_NVLINK)"
    library(one).record["devices"][0]["answers"][call] = 5
    assert one.probe()[0].facts["connection_to_1"].value == "between sockets"


def test_slices_of_a_divided_device_are_devices(vendor: Named) -> None:
    vendor_ = vendor("mig_slices")
    one, other = vendor_.probe()
    result = values(one)
    assert (one.id, other.id) == ("cuda:0", "cuda:1")
    assert one.model == "NVIDIA A100-SXM4-40GB MIG 1g.5gb"
    assert one.serial == result["uuid"] == "MIG-11110000-0000-0000-0000-000000000000"
    assert (one.memory_bytes, result["compute_units"]) == (4864 << 20, 14)
    assert (result["partition_mode"], str(result["partitions"]).count("1g.5gb")) == ("MIG", 2)
    # What they share is that of the whole.
    assert vendor_.read(one)["power_watts"] == vendor_.read(other)["power_watts"] == 49.68
    assert result["pci_address"] == "0000:06:00.0"


def test_a_divided_device_without_visible_slices_is_listed_whole(vendor: Named) -> None:
    one = vendor("mig_slices")
    library(one).record["devices"][0]["slices"] = []
    (device,) = one.probe()
    assert (device.model, device.facts["partition_mode"].value) == ("NVIDIA A100-SXM4-40GB", "MIG")
    assert device.facts["partitions"].value == "none"


def test_a_device_of_another_container_is_none_of_ours(vendor: Named) -> None:
    assert [device.id for device in vendor("not_ours").probe()] == ["cuda:0"]


# ------------------------------------------------------------------ how it does


def test_readings_are_in_si_units(vendor: Named) -> None:
    one = vendor("h100_sxm")
    result = known(one.read(one.probe()[0]))
    assert result == {
        "graphics_clock_hertz": 345e6,
        "memory_clock_hertz": 2619e6,
        "power_watts": 68.57,
        "energy_joules": 600_000,
        "temperature_celsius": 29,
        "memory_temperature_celsius": 37,
        "utilisation_fraction": 0,
        "memory_utilisation_fraction": 0,
        "memory_used_bytes": 0,
        "pcie_generation": 5,
        "pcie_width": 16,
        "throttle_mask": 1,
        **{f"throttled_{name}": 0 for name in THROTTLES if name != "current"},
    }


def test_fans_are_those_of_the_fastest(vendor: Named) -> None:
    one = vendor("card_without_bridge")
    library(one).record["devices"][0]["answers"] |= {
        "nvmlDeviceGetNumFans()": 2,
        "nvmlDeviceGetFanSpeed_v2(0)": 30,
        "nvmlDeviceGetFanSpeed_v2(1)": 45,
    }
    (device,) = one.probe()
    assert one.read(device)["fan_fraction"] == 0.45
    assert "fan_fraction" not in one.absent(device)


def active(mask: int) -> set[str]:
    return {name.removeprefix("throttled_") for name, is_on in throttled(mask).items() if is_on}


@pytest.mark.parametrize(
    ("mask", "reasons"),
    [
        (0x0, set()),
        (0x1, set()),
        (0x2, {"setting"}),
        (0x4, {"power_cap"}),
        (0x8, {"hardware"}),
        (0x10, {"sync"}),
        (0x20, {"thermal"}),
        (0x40, {"thermal"}),
        (0x80, {"power_brake"}),
        (0x100, {"setting"}),
        (0x200, {"other"}),
        (0x400, {"other"}),
        (1 << 40, {"other"}),
        (0x4 | 0x20, {"power_cap", "thermal"}),
        (0x8 | 0x40, {"hardware", "thermal"}),
        (0x8 | 0x80 | 0x1, {"hardware", "power_brake"}),
        (0x2 | 0x4 | 0x10 | 0x800, {"setting", "power_cap", "sync", "other"}),
    ],
)
def test_each_bit_of_the_mask_is_a_reason_of_its_own(mask: int, reasons: set[str]) -> None:
    assert active(mask) == reasons


def test_every_reason_that_the_library_names_is_mapped() -> None:
    named = {
        value
        for name, value in vars(pynvml).items()
        if name.startswith("nvmlClocksEventReason") and not name.endswith(("All", "None", "Idle"))
    }
    assert named == set(REASONS)
    assert set(REASONS.values()) <= set(THROTTLES)


def test_an_older_driver_is_asked_for_throttle_reasons(vendor: Named) -> None:
    one = vendor("thermal_throttle")
    answers = library(one).record["devices"][1]["answers"]
    mask = answers.pop("nvmlDeviceGetCurrentClocksEventReasons()")
    answers["nvmlDeviceGetCurrentClocksThrottleReasons()"] = mask
    assert one.read(one.probe()[1])["throttle_mask"] == mask


def test_counters_of_a_healthy_module_are_zero_or_told_to_be_missing(vendor: Named) -> None:
    one = vendor("h100_sxm")
    device = one.probe()[0]
    result = one.counters(device)
    assert nonzero(result) == {"pcie_replays": 150, "power_violation_ns": 7_015_662_857_000}
    pages = {"pages_retired_corrected", "pages_retired_uncorrected", "pages_pending"}
    assert {name for name, value in result.items() if value is None} == pages
    assert pages < one.absent(device)


@pytest.mark.parametrize(
    ("driver", "counted"),
    [("580.159.04", (12_400_000_000, 7)), ("575.51.03", (1, None)), ("535.154.05", (1, None))],
)
def test_fields_of_other_numbers_in_older_drivers_are_not_asked(
    driver: str, counted: tuple[int, int | None], vendor: Named
) -> None:
    """What a number means there may be a setting, which never grows and would pass as no heat."""
    one = vendor("thermal_throttle")
    record = library(one).record
    record["system"]["nvmlSystemGetDriverVersion()"] = driver
    record["devices"][1]["fields"]["NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN"] = 7
    policy = "nvmlDeviceGetViolationStatus(NVML_PERF_POLICY_THERMAL)"
    record["devices"][1]["answers"][policy] = {"violationTime": 1}
    counts = one.counters(one.probe()[1])
    assert (counts["thermal_violation_ns"], counts["power_brake_violation_ns"]) == counted


@pytest.mark.parametrize(
    ("name", "differs"),
    [
        ("ecc_uncorrected", {"ecc_uncorrected": 1, "ecc_uncorrected_total": 1}),
        ("remap_pending", {"rows_remapped_uncorrected": 1, "row_remap_pending": 1}),
        ("link_down", {"links_down": 1, "link_replays": 4, "link_errors": 3}),
        ("pcie_x8", {"pcie_width": 8}),
        ("pcie_naks", {"pcie_naks": 42, "pcie_replays": 162}),
        ("reset_wanted", {"reset_wanted": 1}),
        (
            "thermal_throttle",
            {
                "throttle_mask": 0x6C,
                "throttled_power_cap": 1,
                "throttled_thermal": 1,
                "throttled_hardware": 1,
                "temperature_celsius": 89,
                "power_watts": 698.4,
                "graphics_clock_hertz": 990e6,
                "thermal_violation_ns": 12_400_000_000,
            },
        ),
    ],
)
def test_a_fault_shows_in_its_own_numbers_alone(
    name: str, differs: dict[str, float], vendor: Named
) -> None:
    one = vendor(name)
    healthy, sick = ({**one.read(it), **one.counters(it)} for it in one.probe())
    assert {word: sick[word] for word in sick if sick[word] != healthy[word]} == differs


def test_a_narrow_slot_is_narrower_than_the_part(vendor: Named) -> None:
    result = values(vendor("pcie_x8").probe()[1])
    assert (result["pcie_width_highest"], result["pcie_width_slot"]) == (16, 8)


def test_a_link_that_is_down_shows_in_the_facts(vendor: Named) -> None:
    one, other = vendor("link_down").probe()
    assert (one.facts["num_links_up"].value, other.facts["num_links_up"].value) == (18, 17)
    assert one.facts["connection_to_1"].value == "NVLink x17"


def test_switches_that_are_not_ready_show(vendor: Named) -> None:
    one, other = vendor("fabric_not_ready").probe()
    assert [it.facts["fabric"].value for it in (one, other)] == ["completed", "in progress"]


def test_a_part_from_before_rows_could_be_replaced(vendor: Named) -> None:
    one = vendor("pages_retired")
    (device,) = one.probe()
    result = one.counters(device)
    assert [result[name] for name in COUNTED if name.startswith("pages")] == [2, 1, 1]
    rows = {name for name in COUNTED if "remap" in name}
    assert {result[name] for name in rows} == {None}
    assert rows < one.absent(device)
    assert (result["link_replays"], result["link_errors"], result["reset_wanted"]) == (3, 7, None)


def test_the_newest_links_have_other_counters(vendor: Named) -> None:
    one = vendor("b200")
    device = one.probe()[0]
    fields = library(one).record["devices"][0]["fields"]
    fields["NVML_FI_DEV_NVLINK_COUNT_RCV_ERRORS"] = [1] * 18
    result = one.counters(device)
    assert (result["link_errors"], result["link_recoveries"], result["link_replays"]) == (
        18,
        0,
        None,
    )
    assert "link_replays" in one.absent(device)


def test_a_card_without_bridges_has_no_link_down(vendor: Named) -> None:
    one = vendor("card_without_bridge")
    (device,) = one.probe()
    assert (device.facts["num_links"].value, device.facts["num_links_up"].value) == (18, 0)
    result = one.counters(device)
    assert (result["links_down"], result["link_replays"]) == (0, None)
    assert {"link_replays", "link_errors", "link_recoveries"} < one.absent(device)


def test_a_card_whose_bridge_stops_has_links_down(vendor: Named) -> None:
    one = vendor("card_without_bridge")
    answers = library(one).record["devices"][0]["answers"]
    answers["nvmlDeviceGetNvLinkState(*)"] = 1
    (device,) = one.probe()
    answers["nvmlDeviceGetNvLinkState(5)"] = 0
    assert one.counters(device)["links_down"] == 1


def test_a_part_without_links_can_have_none_down(vendor: Named) -> None:
    one = vendor("card_without_bridge")
    library(one).record["devices"][0]["fields"]["NVML_FI_DEV_NVLINK_LINK_COUNT"] = 0
    (device,) = one.probe()
    assert device.facts["num_links"].value == 0
    assert one.counters(device)["links_down"] is None
    assert {"links_down", "link_errors"} < one.absent(device)


def test_a_driver_that_supports_no_question_about_links_shows_none(vendor: Named) -> None:
    (device,) = vendor("links_not_shown").probe()
    assert device.facts["links_shown"].value is False
    assert (device.facts["num_links"].value, device.facts["num_links"].hint) == (None, NEVER_GIVEN)
    assert vendor("h100_sxm").probe()[0].facts["links_shown"].value is True


@pytest.mark.parametrize("code", ["NO_PERMISSION", "GPU_IS_LOST", "RESET_REQUIRED", "UNKNOWN"])
@pytest.mark.parametrize(
    "question", ["nvmlDeviceGetNvLinkState(17)", "nvmlDeviceGetNvLinkVersion(0)"]
)
def test_any_other_refusal_leaves_unknown_whether_there_are_links(
    vendor: Named, code: str, question: str
) -> None:
    one = vendor("links_not_shown")
    library(one).record["devices"][0]["answers"][question] = {"error": f"NVML_ERROR_{code}"}
    (device,) = one.probe()
    assert device.facts["links_shown"].value is None
    assert device.facts["links_shown"].hint == HINTS[getattr(pynvml, f"NVML_ERROR_{code}")]


def test_a_link_that_is_shown_is_shown(vendor: Named) -> None:
    one = vendor("links_not_shown")
    library(one).record["devices"][0]["answers"]["nvmlDeviceGetNvLinkState(17)"] = 0
    assert one.probe()[0].facts["links_shown"].value is True


@pytest.mark.parametrize(
    ("model", "has"),
    [
        ("Tesla V100-SXM2-32GB", set()),
        ("Tesla T4", {"int8"}),
        ("NVIDIA A10", {"int8", "bfloat16", "tf32"}),
        ("NVIDIA L4", {"int8", "bfloat16", "tf32", "float8"}),
        ("NVIDIA B300 SXM6 AC", {"int8", "bfloat16", "tf32", "float8"}),
    ],
)
def test_number_formats_are_those_of_the_generation(
    vendor: Named, model: str, has: set[str]
) -> None:
    one = vendor("parts")
    features = one.features(of_model(one.probe(), model)) - {"jax"}
    assert features == {"float64", "float32", "float16"} | has


def of_model(devices: Sequence[Device], model: str) -> Device:
    return next(device for device in devices if device.model == model)


@pytest.mark.parametrize(
    ("model", "architecture", "units"),
    [
        ("NVIDIA GH200 480GB", "sm_90", 132),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "sm_120", 188),
        ("NVIDIA GeForce RTX 5090", "sm_120", 170),
        ("NVIDIA RTX 6000 Ada Generation", "sm_89", 142),
        ("NVIDIA L4", "sm_89", 58),
        ("NVIDIA A10", "sm_86", 72),
        ("Tesla T4", "sm_75", 40),
        ("Tesla V100-SXM2-32GB", "sm_70", 80),
    ],
)
def test_multiprocessors_of_every_generation_are_counted(
    vendor: Named, model: str, architecture: str, units: int
) -> None:
    facts = of_model(vendor("parts").probe(), model).facts
    assert (facts["architecture"].value, facts["compute_units"].value) == (architecture, units)


@pytest.mark.parametrize("capability", [(10, 1), (10, 3), (11, 0), (12, 1)])
def test_the_newest_generations_have_their_cores(
    vendor: Named, capability: tuple[int, int]
) -> None:
    one = vendor("b200")
    answers = library(one).record["devices"][0]["answers"]
    answers["nvmlDeviceGetCudaComputeCapability()"] = list(capability)
    answers["nvmlDeviceGetNumGpuCores()"] = 148 * 128
    assert one.probe()[0].facts["compute_units"].value == 148


@pytest.mark.parametrize(
    ("model", "num_links"),
    [
        ("NVIDIA GB200", 18),
        ("NVIDIA B300 SXM6 AC", 18),
        ("NVIDIA GH200 480GB", 18),
        ("NVIDIA H20", 18),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 0),
        ("NVIDIA GeForce RTX 5090", 0),
        ("NVIDIA RTX 6000 Ada Generation", 0),
        ("NVIDIA L4", 0),
        ("NVIDIA A10", 0),
        ("Tesla T4", 0),
        ("Tesla V100-SXM2-32GB", 6),
    ],
)
def test_a_part_without_links_by_design_has_none_to_judge(
    vendor: Named, model: str, num_links: int
) -> None:
    one = vendor("parts")
    device = of_model(one.probe(), model)
    assert device.facts["num_links"].value == num_links
    counters = {"links_down", "link_replays", "link_recoveries", "link_errors"}
    assert (counters <= one.absent(device)) == (num_links == 0)
    if not num_links:
        assert device.facts["num_links"].source == BY_DESIGN
        assert one.counters(device)["links_down"] is None


@pytest.mark.parametrize(
    "model", ["NVIDIA A100-SXM4-40GB", "NVIDIA A40", "NVIDIA RTX A6000", "NVIDIA GeForce RTX 3090"]
)
def test_a_part_whose_generation_has_links_is_not_taken_for_one_without(
    vendor: Named, model: str
) -> None:
    one = vendor("two_a10")
    library(one).record["devices"][0]["answers"]["nvmlDeviceGetName()"] = model
    device = one.probe()[0]
    assert device.facts["num_links"].value is None
    assert "links_down" not in one.absent(device)


def test_links_that_the_driver_reports_stand_above_the_design(vendor: Named) -> None:
    one = vendor("two_a10")
    record = library(one).record["devices"][0]
    record["fields"]["NVML_FI_DEV_NVLINK_LINK_COUNT"] = 4
    record["answers"]["nvmlDeviceGetNvLinkState(*)"] = 1
    device = one.probe()[0]
    assert (device.facts["num_links"].value, device.facts["num_links_up"].value) == (4, 4)
    assert "links_down" not in one.absent(device)


def test_a_sum_with_a_gap_is_none(vendor: Named) -> None:
    one = vendor("h100_sxm")
    replays = [0] * 17  # the last link does not tell
    library(one).record["devices"][0]["fields"]["NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY"] = replays
    device = one.probe()[0]
    assert one.counters(device)["link_replays"] is None
    assert one.hints(device)["link_replays"] == NEVER_GIVEN


def test_what_the_driver_refuses_is_told_with_the_permission(vendor: Named) -> None:
    one = vendor("permission_denied")
    device = one.probe()[0]
    result, hints = one.counters(device), one.hints(device)
    assert result["ecc_uncorrected"] is None
    assert "--cap-add SYS_ADMIN" in hints["ecc_uncorrected"]
    assert "--cap-add SYS_ADMIN" in hints["energy_joules"]
    assert (result["lost"], result["link_errors"]) == (0, 0)
    assert "ecc_uncorrected" not in one.absent(device)


# ------------------------------------------------------------------ lost


@pytest.mark.parametrize("name", ["gpu_lost", "handle_lost"])
def test_a_lost_device_is_listed_and_tells_nothing_else(name: str, vendor: Named) -> None:
    one = vendor(name)
    _, lost = one.probe()
    assert (lost.model, lost.serial) == ("NVIDIA device that does not answer", None)
    assert not known(one.read(lost))
    assert known(one.counters(lost)) == {"lost": 1}
    assert "fell off the bus" in one.hints(lost)["power_watts"]
    assert one.environment(lost)["CUDA_VISIBLE_DEVICES"] == "-1"


def test_a_device_that_is_lost_later_is_told(vendor: Named) -> None:
    one = vendor("h100_sxm")
    healthy, device = one.probe()
    assert one.counters(device)["lost"] == 0
    library(one).lose(1)
    assert known(one.counters(device)) == {"lost": 1}
    assert not known(one.read(device))
    assert one.counters(healthy)["lost"] == 0


def test_a_device_that_left_the_bus_is_lost_whatever_the_driver_says(
    vendor: Named, tmp_path: Path
) -> None:
    one = vendor("h100_sxm")
    _, device = one.probe()
    (tmp_path / "h100_sxm/sys/bus/pci/devices/0000:64:00.0").unlink()
    assert one.counters(device)["lost"] == 1


def test_a_device_that_the_driver_no_longer_knows_is_lost(vendor: Named) -> None:
    one = vendor("h100_sxm")
    _, device = one.probe()
    elsewhere = vendor("not_ours")
    library(elsewhere).record["devices"].pop()
    assert known(elsewhere.counters(device)) == {"lost": 1}
    assert not known(elsewhere.read(device))


def test_another_process_may_read_a_device_that_it_did_not_find(vendor: Named) -> None:
    device = vendor("a100_sxm").probe()[1]
    again = replayed_nvml.vendor("a100_sxm")
    assert again.read(device)["power_watts"] == 49.68
    part = vendor("pages_retired").probe()[0]
    assert replayed_nvml.vendor("pages_retired").counters(part)["pages_pending"] == 1


def test_a_slice_is_found_again_by_its_uuid() -> None:
    device = replayed_nvml.vendor("mig_slices").probe()[1]
    again = replayed_nvml.vendor("mig_slices")
    assert again.read(device)["power_watts"] == 49.68
    assert again.counters(device)["lost"] == 0


def test_a_driver_that_went_away_is_not_observed(vendor: Named) -> None:
    one = vendor("h100_sxm")
    device = one.probe()[0]
    gone = {"*": {"error": "NVML_ERROR_UNINITIALIZED"}}
    library(one).record["devices"][0] |= {"answers": gone, "fields": gone}
    result = known(one.counters(device))
    assert set(result) <= {"pcie_correctable", "pcie_non_fatal", "pcie_fatal"}  # the kernel's own


@pytest.mark.parametrize("code", sorted(HINTS))
def test_no_error_code_is_raised_at_who_reads(code: int, vendor: Named) -> None:
    one = vendor("h100_sxm")
    device = one.probe()[0]
    names = {value: name for name, value in vars(pynvml).items() if name.startswith("NVML_ERROR_")}
    reported = {"*": {"error": names[code]}}
    library(one).record["devices"][0] |= {"answers": reported, "fields": reported}
    assert not known(one.read(device))
    assert set(one.counters(device)) == set(COUNTED)
    assert one.hints(device)["power_watts"] == HINTS[code]


# ------------------------------------------------------------------ the kernel's log


FAULTS = [
    ("NVRM: Xid (PCI:0000:53:00): 79, pid=1, GPU has fallen off the bus.", "Xid 79", True),
    ("NVRM: Xid (PCI:0000:53:00): 48, pid=7, name=python3, DBE", "Xid 48", True),
    ("NVRM: Xid (0000:53:00): 63, Row Remapper: New row marked for remapping", "Xid 63", True),
    ("NVRM: Xid (PCI:0000:53:00): 13, Graphics SM Warp Exception", "Xid 13", False),
    ("NVRM: Xid (PCI:0000:53:00): 31, MMU Fault", "Xid 31", False),
    ("NVRM: Xid (PCI:0000:53:00): 94, Contained ECC error", "Xid 94", False),
    ("NVRM: Xid (PCI:0000:53:00): 95, Uncontained ECC error", "Xid 95", True),
    ("NVRM: Xid (PCI:0000:53:00): 119, Timeout after 6s of waiting for RPC", "Xid 119", True),
    (
        "NVRM: Xid (PCI:0000:53:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x02)",
        "Xid 149",
        True,
    ),
    ("NVRM: Xid (PCI:0000:53:00): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 13", "Xid 145", False),
    (
        "NVRM: Xid (PCI:0000:53:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (x)",
        "Xid 154",
        True,
    ),
    (
        "NVRM: Xid (PCI:0000:53:00): 154, GPU recovery action changed from 0x1 (x) to 0x0 (None)",
        "Xid 154",
        False,
    ),
    ("NVRM: Xid (PCI:0000:53:00): 9999, who knows", "Xid 9999", False),
    ("NVRM: GPU 0000:53:00.0: GPU has fallen off the bus.", "fallen off the bus", True),
]


@pytest.mark.parametrize(("line", "code", "is_fatal"), FAULTS)
def test_a_line_of_the_log_is_a_fault_of_its_device(
    line: str, code: str, vendor: Named, *, is_fatal: bool
) -> None:
    one = vendor("h100_sxm")
    fault = one.kernel_fault(line, one.probe())
    assert fault is not None
    assert (fault.code, fault.device, fault.is_fatal) == (code, "cuda:0", is_fatal)
    assert fault.meaning


def test_a_meaning_has_its_sources() -> None:
    fault = xid.fault("NVRM: Xid (PCI:0000:53:00): 79, gone", ())
    assert fault is not None
    assert fault.meaning == (
        "the device fell off the bus (NVIDIA Xid catalog; fatal for Azure's node health checks)"
    )
    unknown = xid.fault("NVRM: Xid (PCI:0000:53:00): 9999, x", ())
    assert unknown is not None
    assert unknown.meaning == "the vendor's catalog does not explain this number"


def test_every_fatal_number_has_a_meaning() -> None:
    for code in xid.RESET | xid.REFUSED | xid.WITH_ANOTHER:
        fault = xid.fault(f"NVRM: Xid (PCI:0000:01:00): {code}, x", ())
        assert fault is not None
        assert fault.is_fatal, code
        assert fault.meaning != xid.UNEXPLAINED, code


@pytest.mark.parametrize(
    ("line", "is_fatal"),
    [
        ("nvidia-nvswitch3: SXid (PCI:0000:04:00.0): 22013, Non-fatal, Link 44 Minion", False),
        ("nvidia-nvswitch1: SXid (PCI:0000:84:00.0): 12028, Fatal, Link 12 egress", True),
    ],
)
def test_a_switch_says_itself_what_is_fatal(line: str, *, is_fatal: bool) -> None:
    fault = xid.fault(line, ())
    assert fault is not None
    assert (fault.code.split()[0], fault.device, fault.is_fatal) == ("SXid", "", is_fatal)


@pytest.mark.parametrize(
    "line",
    [
        "nvidia-nvswitch3: SXid (PCI:0000:04:00.0): 22013, Data {0x0000002b, 0x0000002b}",
        "nvidia-nvswitch3: SXid (PCI:0000:04:00.0): 22013, Severity 0 Engine instance 44",
        "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.105.08",
        "NVRM: GPU at PCI:0000:53:00: GPU-b850f46d-d5ea-c752-ddf3-c4453e44d3f7",
        "usb 1-1: new high-speed USB device",
        "",
    ],
)
def test_other_lines_are_no_fault(line: str) -> None:
    assert xid.fault(line, ()) is None


@pytest.mark.parametrize("address", ["PCI:0000:99:00", "PCI:0001:53:00", "not an address"])
def test_a_fault_of_a_device_that_is_not_ours_has_no_device(address: str, vendor: Named) -> None:
    devices = vendor("h100_sxm").probe()
    fault = xid.fault(f"NVRM: Xid ({address}): 79, gone", devices)
    assert fault is None if "not" in address else fault is not None and fault.device == ""


# ------------------------------------------------------------------ how it is used


def test_children_see_the_devices_by_uuid_in_order(vendor: Named) -> None:
    one, other = vendor("h100_sxm").probe()
    result = Cuda().environment(other, one)
    assert result["CUDA_VISIBLE_DEVICES"] == (
        "GPU-00000000-0000-0000-0000-000000000002,GPU-00000000-0000-0000-0000-000000000001"
    )
    assert result["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert Cuda().environment()["CUDA_VISIBLE_DEVICES"] == ""


def test_only_the_deterministic_mode_fixes_a_workspace_and_the_choice_of_kernels(
    vendor: Named,
) -> None:
    added = Cuda().deterministic_environment()
    assert added == {
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        "XLA_FLAGS": "--xla_gpu_deterministic_ops=true",
    }
    assert added.keys() & Cuda().environment(*vendor("h100_sxm").probe()).keys() == set()


@pytest.mark.parametrize(
    ("name", "has", "lacks"),
    [
        ("b200", {"float64", "float8", "bfloat16", "tf32", "int8"}, set()),
        ("h100_sxm", {"float8", "tf32"}, set()),
        ("a100_sxm", {"bfloat16", "tf32", "float16"}, {"float8"}),
        ("pages_retired", {"float16", "float64"}, {"float8", "bfloat16", "tf32"}),
        ("gpu_lost", {"float32"}, {"float8", "bfloat16", "jax"}),
    ],
)
def test_formats_come_from_the_compute_capability(
    name: str, has: set[str], lacks: set[str], vendor: Named
) -> None:
    result = vendor(name).features(vendor(name).probe()[-1])
    assert has <= result
    assert not lacks & result


def test_jax_counts_only_with_its_plugin(vendor: Named, monkeypatch: pytest.MonkeyPatch) -> None:
    device = vendor("h100_sxm").probe()[0]
    assert "jax" not in Cuda().features(device)  # installed here, for processors alone
    monkeypatch.setattr("appliance.vendors.nvidia.cuda.find_spec", lambda _name: object())
    assert "jax" in Cuda().features(device)


def test_float32_is_float32_after_prepare() -> None:
    flags = (torch.backends.cuda.matmul, torch.backends.cudnn)
    before = [flag.allow_tf32 for flag in flags]
    try:
        for flag in flags:
            flag.allow_tf32 = True
        Cuda().prepare()
        assert [flag.allow_tf32 for flag in flags] == [False, False]
    finally:
        for flag, value in zip(flags, before, strict=True):
            flag.allow_tf32 = value


def test_the_container_is_given_what_the_host_side_gives() -> None:
    result, host = Cuda().container_options(), CONTAINERS["cuda"]
    assert result == {
        "cdi": host.cdi,
        "device_requests": [{"count": -1, "capabilities": [["gpu"]]}],
        "devices": list(host.devices),
        "group_nodes": list(host.group_nodes),
    }
    assert Cuda().onnx_providers()[0] == "CUDAExecutionProvider"


def test_the_probe_records_them(vendor: Named, tmp_path: Path) -> None:
    system = node.probe([vendor("h100_sxm")], root=tmp_path, environment={}, window_seconds=0)
    assert [device.id for device in system.identity.devices] == ["cuda:0", "cuda:1"]
    conditions = system.conditions.facts
    assert conditions["cuda:1_power"].value == 68.57
    assert conditions["cuda:1_ecc_uncorrected"].value == 0
    assert conditions["cuda:1_pages_pending"].value is None


def test_a_probe_of_another_day_is_of_the_same_machine(vendor: Named, tmp_path: Path) -> None:
    interim_analysis = {"root": tmp_path, "environment": {}, "window_seconds": 0}
    one = vendor("h100_sxm")
    before = node.probe([one], **interim_analysis).identity  # type: ignore[arg-type]
    answers = library(one).record["devices"][0]["answers"]
    answers["nvmlDeviceGetTemperature(NVML_TEMPERATURE_GPU)"] = 64
    answers["nvmlDeviceGetCurrPcieLinkGeneration()"] = 1
    answers["nvmlDeviceGetPowerUsage()"] = 512_000
    after = node.probe([one], **interim_analysis).identity  # type: ignore[arg-type]
    assert identity_differences(before, after) == []


# ------------------------------------------------------------------ where there is none


def broken(code: str, root: Path) -> Cuda:
    return Cuda(Replayed({"init": {"error": code}, "system": {}, "devices": []}), root)


def test_without_driver_and_device_it_is_passed_by_in_silence(tmp_path: Path) -> None:
    one = broken("NVML_ERROR_LIBRARY_NOT_FOUND", tmp_path)
    assert one.probe() == ()
    assert DRIVER_LIBRARY in one.absence


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("NVML_ERROR_LIBRARY_NOT_FOUND", "--gpus all"),
        ("NVML_ERROR_DRIVER_NOT_LOADED", "the kernel driver is not loaded"),
        ("NVML_ERROR_LIB_RM_VERSION_MISMATCH", "differ in version"),
        ("NVML_ERROR_NO_PERMISSION", "run as root"),
        ("NVML_ERROR_GPU_NOT_FOUND", "no device that it supports"),
        ("NVML_ERROR_UNKNOWN", "gives no reason"),
    ],
)
def test_a_device_with_a_broken_driver_is_refused(code: str, says: str, tmp_path: Path) -> None:
    trees.unpack_record(json.loads(documented_nvml.built()["h100_sxm"]), tmp_path)
    with pytest.raises(UsageError, match="an NVIDIA device is here") as refusal:
        broken(code, tmp_path).probe()
    assert says in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_recorded_broken_driver_is_refused_whatever_was_asked_for(
    vendor: Named, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = vendor("driver_broken")
    monkeypatch.setitem(node.VENDORS, "cuda", lambda: one)  # type: ignore[arg-type]
    for name in (None, "cuda"):
        with pytest.raises(UsageError, match="differ in version"):
            node.present(name)
    assert node.present("cpu").name == "cpu"


def test_a_device_file_alone_is_a_trace(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "nvidiactl").touch()
    with pytest.raises(UsageError, match="/dev/nvidiactl"):
        broken("NVML_ERROR_DRIVER_NOT_LOADED", tmp_path).probe()


def test_other_functions_of_the_vendor_are_no_trace(tmp_path: Path) -> None:
    for name, kind in (("0000:01:00.1", "0x040300"), ("0000:04:00.0", "0x068000")):
        folder = tmp_path / "sys/bus/pci/devices" / name
        folder.mkdir(parents=True)
        (folder / "vendor").write_text("0x10de\n")
        (folder / "class").write_text(f"{kind}\n")
    assert broken("NVML_ERROR_LIBRARY_NOT_FOUND", tmp_path).probe() == ()


def test_a_driver_that_shows_no_device_is_refused_if_one_is_there(vendor: Named) -> None:
    one = vendor("h100_sxm")
    library(one).record["devices"] = []
    with pytest.raises(UsageError, match="shows no device"):
        one.probe()


def test_a_container_that_was_given_none_of_the_devices_is_told(vendor: Named) -> None:
    one = vendor("not_ours")
    library(one).record["devices"] = library(one).record["devices"][1:]
    with pytest.raises(UsageError, match="the driver refuses it to this user"):
        one.probe()


def test_a_binding_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda _name: object())
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(Unreadable) as gap:
        _ = Nvml().library
    assert "nvidia-ml-py" in gap.value.hint


def test_an_answer_in_another_form_is_a_gap() -> None:
    class Odd(Replayed):
        def _nvmlDeviceGetCount(self) -> int:  # noqa: N802 - the library's name
            raise ValueError

    with pytest.raises(Unreadable, match="not known here"):
        Nvml(Odd({"system": {}, "devices": []})).whole("nvmlDeviceGetCount")
    with pytest.raises(Unreadable, match="not known here"):
        Nvml(Replayed({"system": {"*": None}, "devices": []})).whole("nvmlSystemGetDriverVersion")
    with pytest.raises(Refusal, match="older than this question"):
        Nvml(Odd({"system": {}, "devices": []})).ask("nvmlDeviceGetColour")


@pytest.mark.serial
@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="this machine has the devices")
def test_a_machine_without_them_is_passed_by_quickly() -> None:
    """The driver's library is looked for before anything is imported; the best of five looks."""
    seconds = []
    for _ in range(5):
        begin = time.perf_counter()
        assert Cuda().probe() == ()
        seconds.append(time.perf_counter() - begin)
    assert min(seconds) < 0.05


def test_importing_the_vendor_loads_no_library_of_the_vendor() -> None:
    code = "import sys, appliance.vendors.registry; print({'pynvml', 'torch'} & {*sys.modules})"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True
    )
    assert done.stdout.strip() == "set()"


def test_reading_takes_few_questions(vendor: Named) -> None:
    """Each costs the driver some microseconds up to a millisecond."""
    one = vendor("h100_sxm")
    device = one.probe()[0]
    requested = library(one).calls
    requested.clear()
    one.read(device)
    assert len(requested) <= 20
    requested.clear()
    one.counters(device)
    assert len(requested) <= 100
    assert requested.count("nvmlDeviceGetFieldValues") <= 12


def test_it_is_a_vendor(vendor: Named) -> None:
    one: Vendor = vendor("h100_sxm")
    device = replace(one.probe()[0])
    assert (one.torch_type, one.collectives, one.fork_safe) == ("cuda", "nccl", True)
    assert one.kernel_fault("", (device,)) is None
