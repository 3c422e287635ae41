"""How long a step takes that nobody has timed: its work over a share of the device's figures.

The shares are data, `appliance/step_rates.toml`, each with what it was taken of; the figures are
the vendor's, `appliance/devices`. It is a forecast, which may be wrong by several times: a run
within so many minutes lets no row take the time of others for it (`left_time.py`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Literal

from appliance.records.baseline import Peaks
from appliance.records.json import Number, Record
from appliance.records.plan import Case
from appliance.records.workload import Bound
from appliance.storage.device_file import load_peaks, quantities
from appliance.storage.toml_file import ROOT, parse_own

PATH = ROOT / "appliance" / "step_rates.toml"
Metric = Literal["flops_per_second", "bytes_per_second"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate(Record):
    """Which `share` of the vendor's figure of a metric steps of a kind of work reach.

    `of` models, which have parameters, or of bare products and copies; `source` is what it is
    taken of, or that it is assumed.
    """

    of: Literal["models", "products"]
    bound_by: tuple[Bound, ...]
    quantity: Metric
    share: Number
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRates(Record):
    """appliance/step_rates.toml; no step of a model is taken for less than so many seconds."""

    schema: Literal["bench/step-rates/1"]
    least_model_seconds: Number
    rate: tuple[Rate, ...]

    def share(self, case: Case, metric: str) -> float | None:
        """The share that such work reaches of the device's figure; None where none is known."""
        return self.of(kind_of(case), case.bound_by, metric)

    def of(self, kind: str, bound_by: Bound, metric: str) -> float | None:
        """The same of work of a kind with such a bound."""
        return next(
            (
                one.share
                for one in self.rate
                if (one.of, one.quantity) == (kind, metric) and bound_by in one.bound_by
            ),
            None,
        )


def kind_of(case: Case) -> str:
    """What a case's step is of: a model, which has parameters, or products."""
    return "models" if case.num_parameters else "products"


@cache
def load() -> StepRates:
    """The file that is shipped."""
    return parse_own(StepRates, PATH.read_bytes(), PATH.name)


@cache
def shipped_peaks() -> Peaks:
    """The vendors' figures of all models that the package knows."""
    return load_peaks(None)


def assumed_step_seconds(case: Case, model: str | None) -> float | None:
    """Seconds of a step by its operations and its bytes, whichever take longer.

    None where nothing can be said: of work that counts neither, on a model or in a format without
    a figure, and of several ranks, whose collectives nobody has counted.
    """
    if case.ranks > 1:
        return None
    amounts = {"flops_per_second": case.work.flops, "bytes_per_second": case.work.bytes}
    times = [
        amount / (share * peak)
        for metric, amount in amounts.items()
        if amount is not None and math.isfinite(amount) and amount > 0
        if (share := load().share(case, metric)) is not None
        if (peak := peak_of(case, model, metric)) is not None
    ]
    least = load().least_model_seconds if case.num_parameters else 0.0
    return max(*times, least) if times else None


def peak_of(case: Case, model: str | None, metric: str) -> float | None:
    """The vendor's figure of a whole device that bounds the metric; None if unknown."""
    names = quantities(case.work, case.bound_by, metric)
    figures = [
        peak.value
        for peak in shipped_peaks().peak
        if peak.model == model and peak.per == "device" and peak.quantity in names
    ]
    return max(figures, default=None)
