"""Workloads by name: a module of workloads/, or a dotted name as a module's whole path.

A dotted name stands in plan and journal as it is, so nobody takes it for a workload of the suite.
"""

from __future__ import annotations

import importlib
import sys
import traceback

from appliance import extras
from appliance.ipc.import_watch import uncollected
from appliance.planning import workload_sizes
from appliance.storage.toml_file import did_you_mean
from appliance.worker.parameters import AnyWorkload, one_line
from workloads.contract.workload import Workload


class WorkloadAbsent(Exception):
    """A workload cannot be loaded; one sentence that says why.

    `is_software`: there is such a workload, and a library that it needs is not there.
    """

    def __init__(self, sentence: str, *, is_software: bool = False) -> None:
        super().__init__(sentence)
        self.is_software = is_software


def load_workload(
    name: str, *, to_build: bool = True, is_to_be_forked: bool = False
) -> type[AnyWorkload]:
    """The workload of this name; `to_build` also imports the libraries that it builds with.

    A process that `is_to_be_forked` leaves those out that start something when they are imported.

    Raises WorkloadAbsent for a name without a workload or a library that is not installed, and
    ImportError for a library that is there and cannot be imported.
    """
    path = name if "." in name else f"workloads.{name}"
    try:
        with uncollected():
            kind = getattr(importlib.import_module(path), "WORKLOAD", None)
            starts = getattr(kind, "starts_when_imported", ()) if is_to_be_forked else ()
            for module in getattr(kind, "builds_with", ()) if to_build else ():
                if module not in starts:
                    importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{path}.".startswith(f"{error.name}."):
            hint = did_you_mean(name, workload_sizes.module_names())
            raise WorkloadAbsent(f'there is no workload "{name}"{hint}') from None
        line = extras.line_for(error.name)
        sentence = f'workload "{name}" needs {error.name}: {line}'
        raise WorkloadAbsent(sentence, is_software=True) from None
    if not (isinstance(kind, type) and issubclass(kind, Workload)):
        raise WorkloadAbsent(f'"{name}" is no workload: its module has no WORKLOAD')
    return kind


def import_to_fork(name: str) -> None:
    """Import a workload with what it builds with; where that fails, its launches report it."""
    try:
        load_workload(name, is_to_be_forked=True)
    except WorkloadAbsent as absent:
        print(absent, file=sys.stderr)  # noqa: T201 - a log
    except Exception:  # noqa: BLE001 - whatever it is, the fork meets it again
        traceback.print_exc()


def import_fault(name: str, error: Exception) -> str:
    """Why a workload cannot be imported though its libraries are there, with the fix."""
    what = f"{type(error).__name__}: {one_line(error)}"
    line = extras.line_for(error.name if isinstance(error, ImportError) else None)
    return f'workload "{name}" cannot be imported ({what}): {line} --upgrade'
