"""The calls of AMD's Python library: amdsmi, which loads libamd_smi.so.

A function that an older library lacks, and a key that a newer one has renamed, are gaps with a
reason like any other; nothing else may come from a call. Numbers are those of amdsmi 7.0.2
(amdsmi_wrapper.py; https://rocm.docs.amd.com/projects/amdsmi).
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from appliance.linux import pci
from appliance.linux.sysfs import Unreadable
from appliance.vendors.amd.values import NOT_SUPPORTED, Query, needed, text

MODULE = "amdsmi"
NO_LIBRARY = "the Python library amdsmi, or the libamd_smi.so that it loads, is not installed"
CORE_WHEEL = "_rocm_sdk_core"
SHARED = "share/amd_smi"
"""Where ROCm's own wheel (rocm-sdk-core) and its system packages put the library without installing
it: a folder that whoever imports from it adds to the path. The module then loads the libamd_smi.so
of the same tree (https://rocm.docs.amd.com/projects/amdsmi/en/docs-10.2.0/packaging.html)."""
SYSTEM_TREES = Path("/opt/rocm")
NO_PERMISSION = (
    "this user may not read it: run as root, or pass the groups of /dev/kfd and "
    "/dev/dri/renderD* into the container"
)
REASONS = {2: NOT_SUPPORTED, 3: NOT_SUPPORTED, 10: NO_PERMISSION, 55: NOT_SUPPORTED}
"""Reasons by number: AMDSMI_STATUS_NOT_SUPPORTED, _NOT_YET_IMPLEMENTED, _NO_PERM and
_SETTING_UNAVAILABLE."""
NOT_FOUND = 31
NO_ANSWER = frozenset((6, 12, 14, NOT_FOUND, 32, 34, 51))
"""AMDSMI_STATUS_DRM_ERROR, _IO, _FILE_ERROR, _NOT_FOUND, _NOT_INIT, _DRIVER_NOT_LOADED, _NO_DRV:
what is left to say of a device that has answered and is gone."""
XGMI = 2
"""AMDSMI_LINK_TYPE_XGMI."""
FAULTS = (AttributeError, KeyError, IndexError, TypeError, ValueError, OSError)
"""What a library of another version may raise where this one answers."""


class Refused(Unreadable):
    """The library answered with a status of its own; None if it named none."""

    def __init__(self, status: int | None) -> None:
        known = None if status is None else REASONS.get(status)
        super().__init__(known or f"the library answers with status {status}")
        self.status = status


def load(trees: Path = SYSTEM_TREES) -> Any:
    """The library, initialised. Raises Unreadable if it is not there or finds no driver.

    The one that is installed comes first, then that of ROCm's wheel, then those in `trees`.
    """
    # Without libamd_smi.so it prints to stdout, which may be a JSON document, and fails.
    with contextlib.redirect_stdout(io.StringIO()):
        library = _imported(trees)
        try:
            library.amdsmi_init()
        except library.AmdSmiException as fault:
            status = getattr(fault, "err_code", None)
            raise Unreadable(f"amdsmi cannot be initialised: status {status}") from None
    return library


def _imported(trees: Path) -> Any:
    """The module, of the first place that has one which can be imported."""
    for folder in (None, *shared_folders(trees)):
        try:
            return _import_from(folder)
        except (ImportError, *FAULTS):
            for name in [one for one in sys.modules if one.partition(".")[0] == MODULE]:
                if sys.modules[name] is not None:  # None: its import is forbidden
                    del sys.modules[name]  # else the next place would be taken for this one
    raise Unreadable(NO_LIBRARY)


def _import_from(folder: Path | None) -> Any:
    """The module of this folder, or of those that the interpreter has."""
    if folder is not None:
        sys.path.insert(0, str(folder))
    try:
        import amdsmi  # type: ignore[import-not-found, unused-ignore] # noqa: PLC0415
    finally:
        if folder is not None:
            sys.path.remove(str(folder))
    return amdsmi


def shared_folders(trees: Path = SYSTEM_TREES) -> Iterator[Path]:
    """Folders of ROCm that hold the library uninstalled: its wheel's, then the system's."""
    try:
        wheel = find_spec(CORE_WHEEL)
    except (ImportError, ValueError):
        wheel = None
    roots = [*map(Path, (wheel and wheel.submodule_search_locations) or ())]
    roots += [trees, *sorted(trees.glob("core-*"), key=_version, reverse=True)]
    for root in roots:
        if (root / SHARED / MODULE).is_dir():
            yield root / SHARED


def _version(tree: Path) -> tuple[int, ...]:
    """Of core-10.1: (10, 1)."""
    return tuple(int(part) for part in re.findall(r"\d+", tree.name))


class Calls:
    """`module` is amdsmi, initialised, or recorded answers; devices are keyed by PCI address."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self._handles: dict[str, Any] = {}

    def handles(self) -> dict[str, Any]:
        """The library's handles of its devices by address, queried anew. Raises Unreadable."""
        processors = self.ask("amdsmi_get_processor_handles")
        bdfs = [self.ask("amdsmi_get_gpu_device_bdf", handle) for handle in processors]
        self._handles = dict(zip(map(pci.address, bdfs), processors, strict=True))
        return self._handles

    def handle(self, address: str) -> Any:
        """The handle of one device. Raises Refused if the library does not know it."""
        known = self._handles or self.handles()
        if address not in known:
            raise Refused(NOT_FOUND)
        return known[address]

    def ask(self, function: str, *arguments: object) -> Any:
        """What a function of the library answers. Raises Unreadable, Refused with its status."""
        try:
            return getattr(self._module, function)(*arguments)
        except FAULTS:
            raise Unreadable(f"this amdsmi does not answer {function}") from None
        except self._module.AmdSmiException as fault:
            raise Refused(getattr(fault, "err_code", None)) from None

    def picked(self, answer: Any, key: str | int) -> Any:
        """One field of an answer. Raises Unreadable."""
        try:
            return answer[key]
        except FAULTS:
            raise Unreadable(f"this amdsmi does not tell {key}") from None

    def member(self, enumeration: str, name: str | int) -> Any:
        """A member of one of the library's enumerations, by name or number. Raises Unreadable."""
        try:
            kinds = getattr(self._module, enumeration)
            return kinds[name] if isinstance(name, str) else kinds(name)
        except FAULTS:
            raise Unreadable(f"this amdsmi has no {enumeration} {name}") from None

    def query(
        self,
        function: str,
        key: str,
        *arguments: object,
        make: Callable[[object], Any] = text,
        unit: str = "",
    ) -> Query:
        """One field of what a function answers, as `make` reads it."""

        def read() -> Any:
            return needed(make(self.picked(self.ask(function, *arguments), key)))

        return Query(read, f"{function}: {key}", unit)
