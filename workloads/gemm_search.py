"""Dense matrix multiply in the shape that suits the device best, searched among a stated list.

What a device reaches at one fixed shape is no ceiling: another aspect may run faster. So the
untimed launch times every shape of `SHAPES` and keeps the fastest; the timed launches run that
one, and its rate is the most that this device was seen to reach. It stands apart from the fixed
shapes of `gemm` and is no ground for a limit: it is the best of many.

All shapes make the same number of operations, so the rate follows from the time alone. A step is
one product as in `gemm`, held to the same two checks: one wrong element, a lower precision, an old
result or another operand would show. A third says which shape ran, and that the result has it.
Two devices may choose different shapes, so their bits are not compared with each other. On two CPU
cores two builds of one shape gave the same bits; `spread` allows one rounding of bfloat16, the
coarsest format, because a library may choose its kernel anew.

The search over shapes follows the finder of the maximum achievable matmul FLOPS in S. Bekman,
"Machine Learning Engineering Open Book", 2024.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

import torch

from appliance.generator import maps
from appliance.records.journal import Check
from appliance.records.json import Parameters
from appliance.records.workload import Work
from workloads.contract.failures import ParameterError
from workloads.contract.input_cycle import InputCycle
from workloads.contract.target import Target
from workloads.contract.workload import Workload
from workloads.parts.drawing.drawn import described, on_device
from workloads.parts.matmul.dense import Operands
from workloads.parts.matmul.floating import FloatingProduct
from workloads.parts.matmul.products import FLOATS
from workloads.parts.numerics.parameters import require_choice, require_positive

Shape = tuple[int, int, int]

SHAPES: tuple[Shape, ...] = (
    (8192, 7680, 8192),
    (7680, 8192, 8192),
    (10240, 6144, 8192),
    (6144, 10240, 8192),
    (15360, 4096, 8192),
    (4096, 15360, 8192),
    (10240, 12288, 4096),
    (12288, 10240, 4096),
    (15360, 8192, 4096),
    (8192, 15360, 4096),
    (20480, 6144, 4096),
    (16384, 15360, 2048),
    (20480, 12288, 2048),
    (6144, 5120, 16384),
    (5120, 6144, 16384),
    (4096, 7680, 16384),
)
"""m, n, k of products that all make 2 * 15 * 2**35 operations (1.03e12)."""
NAME = "shape.json"


@dataclass(kw_only=True)
class State:
    product: FloatingProduct
    operands: Operands

    @property
    def cycle(self) -> InputCycle:
        """Of the operands: a launch asks when those of its first step come again."""
        return self.operands.cycle


@dataclass(frozen=True, kw_only=True)
class GemmSearch(Workload[State, torch.Tensor]):
    """`dtype`: of the product; `divisor`: m and n of each shape are divided by it, k is not."""

    summary: ClassVar[str] = "Dense matrix multiply in the fastest of 16 shapes, found before"
    version: ClassVar[int] = 2
    domain: ClassVar[str] = "operators"
    small: ClassVar[Parameters] = {"divisor": 64}
    is_repeatable: ClassVar[bool] = False
    spread: ClassVar[float] = 2**-8
    checks_later: ClassVar[bool] = True
    data_pattern: ClassVar[str] = "standard normal numbers"

    dtype: str = "bfloat16"
    divisor: int = 1
    num_inputs: int = 3

    def __post_init__(self) -> None:
        require_positive(self, "divisor", "num_inputs")
        require_choice("dtype", self.dtype, FLOATS)
        if any(m % self.divisor or n % self.divisor for m, n, _ in SHAPES):
            raise ParameterError(f"divisor is {self.divisor}: give a power of two up to 512")

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """The list at this size."""
        return tuple((m // self.divisor, n // self.divisor, k) for m, n, k in SHAPES)

    def work(self) -> Work:
        m, n, k = self.shapes[0]
        return Work(unit="products", flops=2 * m * n * k, precision=self.dtype)

    def build(self, target: Target, seed: int) -> State:
        path = target.artifacts.once(NAME, partial(self._search, target, seed))
        m, n, k = json.loads(path.read_text())["shape"]
        product = self._product((m, n, k))
        return State(product=product, operands=product.build(target, seed))

    def _product(self, shape: Shape) -> FloatingProduct:
        m, n, k = shape
        return FloatingProduct(dtype=self.dtype, m=m, n=n, k=k, num_inputs=self.num_inputs)

    def _search(self, target: Target, seed: int, path: Path) -> None:
        """Write the fastest shape, and what each of them took; the first without a clock."""
        times = {} if target.seconds is None else self._times(target, seed)
        fastest = min(times, key=lambda shape: times[shape]) if times else self.shapes[0]
        timings = [{"shape": shape, "seconds": seconds} for shape, seconds in times.items()]
        path.write_text(json.dumps({"shape": fastest, "searched": timings}))

    def _times(self, target: Target, seed: int) -> dict[Shape, float]:
        """Seconds of one product of each shape, on operands cut from one row of numbers."""
        assert target.seconds is not None  # noqa: S101 - `_search` asked
        most = max(max(m * k, k * n) for m, n, k in self.shapes)
        searched = described(seed, "searched", maps.NORMAL, FLOATS[self.dtype], (most,))
        numbers = on_device(searched, target.device)
        seconds = {}
        for m, n, k in self.shapes:
            left, right = numbers[: m * k].view(m, k), numbers[: k * n].view(k, n)
            seconds[m, n, k] = target.seconds(partial(torch.matmul, left, right))
        return seconds

    def step(self, state: State) -> torch.Tensor:
        return state.product.step(state.operands)

    def check(self, before: object, state: State, output: torch.Tensor) -> Iterator[Check]:
        product = state.product
        shape = (product.m, product.n, product.k)
        is_right = shape in self.shapes and tuple(output.shape) == shape[:2]
        yield Check(
            name=f"shape {product.m} x {product.n} x {product.k} is of the list",
            error=0 if is_right else 1,
            bound=0,
            kind="exact",
        )
        if is_right:
            yield from product.check(before, state.operands, output)


WORKLOAD = GemmSearch
