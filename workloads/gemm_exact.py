"""Matrix multiply of integers: one right answer, the same bits on every vendor.

Inputs are integers so small that every partial sum, in any order, is an integer that the
accumulator holds exactly, and the result is rounded once, on storing. Whatever its tiles,
order or rounding mode, a correct device then gives the bits of the golden product, which
the host computes (in float64, where sums of integers below 2**53 are exact, so it equals
the product in 64-bit integers). The rule is 8 * sigma**2 * sqrt(K) <= 0.7 * 2**bits: eight
standard deviations of a sum stay inside 70 % of the accumulator; what breaks it is refused.

The first check counts the elements whose bits differ, the second compares a digest that
does not depend on order; its golden value is printed, and two devices of any make that ran
with the same seed can be compared by it. Both bounds are 0: one wrong bit anywhere shows.
The golden product of each input set is made once per run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch

from appliance.generator import maps
from appliance.generator.drawing import Drawn
from appliance.records.journal import Check
from appliance.records.json import Parameters
from appliance.records.workload import Work
from workloads.contract.failures import ParameterError
from workloads.contract.input_cycle import InputCycle
from workloads.contract.target import Artifacts, Target
from workloads.contract.workload import Workload
from workloads.parts.drawing.drawn import Draws, on_host
from workloads.parts.matmul.products import FLOATS, accumulator_bits, product_work
from workloads.parts.numerics.bits import bits, num_differing, weighted_digest
from workloads.parts.numerics.parameters import require_choice, require_positive
from workloads.parts.numerics.precision import unit_roundoff

DEVIATIONS = 8  # standard deviations of a partial sum that must fit
SHARE = 0.7  # of the accumulator, or of the largest number that the output can hold


@dataclass(kw_only=True)
class State:
    left: list[torch.Tensor]
    right: list[torch.Tensor]
    drawn: list[tuple[Drawn, Drawn]]
    cycle: InputCycle
    seed: int
    artifacts: Artifacts


@dataclass(frozen=True, kw_only=True)
class GemmExact(Workload[State, torch.Tensor]):
    """`magnitude`: entries are uniform over the integers from -magnitude to magnitude."""

    summary: ClassVar[str] = "Matrix multiply of integers, bit-equal on every vendor"
    version: ClassVar[int] = 2
    domain: ClassVar[str] = "operators"
    checks_later: ClassVar[bool] = True
    small: ClassVar[Parameters] = {"m": 256, "n": 256}
    data_pattern: ClassVar[str] = "integers"

    m: int = 8192
    n: int = 8192
    k: int = 4096
    dtype: str = "bfloat16"
    magnitude: int = 255
    num_inputs: int = 3

    def __post_init__(self) -> None:
        require_positive(self, "m", "n", "k", "magnitude", "num_inputs")
        require_choice("dtype", self.dtype, FLOATS)
        dtype = FLOATS[self.dtype]
        if self.magnitude > 1 / unit_roundoff(dtype):
            limit = int(1 / unit_roundoff(dtype))
            raise ParameterError(
                f"magnitude is {self.magnitude}: {self.dtype} holds every integer to {limit} only"
            )
        largest = min(2.0 ** accumulator_bits(dtype), torch.finfo(dtype).max)
        variance = self.magnitude * (self.magnitude + 1) / 3
        if DEVIATIONS * variance * self.k**0.5 > SHARE * largest:
            raise ParameterError(
                f"magnitude {self.magnitude} at k {self.k} may leave {self.dtype} inexact: "
                "lower magnitude or k"
            )

    def work(self) -> Work:
        return product_work(self.m, self.n, self.k, self.dtype)

    def build(self, target: Target, seed: int) -> State:
        draws = Draws(target=target, seed=seed)
        drawn = [self._described(draws, number) for number in range(self.num_inputs)]
        draws.expect_drawn(one for pair in drawn for one in pair)
        return State(
            left=[draws.of(one) for one, _ in drawn],
            right=[draws.of(one) for _, one in drawn],
            drawn=drawn,
            cycle=InputCycle(of=self.num_inputs),
            seed=seed,
            artifacts=target.artifacts,
        )

    def _described(self, draws: Draws, number: int) -> tuple[Drawn, Drawn]:
        """The operands of one input set."""
        entries = maps.integers(-self.magnitude, self.magnitude)
        dtype = FLOATS[self.dtype]
        left = draws.described(f"left {number}", entries, dtype, (self.m, self.k))
        return left, draws.described(f"right {number}", entries, dtype, (self.k, self.n))

    def step(self, state: State) -> torch.Tensor:
        index = state.cycle.advance()
        return state.left[index] @ state.right[index]

    def check(self, before: object, state: State, output: torch.Tensor) -> Iterator[Check]:
        del before
        golden = self._golden(state)
        yield Check(
            name="elements that differ from the exact product",
            error=num_differing(output, golden),
            bound=0,
            kind="exact",
            detects=1,
            detects_what=f"wrong elements among {golden.numel()}",
        )
        digest = weighted_digest(golden, state.seed)
        yield Check(
            name="digest of all bits",
            error=float(weighted_digest(output, state.seed) != digest),
            bound=0,
            kind="exact",
            detects=1,
            detects_what=f"wrong elements; golden digest {digest:016x}, set {state.cycle.index}",
        )

    def _golden(self, state: State) -> torch.Tensor:
        """The exact product of the last step's input set as drawn, rounded once to the dtype."""
        index = state.cycle.index

        def make(path: Path) -> None:
            left, right = (on_host(one).double() for one in state.drawn[index])
            exact = left @ right
            np.save(path, bits(exact.to(FLOATS[self.dtype])).numpy())

        words = np.load(state.artifacts.once(f"golden-{index}.npy", make))
        return torch.from_numpy(words).view(FLOATS[self.dtype])


WORKLOAD = GemmExact
