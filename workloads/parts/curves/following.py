"""Following another workload's first losses: what `loss_curve` and its sibling share.

A step is a step of the workload that is followed, begun from a recorded start whose weights are
moved by one unit in the last place. Judged are the first and the last step by that workload's own
checks, and the whole curve by its band (`parts/curves/bands.py`).

The band is only worth something where a training that goes wrong leaves it. A training that stands
still is the plainest: the loss must have fallen by half of what the recorded one fell; or where it
need not fall (few steps, or learning by reward), it was recorded how far a training that stands
still leaves the band, and that is said with each comparison.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np
import torch

from appliance.records.journal import Check
from appliance.records.workload import Bound, Work
from workloads.contract.failures import ParameterError
from workloads.contract.target import Target
from workloads.contract.workload import Workload
from workloads.parts.curves import bands, curves
from workloads.parts.curves.trajectories import raw
from workloads.parts.numerics.parameters import require_choice
from workloads.parts.numerics.precision import on_host

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

    followed_output: Any
    losses: torch.Tensor


@dataclass(frozen=True, kw_only=True)
class Before:
    """What the other workload kept, and how many steps were made before."""

    number: int
    followed_snapshot: object


@dataclass(frozen=True, kw_only=True)
class Following(Workload[State, Followed]):
    """`workload`: its name. `is_small`: its small parameters, else its defaults; `dtype`: its own.

    A band of these three must be among those in workloads/bands.
    """

    domain: ClassVar[str] = "time to target"
    is_timed: ClassVar[bool] = False
    bound_by: ClassVar[Bound] = "latency"
    data_pattern: ClassVar[str] = "that of the workload followed, from a recorded start"

    sibling: ClassVar[str]
    """Who follows workloads whose repeatability is not the own one."""

    workload: str = ""
    is_small: bool = True
    dtype: str = "float32"

    def __post_init__(self) -> None:
        require_choice("dtype", self.dtype, tuple(bands.FLOORS))
        followed = self._followed()
        if followed.is_repeatable is not self.is_repeatable:
            how = "give" if followed.is_repeatable else "do not give"
            message = f"workload is {self.workload}, whose equal runs {how} the same bits"
            raise ParameterError(f"{message}: follow it with {self.sibling}")
        band = self._band()
        other = _other_parameters(followed, band)
        if band.version != followed.version or other:
            what = f"other {', '.join(other)}" if other else "another version"
            message = f"workload is {self.workload}, recorded with {what}: {_ANEW}"
            raise ParameterError(message)

    def _followed(self) -> curves.AnyWorkload:
        return curves.training_workload(self.workload, self.dtype, is_small=self.is_small)

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
        # Inputs of the curve's seed, not of the launch's: the digest of the start holds them.
        followed = self._followed().build(replace(target, drawn=[]), curve.seed)
        bands.refuse_other_start(self.workload, curve, curves.start_digest(followed))
        curves.perturb(followed, seed)
        losses = torch.full((band.num_steps,), torch.nan, device=target.device)
        return State(followed=followed, losses=losses, curve=curve)

    def load(self, state: State) -> None:
        self._followed().load(state.followed)

    def wait(self, state: State) -> None:
        self._followed().wait(state.followed)

    def step(self, state: State) -> Followed:
        followed_output = self._followed().step(state.followed)
        state.losses[state.number] = curves.loss_of(followed_output)
        state.number += 1
        return Followed(
            followed_output=followed_output, losses=state.losses[: state.number].clone()
        )

    def snapshot(self, state: State) -> Before:
        return Before(
            number=state.number, followed_snapshot=self._followed().snapshot(state.followed)
        )

    def check(self, before: object, state: State, output: Followed) -> Iterator[Check]:
        assert isinstance(before, Before)  # noqa: S101 - what snapshot returned
        missing = abs(len(output.losses) - before.number - 1)
        yield Check(name="losses not recorded", error=missing, bound=0.0, kind="exact")
        yield _check_last(state, output)
        yield from self._followed().check(
            before.followed_snapshot, state.followed, output.followed_output
        )
        yield from self._check_curve(state, output)

    def _check_curve(self, state: State, output: Followed) -> Iterator[Check]:
        band, curve = self._band(), state.curve
        losses = on_host(output.losses).numpy()
        compared = bands.beside(losses, curve.losses, band.allowed)
        what = f"{self.workload} from seed {curve.seed}: {compared.sentence}"
        if band.still:
            what += f"; one that stands still leaves its band by {band.still:.2g} times"
        yield from bands.checks(compared, what)
        if len(losses) == band.num_steps and not band.still:
            yield _check_fall(losses, np.array(curve.losses))


_ANEW = "record it anew with scripts/record_bands.py"


def _other_parameters(workload: curves.AnyWorkload, band: bands.LossBand) -> list[str]:
    """Parameters that are not those of the band; one that is new since is at its default there."""
    defaults = {field.name: field.default for field in fields(workload)}
    recorded = {**defaults, **band.parameters}
    now = curves.parameters_of(workload)
    return sorted(name for name in recorded if name not in now or now[name] != recorded[name])


def _check_last(state: State, output: Followed) -> Check:
    """The curve's last loss is that of the step whose making is judged in float64."""
    last = curves.loss_of(output.followed_output)
    is_other = output.losses[-1].item() != last.to(output.losses.dtype).item()
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
