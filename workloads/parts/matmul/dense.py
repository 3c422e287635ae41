"""Dense products C = A @ B in any number format: inputs, the two checks, and the work of one.

Operands are drawn in the format on the device, so only arithmetic is judged. Two checks on the host
in float64 guard a product: sampled rows are recomputed (a wrong precision, scale or operand shows
there), and every row is projected on a random sign vector (Freivalds 1977; one wrong element
anywhere shows there). The host draws both operands again, a few rows at a time, and reads nothing
of them from the device: a product of other inputs than were drawn is a wrong product. What the
first input set must give is made once per run, as all launches have the seed. How far a row may be
off is the format's own.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch

from appliance.generator import maps
from appliance.generator.drawing import WORTH_A_THREAD, Drawn
from appliance.generator.formats import num_bytes
from appliance.generator.maps import Map
from appliance.records.journal import Check
from appliance.records.workload import Work
from workloads.contract.input_cycle import InputCycle
from workloads.contract.target import Artifacts, Target
from workloads.contract.workload import Workload
from workloads.parts.drawing.drawn import (
    Draws,
    described,
    on_host,
    permutation,
    rows_on_host,
)
from workloads.parts.numerics.parameters import require_positive
from workloads.parts.numerics.precision import on_host as in_float64

REFERENCE = "first_product_float64.npy"
PROJECTION = 6.0  # a projected row errs by a normal deviate of the row's rounding
PIECE = 2**21  # elements of an operand that the host's threads draw at once, 16 MiB in float64


@dataclass(kw_only=True)
class Operands:
    """Input sets `left` [m, k] and `right` [k, n]; `signs` [n] and `rows` of the checks.

    `drawn` is what the host draws again: of each set the left operand [m, k], and the right one as
    it lies in memory, [k, n] or by columns [n, k].
    """

    left: list[torch.Tensor]
    right: list[torch.Tensor]
    drawn: list[tuple[Drawn, Drawn]]
    signs: torch.Tensor
    rows: torch.Tensor
    cycle: InputCycle
    artifacts: Artifacts


@dataclass(frozen=True, kw_only=True)
class References:
    """In float64: `rows` [sampled, n] of the exact product, `projected` [m] of all its rows."""

    rows: torch.Tensor
    projected: torch.Tensor


@dataclass(frozen=True, kw_only=True)
class Given:
    """The same of a product as a device gave it, and the `norms` [m] of its rows."""

    rows: torch.Tensor
    projected: torch.Tensor
    norms: torch.Tensor


@dataclass(frozen=True, kw_only=True)
class DenseProduct(Workload[Operands, torch.Tensor]):
    """Base of the dense products: a format says what it draws, how it multiplies and rounds.

    `by_columns`: each column of the right operand lies in one piece of memory. Products of 8-bit
    numbers want it so: row by row the fast kernels are out of reach (of int8 on one H100, 129 of
    1,979 TOP/s).
    """

    by_columns: ClassVar[bool] = False
    values: ClassVar[Map] = maps.NORMAL
    checks_later: ClassVar[bool] = True
    domain: ClassVar[str] = "operators"
    data_pattern: ClassVar[str] = "standard normal numbers"

    m: int = 8192
    n: int = 8192
    k: int = 8192
    num_inputs: int = 3
    num_checked_rows: int = 16

    def __post_init__(self) -> None:
        require_positive(self, "m", "n", "k", "num_inputs", "num_checked_rows")

    @property
    @abstractmethod
    def format(self) -> torch.dtype:
        """Number format of the operands."""

    @abstractmethod
    def multiply(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """The timed product [m, n] on the device."""

    @property
    @abstractmethod
    def rounding(self) -> float:
        """Error that is allowed of a row, relative to its norm."""

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
        draws = Draws(target=target, seed=seed)
        drawn = [self._described(draws, number) for number in range(self.num_inputs)]
        draws.expect_drawn(one for pair in drawn for one in pair)
        right = [draws.of(one) for _, one in drawn]
        signs = described(seed, "signs", maps.integers(0, 1), torch.float64, (self.n,))
        return Operands(
            left=[draws.of(one) for one, _ in drawn],
            right=[one.t() for one in right] if self.by_columns else right,
            drawn=drawn,
            signs=on_host(signs) * 2 - 1,
            rows=permutation(seed, "rows", self.m)[: self.num_checked_rows],
            cycle=InputCycle(of=self.num_inputs),
            artifacts=target.artifacts,
        )

    def _described(self, draws: Draws, number: int) -> tuple[Drawn, Drawn]:
        """The operands of one input set."""
        right = (self.n, self.k) if self.by_columns else (self.k, self.n)
        left = draws.described(f"left {number}", self.values, self.format, (self.m, self.k))
        return left, draws.described(f"right {number}", self.values, self.format, right)

    def step(self, state: Operands) -> torch.Tensor:
        index = state.cycle.advance()
        return self.multiply(state.left[index], state.right[index])

    def check(self, before: object, state: Operands, output: torch.Tensor) -> Iterator[Check]:
        del before
        yield from self.judge(given(output, state), self.references(state), state)

    def references(self, state: Operands) -> References:
        """What the last step's product must be; of the first input set it is made once per run."""
        if state.cycle.index:
            return self._computed(state)

        def make(path: Path) -> None:
            made = self._computed(state)
            np.save(path, torch.cat((made.rows.flatten(), made.projected)).numpy())

        numbers = torch.from_numpy(np.load(state.artifacts.once(REFERENCE, make)))
        rows = numbers[: -self.m].view(len(state.rows), self.n)
        return References(rows=rows, projected=numbers[-self.m :])

    def _computed(self, state: Operands) -> References:
        """In float64, of operands that the host draws."""
        left, right = state.drawn[state.cycle.index]
        chosen = torch.cat([rows_in_float64(left, int(row), 1) for row in state.rows])
        rows = torch.zeros(len(chosen), self.n, dtype=torch.float64)
        signed = torch.zeros(self.k, dtype=torch.float64)
        for part, piece in pieces(right):
            if self.by_columns:
                rows[:, part] = chosen @ piece.t()
                signed += state.signs[part] @ piece
            else:
                rows += chosen[:, part] @ piece
                signed[part] = piece @ state.signs
        projected = torch.cat([piece @ signed for _, piece in pieces(left)])
        return References(rows=rows, projected=projected)

    def judge(self, product: Given, exact: References, state: Operands) -> Iterator[Check]:
        """Checks of a product, in float64 on the host."""
        yield Check(
            name="sampled rows against float64",
            error=((product.rows - exact.rows).norm() / exact.rows.norm()).item(),
            bound=self.rounding,
            detects=self.rounding,
            detects_what=f"relative error over {len(state.rows)} of {self.m} rows",
        )
        residual = (product.projected - exact.projected).abs()
        bound = PROJECTION * self.rounding
        yield Check(
            name="all rows, random projection",
            error=(residual / product.norms).max().item(),
            bound=bound,
            detects=(2 * bound) * self.n**0.5,
            detects_what="error of one element anywhere, over the mean size of its row's elements",
        )


def given(output: torch.Tensor, state: Operands) -> Given:
    """What the checks read of a product [m, n], which they take from the device by a few rows."""
    projected, norms = [], []
    wide = _wide(*output.shape)
    narrow = torch.empty(wide.shape, dtype=output.dtype)
    for part in _parts(*output.shape):
        count = part.stop - part.start
        arrived = narrow[:count].copy_(output[part].detach())
        piece = wide[:count].copy_(arrived)
        projected.append(piece @ state.signs)
        norms.append(piece.norm(dim=1))
    return Given(
        rows=in_float64(output[state.rows.to(output.device)]),
        projected=torch.cat(projected),
        norms=torch.cat(norms),
    )


def pieces(drawn: Drawn) -> Iterator[tuple[slice, torch.Tensor]]:
    """The rows of a matrix in float64 on the host, a few at a time, and which they are.

    A piece is valid until the next one: all lie in the same memory.
    """
    height, width = drawn.shape
    wide = _wide(height, width)
    memory = np.empty(wide.numel(), f"u{num_bytes(drawn.dtype)}")
    for part in _parts(height, width):
        count = part.stop - part.start
        yield part, wide[:count].copy_(rows_on_host(drawn, part.start, count, memory))


def _parts(height: int, width: int) -> Iterator[slice]:
    """So many rows at a time as keep all threads busy."""
    count = _at_once(width)
    return (slice(first, min(first + count, height)) for first in range(0, height, count))


def _wide(height: int, width: int) -> torch.Tensor:
    """Memory for one of the parts in float64, which stays.

    A host maps every page of memory that it gives out anew, which may take longer than what is
    computed (of an H100's host 0.4 s for 512 MiB; docs/reference/device-budget.md).
    """
    return torch.empty(min(_at_once(width), height), width, dtype=torch.float64)


def _at_once(width: int) -> int:
    return max(1, max(PIECE, WORTH_A_THREAD * torch.get_num_threads()) // width)


def rows_in_float64(drawn: Drawn, first: int, count: int) -> torch.Tensor:
    """Rows (count, columns) of a matrix in float64, drawn by the host."""
    return rows_on_host(drawn, first, count).double()
