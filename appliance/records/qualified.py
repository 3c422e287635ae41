"""What was seen of a device model with a library stack: the qualified records of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from appliance.records.json import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class QualifiedRecord(Record):
    """What repeats of one workload have shown on healthy devices of a model with a library stack.

    `num_clean` repeats, each in a process of its own in the deterministic phase, gave the bits that
    the first of their run had given, over all `devices`, which are named by digests; none differed.
    `form` says whether the workload has a deterministic form there; without one nothing is ruled,
    and `operators` names what lacks it. `stack` holds versions and settings by name (see
    `qualification.stack`). `sources` are what was repeated and where it is shown, "SUITE/CASE,
    journal SHA256"; `recorded_utc` and `bench_version` say when and by what.
    """

    workload: str
    version: int
    model: str
    stack: Mapping[str, str]
    form: Literal["deterministic", "no_deterministic_form"]
    num_clean: int
    devices: tuple[str, ...]
    operators: tuple[str, ...]
    sources: tuple[str, ...]
    recorded_utc: str
    bench_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Qualified(Record):
    """qualified.json: the records of the models in this node; empty where nothing is known."""

    schema: Literal["bench/qualified/1"] = "bench/qualified/1"
    record: tuple[QualifiedRecord, ...]
