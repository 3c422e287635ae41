"""NVIDIA's management library as a record answers for it: real constants, structures and errors.

`vendor(NAME)` is the vendor of a recorded machine, with the kernel's files of the record.
"""

from __future__ import annotations

import atexit
import inspect
import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pynvml
from recorded import trees

from appliance.vendors.nvidia.cuda import Cuda

FOLDER = Path(__file__).parent / "cuda"
STRUCTURES = {
    "nvmlDeviceGetMemoryInfo": "c_nvmlMemory_v2_t",
    "nvmlDeviceGetPciInfo_v3": "nvmlPciInfo_t",
    "nvmlDeviceGetNvLinkRemotePciInfo": "nvmlPciInfo_t",
    "nvmlDeviceGetUtilizationRates": "c_nvmlUtilization_t",
    "nvmlDeviceGetViolationStatus": "c_nvmlViolationTime_t",
    "nvmlSystemGetConfComputeState": "c_nvmlConfComputeSystemState_t",
    "nvmlDeviceGetAttributes": "c_nvmlDeviceAttributes",
}


def names() -> tuple[str, ...]:
    """Every record."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.json")))


def vendor(name: str, folder: Path | None = None) -> Cuda:
    """The vendor of a recorded machine; its files are put into `folder`, or a temporary one."""
    record = json.loads((FOLDER / f"{name}.json").read_text())
    return Cuda(Replayed(record), trees.unpack_record(record, folder or _temporary()))


def _temporary() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="recorded-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@dataclass(frozen=True)
class Handle:
    """What stands for a device, or for a slice of it."""

    number: int
    slice: int | None = None


@dataclass
class Replayed:
    """Answers as pynvml does; `calls` counts them, and `record` may be changed between them."""

    record: dict[str, Any]
    calls: list[str] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        """A constant or a structure of pynvml, or a function that answers from the record."""
        real = getattr(pynvml, name)
        if not inspect.isfunction(real):
            return real
        return partial(self._called, name, real)

    def lose(self, number: int) -> None:
        """From now on a device does not answer."""
        lost = {"error": "NVML_ERROR_GPU_IS_LOST"}
        self.record["devices"][number] = {"answers": {"*": lost}, "fields": {"*": lost}}

    def _called(self, name: str, real: Any, *arguments: Any) -> Any:
        inspect.signature(real).bind(*arguments)  # as the real one would refuse them
        self.calls.append(name)
        if name == "nvmlInit":
            return _value(self.record.get("init"))
        special = getattr(self, f"_{name}", None)
        if special is not None:
            return special(*arguments)
        if not arguments or not isinstance(arguments[0], Handle):
            return self._from(self.record["system"], name, arguments)
        return self._from(self._answers(arguments[0]), name, arguments[1:])

    def _answers(self, handle: Handle) -> Mapping[str, Any]:
        device = self.record["devices"][handle.number]
        if handle.slice is None:
            return dict(device["answers"])
        return dict(device["slices"][handle.slice])

    def _from(self, answers: Mapping[str, Any], name: str, arguments: Sequence[Any]) -> Any:
        words = ["device" if isinstance(one, Handle) else one for one in arguments]
        for key, answer in sorted(answers.items(), key=lambda one: "*" in one[0]):  # exact first
            if _matches(key, name, words):
                return _structured(name, _value(answer))
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    def _nvmlDeviceGetCount(self) -> int:  # noqa: N802 - the library's name
        return len(self.record["devices"])

    def _nvmlDeviceGetHandleByIndex(self, index: int) -> Handle:  # noqa: N802
        if index >= len(self.record["devices"]):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        _value(self.record["devices"][index].get("handle"))
        return Handle(index)

    def _nvmlDeviceGetHandleByUUID(self, uuid: str) -> Handle:  # noqa: N802
        for number, device in enumerate(self.record["devices"]):
            for part, answers in enumerate(device.get("slices", [])):
                if answers["nvmlDeviceGetUUID()"] == uuid:
                    return Handle(number, part)
            if device["answers"].get("nvmlDeviceGetUUID()") == uuid:
                return Handle(number)
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)

    def _nvmlDeviceGetMigDeviceHandleByIndex(self, handle: Handle, index: int) -> Handle:  # noqa: N802
        if index >= len(self.record["devices"][handle.number].get("slices", [])):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return Handle(handle.number, index)

    def _nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, handle: Handle) -> Handle:  # noqa: N802
        return Handle(handle.number)

    def _nvmlDeviceGetGpuFabricInfoV(self, handle: Handle, pointer: Any) -> int:  # noqa: N802
        answer = self._from(self._answers(handle), "nvmlDeviceGetGpuFabricInfoV", ())
        for name, value in answer.items():
            setattr(pointer._obj, name, value)
        return 0

    def _nvmlDeviceGetComputeRunningProcesses(self, handle: Handle) -> Any:  # noqa: N802
        listed = self._from(self._answers(handle), "nvmlDeviceGetComputeRunningProcesses", ())
        return [pynvml.nvmlFriendlyObject({"usedGpuMemory": None, **one}) for one in listed]

    def _nvmlDeviceGetFieldValues(self, handle: Handle, wanted: Sequence[Any]) -> Any:  # noqa: N802
        known = self.record["devices"][handle.number]["fields"]
        numbers = {getattr(pynvml, name): one for name, one in known.items() if name != "*"}
        values = (pynvml.c_nvmlFieldValue_t * len(wanted))()
        for value, (number, scope) in zip(values, wanted, strict=True):
            _fill(value, numbers.get(number, known.get("*")), scope)
        return values


def _fill(value: Any, answer: Any, scope: int) -> None:
    if isinstance(answer, list):
        answer = answer[scope] if scope < len(answer) else None
    if answer is None:
        value.nvmlReturn = pynvml.NVML_ERROR_NOT_SUPPORTED
    elif isinstance(answer, dict):
        value.nvmlReturn = getattr(pynvml, answer["error"])
    else:
        value.valueType = pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG
        value.value.ullVal = answer


def _matches(key: str, name: str, arguments: Sequence[Any]) -> bool:
    """True if a record's key ("name(CONSTANT, 3)", "name(*)" or "*") is this call."""
    if key == "*":
        return True
    head, _, rest = key.rstrip(")").partition("(")
    if head != name:
        return False
    return rest == "*" or [_argument(text) for text in rest.split(", ") if text] == [*arguments]


def _argument(text: str) -> Any:
    if text == "device" or text.lstrip("-").isdecimal():
        return text if text == "device" else int(text)
    return getattr(pynvml, text)


def _value(answer: Any) -> Any:
    """What the call returns; a recorded error is raised, a constant's name is its value."""
    if isinstance(answer, dict) and "error" in answer:
        raise pynvml.NVMLError(getattr(pynvml, answer["error"]))
    if isinstance(answer, str) and answer.startswith("NVML_"):
        return getattr(pynvml, answer)
    return answer


def _structured(name: str, answer: Any) -> Any:
    if name not in STRUCTURES or not isinstance(answer, dict):
        return answer
    structure = getattr(pynvml, STRUCTURES[name])()
    for member, value in answer.items():
        setattr(structure, member, value.encode() if isinstance(value, str) else value)
    return structure
