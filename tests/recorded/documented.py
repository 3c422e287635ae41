"""Machines that we do not have, built from what the kernel's documentation says of their files.

Formats: Documentation/ABI/testing/sysfs-devices-system-cpu, sysfs-class-hwmon, sysfs-bus-pci,
admin-guide/cgroup-v1 and -v2, arch/arm64/kernel/cpuinfo.c, and DSP0134 for the SMBIOS table.
Each is cut to a few processors; numbers of one processor (family, caches, frequencies) are as
its vendor publishes them, serials are invented.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

from trees import packed

Files = dict[str, str | bytes | Path]
CPU = "/sys/devices/system/cpu"
DMI = "/sys/class/dmi/id"
TABLE = "/sys/firmware/dmi/tables/DMI"
PRIVATE = frozenset(
    {TABLE, *(f"{DMI}/{name}_serial" for name in ("product", "board", "chassis"))}
    | {f"{DMI}/product_uuid"}
)


def processors(tables: Sequence[Mapping[str, str]]) -> str:
    blocks = ("".join(f"{key}\t: {value}\n" for key, value in one.items()) for one in tables)
    return "\n".join(blocks)


def topology(threads: Sequence[tuple[int, str]]) -> Files:
    """For each processor its socket, and the processors that share its core."""
    files: Files = {f"{CPU}/online": f"0-{len(threads) - 1}"}
    for number, (socket, siblings) in enumerate(threads):
        folder = f"{CPU}/cpu{number}/topology"
        files[f"{folder}/physical_package_id"] = str(socket)
        files[f"{folder}/core_cpus_list"] = siblings
        files[f"{folder}/thread_siblings_list"] = siblings
    return files


def caches(number: int, *result: tuple[int, str, str, str]) -> Files:
    """Caches of one processor as (level, type, size, sharers)."""
    names = ("level", "type", "size", "shared_cpu_list")
    return {
        f"{CPU}/cpu{number}/cache/index{index}/{name}": str(value)
        for index, cache in enumerate(result)
        for name, value in zip(names, cache, strict=True)
    }


def frequency(number: int, **settings: str) -> Files:
    return {f"{CPU}/cpufreq/policy{number}/{name}": value for name, value in settings.items()}


def memory(num_blocks: int, block_mib: int, spare_kib: int) -> Files:
    folder = "/sys/devices/system/memory"
    total = num_blocks * block_mib * 1024 - spare_kib
    rows = {"MemTotal": total, "MemFree": total // 2, "MemAvailable": total // 2 + 1024}
    rows |= {"SwapTotal": 2097148, "SwapFree": 2096124}
    text = "".join(f"{key + ':':<15}{value:>9} kB\n" for key, value in rows.items())
    text += "HugePages_Total:       4\nHugepagesize:       2048 kB\n"
    return {
        "/proc/meminfo": text,
        f"{folder}/block_size_bytes": f"{block_mib << 20:x}",
        **{f"{folder}/memory{number}/state": "online" for number in range(num_blocks)},
    }


def kernel(distribution: str, release: str, arch: str, mask: str) -> Files:
    return {
        "/etc/os-release": f'NAME="x"\nPRETTY_NAME="{distribution}"\nID=x\n',
        "/proc/sys/kernel/osrelease": release,
        "/proc/sys/kernel/version": "#1 SMP PREEMPT_DYNAMIC",
        "/proc/sys/kernel/arch": arch,
        "/proc/sys/kernel/hostname": "node-017",
        "/proc/sys/kernel/numa_balancing": "1",
        "/proc/cmdline": "BOOT_IMAGE=/vmlinuz root=UUID=0a1b ro quiet intel_iommu=on iommu=pt",
        "/proc/loadavg": "0.31 0.20 0.18 2/1034 41021",
        "/proc/uptime": "86400.25 172800.50",
        "/proc/self/status": f"Name:\tbench\nCpus_allowed:\t{mask}\n",
        "/proc/self/cgroup": "0::/user.slice/user-1000.slice/session-3.scope",
        "/proc/2/comm": "kthreadd",
        "/sys/fs/cgroup/cgroup.controllers": "cpuset cpu io memory pids",
        "/sys/fs/cgroup/user.slice/cpu.max": "max 100000",
        "/sys/fs/cgroup/user.slice/memory.max": "max",
        "/sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
        "/sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc",
    }


def dmi(**values: str) -> Files:
    return {f"{DMI}/{name}": value for name, value in values.items()}


# ------------------------------------------------------------------ SMBIOS


def structure(kind: int, handle: int, body: bytes, strings: Sequence[str]) -> bytes:
    text = b"".join(one.encode() + b"\0" for one in strings) or b"\0"
    return struct.pack("<BBH", kind, 4 + len(body), handle) + body + text + b"\0"


def memory_device(
    number: int, mib: int, *, slot: str, manufacturer: str, part: str, serial: str
) -> bytes:
    """Structure type 17 of version 3.3: a DDR5 module with error correction, or an empty slot."""
    size = 0 if not mib else (min(32767, mib))
    body = struct.pack(
        "<HHHHHBBBBBHHBBBBBLHHHH",
        *(0x1000, 0xFFFE),  # array, error information
        *((80, 64) if mib else (0xFFFF, 0xFFFF)),  # total and data width
        size,
        *(0x09, 0x00),  # form factor DIMM, no set
        *(1, 2),  # locator, bank
        *(0x22 if mib else 0x02, 0x2080),  # DDR5; synchronous, registered
        4800 if mib else 0,
        *((3, 4, 0, 5) if mib else (0, 0, 0, 0)),  # manufacturer, serial, asset tag, part
        0x02,  # two ranks
        mib if size == 0x7FFF else 0,
        *(4400 if mib else 0, 1100, 1100, 1100),  # configured speed; voltages
    )
    strings = [slot, f"BANK {number}", *([manufacturer, serial, part] if mib else [])]
    return structure(17, 0x1100 + number, body, strings)


def smbios(modules: Sequence[bytes]) -> bytes:
    firmware = structure(0, 0, struct.pack("<BBHBB", 1, 2, 0, 3, 0xFF), ["Maker", "1.0", "2024"])
    return b"".join([firmware, *modules, structure(127, 0xFEFF, b"", [])])


# ------------------------------------------------------------------ parts on the bus


def pci(address: str, bus: str, **values: str) -> Files:
    home = f"/sys/devices/{bus}/{address}"
    return {
        f"/sys/bus/pci/devices/{address}": Path(f"../../../devices/{bus}/{address}"),
        **{f"{home}/{name.replace('__', '/')}": value for name, value in values.items()},
    }


def driver(address: str, bus: str, name: str) -> Files:
    return {
        f"/sys/devices/{bus}/{address}/driver": Path(f"../../../../bus/pci/drivers/{name}"),
        f"/sys/bus/pci/drivers/{name}/module": "x",
    }


def port(name: str, address: str, bus: str, mac: str, kind: str = "0") -> Files:
    home = f"/sys/devices/{bus}/{address}/net/{name}"
    return {
        f"/sys/class/net/{name}": Path(f"../../devices/{bus}/{address}/net/{name}"),
        f"{home}/address": mac,
        f"{home}/addr_assign_type": kind,
        f"{home}/operstate": "up",
        f"{home}/speed": "100000",
        f"{home}/device": Path(f"../../../{address}"),
    }


def nvme(number: int, address: str, bus: str, serial: str) -> Files:
    controller = f"/sys/devices/{bus}/{address}/nvme/nvme{number}"
    disk = f"{controller}/nvme{number}n1"
    return {
        f"/sys/block/nvme{number}n1": Path(f"..{disk.removeprefix('/sys')}"),
        f"{disk}/device": Path(f"../../nvme{number}"),
        f"{disk}/size": "3750748848",
        f"{disk}/removable": "0",
        f"{disk}/hidden": "0",
        f"{disk}/queue/rotational": "0",
        f"{controller}/model": "SAMSUNG MZQL21T9HCJR-00A07",
        f"{controller}/serial": serial,
        f"{controller}/firmware_rev": "GDC5902Q",
    }


# ------------------------------------------------------------------ machines

XEON_FLAGS = (
    "fpu vme sse sse2 ssse3 fma sse4_1 avx f16c avx2 avx512f avx512dq avx512bw avx512vl smep smap "
    "avx_vnni avx512_bf16 avx512_vnni amx_bf16 avx512_fp16 amx_tile amx_int8"
)


def xeon() -> str:
    """Two sockets of two cores with two threads each; processors 4 to 7 are second threads."""
    places = [(0, "0,4"), (0, "1,5"), (1, "2,6"), (1, "3,7")] * 2
    table = {
        "vendor_id": "GenuineIntel",
        "cpu family": "6",
        "model": "207",
        "model name": "INTEL(R) XEON(R)  GOLD 5515+",
        "stepping": "2",
        "microcode": "0x21000283",
        "cpu MHz": "3600.000",
        "flags": XEON_FLAGS,
    }
    bus = "pci0000:15/0000:15:01.0"
    files: Files = {
        **kernel("Ubuntu 24.04.1 LTS", "6.8.0-48-generic", "x86_64", "ff"),
        **memory(16, 2048, 524_288),
        **topology(places),
        "/proc/cpuinfo": processors([{"processor": str(n), **table} for n in range(8)]),
        "/proc/interrupts": "            CPU0       CPU1\n"
        " MCE:          0          1   Machine check exceptions\n"
        " MCP:         12         12   Machine check polls\n",
        "/sys/devices/system/node/online": "0-1",
        f"{CPU}/smt/control": "on",
        f"{CPU}/intel_pstate/no_turbo": "0",
        "/sys/class/hwmon/hwmon0/name": "acpitz",
        "/sys/class/hwmon/hwmon0/temp1_input": "99000",
        "/sys/class/hwmon/hwmon1/name": "coretemp",
        "/sys/class/hwmon/hwmon1/temp1_input": "51000",
        "/sys/class/hwmon/hwmon1/temp1_label": "Package id 0",
        "/sys/class/hwmon/hwmon1/temp2_input": "48000",
        "/sys/class/hwmon/hwmon1/temp2_label": "Core 0",
        "/sys/class/hwmon/hwmon2/name": "coretemp",
        "/sys/class/hwmon/hwmon2/temp1_input": "54500",
        "/sys/class/hwmon/hwmon2/temp1_label": "Package id 1",
        **{f"/sys/devices/system/edac/mc/mc{n}/ce_count": str(3 * n) for n in range(2)},
        **{f"/sys/devices/system/edac/mc/mc{n}/ue_count": "0" for n in range(2)},
        **dmi(
            sys_vendor="Dell Inc.",
            product_name="PowerEdge R760",
            product_version="Not Specified",
            product_serial="7QK1234",
            product_uuid="4c4c4544-0051-4b10-8031-b7c04f313233",
            board_vendor="Dell Inc.",
            board_name="0X3G5K",
            board_version="A01",
            board_serial=".7QK1234.CNFCP0035500XX.",
            chassis_serial="7QK1234",
            bios_vendor="Dell Inc.",
            bios_version="2.4.4",
            bios_date="09/27/2024",
        ),
        TABLE: smbios(
            [
                memory_device(
                    number,
                    16384 if number % 2 == 0 else 0,
                    slot=f"A{number + 1}",
                    manufacturer="00CE063200CE",
                    part="M321R2GA3BB6-CQKVS ",
                    serial=f"03D1A{number:03}",
                )
                for number in range(4)
            ]
        ),
        **pci("0000:15:00.0", bus, vendor="0x15b3", device="0x1021", numa_node="0"),
        f"/sys/devices/{bus}/0000:15:00.0/class": "0x020000",
        **driver("0000:15:00.0", bus, "mlx5_core"),
        **port("ens1np0", "0000:15:00.0", bus, "a0:88:c2:00:00:01"),
        **{
            f"/sys/devices/{bus}/0000:15:00.0/infiniband/mlx5_0/{name}": value
            for name, value in {
                "fw_ver": "28.39.1002",
                "board_id": "MT_0000000838",
                "node_guid": "a088:c203:0000:0001",
            }.items()
        },
        **pci("0000:15:00.1", bus, vendor="0x15b3", device="0x101e"),
        f"/sys/devices/{bus}/0000:15:00.1/class": "0x020000",
        f"/sys/devices/{bus}/0000:15:00.1/physfn": Path("../0000:15:00.0"),
        **pci("0000:15:00.2", bus, **{"class": "0x010802"}),
        **nvme(0, "0000:15:00.2", bus, "S64GNE0R600123"),
        "/sys/devices/virtual/net/lo/operstate": "unknown",
        "/sys/class/net/lo": Path("../../devices/virtual/net/lo"),
        "/sys/devices/virtual/block/loop0/size": "0",
        "/sys/block/loop0": Path("../devices/virtual/block/loop0"),
    }
    for number, (socket, siblings) in enumerate(places):
        package = "0-1,4-5" if socket == 0 else "2-3,6-7"
        files |= caches(
            number,
            (1, "Data", "48K", siblings),
            (1, "Instruction", "32K", siblings),
            (2, "Unified", "2048K", siblings),
            (3, "Unified", "23040K", package),
        )
        files |= frequency(
            number,
            cpuinfo_min_freq="800000",
            cpuinfo_max_freq="4100000",
            scaling_cur_freq=str(3_200_000 + 100_000 * number),
            scaling_driver="intel_pstate",
            scaling_governor="performance",
        )
        throttled = f"{CPU}/cpu{number}/thermal_throttle/core_throttle_count"
        files[throttled] = "7" if number == 2 else "0"
    return packed(files, PRIVATE)


def epyc() -> str:
    """One socket of four cores without second threads, on acpi-cpufreq; firmware half filled in."""
    table = {
        "vendor_id": "AuthenticAMD",
        "cpu family": "25",
        "model": "17",
        "model name": "AMD EPYC 9124 16-Core Processor",
        "stepping": "1",
        "microcode": "0xa10113e",
        "cpu MHz": "3000.000",
        "flags": "fpu sse2 ssse3 fma avx f16c avx2 sme sev avx512f avx512_vnni avx512_bf16 smep",
    }
    files: Files = {
        **kernel("Red Hat Enterprise Linux 9.4 (Plow)", "5.14.0-427.el9.x86_64", "x86_64", "f"),
        **memory(128, 128, 400_000),
        **topology([(0, str(number)) for number in range(4)]),
        "/proc/cpuinfo": processors([{"processor": str(n), **table} for n in range(4)]),
        "/sys/devices/system/node/online": "0",
        f"{CPU}/smt/control": "off",
        f"{CPU}/cpufreq/boost": "0",
        "/sys/class/hwmon/hwmon0/name": "nvme",
        "/sys/class/hwmon/hwmon0/temp1_input": "88000",
        "/sys/class/hwmon/hwmon3/name": "k10temp",
        "/sys/class/hwmon/hwmon3/temp1_input": "46125",
        "/sys/class/hwmon/hwmon3/temp1_label": "Tctl",
        "/sys/class/hwmon/hwmon3/temp3_input": "60000",
        "/sys/class/hwmon/hwmon3/temp3_label": "Tccd1",
        **dmi(
            sys_vendor="Supermicro",
            product_name="AS -1115HS-TNR",
            product_serial="To be filled by O.E.M.",
            board_vendor="Supermicro",
            board_name="H13SSH",
            board_serial="Default string",
            bios_vendor="American Megatrends International, LLC.",
            bios_version="1.9",
            bios_date="06/05/2024",
        ),
        TABLE: smbios(
            [
                memory_device(
                    0,
                    65536,
                    slot="DIMMA1",
                    manufacturer="Micron Technology",
                    part="MTC40F2046S1RC48BA1",
                    serial="E5A0B1C2",
                )
            ]
        ),
    }
    for number in range(4):
        files |= caches(
            number,
            (1, "Data", "32K", str(number)),
            (3, "Unified", "16384K", f"{number // 2 * 2}-3"),
        )
        files |= frequency(
            number,
            cpuinfo_min_freq="1500000",
            cpuinfo_max_freq="3712500",
            scaling_cur_freq="3000000",
            scaling_driver="acpi-cpufreq",
            scaling_governor="schedutil",
        )
    return packed(files, PRIVATE)


def altra() -> str:
    """An Arm server: /proc/cpuinfo has only the numbers of the MIDR register, and no flags."""
    table = {
        "BogoMIPS": "50.00",
        "Features": "fp asimd aes fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp",
        "CPU implementer": "0x41",
        "CPU architecture": "8",
        "CPU variant": "0x3",
        "CPU part": "0xd0c",
        "CPU revision": "1",
    }
    files: Files = {
        **kernel("Debian GNU/Linux 12 (bookworm)", "6.1.0-28-arm64", "aarch64", "3"),
        **memory(8, 1024, 300_000),
        **topology([(0, "0"), (0, "1")]),
        "/proc/cpuinfo": processors([{"processor": str(n), **table} for n in range(2)]),
        "/sys/devices/system/node/online": "0",
        f"{CPU}/smt/control": "notsupported",
        "/sys/class/thermal/thermal_zone0/type": "acpitz",
        "/sys/class/thermal/thermal_zone0/temp": "91000",
        "/sys/class/thermal/thermal_zone1/type": "cpu-thermal",
        "/sys/class/thermal/thermal_zone1/temp": "43000",
        **dmi(sys_vendor="GIGABYTE", product_name="R152-P30-00", product_serial="GPG1N00000000"),
    }
    for number in range(2):
        files |= frequency(
            number,
            cpuinfo_min_freq="1000000",
            cpuinfo_max_freq="3000000",
            scaling_cur_freq="2800000",
            scaling_driver="cppc_cpufreq",
            scaling_governor="ondemand",
        )
    return packed(files, PRIVATE)


def container(base: str, files: Files, gone: Sequence[str]) -> str:
    return f"= base {base}\n" + "".join(f"== {path} (gone)\n" for path in gone) + packed(files)


DOCKER: Files = {
    "/.dockerenv": "x",
    "/etc/os-release": 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n',
    "/proc/2/comm": "python",
    "/proc/self/cgroup": "0::/",
    "/proc/self/status": "Name:\tbench\nCpus_allowed:\t33\n",
    "/sys/fs/cgroup/cpu.max": "150000 100000",
    "/sys/fs/cgroup/memory.max": "4294967296",
}
POD: Files = {
    "/proc/self/cgroup": "5:cpu,cpuacct:/kubepods/pod1/c1\n4:memory:/kubepods/pod1/c1\n0::/system",
    "/sys/fs/cgroup/cpu,cpuacct/kubepods/pod1/c1/cpu.cfs_quota_us": "400000",
    "/sys/fs/cgroup/cpu,cpuacct/kubepods/pod1/c1/cpu.cfs_period_us": "100000",
    "/sys/fs/cgroup/cpu,cpuacct/kubepods/pod1/cpu.cfs_quota_us": "250000",
    "/sys/fs/cgroup/cpu,cpuacct/kubepods/pod1/cpu.cfs_period_us": "100000",
    "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1",
    "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000",
    "/sys/fs/cgroup/memory/kubepods/pod1/c1/memory.limit_in_bytes": "8589934592",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
}


def defect(base: str, path: str, content: str = "", mark: str = "") -> str:
    marked = f" ({mark})" if mark else ""
    return f"= base {base}\n== {path}{marked}\n{content}"


MACHINES_BUILT = {
    "xeon_two_sockets": xeon(),
    "epyc_one_socket": epyc(),
    "arm_without_model_name": altra(),
    "container_version_2": container(
        "xeon_two_sockets", DOCKER, (TABLE, "/sys/class/net/ens1np0", "/sys/fs/cgroup/user.slice")
    ),
    "container_version_1": container(
        "xeon_two_sockets", POD, ("/sys/fs/cgroup/cgroup.controllers",)
    ),
    "defect_cpuinfo_garbage": defect("epyc_one_socket", "/proc/cpuinfo", "\x01\x02 no table\n"),
    "defect_cpuinfo_empty": defect("epyc_one_socket", "/proc/cpuinfo", mark="empty"),
    "defect_quota_garbage": defect("epyc_one_socket", "/sys/fs/cgroup/cpu.max", "lots of it\n"),
    "defect_cache_size_garbage": defect(
        "epyc_one_socket", f"{CPU}/cpu2/cache/index0/size", "32 whatever\n"
    ),
    "defect_frequency_garbage": defect(
        "epyc_one_socket", f"{CPU}/cpufreq/policy0/scaling_cur_freq", "<unknown>\n"
    ),
    "defect_temperature_garbage": defect(
        "epyc_one_socket", "/sys/class/hwmon/hwmon3/temp1_input", "46125mC\n"
    ),
    "defect_counter_of_one_part_gone": defect(
        "xeon_two_sockets", "/sys/devices/system/edac/mc/mc1/ce_count", mark="gone"
    ),
    "defect_smbios_cut_off": defect(
        "epyc_one_socket", TABLE, "ERAAAAAQ/v9QAEAA/38JAAECIoAgwBIDBAUC\n", "base64"
    ),
    "defect_meminfo_huge_number": defect(
        "epyc_one_socket", "/proc/meminfo", "MemTotal:  99999999999999999999 kB\n"
    ),
    "defect_governor_two_lines": defect(
        "epyc_one_socket", f"{CPU}/cpufreq/policy1/scaling_governor", "schedutil\nperformance\n"
    ),
}
