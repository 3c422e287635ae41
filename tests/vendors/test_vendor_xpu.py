"""Intel cards, read of recorded machines, healthy and with one fault each: no gap is a zero."""

import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest
import torch
from recorded import replayed_xpu, trees
from recorded.replayed_xpu import NAMES, WATTS, Replayed, answers, vendor
from support.wording import unspoken

from appliance.errors import UsageError
from appliance.linux.sysfs import Unreadable
from appliance.probe.node import probe
from appliance.records.json import Scalar
from appliance.records.system import Device
from appliance.records.vocabulary import CONNECTION, COUNTERS, FACTS, READINGS
from appliance.storage import device_file
from appliance.vendors import registry
from appliance.vendors.base import Vendor
from appliance.vendors.intel import log
from appliance.vendors.intel import tool as xpu_tool
from appliance.vendors.intel.cards import MODELS, XE2_HPG, XE_HPC, XE_HPG, unnamed
from appliance.vendors.intel.kernel import ASLEEP, REASONS
from appliance.vendors.intel.tool import Answers
from appliance.vendors.intel.xpu import FIRST, Xpu

ROOT = Path(__file__).parents[2]
MAX = "sys/devices/pci0000:4a/0000:4a:02.0/0000:4b:00.0/0000:4c:01.0/0000:4d:00.0"
MAX_PARTS = [f"{MAX}/drm/card0/gt/gt{tile}" for tile in range(2)]
ARC = "sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0/0000:03:00.0"
SECOND = "sys/devices/pci0000:c9/0000:c9:02.0/0000:ca:00.0/0000:cb:01.0/0000:cc:00.0"


def values(device: Device) -> dict[str, Scalar | None]:
    return {name: fact.value for name, fact in device.facts.items()}


def readings(one: Vendor, device: Device) -> dict[str, float | None]:
    """The second reading, which has a power."""
    one.read(device)
    return dict(one.read(device))


def changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    assert set(before) == set(after)
    return {name: after[name] for name in before if before[name] != after[name]}


@pytest.fixture(scope="module")
def healthy() -> tuple[Device, dict[str, float | None], dict[str, int | None]]:
    """The first of two Max 1550, its readings and its counts."""
    one = vendor("max_1550")
    device = one.probe()[0]
    return device, readings(one, device), dict(one.counters(device))


# ------------------------------------------------------------------ the recorded machines


def test_recorded_machines_are_what_is_documented_and_say_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = replayed_xpu.FOLDER
    monkeypatch.syspath_prepend(str(folder.parent))
    import xpu_documented  # noqa: PLC0415 - found through the line above

    assert {path.stem: path.read_text() for path in folder.glob("*.tree")} == xpu_documented.TREES
    assert {path.stem: path.read_text() for path in folder.glob("*.json")} == xpu_documented.ANSWERS
    for path in folder.iterdir():
        text = path.read_text()
        assert "built from documentation" in text, path
        assert all(source in text for source in xpu_documented.SOURCES), path
    assert set(NAMES) < set(xpu_documented.TREES)


@pytest.mark.parametrize("name", NAMES)
def test_only_the_words_of_all_vendors_are_used(name: str) -> None:
    one = vendor(name)
    devices = one.probe()
    assert devices
    for device in devices:
        assert {key for key in device.facts if not key.startswith(CONNECTION)} <= set(FACTS)
        one.read(device)
        reported = {**one.read(device), **one.counters(device)}
        assert unspoken(one, device, reported) == []


# ------------------------------------------------------------------ healthy cards


def test_a_max_card_is_one_device_with_all_its_facts(
    healthy: tuple[Device, object, object],
) -> None:
    device = healthy[0]
    assert (device.id, device.vendor, device.index) == ("xpu:0", "xpu", 0)
    assert device.model == "Intel(R) Data Center GPU Max 1550"
    assert (device.serial, device.memory_bytes) == ("EXAMPLE0000", 128 * 2**30)
    assert values(device) == {
        "uuid": "01000000-0000-0000-0000-4d00a1b2c3d4",
        "product": "Intel(R) Data Center GPU Max 1550",
        "board_part_number": None,
        "architecture": "Xe-HPC",
        "compute_units": 128,
        "pci_address": "0000:4d:00.0",
        "pci_device": "8086:0bd5",
        "pci_subsystem": "8086:0000",
        "vbios": "PVC2_1.23374",
        "firmware": "AMC 6.8.0.0, GFX_PSCBIN 0x1012ca9.0x20220803",
        "driver": "i915 1.23.10.72.231129.76",
        "driver_api": "1.6.33578",
        "memory": 128 * 2**30,
        "memory_type": "HBM2e",
        "ecc_mode": "on",
        "ecc_mode_pending": "on",
        "highest_memory_clock": None,
        "power_limit": 600.0,
        "power_limit_default": 600.0,
        "power_limit_lowest": 1,
        "power_limit_highest": 600,
        "highest_graphics_clock": 1_600_000_000,
        "graphics_clock_limit": 1_600_000_000,
        "slowdown_temperature": 105,
        "pcie_generation_highest": 5,
        "pcie_width_highest": 16,
        "pcie_generation_slot": 5,
        "pcie_width_slot": 16,
        "numa_node": 0,
        "cpu_affinity": "0-51,104-155",
        "partition_mode": "COMPOSITE",
        "partitions": "2 tiles",
        "link_kind": "Xe Link",
        "num_links": 16,
        "num_links_up": 16,
        "link_bytes_per_second": 50_000 * 2**20,
        "connection_to_1": "Xe Link x16",
    }


def test_readings_of_a_max_card_are_in_the_units_of_their_names(
    healthy: tuple[Device, dict[str, float | None], object],
) -> None:
    reported = {name: value for name, value in healthy[1].items() if value is not None}
    assert reported == {
        "graphics_clock_hertz": 1.6e9,
        "power_watts": WATTS,
        "energy_joules": pytest.approx(9e6 + WATTS),
        "temperature_celsius": 62.0,  # of the hotter tile, from the card's telemetry
        "memory_temperature_celsius": 56.0,
        "pcie_generation": 5.0,  # of the card's port, and not the 1 that stands behind its switch
        "pcie_width": 16.0,
        "throttle_mask": 0.0,
        **{name: 0.0 for name in READINGS if name.startswith("throttled_")},
    }


def test_counts_of_a_healthy_max_card_are_zeros_and_gaps(
    healthy: tuple[Device, object, dict[str, int | None]],
) -> None:
    reported = {name: value for name, value in healthy[2].items() if value is not None}
    assert set(reported) >= {
        "ecc_corrected",
        "ecc_uncorrected",
        "ras_uncorrected",
        "resets",
        "lost",
    }
    assert set(reported) >= {"pcie_fatal", "links_down", "driver_errors", "row_remap_failed"}
    assert set(reported.values()) == {0}


def test_a_desktop_card_is_read_of_the_newer_driver() -> None:
    one = vendor("arc_b580")
    (device,) = one.probe()
    assert (device.id, device.model) == ("xpu:0", "Intel(R) Arc(TM) B580 Graphics")
    assert (device.serial, device.memory_bytes) == (None, 12 * 2**30)
    facts = values(device)
    assert (facts["driver"], facts["architecture"]) == ("xe 6.14.0-33-generic", "Xe2-HPG")
    assert (facts["highest_graphics_clock"], facts["power_limit"]) == (2_850_000_000, 190.0)
    assert (facts["partition_mode"], facts["num_links"], facts["compute_units"]) == ("none", 0, 20)
    reported = readings(one, device)
    assert reported["graphics_clock_hertz"] == 2.85e9  # and not the 1.5 GHz of the part for media
    assert (reported["temperature_celsius"], reported["memory_temperature_celsius"]) == (47.0, 52.0)
    assert (reported["pcie_generation"], reported["pcie_width"]) == (4.0, 8.0)


def test_an_identifier_made_of_the_slot_names_no_unit() -> None:
    fact = vendor("arc_b580").probe()[0].facts["uuid"]
    assert fact.value is None
    assert "names no unit" in fact.hint


def test_peaks_are_known_by_the_names_that_the_vendor_gives() -> None:
    for name in ("max_1550", "arc_b580"):
        model = vendor(name).probe()[0].model
        assert {figure.model for figure in device_file.load_peaks([model]).peak} == {model}


def test_names_of_cards_are_by_the_design() -> None:
    assert MODELS[0x0BD6] == ("Intel(R) Data Center GPU Max 1550", XE_HPC)
    assert MODELS[0x0BDA] == ("Intel(R) Data Center GPU Max 1100", XE_HPC)
    assert MODELS[0x56C0] == ("Intel(R) Data Center GPU Flex 170", XE_HPG)
    assert MODELS[0x56A0] == ("Intel(R) Arc(TM) A770 Graphics", XE_HPG)
    assert MODELS[0xE211] == ("Intel(R) Arc(TM) Pro B60 Graphics", XE2_HPG)
    assert MODELS[0xE210] == ("Intel(R) Graphics [0xe210]", XE2_HPG)


def test_cards_with_figures_are_named_as_their_files_name_them() -> None:
    numbers = {"max-1550": 0x0BD5, "max-1100": 0x0BDA, "flex-170": 0x56C0, "arc-pro-b60": 0xE211}
    for stem, number in numbers.items():
        file = tomllib.loads((device_file.DEVICES / f"{stem}.toml").read_text())
        assert MODELS[number][0] in file["models"]


# ------------------------------------------------------------------ one fault each

FAULTS: list[tuple[str, dict[str, object], dict[str, object], dict[str, object]]] = [
    ("max_1550_ecc", {}, {}, {"ecc_uncorrected": 2}),
    (
        "max_1550_link_down",
        {"num_links_up": 15, "connection_to_1": "Xe Link x15"},
        {},
        {"links_down": 1},
    ),
    ("max_1550_x8", {}, {"pcie_width": 8.0}, {}),
    (
        "max_1550_throttled",
        {"power_limit": 450.0},
        {
            "graphics_clock_hertz": 0.9e9,
            "temperature_celsius": 106.0,
            "memory_temperature_celsius": 100.0,
            "throttle_mask": float(1 << 10 | 1 << 1),
            "throttled_power_cap": 1.0,
            "throttled_thermal": 1.0,
        },
        {},
    ),
    (
        "max_1550_missing_field",
        {"vbios": None},
        {"energy_joules": None, "power_watts": None, "graphics_clock_hertz": None},
        {"ecc_corrected": None},
    ),
]


@pytest.mark.parametrize(("name", "facts", "reported", "counts"), FAULTS)
def test_a_fault_changes_what_tells_of_it_and_nothing_else(
    name: str,
    facts: dict[str, object],
    reported: dict[str, object],
    counts: dict[str, object],
    healthy: tuple[Device, dict[str, float | None], dict[str, int | None]],
) -> None:
    one = vendor(name)
    device = one.probe()[0]
    assert changed(values(healthy[0]), values(device)) == facts
    assert changed(healthy[1], readings(one, device)) == reported
    assert changed(healthy[2], one.counters(device)) == counts


def test_a_card_without_a_serial_is_known_by_its_uuid() -> None:
    assert vendor("max_1550_missing_field").probe()[0].serial == values(
        vendor("max_1550").probe()[0]
    ).get("uuid")


def test_a_lost_card_is_none_throughout_and_its_neighbour_goes_on() -> None:
    one = vendor("max_1550_lost")
    gone, alive = one.probe()
    assert set(one.read(gone).values()) == {None}
    counts = dict(one.counters(gone))
    assert counts.pop("lost") == 1
    assert set(counts.values()) == {None}
    assert "does not answer" in one.hints(gone)["ecc_uncorrected"]
    assert readings(one, alive)["power_watts"] == WATTS
    assert one.counters(alive)["lost"] == 0


def test_no_other_card_takes_the_place_of_a_lost_one() -> None:
    one = vendor("max_1550_lost")
    gone, alive = one.probe()
    assert one.environment(alive)["ZE_AFFINITY_MASK"] == "0"  # it is the first that is left
    assert one.environment(gone)["ZE_AFFINITY_MASK"] == "1"  # which is none


def test_a_card_whose_configuration_reads_as_ones_is_lost() -> None:
    one = vendor("max_1550")
    device = one.probe()[0]
    (one.root / MAX / "config").write_bytes(b"\xff" * 64)
    assert one.counters(device)["lost"] == 1
    assert set(one.read(device).values()) == {None}


def test_what_may_not_be_read_is_a_gap_with_the_permission() -> None:
    one = vendor("max_1550_denied")
    device = one.probe()[0]
    reported = readings(one, device)
    assert (
        reported["power_watts"]
        is reported["temperature_celsius"]
        is reported["energy_joules"]
        is None
    )
    hints = one.hints(device)
    assert hints["power_watts"].startswith("run as root to read ")
    assert hints["temperature_celsius"].endswith("/telem")
    assert "Level Zero Initialization Error" in hints["ecc_corrected"]
    counts = one.counters(device)
    assert counts["ecc_corrected"] is counts["links_down"] is None
    assert counts["ecc_uncorrected"] == 0  # the kernel driver counts these itself
    assert "run as root" in device.facts["power_limit"].hint


# ------------------------------------------------------------------ readings in detail


def test_power_is_the_growth_of_energy_and_has_no_first_value() -> None:
    one = vendor("max_1550")
    device = one.probe()[0]
    assert one.hints(device)["power_watts"] == FIRST
    assert one.read(device)["power_watts"] is None
    assert one.read(device)["power_watts"] == WATTS
    assert "power_watts" not in one.hints(device)


def test_power_has_no_value_where_the_counter_of_energy_began_anew() -> None:
    one = vendor("max_1550")
    device = one.probe()[0]
    readings(one, device)
    (one.root / MAX / "hwmon/hwmon5/energy1_input").write_text("0")
    assert one.read(device)["power_watts"] is None
    assert one.read(device)["power_watts"] == WATTS


def test_a_card_that_sleeps_has_no_clock() -> None:
    one = vendor("max_1550")
    device = one.probe()[0]
    for part in MAX_PARTS:
        (one.root / part / "rps_act_freq_mhz").write_text("0")
    assert one.read(device)["graphics_clock_hertz"] is None
    assert one.hints(device)["graphics_clock_hertz"] == ASLEEP


def test_the_clock_is_that_of_the_slowest_tile_that_is_awake() -> None:
    one = vendor("max_1550")
    device = one.probe()[0]
    (one.root / MAX_PARTS[0] / "rps_act_freq_mhz").write_text("0")
    (one.root / MAX_PARTS[1] / "rps_act_freq_mhz").write_text("1250")
    assert one.read(device)["graphics_clock_hertz"] == 1.25e9


@pytest.mark.parametrize(("reason", "word"), [*REASONS.items(), ("of_tomorrow", "other")])
def test_every_reason_of_the_driver_has_a_word(reason: str, word: str) -> None:
    one = vendor("arc_b580")
    (device,) = one.probe()
    folder = one.root / ARC / "tile0/gt0/freq0/throttle"
    (folder / f"reason_{reason}").write_text("1")
    (folder / "status").write_text("1")
    reported = one.read(device)
    active = {name for name, value in reported.items() if name.startswith("throttled_") and value}
    assert active == {f"throttled_{word}"}


def test_throttling_without_a_named_reason_is_other() -> None:
    one = vendor("arc_b580")
    (device,) = one.probe()
    (one.root / ARC / "tile0/gt0/freq0/throttle/status").write_text("1")
    assert one.read(device)["throttled_other"] == 1.0


def test_media_may_be_slow() -> None:
    one = vendor("arc_b580")
    (device,) = one.probe()
    (one.root / ARC / "tile0/gt1/freq0/throttle/reason_thermal").write_text("1")
    assert one.read(device)["throttled_thermal"] == 0.0


def test_a_limit_that_is_switched_off_is_not_zero_watts() -> None:
    one = vendor("arc_b580")
    (one.root / ARC / "hwmon/hwmon3/power1_max").write_text("0")
    fact = one.probe()[0].facts["power_limit"]
    assert (fact.value, fact.hint) == (None, "the limit is switched off")


def test_without_the_switch_of_the_card_its_link_is_not_told() -> None:
    """As in a virtual machine; the 2.5 GT/s that the function states are of no slot."""
    one = vendor("arc_b580")
    (device,) = one.probe()
    (one.root / ARC).parents[0].joinpath("class").write_text("0x020000")
    assert one.read(device)["pcie_width"] is None
    assert "read it on the host" in one.hints(device)["pcie_width"]
    fact = one.probe()[0].facts["pcie_width_highest"]
    assert fact.value is None
    assert "2.5 GT/s" in fact.hint


def test_a_slot_limits_what_the_card_can_do() -> None:
    one = vendor("max_1550")
    (one.root / "sys/devices/pci0000:4a/0000:4a:02.0/max_link_width").write_text("8")
    facts = values(one.probe()[0])
    assert (facts["pcie_width_highest"], facts["pcie_width_slot"]) == (16, 8)


def test_errors_of_the_bus_count_at_both_ends_of_the_switch() -> None:
    one = vendor("max_1550")
    device = one.probe()[0]
    port = (one.root / MAX).parents[1]
    (port / "aer_dev_correctable").write_text("RxErr 3\nTOTAL_ERR_COR 3\n")
    (one.root / MAX / "aer_dev_correctable").write_text("RxErr 2\nTOTAL_ERR_COR 2\n")
    assert one.counters(device)["pcie_correctable"] == 5
    for folder in (port, one.root / MAX):
        (folder / "aer_dev_correctable").unlink()
    assert one.counters(device)["pcie_correctable"] is None


@pytest.mark.parametrize(
    ("status", "pending", "failed"), [("Ok", 0, 0), ("Warning", 1, 0), ("Critical", 0, 1)]
)
def test_the_health_of_the_memory_says_what_repair_it_wants(
    status: str, pending: int, failed: int
) -> None:
    one = vendor("max_1550")
    device = one.probe()[0]
    one._replies["health -d 0000:4d:00.0"]["memory"]["status"] = status
    counts = one.counters(device)
    assert (counts["row_remap_pending"], counts["row_remap_failed"]) == (pending, failed)


def test_the_driver_and_the_tool_may_each_know_of_more_errors() -> None:
    one = vendor("max_1550")
    device = one.probe()[0]
    (one.root / MAX_PARTS[1] / "error_counter/soc_fatal_hbm_ss0_0").write_text("4")
    (one.root / MAX_PARTS[1] / "error_counter/fatal_subslice").write_text("1")
    assert one.counters(device)["ecc_uncorrected"] == 4
    assert one.counters(device)["ras_uncorrected"] == 1
    rows = one._replies["stats -d 0000:4d:00.0 -r"]["device_level"]
    next(row for row in rows if "NON_COMPUTE_ERRORS_UNC" in row["metrics_type"])["value"] = 7
    assert one.counters(device)["ecc_uncorrected"] == 7


def test_cards_without_links_are_connected_over_the_host() -> None:
    one = vendor("max_1550")
    one._replies["topology -m"] = {"topo_list": []}
    facts = values(one.probe()[0])
    assert facts["connection_to_1"] == "between sockets"
    (one.root / SECOND / "numa_node").write_text("0")
    assert values(one.probe()[0])["connection_to_1"] == "host bridge"
    assert facts["num_links_up"] == 16  # the ports that are up, where none reaches a card


# ------------------------------------------------------------------ which cards count


def test_graphics_inside_a_processor_are_no_accelerator() -> None:
    one = vendor("inside_a_processor")
    assert one.probe() == ()
    assert "inside a processor" in one.absence


def test_graphics_inside_a_processor_are_counted_by_the_mask() -> None:
    one = vendor("arc_b580")
    (device,) = one.probe()
    assert one.environment(device)["ZE_AFFINITY_MASK"] == "1"
    (one.root / "dev/dri/renderD128").unlink()  # a container that was given the card alone
    assert one.environment(device)["ZE_AFFINITY_MASK"] == "0"


def test_a_card_newer_than_this_program_counts_if_it_has_memory_of_its_own() -> None:
    one = vendor("arc_b580")
    (one.root / ARC / "device").write_text("0xf001")
    (device,) = one.probe()
    assert device.model == unnamed(0xF001)
    assert one.features(device) == {"float32"}
    assert "update it" in device.facts["architecture"].hint
    (one.root / ARC / "tile0/physical_vram_size_bytes").unlink()
    assert one.probe() == ()


def test_a_virtual_function_is_a_part_and_no_card() -> None:
    one = vendor("max_1550")
    (one.root / SECOND / "physfn").symlink_to("../0000:cc:00.1")
    (one.root / MAX / "sriov_numvfs").write_text("4")
    (device,) = one.probe()
    facts = values(device)
    assert (facts["partition_mode"], facts["partitions"]) == ("SR-IOV", "4 virtual functions")


def test_a_card_without_a_driver_is_an_error_and_no_run_on_the_processors() -> None:
    with pytest.raises(UsageError, match=r"Max 1550 at 0000:4d:00\.0 has no Intel driver: load it"):
        vendor("max_1550_no_driver").probe()


def test_a_card_without_its_node_is_an_error_with_the_option_that_gives_it() -> None:
    one = vendor("max_1550")
    for path in (one.root / "dev/dri").iterdir():
        path.unlink()
    with pytest.raises(UsageError, match="was --device /dev/dri given"):
        one.probe()


def test_a_card_that_may_not_be_opened_is_an_error_with_the_group() -> None:
    with pytest.raises(UsageError, match=r"/dev/dri/renderD128 cannot be opened; join its group"):
        vendor("max_1550", may_open=lambda _: False).probe()


def test_one_card_of_two_may_be_withheld() -> None:
    one = vendor("max_1550")
    (one.root / "dev/dri/renderD128").unlink()
    assert [values(device)["pci_address"] for device in one.probe()] == ["0000:cc:00.0"]


def test_a_card_that_was_given_to_a_virtual_machine_is_not_ours() -> None:
    one = vendor("max_1550")
    (one.root / "sys/bus/pci/drivers/vfio-pci").mkdir()
    for home in (MAX, SECOND):
        link = one.root / home / "driver"
        target = str(link.readlink()).replace("i915", "vfio-pci")
        link.unlink()
        link.symlink_to(target)
    assert one.probe() == ()


@pytest.mark.serial
def test_looking_where_there_is_none_takes_milliseconds() -> None:
    def look() -> float:
        begin = time.perf_counter()
        Xpu().probe()
        return time.perf_counter() - begin

    if list(Path("/sys/bus/pci/devices").glob("*")) and Xpu().probe():
        pytest.skip("this machine has an Intel card")
    assert min(look() for _ in range(5)) < 0.05


# ------------------------------------------------------------------ what a child is given


def test_a_child_sees_its_cards_alone_and_whole() -> None:
    one = vendor("max_1550")
    devices = one.probe()
    assert one.environment(devices[1]) == {
        "ZE_ENABLE_PCI_ID_DEVICE_ORDER": "1",
        "ZE_FLAT_DEVICE_HIERARCHY": "COMPOSITE",
        "ONEAPI_DEVICE_SELECTOR": "level_zero:gpu",
        "BENCH_XPU_TOOL": "silent",
        "ZE_AFFINITY_MASK": "1",
    }
    assert one.environment(*devices)["ZE_AFFINITY_MASK"] == "0,1"


def test_another_order_than_that_of_the_slots_is_refused() -> None:
    one = vendor("max_1550")
    first, second = one.probe()
    with pytest.raises(UsageError, match="name them in ascending order"):
        one.environment(second, first)


def test_formats_are_those_of_the_design() -> None:
    max_card, arc = vendor("max_1550", version=lambda _: "2.13.0"), vendor("arc_b580")
    older = vendor("max_1550", version=lambda _: "2.8.0")
    assert max_card.features(max_card.probe()[0]) >= {"float64", "tf32", "bfloat16", "int8"}
    assert "int8" not in older.features(older.probe()[0])
    assert "float8" not in max_card.features(max_card.probe()[0])
    assert "tf32" not in arc.features(arc.probe()[0])
    assert {"float64", "tf32"} & XE_HPG.formats == set()


def test_what_else_differs_between_vendors() -> None:
    one = vendor("inside_a_processor")
    assert (one.name, one.torch_type, one.collectives) == ("xpu", "xpu", "xccl")
    assert not one.fork_safe
    assert one.onnx_providers()[0] == "OpenVINOExecutionProvider"
    named = {dtype: one.onnx_options(dtype) for dtype in ("float32", "float16", "bfloat16")}
    assert {options["device_type"] for options in named.values()} == {"GPU"}  # else: processors
    assert [options["precision"] for options in named.values()] == ["FP32", "FP16", "ACCURACY"]
    assert one.container_options()["cdi"] == "intel.com/gpu=all"
    assert list(registry.VENDORS)[-2:] == ["xpu", "cpu"]


def test_preparing_has_float32_computed_as_float32() -> None:
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("high")
        vendor("inside_a_processor").prepare()
        assert torch.get_float32_matmul_precision() == "highest"
    finally:
        torch.set_float32_matmul_precision(before)


# ------------------------------------------------------------------ torch and its extension


def installed(**versions: str) -> Callable[[str], str]:
    def version(name: str) -> str:
        known = {key.replace("_", "-"): value for key, value in versions.items()}
        if name not in known:
            raise PackageNotFoundError(name)
        return known[name]

    return version


@pytest.mark.parametrize(
    ("versions", "has_int8"),
    [
        ({"torch": "2.8.0+xpu"}, False),
        ({"torch": "2.9.1+xpu"}, True),
        ({"torch": "2.13.0+xpu"}, True),
        ({}, False),
    ],
)
def test_int8_is_promised_where_torch_can_multiply_it(
    versions: dict[str, str],
    has_int8: bool,  # noqa: FBT001 - a row of the table
) -> None:
    one = vendor("max_1550", version=installed(**versions))
    assert ("int8" in one.features(one.probe()[0])) is has_int8


def test_a_pair_that_does_not_belong_together_is_refused_when_the_node_is_probed() -> None:
    pair = installed(torch="2.9.1+xpu", intel_extension_for_pytorch="2.8.10+xpu")
    with pytest.raises(UsageError) as refusal:
        vendor("max_1550", version=pair).probe()
    assert str(refusal.value) == (
        "intel-extension-for-pytorch 2.8.10+xpu does not work with torch 2.9.1+xpu: install "
        "torch 2.8, or remove the extension (torch has xpu without it)"
    )
    with pytest.raises(UsageError, match="does not work with torch"):
        vendor("max_1550", version=pair).prepare()


@pytest.mark.parametrize(
    "pair",
    [
        installed(torch="2.8.0+xpu", intel_extension_for_pytorch="2.8.10+xpu"),
        installed(torch="2.13.0"),
        installed(intel_extension_for_pytorch="2.8.10+xpu"),
    ],
)
def test_a_pair_that_belongs_together_and_one_alone_are_accepted(
    pair: Callable[[str], str],
) -> None:
    assert len(vendor("max_1550", version=pair).probe()) == 2


def test_probing_does_not_import_torch() -> None:
    code = (
        f"import sys; sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / 'tests')!r}]; "
        "from recorded.replayed_xpu import vendor; one = vendor('max_1550'); "
        "device = one.probe()[0]; one.read(device); one.counters(device); "
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "False"


# ------------------------------------------------------------------ the tool


def test_no_reading_starts_the_tool_and_a_launch_does_not_ask_it_twice() -> None:
    one = vendor("max_1550")
    device = one.probe()[0]
    one.requested.clear()
    one.read(device)
    assert one.requested == []
    one.counters(device)
    assert sorted(one.requested) == ["health -d 0000:4d:00.0", "stats -d 0000:4d:00.0 -r"]
    Xpu.counters(one, device)  # at the same moment
    assert len(one.requested) == 2


def test_a_tool_that_does_not_answer_is_asked_once(tmp_path: Path) -> None:
    requested: list[object] = []

    def tool(arguments: object) -> str:
        requested.append(arguments)
        raise Unreadable("xpu-smi is not installed")

    trees.unpack("../xpu/max_1550", tmp_path)
    one = Xpu(tmp_path, tool, version=replayed_xpu.no_packages)
    device = one.probe()[0]
    assert len(requested) == 1
    assert (device.serial, device.memory_bytes) == (None, 128 * 2**30)
    assert device.facts["vbios"].hint == "xpu-smi is not installed"
    assert one.counters(device)["ecc_corrected"] is None
    assert len(requested) == 1


@pytest.mark.parametrize(
    ("printed", "hint"),
    [
        ("Error: no device", "did not answer in JSON"),
        ("[1, 2]", "did not answer with an object"),
        ('{"error": "device not found", "errno": 3}', "says: device not found"),
        ("", "did not answer in JSON"),
    ],
)
def test_an_answer_that_is_none_is_a_gap(printed: str, hint: str, tmp_path: Path) -> None:
    trees.unpack("../xpu/max_1550", tmp_path)
    one = Xpu(tmp_path, lambda _: printed, version=replayed_xpu.no_packages)
    device = one.probe()[0]
    assert hint in device.facts["vbios"].hint
    assert hint in one.hints(device)["ecc_corrected"]


@pytest.mark.parametrize("value", [None, "unknown", "", "12x", True, 1.5, [1], {}])
def test_a_value_that_is_no_number_is_a_gap(value: object) -> None:
    with pytest.raises(Unreadable):
        xpu_tool.whole({"key": value}, "key")


def program(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    path = folder / "xpu-smi"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_the_tool_is_started_without_what_would_hide_cards_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(
        tmp_path, monkeypatch, 'echo "{\\"mask\\": \\"$ZE_AFFINITY_MASK\\", \\"told\\": \\"$*\\"}"'
    )
    monkeypatch.setenv("ZE_AFFINITY_MASK", "3")
    reported = Answers(xpu_tool.run).ask("discovery", "-d", "0000:4d:00.0")
    assert reported == {"mask": "", "told": "discovery -d 0000:4d:00.0 -j"}


def test_a_tool_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, monkeypatch, "exec sleep 60")
    monkeypatch.setattr(xpu_tool, "LIMIT_SECONDS", 0.2)
    with pytest.raises(Unreadable, match="did not answer"):
        xpu_tool.run(("discovery",))


def test_a_child_never_starts_the_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, monkeypatch, "echo {}")
    monkeypatch.setenv(xpu_tool.SILENT, "silent")
    with pytest.raises(Unreadable, match="not called while a case runs"):
        xpu_tool.run(("discovery",))
    monkeypatch.delenv(xpu_tool.SILENT)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(Unreadable, match="not installed"):
        xpu_tool.run(("discovery",))


# ------------------------------------------------------------------ the kernel's log

XE, I915 = "xe 0000:4d:00.0: [drm]", "i915 0000:4d:00.0: [drm]"
LINES = [
    (f"{XE} *ERROR* CRITICAL: Xe has declared device 0000:4d:00.0 as wedged.", "device wedged"),
    (f"{I915} *ERROR* GT1: Failed to initialize GPU, declaring it wedged!", "device wedged"),
    (f"{I915} GPU HANG: ecode 12:1:84dffffb, in python3 [4711]", "GPU HANG"),
    (f"{XE} GT0: Engine reset: engine_class=ccs, logical_mask: 0x1, guc_id=4", "engine reset"),
    (f"{XE} Tile0: GT0: Engine reset: engine_class=bcs, guc_id=94", "engine reset"),
    (
        f"{XE} *ERROR* [Hardware Error]: TILE0 reported core-compute uncorrectable-errors, bit[0]",
        "hardware error",
    ),
    (f"{XE} *ERROR* [Hardware Error]: HEC FW Data Corruption reported", "hardware error"),
    (
        f"{XE} [Hardware Error]: L3 BANK correctable-errors detected, ERROR_STAT_GT_VECTOR2",
        "hardware error, corrected",
    ),
    (f"{XE} *ERROR* GT0: Memory CAT error reported by GuC!", "CAT error"),
    (f"{XE} GT0: Engine memory cat error: engine_class=ccs, guc_id=3", "CAT error"),
    (f"{XE} GT0: Timedout job: seqno=24496, lrc_seqno=24496, guc_id=0", "job timed out"),
    (f"{XE} *ERROR* GT0: load failed: status = 0x400000A0, time = 12ms", "GuC load"),
    (f"{I915} GT0: GUC: load failed: status = 0x400000A0", "GuC load"),
    (f"{I915} *ERROR* GT0: GuC initialization failed -ETIMEDOUT", "GuC load"),
    (f"{I915} *ERROR* GT0: HuC: authentication failed -110", "HuC load"),
    (f"{I915} *ERROR* LMEM not initialized by firmware", "memory not initialised"),
    ("xe 0000:4d:00.0: In Survivability Mode", "survivability mode"),
]
HARMLESS = {"hardware error, corrected", "CAT error", "job timed out", "HuC load"}


@pytest.mark.parametrize(("line", "code"), LINES)
def test_a_line_of_the_drivers_is_known(
    line: str, code: str, healthy: tuple[Device, object, object]
) -> None:
    fault = log.fault(f"<3>[  42.0] {line}", [healthy[0]])
    assert fault is not None
    assert (fault.code, fault.device) == (code, "xpu:0")
    assert fault.is_fatal == (code not in HARMLESS)
    assert "(Linux, " in fault.meaning


def test_every_fault_that_is_known_has_a_line_here() -> None:
    assert {code for _, code, _, _ in log.FAULTS} == {code for _, code in LINES}


@pytest.mark.parametrize(
    "line",
    [
        "xe 0000:4d:00.0: [drm] Using GuC firmware from xe/pvc_guc_70.bin version 70.29.2",
        "i915 0000:00:02.0: [drm] GPU HANG: ecode 12:1:84dffffb, in Xorg [99]",  # no device of ours
        "nvme 0000:4d:00.0: [Hardware Error]: uncorrectable",
        "usb 1-1: reset high-speed USB device",
        "",
    ],
)
def test_other_lines_are_no_fault(line: str, healthy: tuple[Device, object, object]) -> None:
    assert vendor("inside_a_processor").kernel_fault(line, [healthy[0]]) is None


def test_an_old_driver_does_not_say_which_card_hangs(
    healthy: tuple[Device, object, object],
) -> None:
    line = "[drm] GPU HANG: ecode 9:0:0x85dffffb, in python [4711], reason: Ring hung"
    fault = log.fault(line, [healthy[0]])
    assert fault is not None
    assert (fault.code, fault.device) == ("GPU HANG", "")


# ------------------------------------------------------------------ through the probe


@pytest.mark.parametrize("name", NAMES)
def test_the_probe_takes_every_machine(name: str, tmp_path: Path) -> None:
    one: Replayed = vendor(name)
    host = trees.unpack("xeon_two_sockets", tmp_path / "host")
    system = probe((one,), root=host, environment={}, window_seconds=0.0)
    assert {device.vendor for device in system.identity.devices} == {"xpu"}
    reported = {name for name in system.conditions.facts if name.startswith("xpu:0_")}
    assert len(reported) == len(READINGS) + len(COUNTERS)


def test_the_answers_of_a_fault_are_those_of_its_base_but_for_its_own() -> None:
    healthy, faulty = answers("max_1550"), answers("max_1550_ecc")
    assert {key for key in healthy if healthy[key] != faulty[key]} == {"stats -d 0000:4d:00.0 -r"}


# ------------------------------------------------------------------ version 2 of the tool


def test_version_2_of_the_tool_has_other_keys_for_the_same() -> None:
    one, other = (vendor(name) for name in ("max_1550", "max_1550_tool_2"))
    first, second = one.probe()[0], other.probe()[0]
    for fact in ("power_limit_highest", "slowdown_temperature", "ecc_mode", "serial", "memory"):
        assert first.facts.get(fact) == second.facts.get(fact)
    assert second.facts["power_limit_highest"].value == 600
    counts, reported = one.counters(first), other.counters(second)
    assert {name for name in counts if counts[name] != reported[name]} == {"links_down"}
    assert reported["row_remap_pending"] == reported["row_remap_failed"] == 0


def test_version_2_counts_errors_by_category() -> None:
    one = vendor("max_1550_tool_2_ecc")
    counts = one.counters(one.probe()[0])
    names = ("ecc_corrected", "ecc_uncorrected", "resets", "ras_uncorrected", "driver_errors")
    assert [counts[name] for name in names] == [5, 2, 1, 0, 0]


def test_version_2_tells_nothing_of_links() -> None:
    one = vendor("max_1550_tool_2")
    device = one.probe()[0]
    assert one.counters(device)["links_down"] is None
    assert "version 2 tells nothing of Xe Links" in one.hints(device)["links_down"]
