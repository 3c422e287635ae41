"""Dense matrix multiply: the compute ceiling that every other workload is read against.

One step is one product C = A @ B of normally distributed data. Two checks on the host in
float64 guard it: sampled rows are recomputed (a wrong precision, scale or operand shows
there), and every row is projected on a random sign vector (Freivalds 1977; one wrong
element anywhere shows there). Inputs are rounded to the dtype before the reference is
made, so only arithmetic is judged.

Both are held to the rounding that the dtype earns on average, not to its worst case: at
K = 8192 a worst-case bound lets float32 computed in bfloat16 pass. Storing in a 16-bit
dtype with unit roundoff u earns 0.42 u at any K, and 0.6 u is allowed; a float32 result
is limited by its accumulator, 2.5e-5 at K = 16384 where that truncates, and is allowed
1e-5 for each 4096 of K, where inputs cut to TF32 would give 2.9e-4. Small sizes keep the
full inner dimension, because the bound grows with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import torch

from appliance.records import Check, Work
from workloads.contract import Target, Turn, Workload
from workloads.parts.parameters import require_choice, require_positive
from workloads.parts.precision import on_host, unit_roundoff
from workloads.parts.products import FLOATS, product_work

STORED_ROUNDING = 0.6  # of the unit roundoff; 0.42 is earned
ACCUMULATED = {torch.float32: 1e-5, torch.float64: 1e-13}  # per 4096 of the inner dimension
PROJECTION = 6.0  # a projected row errs by a normal deviate of the row's rounding


@dataclass(kw_only=True)
class State:
    left: list[torch.Tensor]
    right: list[torch.Tensor]
    signs: torch.Tensor
    rows: torch.Tensor
    turn: Turn = field(default_factory=lambda: Turn(of=1))


@dataclass(frozen=True, kw_only=True)
class Gemm(Workload[State, torch.Tensor]):
    summary: ClassVar[str] = "Dense matrix multiply, C = A @ B, normally distributed data"
    version: ClassVar[int] = 1
    small: ClassVar[Mapping[str, bool | int | float | str]] = {"m": 256, "n": 256}
    data_pattern: ClassVar[str] = "standard normal numbers"

    m: int = 8192
    n: int = 8192
    k: int = 8192
    dtype: str = "bfloat16"
    num_inputs: int = 3
    num_checked_rows: int = 16

    def __post_init__(self) -> None:
        require_positive(self, "m", "n", "k", "num_inputs", "num_checked_rows")
        require_choice("dtype", self.dtype, FLOATS)

    def work(self) -> Work:
        return product_work(self.m, self.n, self.k, self.dtype)

    def build(self, target: Target, seed: int) -> State:
        rng = torch.Generator().manual_seed(seed)
        dtype = FLOATS[self.dtype]
        drawn = torch.promote_types(dtype, torch.float32)

        def normal(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, generator=rng, dtype=drawn).to(target.device, dtype)

        return State(
            left=[normal(self.m, self.k) for _ in range(self.num_inputs)],
            right=[normal(self.k, self.n) for _ in range(self.num_inputs)],
            signs=torch.randint(0, 2, (self.n,), generator=rng).double() * 2 - 1,
            rows=torch.randperm(self.m, generator=rng)[: self.num_checked_rows],
            turn=Turn(of=self.num_inputs),
        )

    def step(self, state: State) -> torch.Tensor:
        index = state.turn.advance()
        return state.left[index] @ state.right[index]

    def check(self, before: object, state: State, output: torch.Tensor) -> Iterator[Check]:
        del before
        left, right = on_host(state.left[state.turn.index]), on_host(state.right[state.turn.index])
        product = on_host(output)
        exact = left[state.rows] @ right
        yield Check(
            name="sampled rows against float64",
            error=((product[state.rows] - exact).norm() / exact.norm()).item(),
            bound=self._rounding,
            detects=self._rounding,
            detects_what=f"relative error over {len(state.rows)} of {self.m} rows",
        )
        residual = (product @ state.signs - left @ (right @ state.signs)).abs()
        error = (residual / product.norm(dim=1)).max().item()
        bound = PROJECTION * self._rounding
        yield Check(
            name="all rows, random projection",
            error=error,
            bound=bound,
            detects=(2 * bound) * self.n**0.5,
            detects_what="error of one element anywhere, over the mean size of its row's elements",
        )

    @property
    def _rounding(self) -> float:
        """Relative error that is allowed of a row; the module says where it is from."""
        dtype = FLOATS[self.dtype]
        if dtype in ACCUMULATED:
            return ACCUMULATED[dtype] * max(1.0, self.k / 4096)
        return STORED_ROUNDING * unit_roundoff(dtype)


WORKLOAD = Gemm
