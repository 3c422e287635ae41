"""Follow the first losses of any training workload: each must lie in the band of healthy ones.

A step is a step of another workload of the suite, at its small parameters, begun from one of the
recorded starts: the run's seed draws which, and moves the first weights by one unit in the last
place, as was done in the reference set. So the curve hardly depends on the seed, and no bit of what
it is made of can be known beforehand. The losses stay on the device until they are judged.

Judged are the first and the last step by the workload's own checks, in float64; and the whole
curve by its band (`parts/bands.py`), which is three times the largest deviation in a reference
set of right runs, at least 1e-6 in float32 and 1e-5 in bfloat16. After the last step the loss must
also have fallen by half of what the recorded one fell: a curve that stands still is no training,
whatever a wide band says. Other first weights or inputs than those recorded are refused.

The curve sees what builds up, or happened once, between the two checked steps: in float32 a layer
scaled by 1 + 1e-5, one gradient of one weight hit once (docs/trajectories.md has what was seen).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
import torch

from appliance.records import Bound, Check, Work
from workloads.contract import ParameterError, Target, Workload
from workloads.parts import bands, curves
from workloads.parts.parameters import require_choice
from workloads.parts.precision import on_host
from workloads.parts.trajectories import raw
from workloads.parts.variations import perturb

CURVE = 4  # stream of the draw of a curve
FALL = 0.5  # share of the recorded fall that may be missing


@dataclass(kw_only=True)
class State:
    """`followed`: the state of the other workload. `losses` [steps], on the device."""

    followed: Any
    losses: torch.Tensor
    curve: bands.LossCurve
    number: int = 0


@dataclass(kw_only=True)
class Followed:
    """What the step made, and the losses of all steps so far."""

    made: Any
    losses: torch.Tensor


@dataclass(frozen=True, kw_only=True)
class Before:
    """What the other workload kept, and how many steps were made before."""

    number: int
    kept: object


@dataclass(frozen=True, kw_only=True)
class LossCurve(Workload[State, Followed]):
    """`workload`: its name. `is_small`: its small parameters, else its defaults; `dtype`: its own.

    A band of these three must be among those in workloads/bands.
    """

    summary: ClassVar[str] = "Follow the recorded first losses of another training workload"
    version: ClassVar[int] = 1
    domain: ClassVar[str] = "time to target"
    small: ClassVar[Mapping[str, bool | int | float | str]] = {"workload": "digits_mlp"}
    is_timed: ClassVar[bool] = False
    bound_by: ClassVar[Bound] = "latency"
    data_pattern: ClassVar[str] = "that of the workload followed, from a recorded start"

    workload: str = "markov_lm"
    is_small: bool = True
    dtype: str = "float32"

    def __post_init__(self) -> None:
        require_choice("dtype", self.dtype, tuple(bands.FLOORS))
        followed, band = self._followed(), self._band()
        other = _other_parameters(followed, band)
        if band.version != followed.version or other:
            what = f"other {', '.join(other)}" if other else "another version"
            message = f"workload is {self.workload}, recorded with {what}: {_ANEW}"
            raise ParameterError(message)

    def _followed(self) -> curves.AnyWorkload:
        return curves.made(self.workload, self.dtype, is_small=self.is_small)

    def _band(self) -> bands.LossBand:
        return bands.load_loss_band(self.workload, self.dtype, is_small=self.is_small)

    @property
    def steps(self) -> int:
        return self._band().num_steps

    def work(self) -> Work:
        return self._followed().work()

    def num_parameters(self) -> int | None:
        return self._followed().num_parameters()

    def build(self, target: Target, seed: int) -> State:
        band = self._band()
        draw = int(raw(seed % 2**64, CURVE, 1)[0])
        curve = band.curves[draw % len(band.curves)]
        followed = self._followed().build(target, curve.seed)
        bands.refuse_other_start(self.workload, curve, curves.start_digest(followed))
        perturb(curves.weights(followed), seed)
        losses = torch.full((band.num_steps,), torch.nan, device=target.device)
        return State(followed=followed, losses=losses, curve=curve)

    def load(self, state: State) -> None:
        self._followed().load(state.followed)

    def wait(self, state: State) -> None:
        self._followed().wait(state.followed)

    def step(self, state: State) -> Followed:
        made = self._followed().step(state.followed)
        state.losses[state.number] = curves.loss_of(made)
        state.number += 1
        return Followed(made=made, losses=state.losses[: state.number].clone())

    def snapshot(self, state: State) -> Before:
        return Before(number=state.number, kept=self._followed().snapshot(state.followed))

    def check(self, before: object, state: State, output: Followed) -> Iterator[Check]:
        assert isinstance(before, Before)  # noqa: S101 - what snapshot returned
        missing = abs(len(output.losses) - before.number - 1)
        yield Check(name="losses not recorded", error=missing, bound=0.0, kind="exact")
        yield _check_last(state, output)
        yield from self._followed().check(before.kept, state.followed, output.made)
        yield from self._check_curve(state, output)

    def _check_curve(self, state: State, output: Followed) -> Iterator[Check]:
        band, curve = self._band(), state.curve
        losses = on_host(output.losses).numpy()
        compared = bands.beside(losses, curve.losses, band.allowed)
        what = f"{self.workload} from seed {curve.seed}: {compared.sentence}"
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
        if len(losses) == band.num_steps:
            yield _check_fall(losses, np.array(curve.losses))


_ANEW = "record it anew with `bench baseline bands`"


def _other_parameters(workload: curves.AnyWorkload, band: bands.LossBand) -> list[str]:
    """Parameters that are not those of the band; one that is new since is at its default there."""
    defaults = {field.name: field.default for field in fields(workload)}
    recorded = {**defaults, **band.parameters}
    now = curves.parameters_of(workload)
    return sorted(name for name in recorded if name not in now or now[name] != recorded[name])


def _check_last(state: State, output: Followed) -> Check:
    """The curve's last loss is that of the step whose making is judged in float64."""
    last = curves.loss_of(output.made)
    is_other = not torch.equal(output.losses[-1].to(last.dtype), last)
    wrong = int(is_other) + int(not torch.equal(output.losses, state.losses[: state.number]))
    return Check(
        name="losses that are not those of the steps", error=wrong, bound=0.0, kind="exact"
    )


def _check_fall(losses: bands.Curve, recorded: bands.Curve) -> Check:
    """A curve that stands still trains nothing."""
    fell, should = (bands.fall(curve, curves.TAIL) for curve in (losses, recorded))
    return Check(
        name="share of the recorded fall of the loss that is missing",
        error=float(np.maximum(0.0, 1.0 - fell / should)),
        bound=FALL,
        kind="trajectory",
        detects=FALL,
        detects_what=f"of {should:.3g}, by which the recorded loss fell; this one fell {fell:.3g}",
    )


WORKLOAD = LossCurve
