"""The software that a run needs, as `doctor` finds it: packages, their versions, torch, libraries.

Importing torch takes long, so it happens in a child that is given up after some seconds.
"""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import appliance
from appliance.container import preflight
from appliance.container.doctor_rows import REPORTS, RUNS, Place, Row, not_needed, row_of
from appliance.probe.node import DISTRIBUTION
from appliance.vendors.containers import CONTAINERS

OLDEST_PYTHON = (3, 11)
LIBRARIES = (
    "libgobject-2.0.so.0",
    "libpango-1.0.so.0",
    "libpangoft2-1.0.so.0",
    "libharfbuzz.so.0",
    "libfontconfig.so.1",
)
"""What WeasyPrint 70 loads (weasyprint/text/ffi.py)."""
PACKAGES = "libpango-1.0-0 libpangoft2-1.0-0 libharfbuzz-subset0 fontconfig fonts-dejavu-core"
FONT = "DejaVuSerif.ttf"
FONT_FOLDERS = ("/usr/share/fonts", "/usr/local/share/fonts", "~/.fonts", "~/.local/share/fonts")
TORCH_SECONDS = 3.0
TORCH = (
    "import torch; a = torch.accelerator; "
    "print(torch.__version__, a.current_accelerator() if a.is_available() else 'none')"
)


def python(_place: Place) -> Iterator[Row]:
    """Tell whether this interpreter is new enough."""
    is_new = sys.version_info >= OLDEST_PYTHON
    version = ".".join(map(str, sys.version_info[:3]))
    yield row_of("Python", version, RUNS, "install Python 3.11 or newer", ok=is_new, required=True)


def packages(_place: Place) -> Iterator[Row]:
    """A row for what every verb needs and for each extra: which packages are not installed."""
    installed = _installed()
    try:
        wanted = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        fix = "install it: `make accept`, or pip install ."
        yield Row(
            what="packages", found="not installed", needed_for=RUNS, state="not known", fix=fix
        )
        return
    for extra, needed_for, is_required in (
        ("", "every verb", True),
        ("run", RUNS, True),
    ):
        names = [_normal(item) for item in wanted if _extra(item) == extra]
        absent = [name for name in names if name not in installed]
        found = f"not installed: {', '.join(absent)}" if absent else f"{len(names)} installed"
        what = f"packages [{extra}]" if extra else "packages"
        fix = f'pip install "{DISTRIBUTION}{f"[{extra}]" if extra else ""}"'
        yield row_of(what, found, needed_for, fix, ok=not absent, required=is_required)


def _installed() -> dict[str, str]:
    return {_normal(one.name): one.version for one in metadata.distributions() if one.name}


def _normal(requirement: str) -> str:
    """A requirement's name as PEP 503 compares it."""
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    return re.sub(r"[-_.]+", "-", found[0] if found else requirement).lower()


def _extra(requirement: str) -> str:
    found = re.search(r"extra\s*==\s*[\"']([^\"']+)", requirement)
    return found[1] if found else ""


def locked(_place: Place) -> Iterator[Row]:
    """Which versions differ from those of the lock that has this torch."""
    installed = _installed()
    folder = Path(appliance.__file__).parents[1] / "locks"
    locks = {path.name: _pins(path) for path in sorted(folder.glob("*.txt"))}
    fitting = [
        (name, pins) for name, pins in locks.items() if pins.get("torch") == installed.get("torch")
    ]
    what, needed_for = "locked versions", "figures that can be compared"
    if not fitting or "torch" not in installed:
        found = "no lock for this torch beside the program"
        yield not_needed(what, found, needed_for)
        return
    whole = [(name, pins) for name, pins in fitting if pins.keys() <= installed.keys()]
    name, pins = max(whole or fitting[:1], key=lambda one: len(one[1]))
    differ = [
        f"{one} {installed[one]} (lock {pin})"
        for one, pin in pins.items()
        if one in installed and installed[one] != pin
    ]
    found = f"{len(differ)} differ from {name}: {', '.join(differ[:3])}" if differ else name
    fix = f"scripts/install.sh PYTHON locks/{name} packages"
    yield row_of(what, found, needed_for, fix, ok=not differ, required=False)


def _pins(path: Path) -> dict[str, str]:
    rows = re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", path.read_text(), re.MULTILINE)
    return {_normal(name): version for name, version in rows}


def rendering(_place: Place) -> Iterator[Row]:
    """Whether the libraries and the font of the reports are there."""
    absent = [name for name in LIBRARIES if not _loads(name)]
    found = f"cannot be loaded: {', '.join(absent)}" if absent else "all load"
    fix = f"sudo apt-get install {PACKAGES}"
    yield row_of("WeasyPrint's libraries", found, REPORTS, fix, ok=not absent, required=True)
    folders = (Path(one).expanduser() for one in FONT_FOLDERS)
    fonts = [path for folder in folders for path in folder.rglob(FONT)]
    found = str(fonts[0]) if fonts else f"no {FONT}"
    yield row_of("fonts", found, REPORTS, fix, ok=bool(fonts), required=False)


def _loads(name: str) -> bool:
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


# ------------------------------------------------------------------ torch


def ask_torch() -> subprocess.Popen[str]:
    """Start the child that imports torch; `torch` reads its answer."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(  # noqa: S603 - our own interpreter
        [sys.executable, "-c", TORCH],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def torch(child: subprocess.Popen[str], seconds: float, place: Place) -> Iterator[Row]:
    """What torch says of itself; its import is given up when the time is over."""
    try:
        said, complaint = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()
        version = _installed().get("torch")
        found = f"{version or 'not installed'}; its import took longer than {TORCH_SECONDS:.0f} s"
        yield Row(what="torch", found=found, needed_for=RUNS, state="not known")
        return
    if child.returncode != 0:
        last = (complaint.strip().splitlines() or [f"exit code {child.returncode}"])[-1]
        fix = f'pip install "{DISTRIBUTION}[run]", with torch for this machine\'s devices'
        yield row_of("torch", last[:100], RUNS, fix, ok=False, required=True)
        return
    version, accelerator = said.split()[:2]
    yield row_of("torch", version, RUNS, "", ok=True, required=True)
    yield from _accelerator(accelerator, place)


def _accelerator(seen: str, place: Place) -> Iterator[Row]:
    """Whether torch sees a device, where there is one."""
    vendors = [one for one in CONTAINERS.values() if preflight.look(place.tree, one).functions]
    what, needed_for = "accelerator in torch", "runs on the accelerators"
    if not vendors:
        yield not_needed(what, seen, needed_for)
        return
    fix = f"install torch for {vendors[0].title}, or use the image {vendors[0].image}"
    yield row_of(what, seen, needed_for, fix, ok=seen != "none", required=True)
