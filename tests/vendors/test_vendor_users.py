"""How many processes each vendor sees on a device, and what it says where it may not look."""

import json
from pathlib import Path

import pytest
from recorded import replayed_nvml, replayed_rocm, replayed_xpu, trees

from appliance.linux import drm_clients
from appliance.linux.sysfs import Tree, Unreadable
from appliance.records.system import Device
from appliance.vendors.amd import kfd
from appliance.vendors.base import DeviceUsers
from appliance.vendors.cpu import Cpu

USERS = Path(__file__).parents[1] / "recorded" / "users"
MIB = 2**20


def recorded(name: str, folder: Path) -> Tree:
    return Tree(trees.unpack_record(json.loads((USERS / f"{name}.json").read_text()), folder))


# ------------------------------------------------------------------ NVIDIA


@pytest.mark.parametrize(
    ("name", "users"),
    [
        ("h100_sxm", DeviceUsers(count=0, memory_bytes=0)),
        ("shared", DeviceUsers(count=1, memory_bytes=851 * MIB)),
        (
            "permission_denied",
            DeviceUsers(
                count=None,
                hint="the driver refuses it to this user: run as root, in a container with "
                "--cap-add SYS_ADMIN",
            ),
        ),
        ("a100_sxm", DeviceUsers(count=None, hint="not reported by this device")),
        (
            "gpu_lost",
            DeviceUsers(
                count=None,
                hint="the device fell off the bus or does not answer: reset it or restart the node",
            ),
        ),
    ],
)
def test_processes_that_nvml_lists_are_counted_and_a_refusal_is_none_of_them(
    name: str, users: DeviceUsers, tmp_path: Path
) -> None:
    vendor = replayed_nvml.vendor(name, tmp_path)
    assert vendor.users(vendor.probe()[1]) == users


def test_memory_that_the_driver_does_not_report_is_none(tmp_path: Path) -> None:
    vendor = replayed_nvml.vendor("shared", tmp_path)
    device = vendor.probe()[1]
    processes = [{"pid": 1}, {"pid": 2, "usedGpuMemory": MIB}]
    answers = vendor._nvml.library.record["devices"][1]["answers"]
    answers["nvmlDeviceGetComputeRunningProcesses()"] = processes
    assert vendor.users(device) == DeviceUsers(count=2, memory_bytes=None)


# ------------------------------------------------------------------ AMD


def test_the_compute_driver_lists_who_holds_memory_of_a_device(tmp_path: Path) -> None:
    tree = recorded("kfd", tmp_path)
    assert kfd.users(tree, "0000:0c:00.0") == DeviceUsers(count=1, memory_bytes=892141568)
    assert kfd.users(tree, "0000:2c:00.0") == DeviceUsers(count=0, memory_bytes=0)
    with pytest.raises(Unreadable, match="does not show this one"):
        kfd.users(tree, "0000:2c:00.1")  # a partition that is not there


def test_without_the_compute_driver_nothing_is_seen(tmp_path: Path) -> None:
    vendor = replayed_rocm.vendor("mi300x", tmp_path)
    device = vendor.probe()[0]
    assert vendor.users(device) == DeviceUsers(count=None, hint=kfd.NO_DRIVER)
    recorded("kfd", tmp_path)
    assert vendor.users(device).count == 1


# ------------------------------------------------------------------ Intel


def test_open_files_of_the_graphics_driver_are_counted_by_process_and_client(
    tmp_path: Path,
) -> None:
    seen = drm_clients.clients(recorded("fdinfo", tmp_path), "0000:03:00.0")
    assert seen.processes == {4711, 4712}
    assert seen.memory_bytes == 23992 * 2**10 + 3 * MIB  # one client is open twice
    nobody = drm_clients.clients(Tree(tmp_path), "0000:04:00.0")
    assert (nobody.processes, nobody.memory_bytes) == (frozenset(), 0)


def test_a_container_of_its_own_numbers_does_not_see_other_processes(tmp_path: Path) -> None:
    tree = recorded("fdinfo", tmp_path)
    link = tmp_path / "proc/self/ns/pid"
    link.unlink()
    link.symlink_to("pid:[4026532211]")
    with pytest.raises(Unreadable, match="start it with --pid=host"):
        drm_clients.clients(tree, "0000:03:00.0")


class Forbidden(Tree):
    """A tree in which a process's open files belong to somebody else."""

    __slots__ = ()

    def names(self, folder: str, pattern: str = "") -> tuple[str, ...]:
        if folder == "/proc/1/fdinfo":
            raise Unreadable(f"run as root to read {folder}")
        return super().names(folder, pattern)


def test_files_that_may_not_be_read_are_not_taken_for_none(tmp_path: Path) -> None:
    root = recorded("fdinfo", tmp_path).root
    with pytest.raises(Unreadable, match="other users' processes may not be read: run as root"):
        drm_clients.clients(Forbidden(root), "0000:03:00.0")


def test_a_card_says_who_uses_it_or_why_that_cannot_be_seen(tmp_path: Path) -> None:
    vendor = replayed_xpu.vendor("arc_b580")
    device: Device = vendor.probe()[0]
    assert vendor.users(device).count is None
    recorded("fdinfo", vendor.root)
    assert device.facts["pci_address"].value == "0000:03:00.0"
    assert vendor.users(device) == DeviceUsers(count=2, memory_bytes=23992 * 2**10 + 3 * MIB)


def test_processors_say_it_in_their_readings() -> None:
    cpu = Cpu()
    assert cpu.users(cpu.probe()[0]) is None
