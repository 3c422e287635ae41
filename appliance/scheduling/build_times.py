"""How long a build takes: as timed, as its host's part is scaled, else by where weights are drawn.

The seconds are data, `appliance/build_times.toml`, each with what it was taken of. Like an assumed
step it is a forecast, which may be wrong by several times.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

from appliance.records.json import Number, Record
from appliance.records.plan import Case
from appliance.scheduling import step_rates
from appliance.storage.toml_file import ROOT, parse_own

PATH = ROOT / "appliance" / "build_times.toml"
MEMORY = "memory_bytes_per_second"


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnWeights(Record):
    """Rows whose first weights the device draws, and the bytes that it moves for each weight."""

    workloads: tuple[str, ...]
    bytes_moved: Number
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedBuild(Record):
    """The build of a row with so many parameters, as one launch on a model of device took it.

    Or as it would take it: of what a host does for the most part, as measured on another host.
    """

    workload: str
    model: str
    num_parameters: int
    seconds: Number
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildTimes(Record):
    """appliance/build_times.toml: builds that were timed or scaled, and seconds of any other."""

    schema: Literal["bench/build-times/1"]
    model_seconds: Number
    product_seconds: Number
    host_seconds: Number
    drawn: tuple[DrawnWeights, ...]
    measured: tuple[TimedBuild, ...]
    scaled: tuple[TimedBuild, ...]

    def of(self, workload: str) -> DrawnWeights | None:
        return next((one for one in self.drawn if workload in one.workloads), None)


@cache
def load() -> BuildTimes:
    """The file that is shipped."""
    return parse_own(BuildTimes, PATH.read_bytes(), PATH.name)


def drawn_seconds(case: Case, model: str | None) -> float | None:
    """Seconds of a build whose device draws the first weights.

    None of another one, of several ranks, of which the host may draw them, and on a model of device
    whose memory has no figure.
    """
    drawn, rate = load().of(case.workload), _memory_rate(model)
    if drawn is None or rate is None or case.num_parameters is None or case.ranks > 1:
        return None
    return load().host_seconds + case.num_parameters * drawn.bytes_moved / rate


def measured_seconds(case: Case, model: str | None) -> float | None:
    """Seconds of a build that was timed, of the very same number of parameters on one device."""
    return _of_same(load().measured, case, model)


def scaled_seconds(case: Case, model: str | None) -> float | None:
    """The same of one whose host's part was measured on another host, and scaled."""
    return _of_same(load().scaled, case, model)


def _of_same(builds: tuple[TimedBuild, ...], case: Case, model: str | None) -> float | None:
    of = (case.workload, model, case.num_parameters)
    seconds = (
        one.seconds
        for one in builds
        if (one.workload, one.model, one.num_parameters) == of and case.ranks == 1
    )
    return next(seconds, None)


def seconds(case: Case, model: str | None) -> float:
    """Seconds of any build."""
    for known in (measured_seconds, scaled_seconds, drawn_seconds):
        found = known(case, model)
        if found is not None:
            return found
    return load().model_seconds if case.num_parameters else load().product_seconds


def _memory_rate(model: str | None) -> float | None:
    """Bytes a second that the memory of a model of device is taken to move."""
    figures = [
        peak.value
        for peak in step_rates.shipped_peaks().peak
        if (peak.model, peak.per, peak.quantity) == (model, "device", MEMORY)
    ]
    share = step_rates.load().of("products", "memory", "bytes_per_second")
    return share * max(figures) if figures and share is not None else None
