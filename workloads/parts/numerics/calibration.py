"""Figures that were measured, and the constants that they justify: workloads/calibration/*.toml."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from appliance.records.json import Record
from appliance.storage import toml_file

FOLDER = Path(__file__).parents[2] / "calibration"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure(Record):
    """One measurement; training.toml says what the keys are."""

    justifies: str
    quantity: str
    setting: str
    seeds: int
    device: str
    largest: Mapping[str, float] = field(default_factory=dict)
    smallest: Mapping[str, float] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationFile(Record):
    """One file of the folder."""

    figure: list[Figure]


def figures() -> list[Figure]:
    """All figures of all files, by the name of the file; raises UsageError naming a bad one."""
    paths = sorted(FOLDER.glob("*.toml"))
    files = [toml_file.parse(CalibrationFile, path.read_bytes(), path.name) for path in paths]
    return [figure for file in files for figure in file.figure]
