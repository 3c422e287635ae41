"""The node: what it is on any day, how it is today, and which sentences tell another machine."""

import base64
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from recorded import trees
from support.builders import an_identity

from appliance.errors import UsageError
from appliance.linux import smbios
from appliance.linux.sysfs import Tree
from appliance.probe import conditions, node
from appliance.probe.components import disks, interfaces, memory_modules
from appliance.probe.host import host_facts
from appliance.records.json import Scalar, from_json, to_json
from appliance.records.system import (
    Fact,
    Facts,
    Process,
    System,
    identity_differences,
)
from appliance.vendors.cpu import Cpu

Machine = Callable[[str], Path]
NOBODY = 65534


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Unpacks a recorded machine and answers with its root."""
    return lambda name: trees.unpack(name, tmp_path / name)


def read(root: Path, **environment: str) -> System:
    return node.probe((Cpu(root),), root=root, environment=environment, window_seconds=0.0)


def values(facts: Facts) -> dict[str, Scalar | None]:
    return {name: fact.value for name, fact in facts.items()}


# ------------------------------------------------------------------ identity


def test_host_facts_are_those_of_the_recorded_machine(machine: Machine) -> None:
    assert values(read(machine("xeon_two_sockets")).identity.host) == {
        "system_vendor": "Dell Inc.",
        "system_product": "PowerEdge R760",
        "system_version": None,
        "system_serial": "7QK1234",
        "system_uuid": "4c4c4544-0051-4b10-8031-b7c04f313233",
        "board_vendor": "Dell Inc.",
        "board_product": "0X3G5K",
        "board_version": "A01",
        "board_serial": ".7QK1234.CNFCP0035500XX.",
        "chassis_serial": "7QK1234",
        "bios_vendor": "Dell Inc.",
        "bios_version": "2.4.4",
        "bios_date": "09/27/2024",
        "virtual_machine": False,
        "processor_model": "INTEL(R) XEON(R) GOLD 5515+",
        "sockets": 2,
        "physical_cores": 4,
        "logical_processors": 8,
        "memory": 2**35,
        "kernel": "6.8.0-48-generic",
        "kernel_build": "#1 SMP PREEMPT_DYNAMIC",
        "kernel_parameters": "intel_iommu=on iommu=pt",
        "architecture": "x86_64",
        "distribution": "Ubuntu 24.04.1 LTS",
        "container": "none",
        "image": None,
        "image_digest": None,
        "memory_modules": 2,
        "disks": 1,
        "network_interfaces": 1,
    }


def test_memory_modules_are_read_from_the_firmware_without_empty_slots(machine: Machine) -> None:
    _, modules = memory_modules(Tree(machine("xeon_two_sockets")))
    assert [module["slot"].value for module in modules] == ["A1", "A3"]
    assert values(modules[1]) == {
        "slot": "A3",
        "bank": "BANK 2",
        "kind": "DDR5",
        "manufacturer": "00CE063200CE",
        "part": "M321R2GA3BB6-CQKVS",
        "serial": "03D1A002",
        "size": 16 * 2**30,
        "rated_speed": 4_800_000_000,
        "configured_speed": 4_400_000_000,
        "total_width": 80,
        "data_width": 64,
        "ranks": 2,
    }


def test_a_module_above_32_gib_has_its_size_in_the_extended_field(machine: Machine) -> None:
    _, modules = memory_modules(Tree(machine("epyc_one_socket")))
    assert modules[0]["size"].value == 64 * 2**30


def test_a_damaged_memory_table_is_refused_whole(machine: Machine) -> None:
    identity = read(machine("defect_smbios_cut_off")).identity
    assert identity.memory_modules == ()
    assert identity.host["memory_modules"].value is None
    assert "/sys/firmware/dmi/tables/DMI is damaged" in identity.host["memory_modules"].hint


def test_a_memory_table_cut_anywhere_is_refused() -> None:
    text = (trees.MACHINES / "xeon_two_sockets.tree").read_text()
    (body,) = (body for header, body in trees.entries(text) if header["path"].endswith("/DMI"))
    table = base64.b64decode(body)
    assert len(smbios.memory_modules(table)) == 4
    for length in range(len(table)):
        with pytest.raises(smbios.DamagedTableError):
            smbios.memory_modules(table[:length])


def test_disks_are_hardware_that_stays(machine: Machine) -> None:
    count, result = disks(Tree(machine("xeon_two_sockets")))
    assert count.value == 1
    assert values(result[0]) == {
        "address": "0000:15:00.2",
        "model": "SAMSUNG MZQL21T9HCJR-00A07",
        "serial": "S64GNE0R600123",
        "firmware": "GDC5902Q",
        "size": 1_920_383_410_176,
        "rotational": False,
    }


def test_a_disk_under_another_kernel_name_is_the_same_disk(machine: Machine) -> None:
    root = machine("xeon_two_sockets")
    before = disks(Tree(root))
    (root / "sys/block/nvme0n1").rename(root / "sys/block/nvme7n1")
    assert disks(Tree(root)) == before


def test_a_network_card_is_listed_without_its_virtual_functions(machine: Machine) -> None:
    count, result = interfaces(Tree(machine("xeon_two_sockets")))
    assert count.value == 1
    assert values(result[0]) == {
        "address": "0000:15:00.0",
        "vendor_id": "0x15b3",
        "device_id": "0x1021",
        "driver": "mlx5_core",
        "mac": "a0:88:c2:00:00:01",
        "numa_node": 0,
        "firmware": "28.39.1002",
        "board": "MT_0000000838",
        "node_guid": "a088:c203:0000:0001",
    }


def test_an_address_that_software_set_is_not_the_cards(machine: Machine) -> None:
    root = machine("xeon_two_sockets")
    port = root / "sys/class/net/ens1np0"
    (port / "addr_assign_type").write_text("3\n")
    assert interfaces(Tree(root))[1][0]["mac"].value is None
    (port / "bonding_slave").mkdir()
    (port / "bonding_slave/perm_hwaddr").write_text("a0:88:c2:00:00:01\n")
    assert interfaces(Tree(root))[1][0]["mac"].value == "a0:88:c2:00:00:01"


def test_two_containers_on_one_host_have_one_identity(machine: Machine) -> None:
    root = machine("container_version_2")
    first = read(root, BENCH_IMAGE="bench-cpu")
    (root / "proc/sys/kernel/hostname").write_text("d2b6a1\n")
    (root / "proc/loadavg").write_text("7.01 2.20 0.18 2/1034 41021\n")
    veth = root / "sys/devices/virtual/net/eth0"
    veth.mkdir(parents=True)
    (veth / "address").write_text("02:42:ac:11:00:02\n")
    second = read(root, BENCH_IMAGE="bench-cpu")
    assert node.identity_digest(first.identity) == node.identity_digest(second.identity)
    assert first.conditions.facts["hostname"] != second.conditions.facts["hostname"]


def test_a_container_says_what_it_hides_and_how_to_show_it(machine: Machine) -> None:
    system = read(machine("container_version_2"), BENCH_IMAGE_DIGEST="sha256:12")
    host = system.identity.host
    assert (host["container"].value, host["image_digest"].value) == ("docker", "sha256:12")
    assert "BENCH_IMAGE " in host["image"].hint
    assert "systempaths=unconfined" in host["memory_modules"].hint
    assert "--network host" in system.identity.interfaces[0]["mac"].hint
    assert "--pid host" in system.conditions.facts["processes_seen"].hint


def test_placeholders_of_the_firmware_are_not_serials(machine: Machine) -> None:
    host = read(machine("epyc_one_socket")).identity.host
    assert host["system_serial"].value is None
    assert "To be filled by O.E.M." in host["system_serial"].hint
    assert host["board_serial"].value is None


@contextmanager
def without_privilege(root: Path) -> Iterator[None]:
    """Owner-only files of a machine become unreadable, whoever runs the tests."""
    for path in root.rglob("*"):
        if not path.is_symlink() and path.stat().st_mode & 0o777 == 0o400:
            path.chmod(0)
    before = os.geteuid()
    if before == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(before)


def test_what_needs_root_says_so(machine: Machine) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = trees.unpack("xeon_two_sockets", Path(folder))
        root.chmod(0o755)
        with without_privilege(root):
            host, modules = host_facts(Tree(root), {}), memory_modules(Tree(root))
    assert host["system_product"].value == "PowerEdge R760"
    for name in ("system_serial", "system_uuid", "board_serial", "chassis_serial"):
        assert host[name].value is None
        assert host[name].hint.startswith("run as root to read /sys/class/dmi/id/")
    assert modules[0].hint == "run as root to read /sys/firmware/dmi/tables/DMI"
    assert modules[1] == ()


def test_nothing_at_all_to_read_is_all_unknown(tmp_path: Path) -> None:
    """Not even "no container": an absence of marks counts only where marks could be seen."""
    host = read(tmp_path).identity.host
    assert set(values(host).values()) == {None}
    assert all(fact.hint for fact in host.values())


# ------------------------------------------------------------------ conditions


def test_conditions_are_those_of_the_recorded_moment(machine: Machine) -> None:
    result = read(machine("xeon_two_sockets"), LD_PRELOAD="x.so").conditions.facts
    expected = {
        "hostname": "node-017",
        "uptime": 86400.25,
        "load_1_minute": 0.31,
        "load_15_minutes": 0.18,
        "swap_used": 2**20,
        "huge_pages": 4,
        "huge_page_size": 2**21,
        "transparent_huge_pages": "madvise",
        "clock_source": "tsc",
        "ld_preload": True,
        "link_ens1np0": "up",
        "link_ens1np0_speed": 10**11,
        "processes_seen": "all of the node's",
        "cpu:0_frequency": 3.55e9,
        "cpu:0_ecc_corrected": 3,
    }
    assert {name: result[name].value for name in expected} == expected
    assert (result["cpu:0_frequency"].unit, result["uptime"].unit) == ("hertz", "seconds")


def moment(at: float, own: frozenset[int], *used: tuple[int, str, float]) -> conditions.Moment:
    return conditions.Moment(
        at=at,
        processes={
            (number, 0.0): conditions.Usage(name=name, seconds=seconds, memory_bytes=7)
            for number, name, seconds in used
        },
        own=own,
        busy_seconds=sum(seconds for _, _, seconds in used),
        steal_seconds=0.0,
    )


def test_foreign_processes_are_the_busy_ones_that_are_not_ours(machine: Machine) -> None:
    own = frozenset({1, 2})
    before = moment(0.0, own, (1, "bench", 0.0), (3, "idle", 5.0), (4, "miner", 1.0))
    after = moment(
        2.0, own, (1, "bench", 2.0), (2, "bench", 1.0), (3, "idle", 5.01), (4, "miner", 4.0),
        (5, "new", 0.5),
    )  # fmt: skip
    assert conditions.foreign_processes(before, after) == (
        Process(name="miner", cpu_share=1.5, memory_bytes=7),
        Process(name="new", cpu_share=0.25, memory_bytes=7),
    )
    facts = conditions.neighbour_facts(Tree(machine("kvm_guest")), before, after)
    assert facts["used_by_others"].value == pytest.approx((6.51 - 3.0) / 2.0)


def test_a_child_of_ours_that_ended_meanwhile_is_none_of_the_others(machine: Machine) -> None:
    before = moment(0.0, frozenset({1}), (1, "bench", 1.0))
    (usage,) = before.processes.values()
    processes = {(1, 0.0): replace(usage, seconds=2.0, ended_seconds=3.0)}
    after = replace(before, at=2.0, processes=processes, busy_seconds=6.0)
    facts = conditions.neighbour_facts(Tree(machine("kvm_guest")), before, after)
    assert facts["used_by_others"].value == pytest.approx((5.0 - 4.0) / 2.0)


def test_a_process_with_a_number_used_again_is_another_process() -> None:
    own: frozenset[int] = frozenset()
    before = conditions.Moment(
        at=0.0,
        processes={(9, 1.0): conditions.Usage(name="old", seconds=50.0, memory_bytes=7)},
        own=own, busy_seconds=None, steal_seconds=None,
    )  # fmt: skip
    again = {(9, 2.0): conditions.Usage(name="young", seconds=0.5, memory_bytes=7)}
    after = replace(before, at=1.0, processes=again)
    assert [one.cpu_share for one in conditions.foreign_processes(before, after)] == [0.5]


def test_a_running_process_is_foreign_unless_it_is_ours() -> None:
    spin = [sys.executable, "-c", "while True: pass"]
    wait = [sys.executable, "-c", "import time; time.sleep(600)"]
    with subprocess.Popen(spin) as busy, subprocess.Popen(wait) as idle:
        try:
            before = after = conditions.observe(Tree(), own=idle.pid)
            key = next(key for key in before.processes if key[0] == busy.pid)
            end = time.monotonic() + 300  # others may have the processors for a while
            while after.processes[key].seconds <= before.processes[key].seconds:
                assert time.monotonic() < end
                time.sleep(0.1)
                after = conditions.observe(Tree(), own=idle.pid)
            ours = conditions.observe(Tree())
        finally:
            busy.kill()
            idle.kill()
    assert after.processes[key].seconds > before.processes[key].seconds
    assert busy.pid in ours.own
    assert busy.pid not in after.own


# ------------------------------------------------------------------ the whole


def test_this_machine_can_be_read_twice_and_is_the_same() -> None:
    vendor = node.present()
    first = node.probe((vendor,), {"torch": Fact(value="2.13")}, window_seconds=0.0)
    second = node.probe((vendor,), {"torch": Fact(value="2.13")}, window_seconds=0.0)
    assert identity_differences(first.identity, second.identity) == []
    assert from_json(System, to_json(first), name="system.json") == first
    assert first.identity.software["torch"].value == "2.13"
    for facts in (
        first.identity.host,
        first.conditions.facts,
        *(one.facts for one in first.identity.devices),
    ):
        assert all(fact.hint for fact in facts.values() if fact.value is None)


def test_probing_imports_no_torch() -> None:
    code = (
        "import sys; from appliance.probe import node; node.probe((node.present(),)); "
        "print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    assert done.stdout.strip() == "False"


def test_a_vendor_is_asked_for_by_name_or_found() -> None:
    assert node.present().name == node.present("cpu").name == "cpu"


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("cuda", "no accelerator visible: was --gpus all given?"),
        ("cdua", 'there is no vendor called "cdua" (did you mean "cuda"?)'),
        ("tpu", 'there is no vendor called "tpu" (did you mean'),
    ],
)
def test_an_absent_vendor_is_refused_with_what_to_do(name: str, sentence: str) -> None:
    with pytest.raises(UsageError) as refusal:
        node.present(name)
    assert str(refusal.value).startswith(sentence)


def test_identities_differ_in_digest_where_they_differ_in_sentences() -> None:
    first, second = an_identity(), an_identity(software={"torch": Fact(value="2.13")})
    assert node.identity_digest(first) == node.identity_digest(an_identity())
    assert node.identity_digest(first) != node.identity_digest(second)
    assert identity_differences(first, second) == ["software: torch is new"]
