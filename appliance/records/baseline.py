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
    """A case's times by one clock: mean of ln(seconds) of a step, spreads, tolerance limit."""

    log_seconds: Number
    launch_sd: Number
    device_sd: Number | None
    tolerance: Tolerance | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline(Record):
    """Our measured figure for one case, from signed bundles.

    "same_device" is for checking one machine again: `devices` names it. "population" is of a
    reference population of a model. `log_seconds` is the mean of ln(step seconds), by the device's
    events where it has any; `launch_sd` the spread between launches (of several runs: within and
    between them); `device_sd` between devices, None for one. `wall` are the same of the wall time
    of blocks over their steps, for cases that are judged by it. `smallest_margin` is the smallest
    at which a healthy run passes. `bundles` are the sha256 of the statements of the bundles that
    it came from.
    """

    key: BaselineKey
    kind: Literal["same_device", "population"]
    devices: tuple[str, ...]
    log_seconds: Number
    launch_sd: Number
    device_sd: Number | None
    num_launches: int
    num_runs: int
    tolerance: Tolerance | None
    wall: Level
    smallest_margin: Number
    bundles: tuple[str, ...]

    def by(self, clock: Clock) -> Level:
        """What it says by the clock that a case is judged by."""
        if clock == "wall":
            return self.wall
        return Level(
            log_seconds=self.log_seconds,
            launch_sd=self.launch_sd,
            device_sd=self.device_sd,
            tolerance=self.tolerance,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Baselines(Record):
    """baselines.json: what a ruling may compare with; empty where none exists for the device."""

    schema: Literal["bench/baselines/3"] = "bench/baselines/3"
    baseline: tuple[Baseline, ...]
