"""What the node is as a whole: system, firmware, kernel, and the container that we see it from.

These facts are identity: they hold for every container of one image on the same host and over a
reboot, so that a run is resumed only on the machine that it began on. The host's name and what
an administrator may change meanwhile are left to conditions. No tool is started; some files
need root.
"""

from __future__ import annotations

import platform
import shlex
from collections.abc import Mapping

from appliance.linux.fact_reader import fact, firmware, line
from appliance.linux.processors import CPU, CPUINFO, Processors, installed_memory
from appliance.linux.sysfs import Tree, Unreadable
from appliance.probe import container_facts
from appliance.records.system import Fact, Facts

DMI = "/sys/class/dmi/id"
NO_DMI = f"run as root with {DMI} mounted; a virtual machine may have none"
SYSTEM_FILES = {
    "system_vendor": "sys_vendor",
    "system_product": "product_name",
    "system_version": "product_version",
    "system_serial": "product_serial",
    "system_uuid": "product_uuid",
    "board_vendor": "board_vendor",
    "board_product": "board_name",
    "board_version": "board_version",
    "board_serial": "board_serial",
    "chassis_serial": "chassis_serial",
    "bios_vendor": "bios_vendor",
    "bios_version": "bios_version",
    "bios_date": "bios_date",
}
KERNEL_PARAMETERS = frozenset(
    [
        "amd_iommu",
        "amd_pstate",
        "clocksource",
        "cpuidle.off",
        "default_hugepagesz",
        "hugepages",
        "hugepagesz",
        "idle",
        "intel_idle.max_cstate",
        "intel_iommu",
        "intel_pstate",
        "iommu",
        "iommu.passthrough",
        "isolcpus",
        "kpti",
        "maxcpus",
        "mce",
        "mem",
        "mitigations",
        "nmi_watchdog",
        "nohz",
        "nohz_full",
        "nokaslr",
        "nopti",
        "nosmt",
        "nospectre_v1",
        "nospectre_v2",
        "nr_cpus",
        "numa",
        "numa_balancing",
        "pci",
        "pcie_aspm",
        "preempt",
        "processor.max_cstate",
        "rcu_nocbs",
        "retbleed",
        "skew_tick",
        "spec_store_bypass_disable",
        "spectre_v2",
        "swiotlb",
        "transparent_hugepage",
        "tsc",
        "tsx",
    ]
)
"""Parameters that change speed, or which processors and memory there are; others stay unread."""
_CONTAINER_FILES = {"/.dockerenv": "docker", "/run/.containerenv": "podman"}
_CONTAINER_GROUPS = ("kubepods", "docker", "libpod", "cri-containerd", "lxc")
_VIRTUAL_VENDORS = (
    "QEMU",
    "KVM",
    "VMware",
    "Xen",
    "innotek",
    "Amazon EC2",
    "Google Compute Engine",
)


def host_facts(tree: Tree, environment: Mapping[str, str]) -> Facts:
    """Facts of the whole node; `environment` may name the image that the program came in."""
    processors = Processors(tree)
    return {
        **{name: _dmi(tree, file) for name, file in SYSTEM_FILES.items()},
        "virtual_machine": fact(
            lambda: _is_virtual(tree, processors),
            source=f"{CPUINFO}, {DMI}/sys_vendor",
            absent="this architecture has no flag for it, and the firmware names no vendor",
        ),
        **_processors(tree, processors),
        **_kernel(tree),
        **_container(tree, environment),
    }


def _dmi(tree: Tree, file: str) -> Fact:
    path = f"{DMI}/{file}"
    return fact(lambda: firmware(tree.line(path)), source=path, absent=NO_DMI)


def _is_virtual(tree: Tree, processors: Processors) -> bool:
    try:
        return processors.is_virtual()
    except Unreadable:
        vendor = tree.line(f"{DMI}/sys_vendor")
        return vendor.startswith(_VIRTUAL_VENDORS)


def _processors(tree: Tree, processors: Processors) -> Facts:
    """What of the node's processors and memory was bought, whatever else its devices are."""
    absent = "mount /sys and /proc read-only into the container"
    topology = f"{CPU}/cpu*/topology"
    return {
        "processor_model": fact(processors.model, source=CPUINFO, absent=absent),
        "sockets": fact(processors.sockets, source=topology, absent=absent),
        "physical_cores": fact(lambda: processors.cores, source=topology, absent=absent),
        "logical_processors": fact(
            lambda: len(processors.online), source=f"{CPU}/online", absent=absent
        ),
        "memory": installed_memory(tree, processors, absent),
    }


# ------------------------------------------------------------------ kernel and container


def _kernel(tree: Tree) -> Facts:
    return {
        "kernel": line(tree, "/proc/sys/kernel/osrelease", "mount /proc"),
        "kernel_build": line(tree, "/proc/sys/kernel/version", "mount /proc"),
        "kernel_parameters": fact(
            lambda: _parameters(tree), source="/proc/cmdline", absent="mount /proc"
        ),
        "architecture": _architecture(tree),
        "distribution": fact(
            lambda: _distribution(tree), source="/etc/os-release", absent="the file is not there"
        ),
    }


def _parameters(tree: Tree) -> str:
    parameters = tree.line("/proc/cmdline").split(" -- ")[0].split()
    return (
        " ".join(one for one in parameters if one.partition("=")[0] in KERNEL_PARAMETERS) or "none"
    )


def _architecture(tree: Tree) -> Fact:
    path = "/proc/sys/kernel/arch"  # since Linux 6.1; before, only a system call gave it
    if tree.is_live and not tree.exists(path):
        return Fact(value=platform.machine(), source="uname")
    return line(tree, path, "needs Linux 6.1")


def _distribution(tree: Tree) -> str:
    """In a container, the image's."""
    for row in tree.text("/etc/os-release").splitlines():
        key, _, value = row.partition("=")
        if key == "PRETTY_NAME" and _unquoted(value):
            return _unquoted(value)
    raise Unreadable("/etc/os-release is damaged: it has no PRETTY_NAME")


def _unquoted(text: str) -> str:
    try:
        return " ".join(shlex.split(text))
    except ValueError:  # a quotation mark that is not closed
        return ""


def _container(tree: Tree, environment: Mapping[str, str]) -> Facts:
    """Whether this is a container, and the image, of which only its starter knows the digest."""
    variables = {
        "image": ("BENCH_IMAGE", "set BENCH_IMAGE to the image's name"),
        "image_digest": ("BENCH_IMAGE_DIGEST", "set BENCH_IMAGE_DIGEST to the image's digest"),
    }
    return {
        "container": fact(
            lambda: _container_kind(tree), source="/.dockerenv, /run, /proc/self/cgroup"
        ),
        **{
            name: Fact(
                value=environment.get(variable) or None,
                source=f"environment variable {variable}",
                hint="" if environment.get(variable) else hint,
            )
            for name, (variable, hint) in variables.items()
        },
        **container_facts.identity_facts(environment),
    }


def _container_kind(tree: Tree) -> str:
    """The kind that its marks name; "none" if there is no mark."""
    if tree.exists("/run/systemd/container"):
        return tree.line("/run/systemd/container")
    marks = [kind for path, kind in _CONTAINER_FILES.items() if tree.exists(path)]
    groups = tree.text("/proc/self/cgroup")
    marks += [kind for kind in _CONTAINER_GROUPS if kind in groups]
    return marks[0] if marks else "none"
