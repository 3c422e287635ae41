"""Dense products C = A @ B in any number format: inputs, the two checks, and the work of one.

Operands are rounded to the format before the reference is made, so only arithmetic is judged.
Two checks on the host in float64 guard a product: sampled rows are recomputed (a wrong precision,
scale or operand shows there), and every row is projected on a random sign vector (Freivalds 1977;
one wrong element anywhere shows there). How far a row may be off is the format's own.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch

from appliance.records.journal import Check
from appliance.records.workload import Work
from workloads.contract.input_cycle import InputCycle
from workloads.contract.target import Target
from workloads.contract.workload import Workload
from workloads.parts.numerics.parameters import require_positive
from workloads.parts.numerics.precision import on_host

PROJECTION = 6.0  # a projected row errs by a normal deviate of the row's rounding


@dataclass(kw_only=True)
class Operands:
    """Input sets `left` [m, k] and `right` [k, n]; `signs` [n] and `rows` of the checks."""

    left: list[torch.Tensor]
    right: list[torch.Tensor]
    signs: torch.Tensor
    rows: torch.Tensor
    cycle: InputCycle


@dataclass(frozen=True, kw_only=True)
class DenseProduct(Workload[Operands, torch.Tensor]):
    """Base of the dense products: a format says how it draws, multiplies and rounds."""

    domain: ClassVar[str] = "operators"
    data_pattern: ClassVar[str] = "standard normal numbers"

    m: int = 8192
    n: int = 8192
    k: int = 8192
    num_inputs: int = 3
    num_checked_rows: int = 16

    def __post_init__(self) -> None:
        require_positive(self, "m", "n", "k", "num_inputs", "num_checked_rows")

    @abstractmethod
    def draw(self, rng: torch.Generator, shape: tuple[int, int]) -> torch.Tensor:
        """Values of one operand on the host, in the format."""

    @abstractmethod
    def multiply(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """The timed product [m, n] on the device."""

    @property
    @abstractmethod
    def rounding(self) -> float:
        """Error that is allowed of a row, relative to its norm."""

    def place(self, right: torch.Tensor, device: torch.device) -> torch.Tensor:
        """Put the right operand on the device, in the layout that the product wants."""
        return right.to(device)

    def product_work(self, precision: str, operand_bytes: int, result_bytes: int) -> Work:
        """Work of one product: each operand read and the result written once."""
        read = (self.m * self.k + self.k * self.n) * operand_bytes
        return Work(
            unit="products",
            flops=2 * self.m * self.n * self.k,
            bytes=read + self.m * self.n * result_bytes,
            precision=precision,
        )

    def build(self, target: Target, seed: int) -> Operands:
        rng = torch.Generator().manual_seed(seed)
        left = [self.draw(rng, (self.m, self.k)) for _ in range(self.num_inputs)]
        right = [self.draw(rng, (self.k, self.n)) for _ in range(self.num_inputs)]
        return Operands(
            left=[one.to(target.device) for one in left],
            right=[self.place(one, target.device) for one in right],
            signs=torch.randint(0, 2, (self.n,), generator=rng).double() * 2 - 1,
            rows=torch.randperm(self.m, generator=rng)[: self.num_checked_rows],
            cycle=InputCycle(of=self.num_inputs),
        )

    def step(self, state: Operands) -> torch.Tensor:
        index = state.cycle.advance()
        return self.multiply(state.left[index], state.right[index])

    def check(self, before: object, state: Operands, output: torch.Tensor) -> Iterator[Check]:
        del before
        left, right = (
            on_host(state.left[state.cycle.index]),
            on_host(state.right[state.cycle.index]),
        )
        product = on_host(output)
        exact = left[state.rows] @ right
        yield Check(
            name="sampled rows against float64",
            error=((product[state.rows] - exact).norm() / exact.norm()).item(),
            bound=self.rounding,
            detects=self.rounding,
            detects_what=f"relative error over {len(state.rows)} of {self.m} rows",
        )
        residual = (product @ state.signs - left @ (right @ state.signs)).abs()
        bound = PROJECTION * self.rounding
        yield Check(
            name="all rows, random projection",
            error=(residual / product.norm(dim=1)).max().item(),
            bound=bound,
            detects=(2 * bound) * self.n**0.5,
            detects_what="error of one element anywhere, over the mean size of its row's elements",
        )


def by_columns(right: torch.Tensor, device: torch.device) -> torch.Tensor:
    """The right operand [k, n] on the device, each of its columns in one piece of memory.

    Products of 8-bit numbers want it so: row by row the fast kernels are out of reach (of int8 on
    one H100, 129 of 1,979 TOP/s).
    """
    return right.t().contiguous().to(device).t()


def normal(rng: torch.Generator, shape: tuple[int, int], dtype: torch.dtype) -> torch.Tensor:
    """Standard normal numbers rounded to a format."""
    drawn = torch.promote_types(dtype, torch.float32)
    return torch.randn(*shape, generator=rng, dtype=drawn).to(dtype)
