"""What `doctor` detects: one row for each thing, and the place that it examines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from appliance.linux.sysfs import Tree

State = Literal["ok", "missing", "out of range", "not needed here", "not known", "busy"]
LACKS: tuple[State, ...] = ("missing", "out of range")
"""States of a thing that stands in the way of a run, if it is required."""

RUNS = "every run"
REPORTS = "reports"
FIGURES = "steady figures"
IN_CONTAINER = "bench start"
"""What things are needed for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One thing: what was detected of it, what it is for, its state, and the fix."""

    what: str
    detected: str
    needed_for: str
    state: State
    fix: str = ""
    is_required: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What is examined: the machine beneath a root, and what a run would read."""

    tree: Tree
    out: Path
    data: Path | None
    engine: str | None
    environment: Mapping[str, str]


def row_of(what: str, detected: str, needed_for: str, fix: str, *, ok: bool, required: bool) -> Row:
    """A thing that is there or is missing, in which case the fix is shown."""
    return Row(
        what=what,
        detected=detected,
        needed_for=needed_for,
        state="ok" if ok else "missing",
        fix="" if ok else fix,
        is_required=required,
    )


def not_needed(what: str, detected: str, needed_for: str, fix: str = "") -> Row:
    """A thing that this machine can do without."""
    return Row(
        what=what, detected=detected, needed_for=needed_for, state="not needed here", fix=fix
    )
