"""Data sets that a workload may name: files, sizes, digests, licences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from appliance.records.json import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile(Record):
    """One file of a data set, pinned; `urls` are tried in their order."""

    name: str
    urls: tuple[str, ...]
    sha256: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSet(Record):
    """One data set. `package` names the Python package that holds it, if there is no file."""

    name: str
    summary: str
    licence: str
    source: str
    used_by: tuple[str, ...]
    package: str = ""
    file: tuple[DataFile, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Datasets(Record):
    """workloads/datasets.toml: every data set that a workload may name."""

    schema: Literal["bench/datasets/1"] = "bench/datasets/1"
    dataset: tuple[DataSet, ...]
