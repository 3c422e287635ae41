"""A criteria file: requirements, their kinds and their limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from appliance.records.json import Number, Record, Scalar

CriterionKind = Literal[
    "completion",
    "integrity",
    "numeric",
    "exact",
    "determinism",
    "trajectory",
    "collective",
    "health",
    "fabric",
    "inventory",
    "perf",
    "tail",
    "drift",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Criterion(Record):
    """One requirement, applied to every case that `cases` matches (a shell pattern).

    What it compares, by its kind:

    - perf: `metric` (step_seconds, first_step_seconds, seconds_to_target, steps_to_target,
      units_per_second, flops_per_second, bytes_per_second) with one limit: `at_most`, `at_least`,
      `fraction_of_peak`, or `within_of_baseline`, a margin like 0.03, or "class" for that of
      `Criteria.margins`. Metric throughput_ratio is the speed of a case over that of another one
      of the same run, which the pattern `against` names, with `at_least`; see ratios.py.
      `margin` is the practical margin that an absolute limit leaves, which sets the smallest
      spread that a pass is granted for (None: the class's).
    - tail: `metric` stall_rate, stall_share (of a step's time, for loading), slow_launch_rate (of
      all matching cases together), or latency_seconds at `quantile`; with `at_most`.
    - drift: `metric` drift_over_run or drift_per_30_minutes, relative, with `at_most`; one ruling
      over all devices of the matching cases. `sustained_seconds` is for how long a device is under
      load at least before any case on it is decided; drift_over_run needs it.
    - health: `metric` a counter, a reading, or what the ledger makes of them (ledger.py), with
      `at_least` or `at_most`; one ruling over all devices of the matching cases. `if_absent` is
      what becomes of a device that cannot have it at all, as its vendor says; `if_not_observed` of
      one that may not be looked at, as a file may state openly of a second witness.
    - fabric: nothing but what devices of one vendor, two or more, show of the way between them; one
      ruling, which takes no metric and no limit. `if_not_observed` as for health.
    - inventory: `metric` a fact of system.json ("devices.count", "devices.memory_bytes",
      "devices.FACT", "host.FACT"), with `equals`, `at_least` or `at_most`.

    `unit` is that of the limit (say "TFLOP/s"); empty means the metric's own SI unit.
    """

    id: str
    kind: CriterionKind
    title: str
    cases: str = "*"
    required: bool = True
    metric: str = ""
    unit: str = ""
    at_least: Number | None = None
    at_most: Number | None = None
    equals: Scalar | None = None
    fraction_of_peak: Number | None = None
    within_of_baseline: Number | Literal["class"] | None = None
    margin: Number | None = None
    quantile: Number | None = None
    against: str = ""
    sustained_seconds: Number | None = None
    if_absent: Literal["inconclusive", "not_applicable"] = "inconclusive"
    if_not_observed: Literal["inconclusive", "not_applicable"] = "inconclusive"


MARGINS: Mapping[str, float] = {
    "compute": 0.03,
    "memory": 0.03,
    "latency": 0.05,
    "input": 0.05,
    "collective": 0.05,
}
"""What a healthy device may lose, by what bounds the workload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Criteria(Record):
    """criteria.toml: all requirements, fixed before anything runs.

    `alpha_pass` is the largest risk that a criterion at its limit is passed; `alpha_fail` that a
    run with everything at its limit is rejected, which all of its limits share. `may_lack` names,
    by pattern, the suite's cases that a node may be too small for; without it every case of the
    suite must be planned.
    """

    schema: Literal["bench/criteria/1"] = "bench/criteria/1"
    name: str
    version: int
    summary: str
    alpha_pass: Number = 0.01
    alpha_fail: Number = 0.008
    margins: Mapping[str, Number] = field(default_factory=lambda: dict(MARGINS))
    may_lack: tuple[str, ...] = ()
    criterion: tuple[Criterion, ...]
