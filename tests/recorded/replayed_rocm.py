"""AMD's devices that are not there: the vendor's own module on recorded machines.

`vendor(NAME)` answers from the library's record, `vendor(NAME, source="tool")` from the tool's.
"gpu_lost" loses its first device once its devices were found. Answers that count on ("grows") do
so from call to call, and the tool's clock moves on by its pause at each reading.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from enum import IntEnum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from recorded import trees

from appliance.linux.sysfs import Unreadable
from appliance.records.system import Device
from appliance.vendors.amd.rocm import Rocm
from appliance.vendors.amd.smi_tool import PAUSE_SECONDS

FOLDER = Path(__file__).parent / "rocm"
NAMES = tuple(sorted(path.stem for path in FOLDER.glob("*.json")))
"""Every record; those of a model's name are healthy."""
HEALTHY = ("mi250x", "mi300x", "mi300x_partitioned", "mi300x_partitioned_6")
NOT_SUPPORTED = 2


class AmdSmiException(Exception):
    """The root of the library's exceptions."""


class AmdSmiLibraryException(AmdSmiException):
    """A status that is not success, in `err_code` (amdsmi_exception.py)."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.err_code = status


class AmdSmiClkType(IntEnum):
    """Members and values here and below are those of amdsmi 7.0.2."""

    GFX = 0
    MEM = 4


class AmdSmiMemoryType(IntEnum):
    VRAM = 0


class AmdSmiVramType(IntEnum):
    HBM2E = 3
    HBM3 = 4


class AmdSmiGpuBlock(IntEnum):
    UMC = 1
    XGMI_WAFL = 128


class AmdSmiTemperatureType(IntEnum):
    HOTSPOT = 1


class AmdSmiTemperatureMetric(IntEnum):
    CRITICAL = 5


ENUMERATIONS = {
    one.__name__: one
    for one in (
        AmdSmiClkType,
        AmdSmiMemoryType,
        AmdSmiVramType,
        AmdSmiGpuBlock,
        AmdSmiTemperatureType,
        AmdSmiTemperatureMetric,
    )
}


class Handle:
    """What stands for a device in the library."""

    def __init__(self, number: int) -> None:
        self.number = number


class Library:
    """Answers as amdsmi does; `record` may be changed between calls, and `calls` has them all."""

    AmdSmiException = AmdSmiException
    AmdSmiLibraryException = AmdSmiLibraryException

    def __init__(self, record: dict[str, Any]) -> None:
        self.record = record
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name in ENUMERATIONS:
            return ENUMERATIONS[name]
        if not name.startswith("amdsmi_"):
            raise AttributeError(name)
        return lambda *arguments: self._called(name, arguments)

    def _called(self, name: str, arguments: Sequence[Any]) -> Any:
        self.calls.append(name)
        if name == "amdsmi_get_processor_handles":
            return [Handle(number) for number in range(len(self.record["devices"]))]
        numbers = [one.number for one in arguments if isinstance(one, Handle)]
        rest = [one for one in arguments if not isinstance(one, Handle)]
        words = [one.name if isinstance(one, IntEnum) else str(one) for one in rest]
        return _answered(self._reported(numbers), " ".join((name, *words)))

    def _reported(self, numbers: Sequence[int]) -> dict[str, Any]:
        if not numbers:
            result = self.record["system"]
        elif len(numbers) == 1:
            result = self.record["devices"][numbers[0]]
        else:
            result = self.record["pairs"][" ".join(map(str, numbers))]
        return dict(result)


def _answered(reported: Mapping[str, Any], key: str) -> Any:
    answer = reported.get(key, {"error": NOT_SUPPORTED})
    if not isinstance(answer, dict):
        return answer
    if "error" in answer:
        raise AmdSmiLibraryException(answer["error"])
    if "fw_list" in answer:
        return {"fw_list": [_named(one) for one in answer["fw_list"]]}
    for field, step in answer.get("grows", {}).items():
        answer[field] += step
    return {field: value for field, value in answer.items() if field != "grows"}


def _named(firmware: Mapping[str, str]) -> dict[str, Any]:
    return {**firmware, "fw_name": SimpleNamespace(name=firmware["fw_name"])}


class Tool:
    """Prints as amd-smi does; `calls` has the commands."""

    def __init__(self, record: dict[str, Any]) -> None:
        self.record = record
        self.calls: list[str] = []

    def __call__(self, arguments: Sequence[str]) -> str:
        command = " ".join(arguments).removesuffix(" --json")
        self.calls.append(command)
        if command not in self.record:
            raise Unreadable(f"`amd-smi {command} --json` fails: run it to see why")
        return json.dumps(self.record[command])


class Replayed(Rocm):
    """The vendor on one recorded machine."""

    def __init__(self, record: dict[str, Any], root: Path, source: str = "library") -> None:
        self.record, self.root, self.now = record, root, 0.0
        self.library, self.tool = Library(record["library"]), Tool(record["tool"])
        library, tool = (self.library, None) if source == "library" else (None, self.tool)
        super().__init__(root, library, tool, lambda: self.now)
        trees.unpack_record(record, root)

    def probe(self) -> tuple[Device, ...]:
        devices = super().probe()
        self._then(self.record.pop("then", {}))
        return devices

    def read(self, device: Device) -> Mapping[str, float | None]:
        self.now += PAUSE_SECONDS
        return super().read(device)

    def _then(self, change: Mapping[str, Any]) -> None:
        for number, reported in change.get("library", {}).items():
            self.library.record["devices"][int(number)] = reported
        self.tool.record.update(change.get("tool", {}))
        for name in change.get("gone", ()):
            (self.root / name.lstrip("/")).unlink()


def recorded(name: str) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return record


def vendor(name: str, folder: Path | None = None, source: str = "library") -> Replayed:
    """The vendor of a recorded machine; a temporary folder goes when the vendor does."""
    root = folder or Path(tempfile.mkdtemp(prefix="bench-rocm-"))
    replayed = Replayed(recorded(name), root, source)
    if folder is None:
        weakref.finalize(replayed, shutil.rmtree, root, ignore_errors=True)
    return replayed
