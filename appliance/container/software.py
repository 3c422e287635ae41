"""The software that a run needs, as `doctor` finds it: packages, their versions, torch, libraries.

Importing torch takes long, so it happens in a child that is given up after some seconds.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import appliance
from appliance import extras
from appliance.container import preflight
from appliance.container.doctor_rows import REPORTS, RUNS, Place, Row, not_needed, row_of
from appliance.planning import library_ranges, workload_manifest
from appliance.vendors import registry
from appliance.vendors.containers import CONTAINERS

OLDEST_PYTHON = (3, 11)
NEEDED_FOR = {
    "": "every verb",
    extras.TORCH: RUNS,
    extras.REPORT: REPORTS,
    extras.COMPARE: "compare",
}
REQUIRED = ("", extras.TORCH, extras.REPORT)
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
    """A row for what every verb needs and for each part: which packages are not installed."""
    parts = extras.parts()
    if not parts:
        fix = "install it: `make accept`, or pip install ."
        yield Row(
            what="packages", detected="not installed", needed_for=RUNS, state="not known", fix=fix
        )
        return
    of_suite = {part for facts in workload_manifest.load().values() for part in facts.parts}
    for part, names in parts.items():
        if part in NEEDED_FOR or part in of_suite:
            yield _part(part, len(names))


def _part(part: str, count: int) -> Row:
    absent = extras.absent(part)
    detected = f"not installed: {', '.join(absent)}" if absent else f"{count} installed"
    what = f"packages [{part}]" if part else "packages"
    fix = extras.line([part]) if part else f"pip install {extras.DISTRIBUTION}"
    needed_for = NEEDED_FOR.get(part, f"workloads of {part}")
    return row_of(what, detected, needed_for, fix, ok=not absent, required=part in REQUIRED)


def ranges(place: Place) -> Iterator[Row]:
    """A row for each package whose version is outside its range, or one for all of them."""
    here = (
        name
        for name, one in CONTAINERS.items()
        if preflight.visible_devices(place.tree, one).functions
    )
    allowed = extras.ranges()
    for vendor in here:
        allowed = library_ranges.allowed(allowed, registry.libraries_of(vendor).ranges)
    versions = {name: extras.installed_version(name) for name in allowed}
    installed = {name: version for name, version in versions.items() if version is not None}
    outside = [name for name in installed if not extras.is_in_range(installed[name], allowed[name])]
    for name in outside:
        yield _outside(name, installed[name], allowed[name])
    if installed and not outside:
        detected = f"{len(installed)} within their ranges"
        yield row_of("versions of packages", detected, RUNS, "", ok=True, required=True)


def _outside(name: str, version: str, allowed: str) -> Row:
    """One package; without a part that is required, only the cases that need it cannot run."""
    bringing = [part for part, names in extras.parts().items() if name in names]
    is_required = any(part in REQUIRED for part in bringing)
    purposes = [NEEDED_FOR.get(part, f"workloads of {part}") for part in bringing]
    return Row(
        what=name,
        detected=f"{version}, outside {allowed}",
        needed_for=purposes[0] if purposes else RUNS,
        state="out of range",
        fix=f'pip install "{name}{allowed.partition(extras.OR)[0]}"',
        is_required=is_required,
    )


def _installed() -> dict[str, str]:
    """Versions by name; of a package that is there twice the one that Python would import."""
    versions: dict[str, str] = {}
    for one in metadata.distributions():
        if one.name:
            versions.setdefault(extras.normal(one.name), one.version)
    return versions


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
        detected = "no lock for this torch beside the program"
        yield not_needed(what, detected, needed_for)
        return
    whole = [(name, pins) for name, pins in fitting if pins.keys() <= installed.keys()]
    name, pins = max(whole or fitting[:1], key=lambda one: len(one[1]))
    differ = [
        f"{one} {installed[one]} (lock {pin})"
        for one, pin in pins.items()
        if one in installed and installed[one] != pin
    ]
    detected = f"{len(differ)} differ from {name}: {', '.join(differ[:3])}" if differ else name
    fix = f"scripts/install.sh PYTHON locks/{name} packages"
    yield row_of(what, detected, needed_for, fix, ok=not differ, required=False)


def _pins(path: Path) -> dict[str, str]:
    rows = re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", path.read_text(), re.MULTILINE)
    return {extras.normal(name): version for name, version in rows}


def rendering(_place: Place) -> Iterator[Row]:
    """Whether the libraries and the font of the reports are there."""
    absent = tuple(extras.unloadable(extras.RENDERING))
    detected = f"cannot be loaded: {', '.join(absent)}" if absent else "all load"
    fix = f"sudo apt-get install {extras.PACKAGES}"
    yield row_of("WeasyPrint's libraries", detected, REPORTS, fix, ok=not absent, required=True)
    folders = (Path(one).expanduser() for one in FONT_FOLDERS)
    fonts = [path for folder in folders for path in folder.rglob(FONT)]
    detected = str(fonts[0]) if fonts else f"no {FONT}"
    yield row_of("fonts", detected, REPORTS, fix, ok=bool(fonts), required=False)


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
        output, complaint = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()
        version = _installed().get("torch")
        detected = (
            f"{version or 'not installed'}; its import took longer than {TORCH_SECONDS:.0f} s"
        )
        yield Row(what="torch", detected=detected, needed_for=RUNS, state="not known")
        return
    if child.returncode != 0:
        last = (complaint.strip().splitlines() or [f"exit code {child.returncode}"])[-1]
        fix = f"{extras.line([extras.TORCH])}, with torch for this machine's devices"
        yield row_of("torch", last[:100], RUNS, fix, ok=False, required=True)
        return
    version, accelerator = output.split()[:2]
    yield row_of("torch", version, RUNS, "", ok=True, required=True)
    yield from _accelerator(accelerator, place)


def _accelerator(seen: str, place: Place) -> Iterator[Row]:
    """Whether torch sees a device, where there is one."""
    vendors = [
        one for one in CONTAINERS.values() if preflight.visible_devices(place.tree, one).functions
    ]
    what, needed_for = "accelerator in torch", "runs on the accelerators"
    if not vendors:
        yield not_needed(what, seen, needed_for)
        return
    fix = f"install torch for {vendors[0].title}, or use the image {vendors[0].image}"
    yield row_of(what, seen, needed_for, fix, ok=seen != "none", required=True)
