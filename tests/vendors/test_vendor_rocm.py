"""AMD's devices, from recorded answers of their library and their tool; no driver is needed."""

import importlib
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from recorded import documented_rocm, replayed_rocm
from recorded.replayed_rocm import NAMES, Replayed, vendor
from support.wording import unspoken

from appliance.errors import UsageError
from appliance.linux.sysfs import Tree, Unreadable
from appliance.probe import node
from appliance.records.json import Scalar
from appliance.records.system import Device, Fact, identity_differences
from appliance.records.vocabulary import CONNECTION, COUNTERS, FACTS, READINGS, THROTTLES
from appliance.storage import device_file
from appliance.vendors import registry
from appliance.vendors.amd import amdsmi_calls, smi_tool, throttles, values
from appliance.vendors.amd.absent import NO_QUESTION, UNCOUNTED
from appliance.vendors.amd.amdsmi_library import FIRST_READING, Library
from appliance.vendors.amd.bus import Place, accelerators
from appliance.vendors.amd.faults import PATTERNS
from appliance.vendors.amd.rocm import BASE, GONE, Rocm
from appliance.vendors.amd.smi_tool import PAUSE_SECONDS, CommandLine
from appliance.vendors.base import Vendor
from appliance.vendors.containers import CONTAINERS

SOURCES = ("library", "tool")
FAULTY = tuple(name for name in NAMES if name not in replayed_rocm.HEALTHY)
FIRST, SECOND = "0000:0c:00.0", "0000:22:00.0"


def facts(device: Device) -> dict[str, Scalar | None]:
    return {name: fact.value for name, fact in device.facts.items()}


def readings(one: Vendor, device: Device) -> Mapping[str, float | None]:
    """The second reading: the first has nothing to compare its counts with."""
    one.read(device)
    return one.read(device)


def differing(name: str, source: str) -> dict[str, float | None]:
    """Readings and counters of the first device that are not those of a healthy one."""
    result = []
    for one in (vendor(name, source=source), vendor("mi300x", source=source)):
        device = one.probe()[0]
        result.append({**readings(one, device), **one.counters(device)})
    return {key: value for key, value in result[0].items() if value != result[1][key]}


# ------------------------------------------------------------------ the records


def test_records_are_what_is_documented_and_say_so() -> None:
    written = {path.stem: path.read_text() for path in replayed_rocm.FOLDER.glob("*.json")}
    assert written == documented_rocm.built()
    for name in NAMES:
        record = replayed_rocm.recorded(name)
        assert record["origin"] == "built from documentation"
        assert set(documented_rocm.SOURCES) < set(record["sources"])


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("name", NAMES)
def test_only_the_words_of_all_vendors_are_used(name: str, source: str) -> None:
    one = vendor(name, source=source)
    devices = one.probe()
    assert len(devices) > 1
    for device in devices:
        own = {key for key in device.facts if not key.startswith(CONNECTION)}
        assert own == set(FACTS)
        reported = {**readings(one, device), **one.counters(device)}
        assert unspoken(one, device, reported) == []
        assert all(fact.source for fact in device.facts.values())


def test_what_has_no_question_is_what_no_source_is_asked_for() -> None:
    sources = (Library(SimpleNamespace()), CommandLine(lambda _: "[]"))
    place = Place(Tree(Path("/nowhere")), FIRST)
    requested = [{*source.counters(FIRST), *place.counters(), "lost"} for source in sources]
    assert requested[0] == requested[1] == {*COUNTERS} - NO_QUESTION
    names = [{*source.readings(FIRST)} for source in sources]
    assert names[0] == names[1] == {*READINGS}
    reported = {"throttled_power_cap", "throttled_thermal", "throttled_hardware"}
    assert {f"throttled_{name}" for name in THROTTLES} - NO_QUESTION - UNCOUNTED == reported


# ------------------------------------------------------------------ healthy machines


@pytest.mark.parametrize("source", SOURCES)
def test_eight_modules_with_all_their_facts(source: str) -> None:
    devices = vendor("mi300x", source=source).probe()
    assert [device.id for device in devices] == [f"rocm:{index}" for index in range(8)]
    device = devices[0]
    assert (device.vendor, device.index, device.model) == ("rocm", 0, "AMD Instinct MI300X")
    assert (device.serial, device.memory_bytes) == ("692300000000", 206_141_652_992)
    reported = {name: value for name, value in facts(device).items() if value is not None}
    assert {name: reported[name] for name in reported if not name.startswith(CONNECTION)} == {
        "uuid": "GPU-0000000000000010",
        "product": "AMD Instinct MI300X OAM",
        "board_part_number": "102-G30211-0C",
        "vbios": "113-00000000-100 022.040.003.043",
        "firmware": "CP_MEC1 168, SDMA0 24",
        "driver": "6.14.14",
        "driver_api": "ROCm 7.0.2",
        "architecture": "gfx942",
        "compute_units": 304,
        "memory": 206_141_652_992,
        "memory_type": "HBM3",
        "ecc_mode": "on",
        "power_limit": 750,
        **({"power_limit_default": 750} if source == "library" else {}),
        "power_limit_lowest": 0,
        "power_limit_highest": 750,
        "highest_graphics_clock": 2.1e9,
        "highest_memory_clock": 1.3e9,
        "slowdown_temperature": 100,
        "pci_address": FIRST,
        "pci_device": "1002:74a1",
        "pci_subsystem": "1002:74a1",
        "pcie_generation_highest": 5,
        "pcie_width_highest": 16,
        "pcie_generation_slot": 5,
        "pcie_width_slot": 16,
        "numa_node": 0,
        "cpu_affinity": "0-47",
        "partition_mode": "none",
        "memory_partition_mode": "none",
        "partitions": "none",
        "link_kind": "XGMI",
        "num_links": 7,
        "num_links_up": 7,
        "link_bytes_per_second": 64e9,
    }
    assert [reported[f"{CONNECTION}{number}"] for number in range(1, 8)] == ["XGMI x1"] * 7
    assert f"{CONNECTION}0" not in reported
    units = {name: fact.unit for name, fact in device.facts.items() if fact.unit}
    assert set(units.values()) == {"bytes", "watts", "hertz", "celsius", "bytes per second"}


@pytest.mark.parametrize("source", SOURCES)
def test_readings_are_in_si_units(source: str) -> None:
    one = vendor("mi300x", source=source)
    device = one.probe()[0]
    result = readings(one, device)
    energy = result["energy_joules"]
    assert energy is not None
    assert 1800 < energy < 2200  # 123,456,789 steps of 15.259 microjoules and a second of 100 W
    assert {key: value for key, value in result.items() if value is not None} == {
        "graphics_clock_hertz": 2.096e9,  # the slowest die's
        "memory_clock_hertz": 1.3e9,
        "power_watts": 142,
        "energy_joules": energy,
        "temperature_celsius": 44,  # it has no sensor at its edge
        "hotspot_temperature_celsius": 44,
        "memory_temperature_celsius": 38,
        "utilisation_fraction": 0,
        "memory_utilisation_fraction": 0,
        "memory_used_bytes": 285 << 20,
        "pcie_generation": 5,
        "pcie_width": 16,
        "throttle_mask": 0,
        "throttled_power_cap": 0,
        "throttled_thermal": 0,
        "throttled_hardware": 0,
    }


@pytest.mark.parametrize("source", SOURCES)
def test_a_healthy_device_counts_no_errors(source: str) -> None:
    one = vendor("mi300x", source=source)
    device = one.probe()[0]
    result = one.counters(device)
    assert {key: value for key, value in result.items() if value} == {
        "pcie_replays": 3,
        "pcie_naks": 2,
    }
    assert {key for key, value in result.items() if value is None} <= one.absent(device)
    assert one.absent(device) == NO_QUESTION | UNCOUNTED


@pytest.mark.parametrize("source", SOURCES)
def test_a_die_of_two_is_a_device(source: str) -> None:
    one = vendor("mi250x", source=source)
    devices = one.probe()
    assert [device.model for device in devices] == ["AMD Instinct MI250X/MI250"] * 2
    reported = facts(devices[0])
    assert reported["architecture"] == "gfx90a"
    assert (reported["memory_type"], reported["compute_units"], reported["power_limit"]) == (
        "HBM2E",
        110,
        560,
    )
    assert reported[f"{CONNECTION}1"] == "XGMI x4"
    assert reported["partitions"] == "one of 2 dies of a module"
    result = readings(one, devices[0])
    assert (result["power_watts"], result["temperature_celsius"]) == (95, 37)
    assert result["throttled_current"] == result["throttled_other"] == 0
    assert result["throttle_mask"] is None
    assert one.absent(devices[0]) == NO_QUESTION


def test_shipped_figures_are_found_for_whole_devices_alone() -> None:
    for name, title in (("mi300x", "Instinct MI300X"), ("mi250x", "Instinct MI250X")):
        file = tomllib.loads((device_file.DEVICES / f"{name}.toml").read_text())
        assert (file["name"], vendor(name).probe()[0].model in file["models"]) == (title, True)
    part = vendor("mi300x_partitioned").probe()[0].model
    for path in device_file.DEVICES.glob("*.toml"):
        assert part not in tomllib.loads(path.read_text())["models"]


@pytest.mark.parametrize("source", SOURCES)
def test_each_partition_is_a_device_with_a_model_of_its_own(source: str) -> None:
    one = vendor("mi300x_partitioned", source=source)
    devices = one.probe()
    assert {device.model for device in devices} == {"AMD Instinct MI300X, one CPX partition"}
    assert len({device.facts["pci_address"].value for device in devices}) == 8
    reported = facts(devices[7])
    assert (reported["partition_mode"], reported["memory_partition_mode"]) == ("CPX", "NPS4")
    assert reported["partitions"] == "8 partitions"
    assert reported[f"{CONNECTION}0"] == "same module"
    assert (reported["pcie_width_slot"], reported["pci_device"]) == (
        16,
        "1002:74a1",
    )  # its module's
    assert {device.serial for device in devices} == {"692300000000"}
    result = one.counters(devices[7])
    assert (result["lost"], result["pcie_fatal"], result["ecc_uncorrected"]) == (0, 0, 0)
    assert readings(one, devices[7])["power_watts"] == 142


# ------------------------------------------------------------------ one fault each


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(
    ("name", "shows"),
    [
        ("ecc_uncorrected", {"ecc_corrected": 41, "ecc_uncorrected": 2, "ras_uncorrected": 1}),
        ("bad_page_pending", {"pages_retired_uncorrected": 2, "pages_pending": 2}),
        ("link_down", {"links_down": 1}),
        ("pcie_x8", {"pcie_width": 8}),
    ],
)
def test_a_fault_shows_where_it_should_and_nowhere_else(
    name: str, shows: dict[str, float], source: str
) -> None:
    assert differing(name, source) == shows


@pytest.mark.parametrize("source", SOURCES)
def test_a_device_that_is_held_back_says_why(source: str) -> None:
    assert differing("thermal_throttle", source) == {
        "graphics_clock_hertz": 1.416e9,
        "power_watts": 749,
        "temperature_celsius": 101,
        "hotspot_temperature_celsius": 101,
        "utilisation_fraction": 1,
        "throttle_mask": 0b110,
        "throttled_power_cap": 1,
        "throttled_thermal": 1,
    }


@pytest.mark.parametrize("name", FAULTY)
def test_the_other_device_is_healthy(name: str) -> None:
    one = vendor(name)
    device = one.probe()[1]
    counters = one.counters(device)
    assert counters["lost"] == 0
    assert not any(counters[key] for key in ("ecc_uncorrected", "pages_pending", "links_down"))


@pytest.mark.parametrize("source", SOURCES)
def test_a_field_that_is_missing_is_none_and_not_zero(source: str) -> None:
    one = vendor("missing_field", source=source)
    device = one.probe()[0]
    assert device.serial == "0x0000000000000010"  # of the processor, where the board tells none
    assert facts(device)["power_limit"] is None
    assert facts(device)["vbios"] is None
    result = readings(one, device)
    for name in ("power_watts", "memory_temperature_celsius", "utilisation_fraction"):
        assert result[name] is None
        assert one.hints(device)[name]
    assert result["hotspot_temperature_celsius"] == 44


@pytest.mark.parametrize("source", SOURCES)
def test_a_lost_device_is_told_as_lost(source: str) -> None:
    one = vendor("gpu_lost", source=source)
    lost, other = one.probe()
    known = {key: value for key, value in one.counters(lost).items() if value is not None}
    assert known == {"lost": 1}
    reported = {key: value for key, value in one.read(lost).items() if value is not None}
    # The tool's last answer stands until its pause is over.
    assert reported == {}
    assert one.hints(lost)["ecc_uncorrected"] == GONE
    assert one.absent(lost) == NO_QUESTION | UNCOUNTED
    assert one.counters(other)["lost"] == 0
    assert one.read(other)["power_watts"] == 142


def test_a_device_is_lost_without_the_bus_if_the_library_has_lost_it(tmp_path: Path) -> None:
    record = replayed_rocm.recorded("gpu_lost")
    record["files"], record["links"], record["then"]["gone"] = {}, {}, []
    one = Replayed(record, tmp_path)
    lost, other = one.probe()
    assert (one.counters(lost)["lost"], one.counters(other)["lost"]) == (1, 0)


def test_a_device_that_answers_with_ones_alone_is_lost(tmp_path: Path) -> None:
    one = vendor("mi300x", tmp_path)
    first, second = one.probe()[:2]
    for address, head in ((FIRST, b"\xff\xff\xff\xff"), (SECOND, b"\x02\x10\xa1\x74")):
        (tmp_path / f"sys/bus/pci/devices/{address}/config").write_bytes(head)
    assert (one.counters(first)["lost"], one.counters(second)["lost"]) == (1, 0)


@pytest.mark.parametrize("source", SOURCES)
def test_what_is_withheld_is_none_with_the_permission_that_it_takes(source: str) -> None:
    one = vendor("permission_denied", source=source)
    device = one.probe()[0]
    assert device.facts["firmware"].value is None
    result, hints = one.counters(device), one.hints(device)
    for name in ("ecc_uncorrected", "ras_uncorrected", "pages_retired_uncorrected"):
        assert result[name] is None
        assert "run as root" in hints[name]
        assert name not in one.absent(device)
    assert result["lost"] == 0
    assert result["pcie_replays"] == 3  # the kernel tells it to everybody
    assert one.read(device)["pcie_width"] == 16


# ------------------------------------------------------------------ what stands for no value


@pytest.mark.parametrize(
    "answer", ["N/A", None, True, 0xFFFF, 0xFFFFFFFF, 2**64 - 1, "", "unknown"]
)
def test_what_stands_for_no_number_is_none(answer: object) -> None:
    assert values.number(answer) is None
    assert values.number({"value": answer, "unit": "W"}) is None
    assert values.count(answer) is None


@pytest.mark.parametrize("answer", ["N/A", "", "0x0", "0x0000000000000000", None, 7, "unknown"])
def test_what_stands_for_no_text_is_no_text(answer: object) -> None:
    with pytest.raises(Unreadable):
        values.text(answer)


def test_numbers_of_every_form_are_numbers() -> None:
    assert values.number("12") == 12
    assert values.number("12.5") == 12.5
    assert values.quantity({"value": 4, "unit": "MB"}) == 4 << 20
    assert values.quantity({"value": 4, "unit": "furlongs"}) is None
    assert values.quantity(4) is None
    assert values.count(-1) is None


@pytest.mark.parametrize(
    ("reported", "watts"), [(750_000_000, 750.0), (750, 750), (0xFFFFFFFF, None), (0, 0)]
)
def test_a_power_cap_is_in_microwatts_or_in_watts(reported: int, watts: float | None) -> None:
    assert values.watts(reported) == watts
    assert values.cap(reported) == (watts or None)


@pytest.mark.parametrize(("reported", "result"), [(44, 44), (0, None), (65535, None), (-60, None)])
def test_a_sensor_that_is_not_there_has_no_temperature(reported: int, result: int | None) -> None:
    assert values.celsius(reported) == result


@pytest.mark.parametrize(
    ("rate", "number"), [(32.0, 5), (32_000, 5), (16.0, 4), (2500, 1), (3.0, None), (None, None)]
)
def test_a_generation_is_told_by_its_rate(rate: float | None, number: int | None) -> None:
    assert values.generation(rate) == number


def test_an_answer_of_another_form_is_a_gap_and_never_a_traceback() -> None:
    """Whatever a library of another release answers."""
    for odd in (None, [], {}, "text", 7, [None], {"status": None}):
        record = replayed_rocm.recorded("link_down")
        for device in record["library"]["devices"]:
            address = device["amdsmi_get_gpu_device_bdf"]
            device.update(dict.fromkeys(device, odd))
            device["amdsmi_get_gpu_device_bdf"] = address
        one = vendor("link_down")
        one.library.record["devices"] = record["library"]["devices"]
        for device in one.probe():
            assert device.model.startswith("unknown AMD device")
            assert {*one.read(device)} == {*READINGS}
            assert one.counters(device)["ecc_uncorrected"] is None
            assert one.hints(device)


@pytest.mark.parametrize("odd", [None, [], {}, "text", 7, [None]])
def test_an_odd_answer_of_the_tool_is_a_gap(odd: object) -> None:
    one = vendor("link_down", source="tool")
    listed = one.tool.record["list -e"]
    one.tool.record.update(dict.fromkeys(one.tool.record, odd))
    one.tool.record["list -e"] = listed
    for device in one.probe():
        assert device.model == "unknown AMD device"
        assert {*one.read(device)} == {*READINGS}
        assert one.counters(device)["ecc_uncorrected"] is None
        assert one.hints(device)


# ------------------------------------------------------------------ throttling


def test_counts_say_nothing_at_the_first_reading() -> None:
    one = vendor("thermal_throttle")
    device = one.probe()[0]
    assert one.read(device)["throttled_thermal"] is None
    residency = throttles.Residency()
    counts = {"accumulation_counter": 10, "ppt_residency_acc": 5}
    assert residency.active(FIRST, counts) == {}
    assert residency.active(FIRST, counts) == {}  # no cycle has passed
    assert residency.active(SECOND, counts) == {}  # each device has its own
    later = {"accumulation_counter": 20, "ppt_residency_acc": 6}
    assert residency.active(FIRST, later) == {"ppt": True}
    assert residency.active(FIRST, {**later, "accumulation_counter": 30}) == {"ppt": False}
    assert residency.active(FIRST, counts) == {}  # the driver was loaded anew


def test_why_the_first_reading_says_nothing_is_told(tmp_path: Path) -> None:
    record = replayed_rocm.recorded("mi300x")
    del record["library"]["devices"][0]["amdsmi_get_gpu_metrics_info"]["grows"]
    one = Replayed(record, tmp_path)
    device = one.probe()[0]
    assert one.hints(device)["throttled_thermal"] == FIRST_READING


@pytest.mark.parametrize("bit", [0, 3, 16, 17, 18, 32, 36, 40, 45, 46, 47, 48, 56, 57])
def test_every_bit_of_the_mask_is_one_reason(bit: int) -> None:
    result = throttles.by_mask(1 << bit)
    active = [name for name, value in result.items() if name != "throttle_mask" and value]
    assert len(active) == 1
    assert result["throttle_mask"] == 1 << bit


def test_a_truth_value_says_only_that_there_is_a_reason() -> None:
    held = throttles.by_mask(mask=True)
    assert held["throttled_other"] == 1
    assert held["throttled_thermal"] is held["throttle_mask"] is None
    free = throttles.by_mask(mask=False)
    assert free["throttled_thermal"] == free["throttled_other"] == 0
    assert throttles.by_mask("N/A")["throttled_thermal"] is None


@pytest.mark.parametrize(
    ("answer", "is_active"),
    [
        ("ACTIVE", True),
        ("NOT ACTIVE", False),
        ({"xcp_0": ["NOT ACTIVE", "N/A", "ACTIVE"]}, True),
        ({"value": "NOT ACTIVE", "unit": ""}, False),
        ("N/A", None),
        (["N/A"], None),
    ],
)
def test_the_tools_forms_of_a_status(answer: object, is_active: bool | None) -> None:  # noqa: FBT001
    assert smi_tool._is_active(answer) is is_active


# ------------------------------------------------------------------ the library and the tool


def test_the_tool_is_asked_at_most_every_pause() -> None:
    one = vendor("mi300x", source="tool")
    devices = one.probe()
    one.tool.calls.clear()
    for device in devices:
        Rocm.read(one, device)  # the clock of the replay stands still
    assert one.tool.calls.count("metric") <= 1
    one.now += PAUSE_SECONDS
    Rocm.read(one, devices[0])
    one.tool.calls.clear()
    one.counters(devices[0])
    assert one.tool.calls.count("metric") == 1  # counters are of now


def test_a_probe_runs_each_command_once() -> None:
    one = vendor("mi300x", source="tool")
    one.probe()
    assert max(one.tool.calls.count(command) for command in set(one.tool.calls)) <= 2
    assert len(one.tool.calls) < 12


def test_words_before_the_document_are_passed_over() -> None:
    warned = 'WARNING: [gpu 0] is odd\n[{"gpu": 0, "bdf": "0000:0c:00.0"}]\n'
    assert smi_tool.document(warned) == [{"gpu": 0, "bdf": FIRST}]
    with pytest.raises(Unreadable, match="no JSON"):
        smi_tool.document("AMD-SMI has no devices")


def test_a_tool_that_is_not_there_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(Unreadable, match="not installed"):
        smi_tool.run(["list"])


def test_a_tool_that_fails_names_its_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "amd-smi"
    program.write_text("#!/bin/sh\n[ $1 = list ] && echo [] && exit 0\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert smi_tool.run(["list", "--json"]) == "[]\n"
    with pytest.raises(Unreadable, match="amd-smi metric --json"):
        smi_tool.run(["metric", "--json"])


class Module(SimpleNamespace):
    """Stands for the installed library."""

    AmdSmiException = replayed_rocm.AmdSmiException


def test_the_library_is_initialised_and_its_refusal_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise replayed_rocm.AmdSmiLibraryException(34)

    fine = Module(amdsmi_init=lambda: None)
    monkeypatch.setitem(sys.modules, "amdsmi", fine)
    assert amdsmi_calls.load() is fine
    monkeypatch.setitem(sys.modules, "amdsmi", Module(amdsmi_init=refuse))
    with pytest.raises(Unreadable, match="status 34"):
        amdsmi_calls.load()
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    with pytest.raises(Unreadable, match="not installed"):
        amdsmi_calls.load(tmp_path)


UNINSTALLED = """
from pathlib import Path
if not (Path(__file__).parents[3] / "lib/libamd_smi.so.26").is_file():
    raise KeyError("libamd_smi.so")
class AmdSmiException(Exception): pass
def amdsmi_init(): print("a word of the library's")
"""


def lay_out(root: Path) -> Path:
    """The library in a tree of ROCm's, as its wheel has it; the folder that it lies in."""
    (root / "share/amd_smi/amdsmi").mkdir(parents=True)
    (root / "share/amd_smi/amdsmi/__init__.py").write_text(UNINSTALLED)
    (root / "lib").mkdir()
    (root / "lib/libamd_smi.so.26").touch()
    return root / "share/amd_smi"


@pytest.fixture
def no_amdsmi(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An interpreter without the library, which forgets what a test makes it import."""
    monkeypatch.delitem(sys.modules, "amdsmi", raising=False)
    importlib.invalidate_caches()
    yield
    sys.modules.pop("amdsmi", None)


@pytest.mark.usefixtures("no_amdsmi")
def test_the_library_of_rocms_wheel_is_used_without_being_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = lay_out(tmp_path / "site-packages/_rocm_sdk_core")
    (tmp_path / "site-packages/_rocm_sdk_core/__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path / "site-packages"))
    assert list(amdsmi_calls.shared_folders(tmp_path / "rocm")) == [folder]
    library = amdsmi_calls.load(tmp_path / "rocm")
    assert Path(library.__file__).parent == folder / "amdsmi"
    assert str(folder) not in sys.path  # nothing else is imported from there
    assert "_rocm_sdk_core" not in sys.modules  # its import would set up the runtime
    assert capsys.readouterr().out == ""  # stdout may be a JSON document


@pytest.mark.usefixtures("no_amdsmi")
def test_a_tree_without_its_shared_object_gives_way_to_the_next(tmp_path: Path) -> None:
    newest, older = lay_out(tmp_path / "core-10.0"), lay_out(tmp_path / "core-9.2")
    assert list(amdsmi_calls.shared_folders(tmp_path)) == [newest, older]
    (tmp_path / "core-10.0/lib/libamd_smi.so.26").unlink()
    assert Path(amdsmi_calls.load(tmp_path).__file__).parent == older / "amdsmi"
    sys.modules.pop("amdsmi")
    (tmp_path / "core-9.2/lib/libamd_smi.so.26").unlink()
    with pytest.raises(Unreadable, match="not installed"):
        amdsmi_calls.load(tmp_path)


# ------------------------------------------------------------------ the bus


def test_the_link_to_the_slot_is_that_of_the_modules_own_switch(tmp_path: Path) -> None:
    vendor("pcie_x8", tmp_path)
    place = Place(Tree(tmp_path), FIRST)
    assert [one.address for one in place.inner] == ["0000:0a:00.0", "0000:0b:00.0", FIRST]
    assert place.function.width() == 16  # the inner link, which never changes
    assert place.end.width() == 8
    assert place.partner.address == "0000:08:01.0"


def test_errors_of_the_bus_are_those_of_all_functions_of_the_device(tmp_path: Path) -> None:
    one = vendor("mi300x", tmp_path)
    device = one.probe()[0]
    for number, address in enumerate(("0000:0a:00.0", "0000:0b:00.0", FIRST), 1):
        path = tmp_path / f"sys/bus/pci/devices/{address}/aer_dev_correctable"
        path.write_text(f"RxErr {number}\nTOTAL_ERR_COR {number}\n")
    assert one.counters(device)["pcie_correctable"] == 6
    assert one.counters(device)["pcie_fatal"] == 0


def test_without_links_of_the_vendor_the_way_is_over_the_host(tmp_path: Path) -> None:
    one = vendor("mi300x", tmp_path)
    for pair in one.library.record["pairs"].values():
        pair["amdsmi_topo_get_link_type"] = {"hops": 2, "type": 1}
    first = one.probe()[0]
    assert facts(first)[f"{CONNECTION}1"] == "host bridge"
    assert facts(first)[f"{CONNECTION}7"] == "between sockets"


def bus(root: Path, *, kind: str, driver: str = "", vendor: str = "0x1002") -> Path:
    folder = root / "sys/bus/pci/devices/0000:03:00.0"
    folder.mkdir(parents=True)
    (folder / "vendor").write_text(f"{vendor}\n")
    (folder / "class").write_text(f"{kind}\n")
    if driver:
        (root / "sys/bus/pci/drivers" / driver).mkdir(parents=True)
        (folder / "driver").symlink_to(f"../../drivers/{driver}")
    return root


@pytest.mark.parametrize(
    ("device", "is_one"),
    [
        ({"kind": "0x120000", "driver": "amdgpu"}, True),
        ({"kind": "0x120000"}, True),  # its driver is not loaded
        ({"kind": "0x120000", "driver": "vfio-pci"}, False),  # a virtual machine has it
        ({"kind": "0x038000", "driver": "amdgpu"}, True),
        ({"kind": "0x030000"}, False),  # a display that nobody computes on
        ({"kind": "0x040300", "driver": "snd_hda_intel"}, False),
        ({"kind": "0x120000", "driver": "habanalabs", "vendor": "0x1da3"}, False),
    ],
)
def test_what_is_an_accelerator_of_amd(
    device: dict[str, str],
    is_one: bool,  # noqa: FBT001
    tmp_path: Path,
) -> None:
    root = bus(tmp_path, **device)
    assert bool(accelerators(Tree(root))) is is_one
    if is_one:
        with pytest.raises(UsageError, match="AMD accelerator is here") as refusal:
            Rocm(root).probe()
        assert "/dev/kfd" in str(refusal.value)
        assert "\n" not in str(refusal.value)
    else:
        assert Rocm(root).probe() == ()


def test_a_driver_that_shows_no_device_is_refused_if_one_is_there(tmp_path: Path) -> None:
    one = vendor("mi300x", tmp_path)
    one.library.record["devices"] = []
    with pytest.raises(UsageError, match="amdgpu"):
        one.probe()


@pytest.mark.serial
def test_a_machine_without_them_is_passed_by_at_once(tmp_path: Path) -> None:
    (tmp_path / "sys/bus/pci/devices").mkdir(parents=True)
    seconds = []
    for _ in range(5):
        begin = time.perf_counter()
        assert Rocm(tmp_path).probe() == ()
        seconds.append(time.perf_counter() - begin)
    assert min(seconds) < 0.05


def test_no_library_is_loaded_where_there_is_no_device() -> None:
    code = (
        "import sys, appliance.vendors.amd.rocm as r; r.Rocm().probe(); "
        "print(any(name in sys.modules for name in ('amdsmi', 'torch')))"
    )
    if accelerators(Tree()):
        pytest.skip("this machine has an AMD device")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


# ------------------------------------------------------------------ the kernel's log

BEGIN = "amdgpu 0000:0c:00.0: amdgpu: "
LINES = {
    "amdgpu 0000:0c:00.0: amdgpu: {1}2 uncorrectable hardware errors detected in umc block": (
        "RAS uncorrectable",
        True,
    ),
    "amdgpu 0000:0c:00.0: amdgpu: {7}3 new uncorrectable hardware errors detected in gfx block": (
        "RAS uncorrectable",
        True,
    ),
    f"{BEGIN}uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!": (
        "RAS fatal event",
        True,
    ),
    "amdgpu 0000:0c:00.0: amdgpu: RAS poison is consumed by client 10": (
        "RAS poison consumed",
        True,
    ),
    "amdgpu 0000:0c:00.0: amdgpu: {4}5 new deferred hardware errors detected in umc block": (
        "RAS deferred",
        False,
    ),
    "amdgpu 0000:0c:00.0: amdgpu: RAS records:99 exceed threshold:64": ("RAS threshold", True),
    "amdgpu 0000:0c:00.0: amdgpu: device lost from bus!": ("lost", True),
    "amdgpu 0000:0c:00.0: amdgpu: GPU reset begin!. Source:  3": ("reset", True),
    "amdgpu 0000:0c:00.0: amdgpu: GPU reset(7) failed": ("reset failed", True),
    "amdgpu 0000:0c:00.0: amdgpu: GPU reset end with ret = -62": ("reset failed", True),
    "amdgpu 0000:0c:00.0: amdgpu: GPU reset(7) succeeded!": ("reset succeeded", False),
    "amdgpu 0000:0c:00.0: amdgpu: ring sdma0.0 timeout, signaled seq=4, emitted seq=6": (
        "ring timeout",
        True,
    ),
    "amdgpu 0000:0c:00.0: amdgpu: ring gfx timeout, but soft recovered": ("ring recovered", False),
    "amdgpu 0000:0c:00.0: amdgpu: [gfxhub0] no-retry page fault (src_id:0 ring:24 vmid:8)": (
        "page fault",
        False,
    ),
    "amdgpu 0000:0c:00.0: amdgpu: XGMI: Failed to add node 1, hive 0x2, ret -22": ("XGMI", True),
}


@pytest.fixture(scope="module")
def modules() -> tuple[Rocm, tuple[Device, ...]]:
    one = vendor("mi300x")
    return one, one.probe()


@pytest.mark.parametrize(("line", "says"), LINES.items())
def test_a_fault_in_the_log_is_of_the_device_that_it_names(
    line: str, says: tuple[str, bool], modules: tuple[Rocm, tuple[Device, ...]]
) -> None:
    one, devices = modules
    fault = one.kernel_fault(line, devices)
    assert fault is not None
    assert (fault.code, fault.is_fatal) == (f"amdgpu {says[0]}", says[1])
    assert fault.device == "rocm:0"
    assert "drivers/gpu/drm/amd" in fault.meaning
    moved = one.kernel_fault(line.replace(FIRST, SECOND), devices)
    assert moved is not None
    assert moved.device == "rocm:1"
    elsewhere = one.kernel_fault(line.replace(FIRST, "0000:ff:00.0"), devices)
    assert elsewhere is not None
    assert elsewhere.device == ""


def test_every_pattern_has_a_line() -> None:
    reported = {code for code, _ in LINES.values()}
    assert {pattern.code for pattern in PATTERNS} - reported == {"queue preemption", "throttled"}


@pytest.mark.parametrize(
    "line",
    [
        "amdgpu 0000:0c:00.0: amdgpu: 0 uncorrectable hardware errors detected in umc block",
        "amdgpu 0000:0c:00.0: amdgpu: 0 new poison consumption detected",
        "amdgpu 0000:0c:00.0: amdgpu: 12 correctable hardware errors detected in umc block",
        "amdgpu 0000:0c:00.0: amdgpu: RAS: optional ras ta ucode is not available",
        "amdgpu 0000:0c:00.0: amdgpu: SMU is initialized successfully!",
        "NVRM: Xid (PCI:0000:0c:00): 79, GPU has fallen off the bus.",
        "eth0: GPU reset begin!",
        "",
    ],
)
def test_a_line_of_health_or_of_others_is_no_fault(
    line: str, modules: tuple[Rocm, tuple[Device, ...]]
) -> None:
    assert modules[0].kernel_fault(line, modules[1]) is None


def test_of_partitions_the_log_names_the_first() -> None:
    one = vendor("mi300x_partitioned")
    fault = one.kernel_fault(next(iter(LINES)), one.probe())
    assert fault is not None
    assert fault.device == "rocm:0"


# ------------------------------------------------------------------ how they are used


def test_devices_are_made_visible_by_their_uuid_in_order() -> None:
    one = vendor("mi300x")
    devices = one.probe()
    result = one.environment(devices[5], devices[2])
    assert result["ROCR_VISIBLE_DEVICES"] == "GPU-0000000000000015,GPU-0000000000000012"
    for name in ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"):
        assert result[name] == "0,1"  # all of what is left, so that no older value counts
    assert one.environment()["ROCR_VISIBLE_DEVICES"] == ""


def test_partitions_that_share_a_uuid_are_made_visible_by_number() -> None:
    one = vendor("mi300x_partitioned_6")
    devices = one.probe()
    assert one.environment(devices[3], devices[1])["ROCR_VISIBLE_DEVICES"] == "3,1"
    one = vendor("mi300x_partitioned")
    devices = one.probe()
    assert one.environment(devices[3])["ROCR_VISIBLE_DEVICES"] == "GPU-0000000000000013"


def test_a_device_without_uuid_is_made_visible_by_number() -> None:
    device = Device(
        id="rocm:3",
        vendor="rocm",
        index=3,
        model="AMD Instinct MI300X",
        serial=None,
        memory_bytes=None,
        facts={"uuid": Fact(value=None, unit="", source="amdsmi", hint="not told")},
    )
    assert Rocm().environment(device)["ROCR_VISIBLE_DEVICES"] == "3"


def test_devices_are_in_the_order_of_programs(tmp_path: Path) -> None:
    record: dict[str, Any] = replayed_rocm.recorded("link_down")
    for number, device in enumerate(record["library"]["devices"]):
        device["amdsmi_get_gpu_enumeration_info"]["hip_id"] = 1 - number
    devices = Replayed(record, tmp_path).probe()
    assert [facts(device)["pci_address"] for device in devices] == [SECOND, FIRST]
    assert [device.index for device in devices] == [0, 1]


def test_number_formats_are_those_of_the_design() -> None:
    one = vendor("mi300x")
    device = one.probe()[0]
    assert {"tf32", "float64", "bfloat16"} <= one.features(device)
    assert "float8" not in one.features(device)  # the "fnuz" kinds alone
    die = vendor("mi250x").probe()[0]
    assert one.features(die) == BASE
    newer = replace(device, facts={**device.facts, "architecture": Fact(value="gfx950:sramecc+")})
    assert one.features(newer) - {"jax"} == BASE | {"float8"}  # and no TF32


def test_float32_is_float32_after_prepare() -> None:
    before = (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32)
    try:
        torch.backends.cudnn.allow_tf32 = True
        Rocm().prepare()
        assert not torch.backends.cuda.matmul.allow_tf32
        assert not torch.backends.cudnn.allow_tf32
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


def test_containers_get_what_the_launcher_passes() -> None:
    host = CONTAINERS["rocm"]
    assert Rocm().container_options() == {
        "cdi": host.cdi,
        "device_requests": [],
        "devices": list(host.devices),
        "group_nodes": list(host.group_nodes),
    }
    assert Rocm().onnx_providers() == ("MIGraphXExecutionProvider", "CPUExecutionProvider")
    assert (Rocm.torch_type, Rocm.collectives, Rocm.fork_safe) == ("cuda", "nccl", False)


def test_it_is_asked_between_the_other_vendors() -> None:
    assert isinstance(registry.VENDORS["rocm"](), Rocm)
    assert [*registry.VENDORS] == ["cuda", "rocm", "xpu", "cpu"]


def test_the_probe_records_them(tmp_path: Path) -> None:
    one = vendor("ecc_uncorrected")
    system = node.probe([one], root=tmp_path, environment={}, window_seconds=0)
    assert [device.id for device in system.identity.devices] == ["rocm:0", "rocm:1"]
    conditions = system.conditions.facts
    assert conditions["rocm:0_ecc_uncorrected"].value == 2
    assert conditions["rocm:1_ecc_uncorrected"].value == 0
    assert conditions["rocm:1_power"].value == 142


@pytest.mark.parametrize("source", SOURCES)
def test_a_probe_of_another_day_is_of_the_same_machine(source: str, tmp_path: Path) -> None:
    result = [
        node.probe(
            [vendor(name, source=source)], root=tmp_path, environment={}, window_seconds=0
        ).identity
        for name in ("link_down", "link_down", "thermal_throttle")
    ]
    assert identity_differences(result[0], result[1]) == []
    assert len(identity_differences(result[0], result[2])) <= 1  # the link that came up


def test_it_is_found_by_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = vendor("mi300x")
    monkeypatch.delenv(node.OF_IMAGE, raising=False)
    monkeypatch.setitem(registry.VENDORS, "rocm", lambda: one)
    assert node.present("rocm") is one
    assert node.present("cpu").name == "cpu"


def test_the_plugin_of_onnx_runtime_is_registered_where_it_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "onnxruntime_ep_migraphx.py").write_text(
        "def get_ep_names():\n    return ['MIGraphXExecutionProvider']\n"
        "def get_library_paths():\n    return ['/plugin.so']\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    plugin = importlib.import_module("onnxruntime_ep_migraphx")
    del sys.modules[plugin.__name__]
    monkeypatch.setitem(sys.modules, plugin.__name__, plugin)  # forgotten after this test
    reported: list[tuple[str, str]] = []
    monkeypatch.setattr(
        "onnxruntime.register_execution_provider_library",
        lambda name, path: reported.append((name, path)),
    )
    Rocm(root=tmp_path).prepare()
    assert reported == [(Rocm().onnx_providers()[0], "/plugin.so")]
