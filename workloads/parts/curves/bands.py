"""Recorded bands: what a right loss curve looks like, and how many steps a right training takes.

A band is data with its provenance, in workloads/bands/NAME.json, written by `bench baseline
bands`. Bands are part of the package and of its version: a run reads no others. A curve is the
geometric mean of a reference set: the same training with first weights perturbed by one unit in the
last place, relabelled, on other numbers of threads and by other kernels. `spread` is the largest
|ln(loss) - ln(centre)| of that set up to the step (up to, because two runs that happen to cross
agree for one step and no longer), and what is allowed is three times the spread, at least `floor`
(methods: Training trajectory).

The digest of what the trajectory starts from is in the band. A data set or a generator that
changed makes another training, for which the band says nothing: that is refused, never judged.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from appliance.errors import ApplianceError, EvidenceError
from appliance.records.journal import Check
from appliance.records.json import FiniteFloat, Parameters, Record, from_json
from workloads.contract.failures import ParameterError

FOLDER = Path(__file__).parents[2] / "bands"
FACTOR = 3.0
FLOORS = {"float32": 1e-6, "bfloat16": 1e-5}
"""Least |d ln(loss)| that is allowed. Float32 stores a loss to 6e-8; one of the 2560 logits of a
batch that bfloat16 rounds the other way moves their mean loss by about 4e-6."""
TOO_WIDE = 0.1  # |d ln(loss)| allowed, beyond which a comparison says little
ALPHA = 1e-4  # chance that a healthy device's steps to the target lie outside, all looks together

Curve = NDArray[np.float64]
R = TypeVar("R", bound=Record)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceRun(Record):
    """One run of a reference set, and how far it strayed: the largest |ln(loss) - ln(centre)|."""

    engine: str
    perturbation: str
    largest: FiniteFloat


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance(Record):
    """Where recorded figures come from."""

    utc: str
    processor: str
    torch: str
    numpy: str
    script: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCurve(Record):
    """One trajectory: `losses` and what is `allowed` around them in |d ln(loss)|, by step.

    `horizon` is the first step at which more than a tenth of the loss would be allowed; the
    number of steps that were followed to find it, if none was.
    """

    number: int
    inputs_sha256: str
    losses: tuple[FiniteFloat, ...]
    spread: tuple[FiniteFloat, ...]
    allowed: tuple[FiniteFloat, ...]
    horizon: int
    runs: tuple[ReferenceRun, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Band(Record):
    """workloads/bands/MODEL-WIDTH-DTYPE.json: the trajectories of one model in one dtype."""

    schema: Literal["bench/band/2"] = "bench/band/2"
    model: str
    width: int
    dtype: str
    num_steps: int
    factor: FiniteFloat
    floor: FiniteFloat
    provenance: Provenance
    curves: tuple[RecordedCurve, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepsBand(Record):
    """workloads/bands/MODEL-WIDTH-DTYPE-steps.json: steps to `target`, one for each number.

    `limit` is how many steps a run may take.
    """

    schema: Literal["bench/steps-band/2"] = "bench/steps-band/2"
    model: str
    width: int
    dtype: str
    target: FiniteFloat
    limit: int
    provenance: Provenance
    numbers: tuple[int, ...]
    steps: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LossCurve(Record):
    """One training that `loss_curve` follows: the workload's own with this `seed`.

    `inputs_sha256`: what first weights and inputs may be. Torch draws other bits with other
    instructions of the processor, so there is one for each sort that was asked.
    """

    seed: int
    inputs_sha256: tuple[str, ...]
    losses: tuple[FiniteFloat, ...]
    runs: tuple[ReferenceRun, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LossBand(Record):
    """workloads/bands/WORKLOAD-SIZE-DTYPE.json: loss curves of a training workload.

    `version`, `parameters`: of the workload. `spread`, `allowed`: in |d ln(loss)|, by step, the
    largest of all curves, as each has too few runs for a spread of its own. `horizon`: as in
    RecordedCurve, of all runs. `note` says why there are fewer steps than 50. `still`: how many
    times its band a training that does not learn leaves, where no fall of the loss is asked for;
    0 where one is.
    """

    schema: Literal["bench/loss-band/2"] = "bench/loss-band/2"
    workload: str
    version: int
    parameters: Parameters
    dtype: str
    num_steps: int
    factor: FiniteFloat
    floor: FiniteFloat
    horizon: int
    note: str
    provenance: Provenance
    spread: tuple[FiniteFloat, ...]
    allowed: tuple[FiniteFloat, ...]
    curves: tuple[LossCurve, ...]
    still: FiniteFloat = 0.0


# ------------------------------------------------------------------ reading


def band_name(model: str, width: int, dtype: str) -> str:
    """Name of the file of a band, without its ending."""
    return f"{model}-{width}-{dtype}"


def load_band(model: str, width: int, dtype: str) -> Band:
    """Read the band of loss curves.

    Raises ParameterError where none is recorded, ApplianceError for a file that is not whole.
    """
    return _read(Band, band_name(model, width, dtype))


def load_steps_band(model: str, width: int, dtype: str) -> StepsBand:
    """Read the band of steps to a target; raises as `load_band` does."""
    return _read(StepsBand, f"{band_name(model, width, dtype)}-steps")


def loss_band_name(workload: str, dtype: str, *, is_small: bool) -> str:
    """Name of the file of a band of loss curves, without its ending."""
    return f"{workload}-{'small' if is_small else 'full'}-{dtype}"


@lru_cache(maxsize=64)
def load_loss_band(workload: str, dtype: str, *, is_small: bool) -> LossBand:
    """Read the band that `loss_curve` holds a workload to; raises as `load_band` does."""
    return _read(LossBand, loss_band_name(workload, dtype, is_small=is_small))


def _read(kind: type[R], name: str) -> R:
    path = FOLDER / f"{name}.json"
    try:
        return from_json(kind, path.read_bytes(), name=path.name)
    except FileNotFoundError:
        kin = name.partition("-")[0]
        known = ", ".join(sorted(p.stem for p in FOLDER.glob(f"{kin}-*.json"))) or "none"
        message = f"no band {name} is recorded (of {kin}: {known}): scripts/record_bands.py does it"
        raise ParameterError(message) from None
    except EvidenceError as error:
        raise ApplianceError(f"{error}: record it anew with scripts/record_bands.py") from None


def refuse_other_inputs(curve: RecordedCurve, digest: str) -> None:
    """Raise ApplianceError unless the training starts from what was recorded."""
    if digest != curve.inputs_sha256:
        message = (
            f"trajectory {curve.number} starts from other weights, images or order than its band "
            "was recorded with: record it anew with scripts/record_bands.py"
        )
        raise ApplianceError(message)


def refuse_other_start(workload: str, curve: LossCurve, digest: str) -> None:
    """Raise ApplianceError unless a followed workload starts from what was recorded."""
    if digest not in curve.inputs_sha256:
        message = (
            f"{workload} starts from other first weights or inputs than its band was recorded with "
            "(another version of a library, or a processor whose instructions draw other numbers): "
            "record it anew with scripts/record_bands.py"
        )
        raise ApplianceError(message)


# ------------------------------------------------------------------ pooling


@dataclass(frozen=True, kw_only=True)
class Pool:
    """Centre of a reference set, its spread and what is allowed, by step; in ln(|loss|).

    `signs` are those of the losses: what is learned by reward may have a loss below nought.
    """

    centre: Curve
    signs: Curve
    spread: Curve
    allowed: Curve
    largest: Curve

    @property
    def losses(self) -> Curve:
        """The centre as losses."""
        return self.signs * np.exp(self.centre)


def pooled(losses: Curve, floor: float) -> Pool:
    """Pool the losses [runs, steps] of a reference set; `largest` is by run.

    From the first step at which runs have losses of two signs, or none, anything is allowed.
    """
    signs = np.sign(losses[0])
    is_one = ((np.sign(losses) == signs) & (signs != 0)).all(axis=0)
    logs = np.log(np.where(is_one, np.abs(losses), 1.0))
    centre = logs.mean(axis=0)
    distance = np.where(is_one, np.abs(logs - centre), np.inf)
    spread = np.maximum.accumulate(distance.max(axis=0))
    return Pool(
        centre=centre,
        signs=signs,
        spread=spread,
        allowed=np.maximum(FACTOR * spread, floor),
        largest=distance.max(axis=1),
    )


def horizon(losses: Curve) -> int:
    """First step at which more than a tenth of the loss would be allowed; else all steps."""
    return first_beyond(FACTOR * pooled(losses, 0.0).spread)


def first_beyond(allowed: Curve) -> int:
    """First step at which more than a tenth of the loss is allowed; else how many there are."""
    is_beyond = allowed > TOO_WIDE
    return int(np.argmax(is_beyond)) if is_beyond.any() else len(allowed)


def fall(losses: Curve, tail: int) -> float:
    """How far the mean of the last losses lies below the first one."""
    return float(losses[0] - losses[-tail:].mean())


def rounded(values: Curve, digits: int) -> tuple[float, ...]:
    """So many significant digits: no more than the figures have, and a file that can be read."""
    return tuple(float(f"{value:.{digits}g}") for value in values)


# ------------------------------------------------------------------ comparing


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A loss curve beside its band: |d ln(loss)| over what is allowed, by step from 0."""

    ratios: Curve
    allowed: Curve

    @property
    def worst(self) -> float:
        """Largest ratio; NaN where a loss is no number of the recorded one's sign."""
        return float(self.ratios.max())

    @property
    def outside(self) -> tuple[int, ...]:
        """Steps whose loss is not within the band."""
        return tuple(int(step) for step in np.flatnonzero(~(self.ratios <= 1.0)))

    @property
    def sentence(self) -> str:
        """Which step left the band first, or how many there were."""
        if not self.outside:
            return f"all {len(self.ratios)} steps inside"
        first = self.outside[0]
        strayed = self.ratios[first] * self.allowed[first]
        return (
            f"step {first} is the first outside, by {strayed:.2g} where {self.allowed[first]:.2g} "
            f"is allowed; {len(self.outside)} of {len(self.ratios)} are"
        )


def compare(losses: Curve, curve: RecordedCurve) -> Comparison:
    """Compare the first losses of a training with those of the band."""
    return beside(losses, curve.losses, curve.allowed)


def beside(losses: Curve, centre: Sequence[float], allowed: Sequence[float]) -> Comparison:
    """Compare the first losses of a training with a centre, by what is allowed around it."""
    count = len(losses)
    with np.errstate(invalid="ignore", divide="ignore"):
        distance = np.abs(np.log(losses / np.array(centre[:count])))
    room = np.array(allowed[:count])
    return Comparison(ratios=distance / room, allowed=room)


def checks(compared: Comparison, what: str) -> Iterator[Check]:
    """How many steps left the band, and how far the worst of all did; `what` was compared."""
    yield Check(
        name="steps whose loss is outside the recorded band",
        error=len(compared.outside),
        bound=0.0,
        kind="trajectory",
        detects_what=what,
    )
    yield Check(
        name="loss curve, worst of all steps over its recorded band",
        error=compared.worst,
        bound=1.0,
        kind="trajectory",
        detects=float(compared.allowed.max()),
        detects_what=f"|d ln(loss)| at any step, at most; {what}",
    )


@dataclass(frozen=True, kw_only=True)
class Interval:
    """ln(steps) of a healthy device: mean of the reference, and half the width around it."""

    mean: float
    half_of_one: float
    half_of_mean: float


def interval(band: StepsBand, num_runs: int) -> Interval:
    """Two-sided prediction interval by Student's t, for each of so many runs and their mean.

    Of `ALPHA` one half goes to the mean, the other to the runs in equal parts.
    """
    logs = np.log(band.steps)
    count, spread = len(logs), float(logs.std(ddof=1))

    def half(alpha: float, variance: float) -> float:
        return float(stdtrit(count - 1, 1 - alpha / 2)) * spread * math.sqrt(variance + 1 / count)

    return Interval(
        mean=float(logs.mean()),
        half_of_one=half(ALPHA / 2 / num_runs, 1.0),
        half_of_mean=half(ALPHA / 2, 1 / num_runs),
    )
