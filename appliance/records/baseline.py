"""Figures that times are held to: vendors' peaks and measured baselines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from appliance.records.json import Number, Parameters, Record
from appliance.records.suite import LaunchMode
from appliance.records.verdict import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak(Record):
    """The vendor's figure for a device, with where it was published.

    `quantity` is FORMAT_flops_per_second or memory_bytes_per_second; `per` says whether the
    figure is of the device or of each of its cores. `is_confirmed` False: read in one second-hand
    source only.
    """

    model: str
    quantity: str
    value: Number
    unit: str
    per: Literal["device", "core"]
    is_confirmed: bool
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Peaks(Record):
    """peaks.json: the vendor's figures for the devices found; empty where none is known."""

    schema: Literal["bench/peaks/2"] = "bench/peaks/2"
    peak: tuple[Peak, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure(Record):
    """One figure of a device file."""

    quantity: str
    value: Number
    unit: str
    per: Literal["device", "core"] = "device"
    is_confirmed: bool = True
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFile(Record):
    """appliance/devices/NAME.toml: a device's figures; `models` as the vendors' tools name it."""

    schema: Literal["bench/device/2"] = "bench/device/2"
    name: str
    vendor: str
    models: tuple[str, ...]
    figure: tuple[Figure, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineKey(Record):
    """What must be the same for a measured figure to be comparable.

    `software` are versions and settings that change speed, by name (see comparable.py); `image`
    is the digest of the container image, None outside of one; `power_limit_watts` is None where
    the device tells none.
    """

    model: str
    case: str
    workload: str
    version: int
    parameters: Parameters
    data_pattern: str
    mode: LaunchMode
    software: Mapping[str, str]
    image: str | None
    power_limit_watts: Number | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance(Record):
    """One-sided normal tolerance limit over devices: mean + k sd covers the part `p` of them.

    With confidence `gamma`; `log_limit` is that limit in ln(seconds).
    """

    p: Number
    gamma: Number
    k: Number
    log_limit: Number


@dataclass(frozen=True, slots=True, kw_only=True)
class Level(Record):
    """A case's times by one clock, in ln(seconds of a step): an estimate, with what it is worth.

    `log_seconds` is the mean over runs (of a population: over devices), `error_sd` its standard
    uncertainty, with `error_freedom` degrees of freedom. `launch_sd` is the spread of a launch of
    any run around it, `within_sd` that of the launches of one run, with `within_freedom`. `run_sd`
    is the spread of the means of runs of `run_launches` launches, with `freedom`: independent runs
    less 1.
    `correlation` is how much a launch resembles the one before it, of all cases of the file.
    `device_sd` is the spread between devices, None for one; `tolerance` their tolerance limit.
    """

    log_seconds: Number
    launch_sd: Number
    within_sd: Number
    within_freedom: int
    run_sd: Number
    run_launches: int
    freedom: int
    correlation: Number
    error_sd: Number
    error_freedom: int
    device_sd: Number | None
    tolerance: Tolerance | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline(Record):
    """Our measured figure for one case, from signed bundles.

    "same_device" is for checking one machine again: `devices` names it. "population" is of a
    reference population of a model. `steps` are the times of steps, by the device's events where it
    has any; `wall` those of the wall time of blocks over their steps, for cases that are judged by
    it. `num_runs` are independent runs: each session of a run is one, and takes
    `run_seconds`. `smallest_margin` is the
    smallest at which a healthy device passes in a run of one session, `smallest_margin_of_three`
    that of a run of three sessions; infinite where no margin can be carried. `bundles` are the
    sha256 of the statements of the bundles that it came from.
    """

    key: BaselineKey
    kind: Literal["same_device", "population"]
    devices: tuple[str, ...]
    num_launches: int
    num_runs: int
    run_seconds: Number
    steps: Level
    wall: Level
    smallest_margin: Number
    smallest_margin_of_three: Number
    bundles: tuple[str, ...]

    @property
    def levels(self) -> tuple[Level, Level]:
        """What it says by both clocks, whichever a run will be judged by."""
        return self.steps, self.wall

    def by(self, clock: Clock) -> Level:
        """What it says by the clock that a case is judged by."""
        return self.wall if clock == "wall" else self.steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Baselines(Record):
    """baselines.json: what a ruling may compare with; empty where none exists for the device."""

    schema: Literal["bench/baselines/4"] = "bench/baselines/4"
    baseline: tuple[Baseline, ...]
