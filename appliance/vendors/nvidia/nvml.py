"""Questions to NVIDIA's management library, each with an answer or the reason why there is none.

The library (nvidia-ml-py, module pynvml) is imported at the first query, and only
where the driver's own library is there, so that a machine without one is passed by quickly. Error
codes and their meaning: nvml.h, enum nvmlReturn_t; field values: nvml.h, "Field Identifiers".
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from appliance.linux.sysfs import Unreadable

Value = TypeVar("Value")
Library = Any
"""pynvml, or an object that answers as it does."""
Handle = Any
"""What the library gives for a device: opaque."""

DRIVER_LIBRARY = "libnvidia-ml.so.1"
NO_BINDING = "the Python package nvidia-ml-py is not installed here"
NO_VALUE = "the driver gives no value"
UNKNOWN_FORM = "nvidia-ml-py answers in a form that is not known here"
HINTS = {
    1: "the driver's library was not started",
    2: "the driver does not know this question",
    3: "not reported by this device",
    4: "the driver refuses it to this user: run as root, in a container with --cap-add SYS_ADMIN",
    6: "the driver does not know this device",
    8: "the device lacks its external power: check the power cables",
    9: "the kernel driver is not loaded: load it on the host (modprobe nvidia)",
    10: "the driver did not answer in time",
    11: "the kernel reports an interrupt problem of a device",
    12: f"the driver's library {DRIVER_LIBRARY} is not here: in a container it comes with "
    "--gpus all and the driver capability utility",
    13: "the driver is older than this question",
    14: "the inforom of the device is damaged",
    15: "the device fell off the bus or does not answer: reset it or restart the node",
    16: "the device must be reset before it answers",
    17: "the operating system or a control group blocks it: is the device in the container?",
    18: "the driver's library and the kernel driver differ in version: restart the node",
    20: "there was not enough memory",
    22: "a virtual device does not report it",
    25: "the driver and nvidia-ml-py differ in version",
    26: "this driver no longer reports it",
    27: "the device is not ready yet",
    28: "the driver has no device that it supports",
    999: "the driver failed and gives no reason",
}
"""What an error code means for whoever wants the value."""
LOST = frozenset({15, 16})
"""Codes of a device that will not work any more until it is reset."""
UNKNOWN_DEVICE = frozenset({6, 28})
ABSENT = frozenset({0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF})
"""NVML_VALUE_NOT_AVAILABLE, and the same in 64 bits."""
MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Members of nvmlValue_t in the order of nvmlValueType_t."""


class Refusal(Unreadable):
    """The driver gave an error code instead of a value."""

    def __init__(self, code: int) -> None:
        super().__init__(HINTS.get(code, f"the driver gives error {code}"))
        self.code = code

    @property
    def is_lost(self) -> bool:
        """True if the device itself does not answer any more."""
        return self.code in LOST


@dataclass(frozen=True, slots=True)
class Place:
    """Where the questions about a device go: to the whole device, and to its slice if it is one."""

    whole: Handle
    slice: Handle | None = None

    @property
    def own(self) -> Handle:
        """The slice of a divided device, else the device."""
        return self.whole if self.slice is None else self.slice


class Nvml:
    """The library of this machine, or one that answers from a record.

    Every method raises Unreadable, a Refusal where the driver reported why.
    """

    def __init__(self, library: Library | None = None) -> None:
        self._replacement = library
        self._started: Library | None = None

    @property
    def library(self) -> Library:
        """The library, started; it is started once, and stays so until the process ends."""
        if self._started is None:
            library = self._replacement if self._replacement is not None else _imported()
            _called(library, library.nvmlInit)
            self._started = library
        return self._started

    def ask(self, function: str, *arguments: object) -> Any:
        """What a function of the library answers."""
        library = self.library
        function_of_library = getattr(library, function, None)
        if function_of_library is None:
            raise Refusal(13)  # an older nvidia-ml-py
        return _called(library, function_of_library, *arguments)

    def whole(self, function: str, *arguments: object) -> int:
        """An integer."""
        answer = self.ask(function, *arguments)
        if not isinstance(answer, int):
            raise Unreadable(UNKNOWN_FORM)
        return _present(answer)

    def text(self, function: str, *arguments: object) -> str:
        """One line of text."""
        return as_text(self.ask(function, *arguments))

    def constant(self, name: str) -> int:
        """A constant of the library, by its name in nvml.h."""
        value = getattr(self.library, name, None)
        if not isinstance(value, int):
            raise Refusal(13)
        return value

    def fields(
        self, handle: Handle, wanted: Sequence[tuple[str, int]]
    ) -> tuple[int | Unreadable, ...]:
        """Field values as (name, scope): one call for all, and for each a number or the reason.

        The scope of a link's field is the link's number, else 0.
        """
        numbers = [(self.constant(name), scope) for name, scope in wanted]
        answers = self.ask("nvmlDeviceGetFieldValues", handle, numbers)
        return tuple(attempt(partial(_field, one)) for one in answers)

    def field(self, handle: Handle, name: str, scope: int = 0) -> int:
        """One field value."""
        (value,) = self.fields(handle, [(name, scope)])
        return present(value)


def present(value: Value | Unreadable) -> Value:
    """The value; raises the Unreadable that stands in its place."""
    if isinstance(value, Unreadable):
        raise value
    return value


def attempt(read: Callable[[], Value]) -> Value | Unreadable:
    """What `read` returns, or its Unreadable, for whoever reports gaps later."""
    try:
        return read()
    except Unreadable as gap:
        return gap


def first(*ways: Callable[[], Value]) -> Value:
    """The answer of the first way that has one; raises the first way's Unreadable if none has.

    A device that is lost is not queried in another way.
    """
    reason: Unreadable | None = None
    for way in ways:
        try:
            return way()
        except Unreadable as gap:
            if isinstance(gap, Refusal) and gap.is_lost:
                raise
            reason = reason or gap
    raise reason or Unreadable(NO_VALUE)


def as_text(answer: object) -> str:
    """A text of the library; older versions of it answer with bytes."""
    text = answer.decode("utf-8", "replace") if isinstance(answer, bytes) else str(answer)
    return " ".join(text.strip("\0 ").split())


def _imported() -> Library:
    # Loading a library that is not there fails in a millisecond; the import takes many.
    try:
        ctypes.CDLL(DRIVER_LIBRARY)
    except OSError:
        raise Refusal(12) from None
    try:
        import pynvml  # noqa: PLC0415 - a machine without the driver is not to wait for it
    except ImportError:
        raise Unreadable(NO_BINDING) from None
    return pynvml


def _called(library: Library, function: Callable[..., Any], *arguments: object) -> Any:
    try:
        return function(*arguments)
    except library.NVMLError as error:
        raise Refusal(int(error.value)) from None
    except (TypeError, ValueError, ctypes.ArgumentError):
        raise Unreadable(UNKNOWN_FORM) from None


def _field(answer: Any) -> int:
    if answer.nvmlReturn != 0:
        raise Refusal(int(answer.nvmlReturn))
    if not 0 <= answer.valueType < len(MEMBERS):
        raise Unreadable(NO_VALUE)
    return _present(int(getattr(answer.value, MEMBERS[answer.valueType])))


def _present(value: int) -> int:
    if value in ABSENT:
        raise Unreadable(NO_VALUE)
    return value
