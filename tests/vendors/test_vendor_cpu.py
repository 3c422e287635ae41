"""The node's processors: read of recorded machines and of this one; a gap is told, never a zero."""

from collections.abc import Callable
from pathlib import Path

import pytest
from recorded import trees

from appliance.records.json import Scalar
from appliance.records.system import Device
from appliance.vendors.base import Vendor
from appliance.vendors.cpu import Cpu

Machine = Callable[[str], Path]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Unpacks a recorded machine and answers with its root."""
    return lambda name: trees.unpack(name, tmp_path / name)


def device(root: Path) -> Device:
    return Cpu(root).probe()[0]


def values(one: Device) -> dict[str, Scalar | None]:
    return {name: fact.value for name, fact in one.facts.items()}


def test_two_sockets_are_one_device_with_all_its_facts(machine: Machine) -> None:
    one = device(machine("xeon_two_sockets"))
    assert (one.id, one.vendor, one.index, one.serial) == ("cpu:0", "cpu", 0, None)
    assert (one.model, one.memory_bytes) == ("INTEL(R) XEON(R) GOLD 5515+", 16 * 2**31)
    assert values(one) == {
        "model": "INTEL(R) XEON(R) GOLD 5515+",
        "vendor": "GenuineIntel",
        "family": "6",
        "model_number": "207",
        "stepping": "2",
        "microcode": "0x21000283",
        "instruction_sets": "amx_bf16 amx_int8 amx_tile avx avx2 avx512_bf16 avx512_fp16 "
        "avx512_vnni avx512bw avx512dq avx512f avx512vl avx_vnni f16c fma",
        "sockets": 2,
        "physical_cores": 4,
        "logical_processors": 8,
        "threads_per_core": 2,
        "numa_nodes": 2,
        "l1d_cache_size": 49152,
        "l1d_cache_instances": 4,
        "l1i_cache_size": 32768,
        "l1i_cache_instances": 4,
        "l2_cache_size": 2097152,
        "l2_cache_instances": 4,
        "l3_cache_size": 23592960,
        "l3_cache_instances": 2,
        "memory": 16 * 2**31,
        "allowed_processors": 8,
        "processor_quota": "none",
        "usable_processors": 8.0,
        "memory_limit": "none",
        "governor": "performance",
        "frequency_driver": "intel_pstate",
        "lowest_frequency": 800_000_000,
        "highest_frequency": 4_100_000_000,
        "boost": "on",
        "simultaneous_multithreading": "on",
    }


def test_telemetry_is_in_the_units_of_its_names(machine: Machine) -> None:
    root = machine("xeon_two_sockets")
    assert Cpu(root).read(device(root)) == {
        "frequency_hertz": 3.55e9,  # mean of 3.2 to 3.9 GHz
        "temperature_celsius": 54.5,  # the hotter package, and not the board's 99
        "memory_available_bytes": (16 * 2**20 * 2 - 524_288) // 2 * 1024 + 2**20,
        "load1": 0.31,
        "foreign_processors": None,  # a recorded machine is one moment
        "stolen_processors": None,
    }
    assert Cpu(root).counters(device(root)) == {
        "ecc_corrected": 3,
        "ecc_uncorrected": 0,
        "machine_checks": 1,
        "thermal_throttles": 7,
    }


def test_other_drivers_are_read_by_their_own_words(machine: Machine) -> None:
    root = machine("epyc_one_socket")
    facts = values(device(root))
    assert (facts["boost"], facts["governor"], facts["threads_per_core"]) == ("off", "schedutil", 1)
    assert facts["l3_cache_instances"] == 2
    assert "sme" not in str(facts["instruction_sets"])  # here it is encryption, not a matrix unit
    assert Cpu(root).read(device(root))["temperature_celsius"] == 46.125


def test_arm_without_a_model_name_is_known_by_its_numbers(machine: Machine) -> None:
    root = machine("arm_without_model_name")
    one = device(root)
    assert (one.model, one.memory_bytes) == ("Arm Neoverse-N1", 8 * 2**30)
    assert one.facts["instruction_sets"].value == "asimd asimddp asimdhp asimdrdm fphp"
    assert one.facts["microcode"].value is None
    assert one.facts["caches"].value is None
    assert Cpu(root).read(one)["temperature_celsius"] == 43.0


def test_an_arm_part_without_a_name_keeps_its_numbers(machine: Machine) -> None:
    root = machine("arm_without_model_name")
    info = root / "proc/cpuinfo"
    info.write_text(info.read_text().replace("0xd0c", "0xfff"))
    assert device(root).model == "Arm implementer 0x41 part 0xfff"


def test_version_2_limits_of_a_container_are_what_is_usable(machine: Machine) -> None:
    facts = device(machine("container_version_2")).facts
    assert (facts["logical_processors"].value, facts["allowed_processors"].value) == (8, 4)
    assert (facts["processor_quota"].value, facts["processor_quota"].unit) == (1.5, "processors")
    assert facts["usable_processors"].value == 1.5
    assert facts["memory_limit"].value == 4 * 2**30


def test_the_strictest_version_1_limit_on_the_way_up_counts(machine: Machine) -> None:
    facts = device(machine("container_version_1")).facts
    assert facts["processor_quota"].value == 2.5
    assert facts["usable_processors"].value == 2.5
    assert facts["memory_limit"].value == 8 * 2**30


def test_a_virtual_machine_tells_what_it_hides(machine: Machine) -> None:
    root = machine("kvm_guest")
    one = device(root)
    assert (one.model, one.facts["physical_cores"].value) == ("AMD EPYC", 2)
    hidden = {name: fact.hint for name, fact in one.facts.items() if fact.value is None}
    assert set(hidden) == {
        "governor",
        "frequency_driver",
        "lowest_frequency",
        "highest_frequency",
        "boost",
        "processor_quota",
        "usable_processors",
        "memory_limit",
    }
    assert all(hidden.values())
    assert Cpu(root).read(one)["frequency_hertz"] == 2_596_150_000.0
    assert Cpu(root).read(one)["temperature_celsius"] is None
    assert set(Cpu(root).counters(one).values()) == {None}


@pytest.mark.parametrize(
    ("name", "missing", "hint"),
    [
        ("cpuinfo_garbage", {"model", "microcode", "instruction_sets"}, "/proc/cpuinfo is damaged"),
        ("cpuinfo_empty", {"model", "microcode", "instruction_sets"}, "/proc/cpuinfo is empty"),
        (
            "quota_garbage",
            {"processor_quota", "usable_processors"},
            'damaged: "lots" is no integer',
        ),
        ("cache_size_garbage", {"caches"}, "cpu2/cache/index0/size is damaged"),
        ("governor_two_lines", {"governor"}, "holds more than one line"),
    ],
)
def test_a_damaged_file_takes_its_own_facts_only(
    machine: Machine, name: str, missing: set[str], hint: str
) -> None:
    sound = device(machine("epyc_one_socket")).facts
    facts = device(machine(f"defect_{name}")).facts
    lost = {key for key, fact in facts.items() if fact.value is None}
    assert missing <= lost
    assert all(hint in facts[key].hint for key in lost)
    assert all(fact == sound[key] for key, fact in facts.items() if key not in lost)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("frequency_garbage", "frequency_hertz"),
        ("temperature_garbage", "temperature_celsius"),
        ("meminfo_huge_number", "memory_available_bytes"),
    ],
)
def test_a_damaged_sensor_is_unknown_alone(machine: Machine, name: str, key: str) -> None:
    sound, damaged = machine("epyc_one_socket"), machine(f"defect_{name}")
    reading = Cpu(damaged).read(device(damaged))
    assert reading == {**Cpu(sound).read(device(sound)), key: None}


def test_a_count_of_which_one_part_is_missing_is_unknown(machine: Machine) -> None:
    root = machine("defect_counter_of_one_part_gone")
    counters = Cpu(root).counters(device(root))
    assert (counters["ecc_corrected"], counters["ecc_uncorrected"]) == (None, 0)


def test_nothing_at_all_to_read_is_all_unknown(tmp_path: Path) -> None:
    one = device(tmp_path)
    assert (one.model, one.memory_bytes) == ("unknown processor", None)
    assert set(values(one).values()) == {None}
    assert all(fact.hint for fact in one.facts.values())
    assert set(Cpu(tmp_path).read(one).values()) == {None}
    assert set(Cpu(tmp_path).counters(one).values()) == {None}


def test_this_machine_has_one_device_that_can_be_read() -> None:
    vendor: Vendor = Cpu()
    (one,) = vendor.probe()
    assert one.memory_bytes
    assert isinstance(one.facts["usable_processors"].value, float)
    reading = vendor.read(one)
    assert reading["memory_available_bytes"]
    assert all(value is None or value >= 0 for value in reading.values())
    assert vendor.probe() == (one,)


def test_second_reading_tells_what_others_used_since_the_first(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = machine("xeon_two_sockets")
    cpu, clock = Cpu(root, own=7), iter((100.0, 102.0, 102.0))
    monkeypatch.setattr(cpu._neighbours, "_clock", lambda: next(clock))
    (root / "proc/7").mkdir()
    readings = []
    for busy, stolen, own in ((900, 40, 500), (1400, 70, 800)):
        (root / "proc/stat").write_text(f"cpu  {busy} 0 0 9000 0 0 0 {stolen} 0 0\n")
        fields = f"S 1 7 7 0 -1 0 0 0 0 0 {own} 0 0 0 20 0 1 0 1000 1 1"
        (root / "proc/7/stat").write_text(f"7 (bench) {fields}\n")
        readings.append(cpu.read(device(root)))
    assert (readings[0]["foreign_processors"], readings[0]["stolen_processors"]) == (None, None)
    assert (readings[1]["foreign_processors"], readings[1]["stolen_processors"]) == (1.0, 0.15)


def test_recorded_machines_are_what_their_script_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(trees.__file__).parent))
    from documented import MACHINES_BUILT  # noqa: PLC0415 - found through the line above

    result = {path.stem: path.read_text() for path in trees.MACHINES.glob("*.tree")}
    assert {name: text for name, text in result.items() if name != "kvm_guest"} == MACHINES_BUILT
