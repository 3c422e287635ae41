"""Recorded machines: the files of /proc, /sys and /etc that the probe reads, one text file each.

`== /path` begins a file and its text follows; `== /path -> target` is a link, `== /path (base64)`
holds bytes, `(mode 400)` is for the owner alone, `(empty)` has no text, `(gone)` takes a file of
the base away, `== /path/` is a folder. A first line `= base NAME` starts from another machine, so
that a defect is a file of a few lines.

    python tests/recorded/trees.py record NAME    records this machine, without what names it
    python tests/recorded/trees.py build          writes those that are built from documentation
"""

from __future__ import annotations

import base64
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

MACHINES = Path(__file__).parent / "machines"
HEADER = re.compile(r"== (?P<path>/\S*)(?: -> (?P<target>\S+))?(?: \((?P<mark>[^)]+)\))?")
RECORDED = (
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/loadavg",
    "/proc/uptime",
    "/proc/interrupts",
    "/proc/sys/kernel/arch",
    "/proc/sys/kernel/version",
    "/proc/sys/kernel/numa_balancing",
    "/etc/os-release",
    "/sys/devices/system/cpu/online",
    "/sys/devices/system/cpu/smt/control",
    "/sys/devices/system/cpu/cpu[0-9]*/topology/*_list",
    "/sys/devices/system/cpu/cpu[0-9]*/topology/physical_package_id",
    "/sys/devices/system/cpu/cpu[0-9]*/cache/index*/level",
    "/sys/devices/system/cpu/cpu[0-9]*/cache/index*/type",
    "/sys/devices/system/cpu/cpu[0-9]*/cache/index*/size",
    "/sys/devices/system/cpu/cpu[0-9]*/cache/index*/shared_cpu_list",
    "/sys/devices/system/cpu/cpufreq/policy*/*freq",
    "/sys/devices/system/cpu/cpufreq/policy*/scaling_*",
    "/sys/devices/system/node/online",
    "/sys/devices/system/memory/block_size_bytes",
    "/sys/devices/system/clocksource/clocksource0/current_clocksource",
    "/sys/kernel/mm/transparent_hugepage/enabled",
    "/sys/class/hwmon/hwmon*/name",
    "/sys/class/hwmon/hwmon*/temp*_input",
    "/sys/class/hwmon/hwmon*/temp*_label",
    "/sys/class/thermal/thermal_zone*/t*",
)
UNNAMED = {
    "/proc/sys/kernel/osrelease": "6.18.44",
    "/proc/sys/kernel/hostname": "node",
    "/proc/cmdline": "console=ttyS0 mitigations=auto quiet swiotlb=noforce",
    "/proc/self/cgroup": "0::/",
    "/proc/self/status": "Name:\tbench\nCpus_allowed:\t3\nCpus_allowed_list:\t0-1",
}
"""Written in place of what would name the recorded machine or its owner."""


def unpack(name: str, folder: Path) -> Path:
    """Make the files of a machine in a folder, which is returned."""
    text = (MACHINES / f"{name}.tree").read_text()
    first = text.partition("\n")[0]
    if first.startswith("= base "):
        unpack(first.removeprefix("= base "), folder)
    for header, body in entries(text):
        path = folder / header["path"].lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path, header["target"], header["mark"] or "", body)
    return folder


def unpack_record(record: Mapping[str, Any], folder: Path) -> Path:
    """Make the kernel's `files` and `links` of a vendor's record in a folder, which is returned."""
    for name, text in record["files"].items():
        path = folder / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for name, target in record["links"].items():
        path = folder / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.symlink_to(target)
    return folder


def entries(text: str) -> Iterator[tuple[re.Match[str], str]]:
    """Every file of a machine: its header and its text."""
    for part in re.split(r"^(?==\= )", text, flags=re.MULTILINE)[1:]:
        line, _, body = part.partition("\n")
        header = HEADER.fullmatch(line)
        assert header is not None, line
        yield header, body


def write(path: Path, target: str | None, mark: str, body: str) -> None:
    if target is not None:
        path.symlink_to(target)
    elif mark == "gone":
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    elif mark == "folder":
        path.mkdir(exist_ok=True)
    else:
        data = base64.b64decode(body) if "base64" in mark else body.encode()
        path.write_bytes(b"" if "empty" in mark else data)
        path.chmod(0o400 if "mode 400" in mark else 0o644)


def packed(files: Mapping[str, str | bytes | Path], private: frozenset[str] = frozenset()) -> str:
    """The text of a machine: a Path is where a link leads; `private` files are for root alone."""
    parts = []
    for path, content in sorted(files.items()):
        marks = ["mode 400"] if path in private else []
        if isinstance(content, Path):
            parts.append(f"== {path} -> {content}\n")
            continue
        is_text = isinstance(content, str)
        text = content if is_text else base64.encodebytes(content).decode()
        marks += [] if is_text else ["base64"]
        mark = f" ({', '.join(marks)})" if marks else ""
        parts.append(f"== {path}{mark}\n" + (text if text.endswith("\n") else f"{text}\n"))
    return "".join(parts)


def record(name: str) -> None:
    """Write this machine's files; none that names it, its owner or its addresses."""
    files: dict[str, str | bytes | Path] = dict(UNNAMED)
    for pattern in RECORDED:
        for path in Path("/").glob(pattern.lstrip("/")):
            try:
                files[str(path)] = path.read_text()
            except OSError:  # a sensor without a value at this moment
                continue
    blocks = len(list(Path("/sys/devices/system/memory").glob("memory[0-9]*")))
    for number in range(blocks):
        files[f"/sys/devices/system/memory/memory{number}/state"] = "online"
    (MACHINES / f"{name}.tree").write_text(packed(files))


if __name__ == "__main__":
    if sys.argv[1] == "record":
        record(sys.argv[2])
    else:
        from documented import MACHINES_BUILT

        for machine, text in MACHINES_BUILT.items():
            (MACHINES / f"{machine}.tree").write_text(text)
