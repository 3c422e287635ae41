"""Intel cards that are not there: the vendor's own module on recorded machines, one per fault.

`vendor(name)` unpacks a machine into a folder of its own and gives the vendor that reads it. The
clock of a replay moves on by half a second at each reading, in which the card draws WATTS, and by
more at each count of errors. "max_1550_lost" loses its first card once it has been probed; in
"max_1550_denied" files for root alone cannot be read, whoever runs the test.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from recorded import trees

from appliance.linux.sysfs import Tree, Unreadable
from appliance.records.system import Device
from appliance.vendors.intel.xpu import CACHE_SECONDS, Xpu

FOLDER = Path(__file__).parent / "xpu"
WATTS, STEP_SECONDS = 300.0, 0.5
NAMES = (
    "max_1550",
    "arc_b580",
    "max_1550_ecc",
    "max_1550_link_down",
    "max_1550_tool_2",
    "max_1550_tool_2_ecc",
    "max_1550_x8",
    "max_1550_throttled",
    "max_1550_missing_field",
    "max_1550_lost",
    "max_1550_denied",
)
"""Machines with cards that can be used; the first two are healthy."""
FIRST_CARD = "0000:4d:00.0"


class Unprivileged(Tree):
    """A tree whose files for the owner alone cannot be read, as by a user who is not root."""

    __slots__ = ()

    def data(self, name: str, limit: int = -1) -> bytes:
        path = self.path(name)
        if path.is_file() and not path.stat().st_mode & 0o004:
            raise Unreadable(f"run as root to read {name}")
        return super().data(name, limit)


class Replayed(Xpu):
    """The vendor on one recorded machine."""

    def __init__(self, name: str, root: Path, **settings: Any) -> None:
        self.root, self.machine, self.now = root, name, 0.0
        self.requested: list[str] = []
        self._replies = answers(name)
        start = "max_1550" if name == "max_1550_lost" else name
        trees.unpack(f"../xpu/{start}", root)
        self._energies = [
            path
            for path in root.glob("sys/devices/**/hwmon*/energy1_input")
            if "_gt" not in path.with_name("name").read_text()
        ]
        settings = {"version": no_packages, **settings}
        super().__init__(root, self._answer, clock=lambda: self.now, **settings)
        if name == "max_1550_denied":
            self._tree = Unprivileged(root)

    def probe(self) -> tuple[Device, ...]:
        devices = super().probe()
        if self.machine == "max_1550_lost":
            (self.root / f"sys/bus/pci/devices/{FIRST_CARD}").unlink(missing_ok=True)
        return devices

    def read(self, device: Device) -> Mapping[str, float | None]:
        self.now += STEP_SECONDS
        for path in self._energies:
            if path.is_file():
                path.write_text(str(int(path.read_text()) + round(WATTS * STEP_SECONDS * 1e6)))
        return super().read(device)

    def counters(self, device: Device) -> Mapping[str, int | None]:
        self.now += CACHE_SECONDS  # so that a replay never hears what the tool said before
        return super().counters(device)

    def _answer(self, arguments: Sequence[str]) -> str:
        requested = " ".join(arguments).removesuffix(" -j")
        self.requested.append(requested)
        if requested not in self._replies:
            raise Unreadable(f"xpu-smi was not recorded for {requested}")
        return json.dumps(self._replies[requested])


def no_packages(name: str) -> str:
    """Nothing that the vendor would look for is installed."""
    from importlib.metadata import PackageNotFoundError  # noqa: PLC0415

    raise PackageNotFoundError(name)


def answers(name: str) -> dict[str, Any]:
    """What xpu-smi says on a machine: its own answers, over those of its base."""
    reported = json.loads((FOLDER / f"{name}.json").read_text())
    base = answers(reported["base"]) if "base" in reported else {}
    return {**base, **reported["answers"]}


def vendor(name: str, folder: Path | None = None, **settings: Any) -> Replayed:
    """The vendor of a recorded machine; a temporary folder goes when the vendor does."""
    root = folder or Path(tempfile.mkdtemp(prefix="bench-xpu-"))
    replayed = Replayed(name, root, **settings)
    if folder is None:
        weakref.finalize(replayed, shutil.rmtree, root, ignore_errors=True)
    return replayed
