"""Devices' peak figures and baselines: appliance/devices and appliance/baselines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from appliance.errors import UsageError
from appliance.ipc import confined_reader
from appliance.records.baseline import Baseline, Baselines, DeviceFile, Figure, Level, Peak, Peaks
from appliance.records.workload import Bound, Work
from appliance.storage import input_file
from appliance.storage.toml_file import ROOT, did_you_mean, parse_json, parse_own, positive, unique
from appliance.storage.units import QUANTITIES

DEVICES = ROOT / "appliance" / "devices"
BASELINES = ROOT / "appliance" / "baselines"
BASELINE_FIX = "name a file that `bench baseline create` wrote"
LEAST_LAUNCHES, LEAST_DEVICES = 5, 2  # of a baseline: below, a spread is a guess
LEAST_LOG_SECONDS, LARGEST_LOG_SECONDS = math.log(1e-9), math.log(1e6)


def load_peaks(models: Sequence[str] | None) -> Peaks:
    """The vendors' figures for these models, or for all; empty where none is known.

    UsageError for a figure in another unit than its quantity has, for one that is not a positive
    number, and for a model or a quantity that stands there twice.
    """
    peaks: list[Peak] = []
    owners: dict[str, str] = {}
    for path in sorted(DEVICES.glob("*.toml")):
        device = parse_own(DeviceFile, path.read_bytes(), path.name)
        _check_device(device, path.name)
        for model in device.models:
            if model in owners:
                raise UsageError(f'"{model}" stands in {owners[model]} and in {path.name}')
            owners[model] = path.name
            if models is None or model in models:
                peaks += [_peak(model, figure) for figure in device.figure]
    return Peaks(peak=tuple(peaks))


def quantities(work: Work, bound_by: Bound, metric: str) -> tuple[str, ...]:
    """Which figures bound a metric of such work, by their names; none where nothing does."""
    precision = work.precision
    if metric == "bytes_per_second":
        return ("memory_bytes_per_second",) if bound_by == "memory" else ()
    if metric != "flops_per_second" or not precision:
        return ()
    return (
        f"{precision}_flops_per_second",
        f"{precision}_matrix_flops_per_second",
        f"{precision}_operations_per_second",
    )


def load_baselines(models: Sequence[str], path: Path | None = None) -> Baselines:
    """Our measured figures: those that are shipped for these models, or all of the file `path`.

    A baseline of a named file is kept whatever its model, so that the judge can say what differs.
    UsageError for a figure that cannot be one (not positive, not finite, of too few launches).
    """
    if path is not None:
        data = input_file.read(path, what="baseline file", fix=BASELINE_FIX)
        return confined_reader.record(
            Baselines, path.name, lambda: parse_baselines(data, path.name)
        )
    baselines: list[Baseline] = []
    for shipped in sorted(BASELINES.glob("*.json")):
        baselines += parse_baselines(shipped.read_bytes(), shipped.name).baseline
    return Baselines(baseline=tuple(item for item in baselines if item.key.model in models))


def parse_baselines(data: bytes, name: str) -> Baselines:
    """Baselines from the bytes of a file called `name`, each of them sound."""
    baselines = parse_json(Baselines, data, name)
    check_baselines(baselines, name)
    return baselines


def check_baselines(baselines: Baselines, name: str) -> None:
    """UsageError for a baseline of a file called `name` with which nothing can be compared."""
    for number, baseline in enumerate(baselines.baseline, 1):
        fault = _baseline_fault(baseline)
        if fault:
            where = f'{name}: baseline {number}, of the case "{baseline.key.case}",'
            raise UsageError(f"{where} {fault}: make it again")
        if baseline in baselines.baseline[: number - 1]:
            raise UsageError(f"{name}: baseline {number} stands there twice; remove one")


def _peak(model: str, figure: Figure) -> Peak:
    return Peak(
        model=model,
        quantity=figure.quantity,
        value=figure.value,
        unit=figure.unit,
        per=figure.per,
        is_confirmed=figure.is_confirmed,
        source=figure.source,
    )


def _check_device(device: DeviceFile, name: str) -> None:
    if not device.models or not all(device.models):
        raise UsageError(f'{name}: key "models" must name the device as its vendor\'s tools do')
    unique(name, "model", device.models)
    unique(name, "quantity", [figure.quantity for figure in device.figure])
    for figure in device.figure:
        unit = QUANTITIES.get(figure.quantity)
        if unit is None:
            hint = did_you_mean(figure.quantity, QUANTITIES)
            raise UsageError(f'{name}: there is no quantity "{figure.quantity}"{hint}')
        if figure.unit != unit:
            raise UsageError(
                f'{name}: {figure.quantity} is in "{unit}", not in "{figure.unit}": convert it'
            )
        positive(f"{name}, {figure.quantity}", "value", figure.value)
        if not figure.source.strip():
            raise UsageError(f"{name}: {figure.quantity} needs its source")


def _baseline_fault(baseline: Baseline) -> str:
    """Why nothing can be compared with this baseline, or nothing."""
    for margin in (baseline.smallest_margin, baseline.smallest_margin_of_three):
        if not margin > 0:  # infinite: it can carry none
            return f"has a smallest margin of {margin}, which must be a positive number"
    faults = (_level_fault(level, baseline) for level in (baseline.by("steps"), baseline.wall))
    fault = next(filter(None, faults), "")
    if fault:
        return fault
    launches, runs = baseline.num_launches, baseline.num_runs
    if launches < LEAST_LAUNCHES or not 1 <= runs <= launches:
        return f"is of {launches} launches in {runs} runs, which is too few"
    if not baseline.devices or not baseline.bundles:
        return "names no device or no bundle"
    return ""


def _level_fault(level: Level, baseline: Baseline) -> str:
    """Why nothing can be compared with what a baseline says by one of its clocks, or nothing."""
    if not (math.isfinite(level.launch_sd) and level.launch_sd > 0):
        return f"has launch_sd {level.launch_sd}, which must be a positive number"
    if not LEAST_LOG_SECONDS <= level.log_seconds <= LARGEST_LOG_SECONDS:
        return f"has log_seconds {level.log_seconds}, which is no time of a step"
    return _run_fault(level, baseline) or _device_fault(level, baseline)


def _run_fault(level: Level, baseline: Baseline) -> str:
    spreads = (level.run_sd, level.error_sd, level.within_sd)
    is_spread = all(math.isfinite(sd) and sd >= 0 for sd in spreads)
    if not is_spread or not 0 <= level.correlation < 1 or level.run_launches < 1:
        return "has a spread of launches or runs that is no number"
    if baseline.num_runs < 1:
        return f"is of {baseline.num_runs} runs, which is too few"
    if not 0 <= level.freedom < baseline.num_runs or level.error_freedom < 0:
        return f"has {level.freedom} degrees of freedom of {baseline.num_runs} runs"
    return ""


def _device_fault(level: Level, baseline: Baseline) -> str:
    is_population = baseline.kind == "population"
    spread, tolerance = level.device_sd, level.tolerance
    if is_population is (spread is None) or is_population is (tolerance is None):
        return "must have device_sd and a tolerance limit as a population, and else neither"
    if spread is None or tolerance is None:
        return ""
    figures = (spread, tolerance.k, tolerance.log_limit)
    if not all(map(math.isfinite, figures)) or spread <= 0 or len(baseline.devices) < LEAST_DEVICES:
        return "has a spread of devices that is no positive number, or of one device"
    return "" if tolerance.log_limit >= level.log_seconds else "has its limit below its mean"
